"""The stand-in for a worker: environment and stderr. A worker puts its own module in this place."""

import os
import sys


def group():
    """Name of the group that is served; ``None`` when any may be referred to."""
    return None


def secret(variable):
    """Value of an environment variable that holds a secret, or ``None``."""
    value = os.environ.get(variable)
    if value is not None:
        # Files are often made with a line break at their end; a worker drops it too.
        if value.endswith("\r\n"):
            value = value[:-2]
        elif value.endswith("\n"):
            value = value[:-1]
    return value


def progress(current, total, message):
    """Print the progress."""
    of = "" if total is None else f"/{total}"
    text = "" if message is None else f" {message}"
    print(f"[progress] {current}{of}{text}", file=sys.stderr, flush=True)


def log(level, data, logger):
    """Print the message."""
    name = "" if logger is None else f" {logger}:"
    print(f"[{level}]{name} {data}", file=sys.stderr, flush=True)


def cancelled():
    """Never: there is no caller."""
    return False
