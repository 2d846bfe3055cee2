"""Chat templates: where they are found, errors, content forms, thinking."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ouzel.errors import CheckpointError, PromptError, UnsupportedError
from ouzel.text.messages import normalise
from ouzel.text.prompt import PromptEncoder
from ouzel.text.template import ChatTemplate, opens_thinking
from ouzel.text.template_files import load_template
from ouzel.text.tokenizer import Tokenizer

USER = [{"role": "user", "content": "Hi"}]


def write(folder: Path, **files: Any) -> None:
    names = {"jinja": "chat_template.jinja", "json": "chat_template.json", "config": "tokenizer_config.json"}
    names |= {"processor": "processor_config.json", "pre": "preprocessor_config.json", "special": "special_tokens_map.json"}
    for key, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / names[key]).write_text(text, encoding="utf-8")


PLACES: dict[str, tuple[dict[str, Any], str | None]] = {
    "nowhere": ({"config": {}}, None),
    "jinja": ({"jinja": "J"}, "J"),
    "json": ({"json": {"chat_template": "S"}}, "S"),
    "config": ({"config": {"chat_template": "C"}}, "C"),
    "config null": ({"config": {"chat_template": None}}, None),
    "jinja before config": ({"jinja": "J", "config": {"chat_template": "C"}}, "J"),
    "text: jinja before json": ({"jinja": "J", "json": {"chat_template": "S"}}, "J"),
    "pictures: json before jinja": ({"pre": {}, "jinja": "J", "json": {"chat_template": "S"}}, "S"),
    "pictures: jinja": ({"pre": {}, "jinja": "J", "config": {"chat_template": "C"}}, "J"),
    "pictures: config": ({"pre": {}, "config": {"chat_template": "C"}}, "C"),
    "processor first": ({"processor": {"chat_template": "P"}, "json": {"chat_template": "S"}}, "P"),
    "processor without": ({"processor": {"x": 1}, "json": {"chat_template": "S"}}, "S"),
    "named": ({"config": {"chat_template": [{"name": "x", "template": "X"}, {"name": "default", "template": "D"}]}}, "D"),
    "dictionary": ({"json": {"chat_template": {"default": "D", "x": "X"}}}, "D"),
}


@pytest.mark.parametrize("name", PLACES)
def test_the_places_of_a_template(name: str, tmp_path: Path) -> None:
    files, wanted = PLACES[name]
    write(tmp_path, **files)
    template = load_template(tmp_path)
    assert (template and template.source) == wanted


def test_additional_templates_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "default.jinja").write_text("A", encoding="utf-8")
    assert load_template(tmp_path) is None


def test_a_template_for_tools_is_used_with_tools(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T{{ tools | length }}"}]
    write(tmp_path, config={"chat_template": named})
    template = load_template(tmp_path)
    assert template is not None
    assert template.render(USER) == "D"
    assert template.render(USER, tools=[]) == "D"
    assert template.render(USER, tools=[{"a": 1}]) == "T1"


BAD_FILES: dict[str, tuple[dict[str, Any], str]] = {
    "json damaged": ({"json": "{"}, "chat_template.json"),
    "json without the key": ({"json": {"template": "x"}}, "chat_template.json"),
    "a number": ({"config": {"chat_template": 5}}, "tokenizer_config.json"),
    "no default": ({"config": {"chat_template": [{"name": "a", "template": "A"}]}}, "tokenizer_config.json"),
    "syntax": ({"jinja": "{% if %}"}, "chat_template.jinja"),
    "unclosed": ({"jinja": "\n\n{% for m in messages %}"}, "chat_template.jinja"),
    "unknown tag": ({"jinja": "{% include 'x' %}{% nothing %}"}, "chat_template.jinja"),
    "huge": ({"jinja": "x" * (2 << 20)}, "chat_template.jinja"),
    "deep": ({"jinja": "{{ " + "(" * 5000 + ")" * 5000 + " }}"}, "chat_template.jinja"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_damaged_template_file_is_one_line(name: str, tmp_path: Path) -> None:
    files, file = BAD_FILES[name]
    write(tmp_path, **files)
    with pytest.raises(CheckpointError) as caught:
        load_template(tmp_path)
    assert file in str(caught.value) and "\n" not in str(caught.value)


def test_line_ends_of_windows_do_not_change_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xef\xbb\xbfa\r\nb{{ messages[0].role }}\r\n")
    template = load_template(tmp_path)
    assert template is not None and template.render(USER) == "a\nbuser"


def test_special_tokens_come_from_both_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        jinja="{{ bos_token }}/{{ eos_token }}/{{ pad_token }}/{{ unk_token }}",
        special={"bos_token": {"content": "<s>"}, "eos_token": "</old>", "unk_token": "<unk>"},
        config={"eos_token": {"content": "</s>"}, "pad_token": None, "unk_token": None},
    )
    template = load_template(tmp_path)
    assert template is not None and template.render(USER) == "<s>/</s>//"


FAILURES = {
    "raised": ("{{ raise_exception('roles must\nalternate') }}", "roles must alternate"),
    "undefined": ("{{ messages[0].nothing.deeper }}", "nothing"),
    "type": ("{{ messages[0].content + 1 }}", "str"),
    "division": ("{{ 1 / 0 }}", "division"),
    "long string": ("{{ 'a' * 100000000000 }}", "refused"),
    "power": ("{{ 10 ** 100000 }}", "refused"),
    "range": ("{% for i in range(10 ** 9) %}{% endfor %}", "."),
    "underscore": ("{{ messages.__class__.__mro__ }}", "unsafe"),
    "sandbox escape": ("{{ (messages | attr('__class__')).__base__ }}", "."),
    "change of the messages": ("{{ messages.append(1) }}", "unsafe"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    "missing file": ("{% include 'x' %}", "."),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_template_is_an_error_of_the_prompt(name: str) -> None:
    source, words = FAILURES[name]
    with pytest.raises(PromptError, match=words) as caught:
        ChatTemplate(source).render(USER)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_templates_see_no_objects() -> None:
    with pytest.raises(UnsupportedError, match="object"):
        ChatTemplate("{{ x }}").render(USER, x=object())


def test_the_date_is_available() -> None:
    assert ChatTemplate("{{ strftime_now('%Y') }}").render(USER).isdigit()


def test_content_forms_of_the_families(encoders: dict[str, PromptEncoder]) -> None:
    forms = {family: (e.template.takes_strings, e.template.takes_parts) for family, e in encoders.items() if e.template}
    assert forms == {"qwen3": (True, False), "qwen3_vl": (True, True)}


def test_parts_of_text_become_a_string_for_templates_of_text_models(encoders: dict[str, PromptEncoder]) -> None:
    encoder = encoders["qwen3"]
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    plain = [{"role": "user", "content": "Hello"}]
    assert encoder.render(normalise(parts)).text == encoder.render(normalise(plain)).text


def test_pictures_are_refused_by_templates_of_text_models(encoders: dict[str, PromptEncoder]) -> None:
    messages = normalise([{"role": "user", "content": [{"type": "image", "image": "a.png"}]}])
    with pytest.raises(PromptError, match="text only"):
        encoders["qwen3"].render(messages)


def test_strings_become_parts_for_templates_that_read_parts_only(tiny: Tokenizer) -> None:
    source = "{% for p in messages[0].content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}"
    encoder = PromptEncoder(tiny, ChatTemplate(source))
    assert encoder.render(normalise(USER)).text == "Hi"


def test_tools_are_refused_by_templates_that_would_drop_them(tiny: Tokenizer) -> None:
    encoder = PromptEncoder(tiny, ChatTemplate("{{ messages[0].content }}{% if think %}{% endif %}"))
    assert encoder.template is not None and encoder.template.variables == {"messages", "think"}
    assert encoder.render(normalise(USER), tools=[]).text == "Hi"
    with pytest.raises(PromptError, match="tools"):
        encoder.render(normalise(USER), tools=[{"type": "function"}])


def test_no_template_is_an_error_that_says_what_to_do(tiny: Tokenizer) -> None:
    with pytest.raises(PromptError, match="raw text"):
        PromptEncoder(tiny, None).render(normalise(USER))


THINKING = [
    ("<|im_start|>assistant\n", False), ("<|im_start|>assistant\n<think>\n", True), ("<think>\n\n</think>\n\n", False),
    ("<think>a</think>b<think>", True), ("<think>so far", True), ("<think>left open<|im_end|>\n<|im_start|>assistant\n", False),
    ("", False), ("</think>", False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), THINKING)
def test_open_thinking_blocks(text: str, wanted: bool) -> None:
    assert opens_thinking(text, stops=("<|im_end|>",)) == wanted


def test_thinking_is_looked_for_in_the_templates_text_only(tiny: Tokenizer) -> None:
    encoder = PromptEncoder(tiny, ChatTemplate("<|im_start|>{{ messages[0].content }}{{ tail }}"))
    typed = normalise([{"role": "user", "content": "what is <think>?"}])
    assert not encoder.opens_thinking(encoder.render(typed))
    assert encoder.opens_thinking(encoder.render(typed, control_text="obey"))
    forced = PromptEncoder(tiny, ChatTemplate("{{ messages[0].content }}<|im_end|>assistant\n<think>\n"))
    assert forced.opens_thinking(forced.render(typed))


def test_enable_thinking_of_the_family(encoders: dict[str, PromptEncoder]) -> None:
    encoder = encoders["qwen3"]
    off = encoder.render(normalise(USER), enable_thinking=False)
    assert off.text.endswith("<think>\n\n</think>\n\n") and not encoder.opens_thinking(off)


def test_the_template_of_a_copied_checkpoint_is_the_same_in_all_places(tmp_path: Path) -> None:
    """One template, moved through its three places, renders the same prompt."""
    source = Path(__file__).parents[1] / "data" / "fixtures" / "qwen3_vl" / "tiny"
    shutil.copy(source / "preprocessor_config.json", tmp_path)
    config = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    text = config.pop("chat_template")
    prompts = []
    for files in ({"jinja": text}, {"json": {"chat_template": text}}, {"config": {**config, "chat_template": text}}):
        folder = tmp_path / str(len(prompts))
        folder.mkdir()
        write(folder, **files)
        template = load_template(folder)
        assert template is not None
        prompts.append(template.render(USER))
    assert len(set(prompts)) == 1 and "Hi" in prompts[0]
