"""Element types by name, without numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from . import _checks
from ._errors import InvalidArgument

if TYPE_CHECKING:
    import numpy.typing as npt

    DtypeLike: TypeAlias = str | type | npt.DTypeLike
else:
    DtypeLike: TypeAlias = Any
"""What names an element type: a name such as "float32", a numpy type, or ``bool``, ``int``, ``float``."""

Shape: TypeAlias = int | tuple[int, ...]
"""Number of elements, or the size of each dimension."""


class Dtype(NamedTuple):
    """An element type."""

    name: str
    """Name, as numpy's."""
    size: int
    """Size in bytes."""
    format: str | None
    """Format of a ``memoryview``; ``None`` if that has none."""


_ALL = {
    dtype.name: dtype
    for dtype in (
        Dtype("bool", 1, "?"),
        Dtype("int8", 1, "b"),
        Dtype("uint8", 1, "B"),
        Dtype("int16", 2, "h"),
        Dtype("uint16", 2, "H"),
        Dtype("int32", 4, "i"),
        Dtype("uint32", 4, "I"),
        Dtype("int64", 8, "q"),
        Dtype("uint64", 8, "Q"),
        Dtype("float16", 2, None),
        Dtype("bfloat16", 2, None),
        Dtype("float32", 4, "f"),
        Dtype("float64", 8, "d"),
        Dtype("complex64", 8, None),
        Dtype("complex128", 16, None),
    )
}
_ALIASES = {"bool_": "bool", "float": "float64", "int": "int64", "f4": "float32", "f8": "float64"}

UINT8 = _ALL["uint8"]


def find(dtype: object) -> Dtype | None:
    """The element type that an object names; ``None`` if there is none."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    if not isinstance(name, str):
        return None
    # numpy's dtypes of the other byte order have the same name.
    if getattr(dtype, "isnative", True) is False:
        return None
    return _ALL.get(_ALIASES.get(name, name))


def parse(dtype: object) -> Dtype:
    """The element type that an object names.

    :raises InvalidArgument: if there is none.
    """
    found = find(dtype)
    if found is None:
        raise InvalidArgument(f"{dtype!r} is not an element type; permitted are {', '.join(_ALL)}")
    return found


def dimensions(shape: Shape) -> tuple[int, ...]:
    """A shape as a tuple.

    :raises InvalidArgument: if it is neither an integer nor a sequence of them, or a dimension is negative.
    """
    return _checks.integers(shape, "shape")


def count(shape: tuple[int, ...]) -> int:
    """Number of elements."""
    product = 1
    for size in shape:
        product *= size
    return product
