"""Memory of the process that other Python objects own."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_ssize_t, c_void_p, py_object
from typing import TYPE_CHECKING

from ._errors import InvalidArgument

if TYPE_CHECKING:
    from types import TracebackType


class _PyBuffer(Structure):
    """CPython's ``Py_buffer``, a part of its stable ABI."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)),
        ("suboffsets", POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


_SIMPLE, _WRITABLE = 0, 1

_get = ctypes.pythonapi.PyObject_GetBuffer
_get.restype = c_int
_get.argtypes = [py_object, POINTER(_PyBuffer), c_int]
_release = ctypes.pythonapi.PyBuffer_Release
_release.restype = None
_release.argtypes = [POINTER(_PyBuffer)]


class Exported:
    """The contiguous memory of an object with the buffer protocol, held until :meth:`release` or the last reference.

    :raises InvalidArgument: if the object has no such memory, or read-only memory with ``writable``.
    """

    def __init__(self, source: object, what: str, writable: bool = False) -> None:
        self._buffer = _PyBuffer()
        self._held = False
        try:
            _get(source, ctypes.byref(self._buffer), _WRITABLE if writable else _SIMPLE)
        except (TypeError, BufferError, ValueError) as error:
            kind = "writable contiguous" if writable else "contiguous"
            raise InvalidArgument(
                f"{what} must be an object with {kind} memory (bytes, bytearray, memoryview, numpy array), "
                f"not {type(source).__name__}: {error}"
            ) from None
        self._held = True
        self.address: int = self._buffer.buf or 0
        """Address of the first byte; 0 if there is none."""
        self.nbytes: int = self._buffer.len
        """Size in bytes."""

    def release(self) -> None:
        """Returns the memory to its object."""
        if self._held:
            self._held = False
            _release(ctypes.byref(self._buffer))

    def __enter__(self) -> Exported:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()
