"""Lifetimes: objects of the C library and who keeps them.

An :class:`Owned` is one handle of the C library; it is freed with its last Python reference. Python objects are
:class:`Resource` s that hold an ``Owned`` until they are closed. Views of a buffer's memory hold the ``Owned``, too: it
outlives the closed buffer and the closed device, so a view never points to freed memory. An ``Owned`` keeps its
device's handle; the device is closed when the last of them is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from . import _ffi
from ._errors import Busy, InvalidArgument, InvalidHandle, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    if sys.version_info >= (3, 11):
        from typing import Self
    else:
        from typing_extensions import Self


class _Inside(threading.local):
    """What the thread is in."""

    callback = False
    announced = False


_forks = 0
_inside = _Inside()
_deferred: list[Owned] = []
_unfinished: list[object] = []
_LAST_WAIT_NS = 30_000_000_000
_PATIENCE_S = 1.0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def in_callback(inside: bool) -> None:
    """Marks the thread while it is in a callback, where no function of the library may be called."""
    _inside.callback = inside


def check_callback() -> None:
    """Refuses the use of the library in a callback.

    :raises Busy: in one.
    """
    if _inside.callback:
        raise Busy("the function that receives the output of kernels must not use the package")


def free_deferred() -> None:
    """Frees what was dropped inside of a callback."""
    while _deferred:
        _deferred.pop().release()


class Single:
    """Base of objects that have no copies: each frees something of this process."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuses ``copy``, ``pickle`` and what is built on them."""
        raise Unsupported(
            f"a tegra_hcq.{type(self).__name__} can be neither copied nor pickled: it belongs to a GPU that this "
            "process has opened. Use another reference to it; to_numpy() and to_bytes() copy what a buffer contains"
        )


class Owned(Single):
    """A handle of the C library, freed with the last reference."""

    __slots__ = ("__weakref__", "_forks", "_free", "_raw", "device", "kept")

    def __init__(self, raw: int | None, free: str, device: Owned | None, kept: object = None) -> None:
        self._raw = raw or 0
        self._free = free
        self._forks = _forks
        self.device = device
        """Handle of the device, which stays open."""
        self.kept = kept
        """What the handle uses: memory of the process, or the callback for a device's output."""

    @property
    def raw(self) -> int:
        """The handle, for calls of the library."""
        if self._forks != _forks:
            raise InvalidHandle(
                "the object was made before fork() and belongs to the parent process: start processes "
                "with multiprocessing's method 'spawn', or fork before a device is opened"
            )
        return self._raw

    def forget(self) -> int:
        """Returns the handle, which the library has freed or the caller will free."""
        raw, self._raw = self._raw, 0
        return raw

    def free(self) -> None:
        """Frees the handle now; a failure is an exception."""
        check_callback()
        raw = self.forget()
        if raw and self._forks == _forks:
            status = getattr(_ffi.lib(), self._free)(raw)
            _ffi.raise_interrupt()
            _ffi.check(status)

    def __del__(self) -> None:
        # At the end of the process, the kernel driver frees everything.
        raw = self._raw
        if not raw or sys is None or sys.is_finalizing() or self._forks != _forks:
            return
        if _inside.callback:
            _deferred.append(Owned(self.forget(), self._free, self.device, self.kept))
        else:
            self.release()

    def release(self) -> None:
        """Frees the handle and ignores failures: nothing could handle them."""
        library, raw = _ffi.lib(), self.forget()
        imported = self.kept is not None and self._free == "tegra_hcq_buffer_free"
        waits = imported or self._free == "tegra_hcq_queue_close"
        with announced("an object") if waits else contextlib.nullcontext():
            # The GPU may still access memory of the process: keep that if the work does not end.
            if imported and library.tegra_hcq_buffer_wait(raw, _LAST_WAIT_NS):
                _unfinished.append(self.kept)
            getattr(library, self._free)(raw)


class Resource(Single):
    """Base of the objects of a device. It is a context manager; :meth:`close` may be called again."""

    def __init__(self, owned: Owned, device: DeviceState, what: str) -> None:
        self._owned: Owned | None = owned
        self._device = device
        self._what = what
        device.children.add(self)

    @property
    def _raw(self) -> int:
        return self._handle.raw

    @property
    def _handle(self) -> Owned:
        owned = self._owned
        if owned is None:
            reason = "its device was closed" if self._device.owned is None else "it was closed"
            raise InvalidHandle(f"the {self._what} cannot be used: {reason}")
        return owned

    @property
    def closed(self) -> bool:
        """Whether the object was closed."""
        return self._owned is None

    def close(self) -> None:
        """Frees the object. Work that uses it goes on."""
        owned, self._owned = self._owned, None
        if owned is not None:
            owned.free()

    def __enter__(self) -> Self:
        """The object.

        :raises InvalidHandle: if it was closed.
        """
        _ = self._handle
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tegra_hcq.{type(self).__name__}{self._describe()}{' closed' if self.closed else ''}>"

    def _describe(self) -> str:
        return ""


class DeviceState(Single):
    """What the objects of a device share."""

    def __init__(self, owned: Owned, opener: object) -> None:
        self.owned: Owned | None = owned
        self.opener: weakref.ref[Any] = weakref.ref(opener)
        """The Device object."""
        self.gemm: Owned | None = None
        """The kernels for products of matrices, once they are loaded."""
        self.children: weakref.WeakSet[Resource] = weakref.WeakSet()

    @property
    def handle(self) -> Owned:
        """The device's handle.

        :raises InvalidHandle: if the device was closed.
        """
        if self.owned is None:
            raise InvalidHandle("the device was closed")
        return self.owned

    def own(self, raw: int | None, free: str, kept: object = None) -> Owned:
        """A new handle that belongs to the device."""
        return Owned(raw, free, self.handle, kept)

    def close(self) -> None:
        """Closes all objects, then the device once no view of its memory is left."""
        owned, self.owned = self.owned, None
        self.gemm = None
        if owned is None:
            return
        failure: BaseException | None = None
        with announced("the device"):
            for child in list(self.children):
                try:
                    child.close()
                except Exception as error:
                    failure = failure or error
                except BaseException as error:
                    failure = error
                    # An exception of a signal's handler also ends the waits for the other children.
                    _ffi.raised.append(error)
            del owned
        if failure in _ffi.raised:
            _ffi.raised.clear()
        if failure is not None:
            raise failure


@contextlib.contextmanager
def announced(what: str) -> Iterator[None]:
    """Logs what is closed if it takes long, because the process seems to hang then."""
    if _inside.announced:
        yield
        return
    text = "closing %s waits for its work on the GPU, at most 30 s. Ctrl-C stops the work; so does Device.recover()"
    timer = threading.Timer(_PATIENCE_S, logging.getLogger("tegra_hcq").warning, (text, what))
    timer.daemon = True
    # No thread starts at the end of the interpreter.
    with contextlib.suppress(RuntimeError):
        timer.start()
    _inside.announced = True
    try:
        yield
    finally:
        _inside.announced = False
        timer.cancel()


def raw(value: object, kind: str, what: str) -> int:
    """The handle of an object that a caller has passed as ``what``.

    :raises InvalidArgument: if it is another object than a "buffer", "queue" and so on.
    """
    if not isinstance(value, Resource) or value._what != kind:
        raise InvalidArgument(f"{what} must be a {kind}, not {type(value).__name__}")
    return value._raw


def call(name: str, *arguments: Any) -> None:
    """Calls a function of the library and raises its failure.

    :raises Busy: in the function of :meth:`Device.on_output`.
    """
    check_callback()
    free_deferred()
    _ffi.watch_signals()
    # Of a wait in a finalizer, which cannot raise.
    _ffi.raise_interrupt()
    _ffi.check(getattr(_ffi.lib(), name)(*arguments))
