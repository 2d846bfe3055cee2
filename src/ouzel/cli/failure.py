"""How commands end: exit codes, one line for a user's mistake, no traceback.

0: done. 1: the work failed (results that are not finite, no memory, a fault of ours). 2: something given cannot be used.
130: stopped by Ctrl-C. 141: the reader of stdout went away.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from ouzel.cli import console
from ouzel.errors import NumericError, OuzelError

FAILED, MISTAKE, INTERRUPTED, READER_GONE = 1, 2, 130, 141

_debug = False


def set_debug(on: bool) -> None:
    """Tracebacks for every error from now on."""
    global _debug
    _debug = on


@contextmanager
def guard(json: bool = False) -> Iterator[None]:
    """Around the work of a command: errors become one line on stderr (or a JSON object on stdout) and an exit code."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except console.ReaderGone:
        console.drop_stdout()
        raise typer.Exit(READER_GONE) from None
    except console.OutputError as error:
        # What is still buffered would fail again, with a traceback, at the end of the interpreter.
        console.drop_stdout()
        raise typer.Exit(report(error)) from None
    except KeyboardInterrupt:
        console.say("stopped")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:  # the last place that can turn an error into a line
        raise typer.Exit(report(error, json)) from None


def report(error: Exception, json: bool = False) -> int:
    """Tells the user about an error and gives the exit code."""
    line, code = describe(error)
    if _debug:
        console.say("".join(traceback.format_exception(error)).rstrip())
    if json:
        kind = type(error).__name__
        try:
            console.write_line(console.json_text({"error": {"type": kind, "message": line, "code": code}}))
        except (console.ReaderGone, console.OutputError):
            console.drop_stdout()
    console.say(f"error: {line}")
    return code


def describe(error: Exception) -> tuple[str, int]:
    """The line and the exit code of an error."""
    if isinstance(error, (NumericError, console.OutputError)):
        return str(error), FAILED
    if isinstance(error, OuzelError):
        return str(error), MISTAKE
    if isinstance(error, MemoryError):
        return "not enough memory; close other programs, or take a smaller model, context or picture", FAILED
    text = " ".join(str(error).split())
    name = type(error).__name__
    return f"{name}{': ' + text if text else ''}; this is a bug of Ouzel, `ouzel --debug ...` shows where", FAILED
