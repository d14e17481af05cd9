"""A GPU that is open in this process, and its errors as Python exceptions."""

import ctypes
import functools
import os
import weakref
from types import SimpleNamespace

from tegra_hcq import GpuFault, GpuTimeout, TegraError, _checks, _ffi

Dim3 = functools.lru_cache(maxsize=4096)(_ffi.Dim3)


class ORINError(RuntimeError):
    """A call of libtegra_hcq has failed; the text is the library's."""


class ORINTimeout(ORINError, GpuTimeout):
    """The GPU did not end its work in time. The work is lost; the device is usable."""


class ORINFault(ORINError, GpuFault):
    """The GPU has stopped the work: `fault` says why. The work is lost; the device is usable."""


@functools.cache
def library() -> SimpleNamespace:
    """The functions of libtegra_hcq, loaded once per process, without their prefix."""
    lib = _ffi.lib()
    return SimpleNamespace(**{name.removeprefix("tegra_hcq_"): getattr(lib, name) for name in _ffi.PROTOTYPES})


class Board:
    """An open GPU. Devices of tinygrad that share a GPU share its board and differ in their queues."""

    @staticmethod
    @functools.cache
    def open(kind: str, index: int) -> "Board":
        """Opens GPU `index` of `kind` ("nvgpu", "nvrm", "sim" or "auto"), or returns it if it is open."""
        return Board(kind, index)

    def __init__(self, kind: str, index: int):
        self.lib = library()
        _ffi.watch_signals()
        self._devices = weakref.WeakSet()
        self.handle = None
        self.handle = self.new(self.lib.device_open, kind.encode(), index)
        properties = _ffi.Properties(struct_size=ctypes.sizeof(_ffi.Properties))
        self.check(self.lib.device_properties(self.handle, ctypes.byref(properties)))
        self.kind, self.chip = _ffi.fixed_text(properties.kind), _ffi.fixed_text(properties.chip)
        self.arch = f"sm_{properties.sm_major}{properties.sm_minor}"
        self.unified = bool(properties.unified_memory)
        self.properties = {"chip": self.chip, "kind": self.kind, "arch": self.arch, "sm_count": properties.sm_count}
        # The software Orin interprets machine code: a launch of a second on a GPU takes minutes.
        seconds = float(os.environ.get("ORIN_TIMEOUT") or (600 if self.kind == "sim" else 30))
        self.timeout_ns = _checks.nanoseconds(seconds)

    def open_queue(self, device) -> int:
        """Opens a queue for `device`, whose `restart` is called after a recovery."""
        self._devices.add(device)
        return self.new(self.lib.queue_open, self.handle, None)

    def new(self, function, *args) -> int:
        """Calls a function whose last parameter receives a handle, and returns the handle."""
        handle = ctypes.c_void_p()
        self.check(function(*args, ctypes.byref(handle)))
        return handle.value

    def check(self, status: int) -> None:
        """Raises the exception of a status that is not 0. After a fault or a time-out the board is usable again."""
        if status:
            self._fail(status)

    def _fail(self, status: int) -> None:
        try:
            _ffi.check(status)
        except GpuFault as error:
            failure = ORINFault(str(error))
            failure.fault = error.fault
        except GpuTimeout as error:
            failure = ORINTimeout(str(error))
        except KeyboardInterrupt:
            self._recover()
            raise
        except MemoryError:
            raise
        except TegraError as error:
            raise ORINError(str(error)) from error
        self._recover()
        raise failure

    def _recover(self) -> None:
        """Stops the queues that have faulted or hang, and starts all queues anew."""
        if self.handle is None:
            return
        self.check(self.lib.device_recover(self.handle, None, None))
        for device in self._devices:
            device.restart()
