"""An answer while it comes: text to stdout, Ctrl-C stops it, what was said so far stays."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ouzel.cli import console

if TYPE_CHECKING:
    from ouzel.generation.request import Result, Timings
    from ouzel.model import Model, Stream

# Waking up this often lets Ctrl-C through on systems where waiting for a thread cannot be interrupted (Windows).
_WAKE_SECONDS = 0.1


def follow(stream: Stream, show: Callable[[str], None]) -> tuple[Result, bool]:
    """Runs a stream to its end and shows its text as it comes; gives the result and whether Ctrl-C stopped it.

    The work runs in a thread of its own, so that Ctrl-C is seen at once and not after the running step. Raises what
    the work or `show` raises, after the work has stopped, and KeyboardInterrupt at the second Ctrl-C.
    """
    events: queue.Queue[tuple[str, Any]] = queue.Queue()
    worker = threading.Thread(target=_pump, args=(stream, events), name="ouzel-answer", daemon=True)
    with _CtrlC(stream) as ctrl_c:
        worker.start()
        try:
            while True:
                kind, value = _next(events)
                if kind == "failed":
                    raise value
                if kind == "done":
                    return value, ctrl_c.pressed
                show(value)
        except KeyboardInterrupt:
            stream.cancel()
            raise
        except BaseException:
            stream.cancel()
            worker.join()
            raise


class _CtrlC:
    """While open, the first Ctrl-C stops the stream and nothing else: an exception could lose a piece of text that is
    on its way. The second one is a KeyboardInterrupt."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._before: Any = None
        self.pressed = False

    def __enter__(self) -> _CtrlC:
        # Only the main thread may set handlers; one that was set by others, or an ignored signal, stays.
        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if usual and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: Any) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
        self._stream.cancel()


def _next(events: queue.Queue[tuple[str, Any]]) -> tuple[str, Any]:
    while True:
        try:
            return events.get(timeout=_WAKE_SECONDS)
        except queue.Empty:
            continue


def _pump(stream: Stream, events: queue.Queue[tuple[str, Any]]) -> None:
    """The work of the thread: chunks, then the result or the error."""
    try:
        for chunk in stream:
            if chunk.text:
                events.put(("text", chunk.text))
        events.put(("done", stream.result()))
    except BaseException as error:  # noqa: BLE001 - raised again by the reader
        events.put(("failed", error))


def picture_lines(result: Result, names: list[str]) -> list[str]:
    """One line for each picture: its sizes, its tokens, and what was done to it."""
    lines = []
    for number, report in enumerate(result.pictures):
        picture: dict[str, Any] = dict(report)
        name = f" {names[number]}" if number < len(names) else ""
        seen = "x".join(str(side) for side in picture["resized_size"])
        of = "x".join(str(side) for side in picture["source_size"])
        notes = "".join(f"; {note}" for note in picture["notes"])
        lines.append(f"{picture['kind']}{name}: {of}, seen as {seen}, {picture['tokens']} tokens{notes}")
    return lines


def timing_line(result: Result) -> str:
    """Where the time went, on one line."""
    t, usage = result.timings, result.usage
    parts = []
    if result.pictures:
        parts += [f"decode picture {_ms(t.decode_picture)}", f"preprocess {_ms(t.preprocess)}", f"encode {_ms(t.encode)}"]
    cached = f", {usage.cached_tokens} cached" if usage.cached_tokens else ""
    parts.append(f"prefill {_ms(t.prefill)} ({usage.prompt_tokens} tokens{cached})")
    speed = t.tokens_per_second(usage.completion_tokens)
    rate = f" at {speed:.1f} tokens/s" if speed else ""
    parts.append(f"{usage.completion_tokens} tokens{rate}")
    return "timings: " + ", ".join(parts)


def ending_note(result: Result) -> str | None:
    """A line when the answer did not end by itself."""
    if result.finish_reason == "length":
        return f"note: stopped after {result.usage.completion_tokens} tokens; --max-tokens allows more"
    return None


def tell(result: Result, names: list[str]) -> None:
    """Notes and timings on stderr."""
    for line in [*picture_lines(result, names), timing_line(result), ending_note(result)]:
        if line is not None:
            console.say(line)


def as_json(model: Model, result: Result) -> dict[str, Any]:
    """The whole result as JSON types."""
    usage = asdict(result.usage) | {"total_tokens": result.usage.total_tokens}
    found: dict[str, Any] = {
        "model": model.checkpoint.name,
        "family": model.family.name,
        "engine": model.engine.describe(),
        "text": result.text,
        "ids": list(result.ids),
        "prompt_ids": list(result.prompt_ids),
        "finish_reason": result.finish_reason,
        "usage": usage,
        "timings": _timings(result.timings, result.usage.completion_tokens),
        "pictures": [dict(picture) for picture in result.pictures],
    }
    if result.logprobs is not None:
        found["logprobs"] = [
            {"id": one.id, "logprob": one.logprob, "top": [list(pair) for pair in one.top]} for one in result.logprobs
        ]
    return found


def _timings(timings: Timings, tokens: int) -> dict[str, float]:
    """Seconds of each phase, and the speed."""
    return asdict(timings) | {
        "first_token": timings.first_token,
        "tokens_per_second": timings.tokens_per_second(tokens),
    }


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 10 else f"{seconds:.1f} s"
