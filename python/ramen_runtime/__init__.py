"""What a function served by Ramen may ask of its worker.

Inside a worker the package is built in and talks to the worker. Anywhere else it falls back to the
environment and to stderr, so that code can be tested without a worker.
"""

from ramen_runtime import _backend, content, secrets

__all__ = ["Interrupted", "cancelled", "content", "log", "progress", "secrets"]

LEVELS = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)


class Interrupted(BaseException):
    """Raised inside a call whose deadline has passed or whose caller has left.

    Derived from ``BaseException``, so that ``except Exception`` lets it through.
    """

    def __str__(self):
        return super().__str__() or "the call was interrupted"


def progress(current, total=None, message=None):
    """Report how far the running call is: ``current`` out of ``total`` (both numbers)."""
    _number("current", current)
    if total is not None:
        _number("total", total)
    if message is not None and not isinstance(message, str):
        raise TypeError(f"message must be str, not {type(message).__name__}")
    _backend.progress(current, total, message)


def log(level, data, logger=None):
    """Send a log message to the caller. ``data`` is anything that may be a result."""
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
    if logger is not None and not isinstance(logger, str):
        raise TypeError(f"logger must be str, not {type(logger).__name__}")
    _backend.log(level, data, logger)


def cancelled():
    """Whether nobody waits for the running call any more. Cheap: ask it in loops."""
    return _backend.cancelled()


def _number(name, value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"{name} must be finite, not {value}")
