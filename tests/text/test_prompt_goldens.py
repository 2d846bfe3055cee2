"""Recorded prompts: template, ids, expanded placeholders, decoded answers, and equality with transformers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from ouzel.text.messages import normalise
from ouzel.text.prompt import PromptEncoder, RenderedPrompt
from ouzel.text.stream import StreamDecoder
from ouzel.text.template import ChatTemplate

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"
FAMILIES = ("qwen3", "qwen3_vl")
TEMPLATES = [
    (family, case)
    for family in FAMILIES
    for case in json.loads((FIXTURES / family / "golden/template_cases.json").read_text(encoding="utf-8"))["cases"]
]
GOLDENS = sorted(
    path
    for family in FAMILIES
    for path in (FIXTURES / family).glob("golden*/*.json")
    if path.with_suffix(".safetensors").is_file()
)
# Cases whose messages hold control strings: only "obey" gives the recorded ids.
WITH_CONTROL_TEXT = {"special_text_in_user", "user_tool_response_text"}


@pytest.mark.parametrize("mode", ["obey", "shield"])
@pytest.mark.parametrize(("family", "case"), TEMPLATES, ids=[f"{family}-{case['name']}" for family, case in TEMPLATES])
def test_templates_give_the_recorded_text_and_ids(
    encoders: dict[str, PromptEncoder], family: str, case: dict[str, Any], mode: Any
) -> None:
    encoder = encoders[family]
    rendered = encoder.render(normalise(case["messages"]), control_text=mode, **case["kwargs"])
    assert rendered.text == case["prompt"]
    shielded = mode == "shield" and case["name"] in WITH_CONTROL_TEXT
    assert bool(rendered.spans) == shielded
    assert (encoder.encode(rendered) == case["ids"]) != shielded


def expand_as_recorded(rendered: RenderedPrompt, case: dict[str, Any]) -> RenderedPrompt:
    """Fills the placeholders with what the recorded prompt has in their places.

    That is the work of a family's processor; here the recorded text says what each picture became.
    """
    wanted = case.get("expanded_prompt", case["prompt"])
    whole_triple = case.get("video", {}).get("layout") != "5.23"
    triple = r"<\|vision_start\|>(?:<\|image_pad\|>|<\|video_pad\|>)<\|vision_end\|>"
    pattern = re.compile(triple if whole_triple else r"<\|(?:image|video)_pad\|>")
    between = pattern.split(rendered.text)
    # Group by group: `.+?` may span several timestamped frames, the literal text around keeps it in place.
    found = re.fullmatch("(.+?)".join(map(re.escape, between)), wanted, re.DOTALL)
    assert found is not None
    return rendered.replace_placeholders(pattern, found.groups())


@pytest.mark.parametrize("mode", ["obey", "shield"])
@pytest.mark.parametrize("path", GOLDENS, ids=[f"{path.parents[1].name}-{path.stem}" for path in GOLDENS])
def test_goldens_give_the_recorded_ids_and_answers(encoders: dict[str, PromptEncoder], path: Path, mode: Any) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    tensors = load_file(path.with_suffix(".safetensors"))
    encoder = encoders[case["family"]]
    rendered = encoder.render(normalise(case["messages"]), control_text=mode, **case.get("template_kwargs", {}))
    assert rendered.text == case["prompt"]
    expanded = expand_as_recorded(rendered, case)
    assert expanded.text == case.get("expanded_prompt", case["prompt"])
    assert encoder.encode(expanded) == tensors["input_ids"].ravel().tolist()
    assert encoder.encode(rendered, lambda prompt: expand_as_recorded(prompt, case)) == encoder.encode(expanded)


@pytest.mark.parametrize("path", GOLDENS, ids=[f"{path.parents[1].name}-{path.stem}" for path in GOLDENS])
def test_answers_decode_to_the_recorded_text(encoders: dict[str, PromptEncoder], path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    ids = load_file(path.with_suffix(".safetensors"))["generated_ids"].ravel().tolist()
    tokenizer = encoders[case["family"]].tokenizer
    assert tokenizer.decode(ids, skip_special_tokens=False) == case["text"]
    stream = StreamDecoder(tokenizer, skip_special_tokens=False)
    assert "".join(map(stream.push, ids)) + stream.finish() == case["text"]


REFERENCE_TEMPLATES = {
    "tojson": "{{ messages | tojson }}{{ tools | tojson(indent=2) }}{{ messages | tojson(sort_keys=true) }}",
    "loop controls": "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m.role }};{% endfor %}",
    "blocks": "  {% if true %}\n    {{ messages[0].content }}\n  {% endif %}\n\n{# note #}\nend\n",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% set x = 1 %}{% endgeneration %}{% endfor %}.",
    "tokens": "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ add_generation_prompt }}|{{ documents is none }}",
    "html": "{{ messages[0].content }}{{ messages[0].content | tojson }}{{ messages[0].content | e }}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "undefined": "{{ nothing }}{{ messages[0].nothing }}{% if nothing is defined %}x{% endif %}",
}


@pytest.mark.parametrize("name", REFERENCE_TEMPLATES)
def test_rendering_equals_transformers(name: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    source = REFERENCE_TEMPLATES[name]
    messages = [
        {"role": "system", "content": 'a <b> & "c" \'d\' é 北 \u2028 \x7f'},
        {"role": "user", "content": "  two\n"},
        {"role": "assistant", "content": "x", "tool_calls": [{"z": 1, "a": [1.5, None, True]}]},
    ]
    tools = [{"type": "function", "function": {"name": "f", "description": "ü"}}]
    named = {"bos_token": "<s>", "eos_token": "</s>"}
    wanted = render_jinja_template([messages], tools=tools, chat_template=source, add_generation_prompt=True, **named)[0][0]
    assert ChatTemplate(source, named).render(messages, tools=tools, add_generation_prompt=True) == wanted


@pytest.mark.parametrize("family", FAMILIES)
def test_random_conversations_equal_transformers(encoders: dict[str, PromptEncoder], family: str) -> None:
    import random

    from transformers.utils.chat_template_utils import render_jinja_template

    encoder = encoders[family]
    assert encoder.template is not None
    numbers = random.Random(11)
    pieces = ["Hi", " ", "\n", "<think>\n", "</think>", "é", "<tool_response>", "{", "北京", "\n\n", "<|im_end|>"]
    for _ in range(200):
        messages: list[dict[str, Any]] = []
        for _ in range(numbers.randint(1, 6)):
            role = numbers.choice(["system", "user", "assistant", "tool"])
            messages.append({"role": role, "content": "".join(numbers.choices(pieces, k=numbers.randint(0, 6)))})
        flags = {"add_generation_prompt": numbers.random() < 0.5, "enable_thinking": numbers.random() < 0.5}
        wanted = render_jinja_template([messages], chat_template=encoder.template.source, **flags)[0][0]
        assert encoder.render(normalise(messages), control_text="obey", **flags).text == wanted
