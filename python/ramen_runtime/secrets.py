"""Secrets of the group: ``{{$group.NAME}}`` stands for ``RAMEN_SECRET_<GROUP>__<NAME>``."""

from ramen_runtime import _backend

__all__ = ["SecretNotFound", "resolve"]

_NAME = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
)


class SecretNotFound(LookupError):
    """The text refers to a secret that this group does not have."""


def resolve(text):
    """Replace every ``{{$group.NAME}}`` in ``text``, once, from left to right.

    A value is never looked at again, so a secret that holds a reference stays as it is. A reference
    that cannot be resolved raises :class:`SecretNotFound`, which names the reference only.
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be str, not {type(text).__name__}")
    start = text.find("{{$")
    if start < 0:
        return text
    parts = []
    done = 0
    while start >= 0:
        end = text.find("}}", start + 3)
        if end < 0:
            break
        body = text[start + 3 : end]
        group, dot, name = body.partition(".")
        if not dot or not _NAME.issuperset(body):
            # Not a reference: look again behind its first brace.
            start = text.find("{{$", start + 1)
            continue
        value = _lookup(group, name)
        if value is None:
            raise SecretNotFound(f"unknown secret reference {text[start : end + 2]}")
        parts.append(text[done:start])
        parts.append(value)
        done = end + 2
        start = text.find("{{$", done)
    parts.append(text[done:])
    return "".join(parts)


def _lookup(group, name):
    served = _backend.group()
    if not group or not name or (served is not None and group != served):
        return None
    return _backend.secret(f"RAMEN_SECRET_{_upper(group)}__{_upper(name)}")


def _upper(name):
    return name.upper().replace("-", "_").replace(".", "_")
