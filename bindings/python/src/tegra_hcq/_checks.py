"""Checks of what callers pass: a wrong type or value is an :class:`InvalidArgument` before anything is done."""

from __future__ import annotations

import operator
import os
import reprlib
from typing import Any, Protocol

from ._errors import InvalidArgument

U32, U64 = (1 << 32) - 1, (1 << 64) - 1
"""Largest numbers that fit C's ``uint32_t`` and ``uint64_t``."""


def _shown(number: int) -> str:
    """A limit as people read it: 2^32 - 1."""
    bits = (number + 1).bit_length() - 1
    return f"2^{bits} - 1" if bits >= 16 and number + 1 == 1 << bits else str(number)


def is_integer(value: object) -> bool:
    """Whether a value is an integer of Python, numpy or another package."""
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def integer(value: Any, what: str, most: int = U64, least: int = 0) -> int:
    """An integer of Python, numpy or another package, as Python's.

    :raises InvalidArgument: if it is none, or outside of ``least`` to ``most``.
    """
    if is_integer(value):
        number = int(operator.index(value))
        if least <= number <= most:
            return number
    raise InvalidArgument(
        f"{what} is {reprlib.repr(value)}; permitted are the integers {least} to {_shown(most)}"
    ) from None


def integers(value: Any, what: str, most: int = U64, least: int = 0) -> tuple[int, ...]:
    """An integer, or the integers of a sequence, as a tuple.

    :raises InvalidArgument: as :func:`integer`.
    """
    if is_integer(value):
        return (integer(value, what, most, least),)
    try:
        # A text is a sequence as well, but of no sizes.
        parts = None if isinstance(value, (str, bytes, bytearray)) else tuple(value)
    except TypeError:
        parts = None
    if parts is None:
        raise InvalidArgument(f"{what} is {reprlib.repr(value)}; permitted are an integer or a tuple of integers")
    return tuple(integer(part, f"{what} is {reprlib.repr(value)}: a size", most, least) for part in parts)


def nanoseconds(seconds: Any) -> int:
    """A time-out for C. Every wait is bounded, so there is no value for "for ever".

    :raises InvalidArgument: if the time-out is not a number, negative or not finite.
    """
    # An array of one element is no number, though numpy converts it.
    is_number = getattr(seconds, "shape", ()) == () and (hasattr(seconds, "__float__") or is_integer(seconds))
    try:
        number = float(seconds) if is_number else -1.0
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0 <= number < 1e9:
        raise InvalidArgument(f"timeout is {reprlib.repr(seconds)}; permitted are 0 to 1e9 seconds")
    return int(number * 1e9)


class HasFileno(Protocol):
    """A file: what has ``fileno()``."""

    def fileno(self) -> int:
        """Its descriptor."""


def descriptor(file: Any) -> int:
    """The descriptor of a file.

    :raises InvalidArgument: if it is neither an integer nor an object with ``fileno()``, or closed.
    """
    number = file
    if hasattr(file, "fileno"):
        try:
            number = file.fileno()
        except (OSError, ValueError) as error:
            raise InvalidArgument(f"file has no descriptor: {error}") from None
    return integer(number, "file", most=(1 << 31) - 1)


def string(value: Any, what: str) -> bytes:
    """A string for C, in UTF-8.

    :raises InvalidArgument: if it is not a ``str``, or contains a zero byte or a lone surrogate.
    """
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} must be a str, not {type(value).__name__}")
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what} is not valid Unicode: {error.reason}") from None
    if b"\0" in encoded:
        raise InvalidArgument(f"{what} contains a zero byte")
    return encoded


def path(value: Any, what: str) -> bytes:
    """A path for C.

    :raises InvalidArgument: as :func:`string`, if it is no path.
    """
    if not isinstance(value, (str, os.PathLike)):
        raise InvalidArgument(f"{what} must be a str or os.PathLike, not {type(value).__name__}")
    return string(os.fsdecode(value), what)
