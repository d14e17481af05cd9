"""Kernel arguments: from Python values to the C library's."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any, TypeAlias

from . import _checks, _ffi
from ._buffer import Buffer
from ._errors import InvalidArgument
from ._memory import check_elements

if TYPE_CHECKING:
    import numpy as np

    KernelArg: TypeAlias = (
        Buffer
        | bool
        | int
        | float
        | np.generic
        | ctypes._SimpleCData[Any]
        | ctypes.Structure
        | ctypes.Array[Any]
        | bytes
        | bytearray
        | memoryview
    )
else:
    KernelArg: TypeAlias = Any
"""A kernel argument; :class:`Kernel` describes the conversions."""

Dim: TypeAlias = int | tuple[int, ...]
"""Size of a grid or block: one number, or a tuple of one to three."""

_FLOATS = {4: (struct.Struct("<f"), struct.Struct("<I")), 8: (struct.Struct("<d"), struct.Struct("<Q"))}
_PLAIN = (int, float, bool)
_CTYPES = (ctypes._SimpleCData, ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._Pointer)


def dim3(size: Dim, what: str) -> _ffi.Dim3:
    """A size for C.

    :raises InvalidArgument: if it is not one to three integers of 1 to 2^32 - 1.
    """
    if type(size) is int and 0 < size < 1 << 32:
        return _ffi.Dim3(size, 1, 1)
    sizes = _checks.integers(size, what, _checks.U32, least=1)
    if not 1 <= len(sizes) <= 3:
        raise InvalidArgument(f"{what} is {size!r}: pass an integer of 1 or more, or a tuple of one to three")
    return _ffi.Dim3(*sizes, *[1] * (3 - len(sizes)))


def _integer(value: int, size: int, index: int) -> int:
    if size not in (1, 2, 4, 8):
        raise InvalidArgument(f"argument {index} is an int, and the kernel's parameter has {size} bytes: pass bytes")
    bits = 8 * size
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise InvalidArgument(f"argument {index}: {value} does not fit into the parameter's {size} bytes")
    return value & ((1 << bits) - 1)


def _float(value: float, size: int, index: int) -> int:
    if size not in _FLOATS:
        raise InvalidArgument(
            f"argument {index} is a float, and the kernel's parameter has {size} bytes: "
            "pass a numpy scalar such as numpy.float16, a ctypes value, or bytes"
        )
    pack, number = _FLOATS[size]
    try:
        return int(number.unpack(pack.pack(value))[0])
    except OverflowError:
        raise InvalidArgument(f"argument {index}: {value} is too large for a float of {size} bytes") from None


def _exact(data: bytes, size: int, index: int, value: object) -> ctypes.Array[ctypes.c_char]:
    if len(data) != size:
        raise InvalidArgument(
            f"argument {index} is a {type(value).__name__} of {len(data)} bytes, and the kernel's parameter has {size}"
        )
    return ctypes.create_string_buffer(data, size)


def _bytes_of(value: object, index: int) -> bytes | None:
    if isinstance(value, (bytes, bytearray, memoryview)) or isinstance(value, _CTYPES):
        return bytes(value)
    # A numpy scalar: no import of numpy is needed to recognise it.
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () and hasattr(value, "tobytes"):
        check_elements(getattr(value, "dtype", None), f"argument {index}")
        return bytes(value.tobytes())
    return None


def fill(target: _ffi.Arg, value: object, size: int, index: int) -> object:
    """Writes one argument; returns what must live until the call has ended."""
    if isinstance(value, Buffer):
        if size != 8:
            raise InvalidArgument(f"argument {index} is a buffer, and the kernel's parameter has {size} bytes, not 8")
        target.kind, target.size, target.value, target.offset = _ffi.ARG_BUFFER, 8, value._raw, value._offset
        return None
    # A subclass may have a size of its own: numpy.float64 is a float.
    data = None if type(value) in _PLAIN else _bytes_of(value, index)
    if data is not None:
        kept = _exact(data, size, index, value)
        target.kind, target.size, target.value = _ffi.ARG_BYTES, size, ctypes.addressof(kept)
        return kept
    if isinstance(value, int):
        number = _integer(value, size, index)
    elif isinstance(value, float):
        number = _float(value, size, index)
    elif hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__"):
        raise InvalidArgument(
            f"argument {index} is a {type(value).__name__}: kernels take buffers; copy it with device.from_numpy()"
        )
    else:
        raise InvalidArgument(
            f"argument {index} is a {type(value).__name__}; permitted are buffers, int, float, bool, numpy scalars, "
            "ctypes values and bytes"
        )
    target.kind, target.size, target.value = _ffi.ARG_VALUE, size, number
    return None


def convert(values: tuple[object, ...], sizes: tuple[int, ...], kernel: str) -> tuple[Any, list[object]]:
    """The arguments of a launch, and what must live until the call has ended.

    :raises InvalidArgument: if the number of arguments is wrong, or one does not match its parameter.
    """
    if len(values) != len(sizes):
        raise InvalidArgument(f"kernel {kernel} has {len(sizes)} parameters, and {len(values)} arguments were passed")
    arguments = (_ffi.Arg * len(sizes))()
    kept = [fill(arguments[at], value, sizes[at], at) for at, value in enumerate(values)]
    return arguments, kept
