"""Memory of the process that other Python objects own."""

from __future__ import annotations

import ctypes
import re
from ctypes import POINTER, Structure, c_char_p, c_int, c_ssize_t, c_void_p, py_object
from typing import TYPE_CHECKING, Any, NoReturn

from ._errors import InvalidArgument
from ._resource import Single

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


_SIMPLE, _WRITABLE, _FORMAT, _ND = 0, 1, 4, 8

_get = ctypes.pythonapi.PyObject_GetBuffer
_get.restype = c_int
_get.argtypes = [py_object, POINTER(_PyBuffer), c_int]
_release = ctypes.pythonapi.PyBuffer_Release
_release.restype = None
_release.argtypes = [POINTER(_PyBuffer)]


def check_elements(kind: Any, what: str) -> None:
    """Checks an element type of numpy whose bytes are copied.

    :raises InvalidArgument: if its elements refer to Python objects, whose addresses the GPU would read or replace, or
        have the other byte order.
    """
    if getattr(kind, "hasobject", False):
        _refuse_objects(what, kind)
    if getattr(kind, "isnative", True) is False:
        _refuse_order(what, kind)


def _refuse_objects(what: str, kind: object) -> NoReturn:
    raise InvalidArgument(
        f"{what} has elements of type {kind}, which are addresses of Python objects: convert them to numbers, for "
        "example with array.astype('float32')"
    )


def _refuse_order(what: str, kind: object) -> NoReturn:
    raise InvalidArgument(
        f"{what} has elements of type {kind}, in the other byte order than the GPU's: convert them with "
        "array.astype(array.dtype.newbyteorder('=')), or pass array.view('uint8') for the bytes as they are"
    )


class Exported(Single):
    """The contiguous memory of an object with the buffer protocol, held until :meth:`release` or the last reference.

    :raises InvalidArgument: if the object has no such memory, read-only memory with ``writable``, or elements that
        :func:`check_elements` refuses.
    """

    def __init__(self, source: object, what: str, writable: bool = False) -> None:
        self._buffer = _PyBuffer()
        self._held = False
        kind = getattr(source, "dtype", None)
        check_elements(kind, what)
        # Formats exist for types that are in C; of the others, such as times, numpy's type was checked.
        known = getattr(kind, "hasobject", None) is False
        try:
            self._get(source, (_WRITABLE if writable else _SIMPLE) | _ND | _FORMAT, known)
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
        # Without the names of fields, which may contain any letter.
        elements = re.sub(r":[^:]*:", "", (self._buffer.format or b"").decode("utf-8", "replace"))
        if "O" in elements:
            _refuse_objects(what, elements)
        if ">" in elements or "!" in elements:
            _refuse_order(what, elements)

    def _get(self, source: object, flags: int, known: bool) -> None:
        try:
            _get(source, ctypes.byref(self._buffer), flags)
        except ValueError:
            if not known:
                raise
            _get(source, ctypes.byref(self._buffer), flags & ~_FORMAT)

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
