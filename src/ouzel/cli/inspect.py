"""`ouzel inspect`: a checkpoint's configuration, tensors, memory, tokens and picture settings."""

from __future__ import annotations

import re
from typing import Annotated, Any, Optional

import typer

from ouzel.cli import console
from ouzel.cli.failure import guard
from ouzel.cli.loading import hide_download_bars, may_download
from ouzel.cli.options import (
    FORMAT_NAMES,
    PARTS,
    EmbeddingFormat,
    HeadFormat,
    Offline,
    ProjectorFormat,
    Revision,
    TextFormat,
    VisionFormat,
    WeightFormat,
)
from ouzel.cli.options import Json as JsonOption

EPILOG = """Examples:

ouzel inspect Qwen/Qwen3-VL-2B-Instruct

ouzel inspect ./Qwen3-0.6B --no-tensors

ouzel inspect ./Qwen3-0.6B --json | jq .memory"""

_PANEL = "Output"


def _option(*names: str, panel: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, rich_help_panel=panel, metavar=metavar, show_default=False, help=help)


def inspect(
    model: Annotated[
        Optional[str],
        typer.Argument(
            metavar="MODEL", show_default=False, help="A checkpoint folder or a hub id. Default: the embedded model."
        ),
    ] = None,
    tensors: Annotated[
        bool,
        _option("--tensors/--no-tensors", panel=_PANEL, help="With the tensor table, or without. Default: with."),
    ] = True,
    every: Annotated[
        bool,
        _option("--all", panel=_PANEL, help="Every tensor and token on a row of its own; else equal layers share one."),
    ] = False,
    stages: Annotated[
        bool, _option("--stages", panel=_PANEL, help="Only the names of stages, as Model.stages takes them.")
    ] = False,
    weights: Annotated[
        WeightFormat,
        _option(
            "--weights", "-w", panel="Model", metavar=FORMAT_NAMES,
            help="Formats and memory as they would be with this format. Default: auto, as stored.",
        ),
    ] = WeightFormat.auto,  # fmt: skip
    vision_weights: VisionFormat = None,
    projector_weights: ProjectorFormat = None,
    text_weights: TextFormat = None,
    head_weights: HeadFormat = None,
    embedding_weights: EmbeddingFormat = None,
    check: Annotated[
        bool, _option("--check", panel="Model", help="Compare a packed folder with its checksums.")
    ] = False,
    revision: Revision = None,
    offline: Offline = False,
    json: JsonOption = False,
) -> None:
    """Shows what is in a checkpoint, without reading its weights."""
    with guard(json):
        parts = [vision_weights, projector_weights, text_weights, head_weights, embedding_weights]
        chosen = {part: None if form is None else form.value for part, form in zip(PARTS, parts)}
        found = _summary(model, revision, offline or None, weights.value, chosen, check)
        if not tensors:
            del found["tensors"]
        if json:
            console.write_line(console.json_text(found))
        elif stages:
            console.write("\n".join(found["stages"]) + "\n")
        else:
            _show(found, every)


def _summary(model: str | None, revision: str | None, offline: bool | None, weights: str, parts: dict[str, str | None], check: bool) -> dict[str, Any]:
    hide_download_bars(quiet=False)
    with console.busy(f"reading {model or 'the embedded model'}", quiet=may_download(model)):
        from ouzel.cli.summary import summarise
        from ouzel.model import EMBEDDED, embedded_path

        name = str(embedded_path()) if model is None or model == EMBEDDED else model
        return summarise(name, revision, offline, weights, parts, check)


def _show(found: dict[str, Any], every: bool) -> None:
    console.write(f"{found['model']}\nfolder: {found['folder']}\nfamily: {found['family']}\n")
    if found["packed"]:
        _show_packed(found["packed"])
    _section("config.json", [[key, _word(value)] for key, value in found["config"].items()])
    if "tensors" in found:
        _show_tensors(found["tensors"], every)
    _show_weights(found["weights"])
    _show_memory(found["memory"])
    _show_tokens(found, every)
    for name, settings in found["pictures"].items():
        _section(name, [[key, _word(value)] for key, value in settings.items()])


def _show_packed(packed: dict[str, Any]) -> None:
    source = packed["source"]
    rows = [["formats", ", ".join(f"{part} {form}" for part, form in packed["formats"].items())]]
    rows += [["made from", _word(source["name"])]] if "name" in source else []
    if packed["checked_files"] is not None:
        rows.append(["checksums", f"{packed['checked_files']} files are as they were written"])
    _section("packed folder", rows)


def _section(title: str, rows: list[list[str]]) -> None:
    """A title and pairs in two columns."""
    width = max((len(row[0]) for row in rows), default=0)
    lines = [f"  {key.ljust(width)}  {value}".rstrip() for key, value in rows]
    console.write("\n".join(["", title, *lines]) + "\n")


def _show_tensors(tensors: list[dict[str, Any]], every: bool) -> None:
    rows = tensors if every else _by_layer(tensors)
    console.write("\ntensors\n")
    columns = [("name", "left"), ("source", "left"), ("shape", "left"), ("format", "left"), ("bytes", "right")]
    cells = [
        [row["name"], row["source"], "x".join(map(str, row["shape"])), row["format"], f"{row['bytes']:,}"] for row in rows
    ]
    console.print_table(columns, cells)


def _by_layer(tensors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that differ in the layer's number only become one: "text.layers.0-27.q_proj.weight", with the sum of bytes."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in tensors:
        key = (re.sub(r"\.\d+\.", ".#.", row["name"]), tuple(row["shape"]), row["format"])
        groups.setdefault(key, []).append(row)
    return [_merged(rows) for rows in groups.values()]


def _merged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    if len(rows) == 1:
        return rows[0]
    total = sum(row["bytes"] for row in rows)
    names = {key: _range_of([row[key] for row in rows]) for key in ("name", "source")}
    return rows[0] | names | {"bytes": total}


def _range_of(names: list[str]) -> str:
    numbers = [int(found.group(1)) for found in (re.search(r"\.(\d+)\.", name) for name in names) if found]
    if len(numbers) != len(names):
        return f"{names[0]} (and {len(names) - 1} more)"
    whole = numbers == list(range(numbers[0], numbers[-1] + 1))
    text = f"{numbers[0]}-{numbers[-1]}" if whole else ",".join(map(str, numbers))
    return re.sub(r"\.\d+\.", f".{text}.", names[0], count=1)


def _show_weights(weights: dict[str, Any]) -> None:
    files = weights["files"]
    more = f" and {len(files) - 4} more" if len(files) > 4 else ""
    rows = [
        ["files", ", ".join(files[:4]) + more],
        ["parameters", f"{weights['parameters']:,}"],
        ["bytes in memory", f"{_bytes(weights['bytes'])} ({_bytes(weights['mapped_bytes'])} of it the mapped files)"],
        ["matrices", ", ".join(f"{count} in {name}" for name, count in weights["matrix_formats"].items())],
    ]
    rows += [[f"bytes of {part}", _bytes(size)] for part, size in weights["bytes_by_part"].items()]
    rows += [["note", note] for note in weights["notes"]]
    _section("weights", rows)


def _show_memory(memory: dict[str, Any]) -> None:
    rows = [
        ["longest context", f"{memory['max_context']:,} tokens"],
        ["cache", f"{_bytes(memory['cache_bytes_per_token'])} a token, in float32"],
    ]
    for row in memory["contexts"]:
        sizes = f"{_bytes(row['cache_bytes'])} of cache, {_bytes(row['total_bytes'])} with the weights"
        beyond = "" if row["tokens"] <= memory["max_context"] else " (beyond this model's context)"
        rows.append([f"at {row['tokens']:,} tokens", sizes + beyond])
    _section("memory", rows)


def _show_tokens(found: dict[str, Any], every: bool) -> None:
    tokens = found["tokenizer"]
    if tokens is None:
        _section("tokens", [["tokenizer", "none: token ids only"]])
        return
    special = [row for row in tokens["added"] if row["special"] or every]
    rows = [
        ["vocabulary", f"{tokens['vocabulary']:,} tokens, {len(tokens['added'])} of them added"],
        ["chat template", found["chat_template"] or "none"],
        ["end tokens", ", ".join(f"{row['id']} {row['text']}" for row in tokens["end_tokens"]) or "none"],
        *[[name, text] for name, text in tokens["named"].items()],
        *[[str(row["id"]), row["text"] + ("" if row["special"] else "  (not special)")] for row in special],
    ]
    _section("tokens", rows)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else console.json_text(value)


def _bytes(size: int) -> str:
    """A size in binary units."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
