"""The tree of Ouzel's errors.

Every error that a user can cause is an `OuzelError`. Its message says the operation, what was expected, what came and
what to do; the command line prints it on one line and ends with code 2, the server answers 4xx with it.
"""

from __future__ import annotations


class OuzelError(Exception):
    """Base of all errors that a user can cause; `str()` gives the whole message on one line."""

    def __init__(
        self, operation: str, *, expected: str | None = None, got: str | None = None, fix: str | None = None
    ) -> None:
        self.operation = operation
        self.expected = expected
        self.got = got
        self.fix = fix
        super().__init__(self._message())

    def _message(self) -> str:
        parts = [self.operation]
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        if self.got is not None:
            parts.append(f"got {self.got}")
        text = ": ".join([parts[0], ", ".join(parts[1:])]) if len(parts) > 1 else parts[0]
        if self.fix is not None:
            text += f"; {self.fix}"
        return " ".join(text.split())


class CheckpointError(OuzelError):
    """A checkpoint folder or one of its files is missing, damaged or not of the expected form."""


class ConfigError(CheckpointError):
    """A configuration key is missing, of the wrong type, or has a value that is not implemented."""


class TensorError(CheckpointError):
    """A tensor is missing, left over, of the wrong shape or type, or lies outside its file."""


class UnsupportedError(OuzelError):
    """Something valid that Ouzel does not implement (a model type, a rope type, a codec)."""


class ImageError(OuzelError):
    """A picture or video cannot be used: unreadable, too large, wrong shape, or refused by the model's rules."""


class PromptError(OuzelError):
    """Messages, a template or token ids cannot be turned into a prompt."""


class RequestError(OuzelError):
    """A generation setting is out of range or cannot be honoured."""


class ContextError(RequestError):
    """The prompt and the tokens asked for do not fit in the model's context."""


class EngineError(OuzelError):
    """An engine is unknown, not built, or cannot run the graph."""


class NumericError(OuzelError):
    """A result that must be finite is not (overflow, or damaged weights)."""


class GraphError(Exception):
    """A graph breaks its own specification: a fault of a family's declaration or of a pass, not of the user."""


class Cancelled(Exception):
    """The work was stopped by its cancel token; nothing was returned."""
