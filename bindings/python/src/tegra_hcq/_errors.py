"""Exceptions of the package."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from . import _ffi


class FaultKind(enum.IntEnum):
    """Kind of a fault."""

    MMU = 0
    """An access to an address that is not mapped, or not mapped for this kind of access."""
    SM = 1
    """An SM stopped at an instruction: :attr:`Fault.reason` says why."""
    LAUNCH_DESCRIPTOR = 2
    """The launch descriptor was refused."""
    GRAPHICS_EXCEPTION = 3
    """The graphics engine stopped without more detail."""
    PUSHBUFFER = 4
    """Malformed or forbidden commands."""
    COPY_ENGINE = 5
    """The copy engine refused a copy."""
    ABANDONED = 6
    """The work hung until a recovery stopped it."""
    OTHER = 7
    """Any other error of the channel."""
    ASSERT = 8
    """An ``assert`` of a kernel has failed; ``reason`` has the messages."""


@dataclass(frozen=True)
class Fault:
    """Why the GPU has stopped the work of a queue. Unknown fields are ``None``."""

    kind: FaultKind
    """Kind of the fault."""
    text: str
    """The whole report in one line."""
    reason: str | None = None
    """What happened, for example "misaligned address"."""
    address: int | None = None
    """Address of the access; of an MMU fault, its page."""
    nearest: str | None = None
    """The nearest buffer, for example "4 bytes past the end of weights (0x1000, 256 bytes)"."""
    kernel: str | None = None
    """Kernel that contains the instruction; the last launched kernel if the instruction is unknown."""
    pc: int | None = None
    """Address of the faulting instruction."""
    code_offset: int | None = None
    """Offset of that instruction in the kernel's code, in bytes."""
    grid: tuple[int, int, int] | None = None
    """Grid of the kernel's last launch."""
    block: tuple[int, int, int] | None = None
    """Block of the kernel's last launch."""


class TegraError(Exception):
    """Base of all exceptions that the library reports."""

    status: int = 12
    """Status code of the C library (``TEGRA_HCQ_STATUS_...``)."""


class GpuTimeout(TegraError, TimeoutError):
    """The work did not end in time. It may still end later; :meth:`Device.recover` stops it."""

    status = 1


class GpuFault(TegraError):
    """The GPU stopped the work. Call :meth:`Device.recover` to continue."""

    status = 2
    fault: Fault | None = None
    """The decoded fault."""


class OutOfMemory(TegraError, MemoryError):
    """There is not enough memory."""

    status = 3


class InvalidArgument(TegraError, ValueError):
    """A size, range, count, name or combination of arguments is invalid."""

    status = 4


class InvalidHandle(TegraError, ValueError):
    """The object was closed, its device was closed, or it was inherited through ``fork``."""

    status = 5


class NotFound(TegraError, LookupError):
    """There is no kernel or variable of that name."""

    status = 6


class Unsupported(TegraError):
    """The device or this build of the library does not offer it."""

    status = 7


class NotCpuVisible(Unsupported, BufferError):
    """The buffer is in the GPU's own memory. Use :meth:`Buffer.to_numpy` or :meth:`Buffer.copy_to`."""


class CompileError(TegraError):
    """The source does not compile."""

    status = 8

    @property
    def log(self) -> str:
        """The compiler's log."""
        return str(self)


class LibraryMissing(TegraError):
    """A library is not installed: NVRTC, nvJitLink, ptxas, or ``libtegra_hcq`` itself. The text says how to get it."""

    status = 9


class DeviceError(TegraError):
    """The device cannot be opened, or its driver has refused a call."""

    status = 10


class Busy(TegraError):
    """The object is in use: work was launched but not submitted, or all queues are open."""

    status = 11


class InternalError(TegraError):
    """A fault of the library."""

    status = 12


_CLASSES: dict[int, type[TegraError]] = {
    cls.status: cls
    for cls in (
        GpuTimeout,
        GpuFault,
        OutOfMemory,
        InvalidArgument,
        InvalidHandle,
        NotFound,
        Unsupported,
        CompileError,
        LibraryMissing,
        DeviceError,
        Busy,
        InternalError,
    )
}


def _decode(found: _ffi.Fault) -> Fault:
    def text(value: bytes | None) -> str | None:
        return None if value is None else value.decode("utf-8", "replace")

    kind = FaultKind(found.kind) if found.kind in iter(FaultKind) else FaultKind.OTHER
    sizes = [(size.x, size.y, size.z) for size in (found.grid, found.block)]
    grid, block = (None if size == (0, 0, 0) else size for size in sizes)
    return Fault(
        kind=kind,
        text=text(found.text) or "",
        reason=text(found.reason),
        address=found.address if found.has_address else None,
        nearest=text(found.nearest),
        kernel=text(found.kernel),
        pc=found.pc if found.has_pc else None,
        code_offset=found.code_offset if found.has_pc else None,
        grid=grid,
        block=block,
    )


def raise_status(status: int, message: str, fault: _ffi.Fault | None = None) -> NoReturn:
    """Raises the exception of a status code."""
    cls = _CLASSES.get(status, TegraError)
    error = cls(message)
    error.status = status
    if isinstance(error, GpuFault) and fault is not None:
        error.fault = _decode(fault)
    raise error
