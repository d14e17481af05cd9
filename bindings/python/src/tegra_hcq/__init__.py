"""Run CUDA kernels on the Jetson Orin's GPU without CUDA.

The package drives the GPU through ``libtegra_hcq``, which it contains. Without an Orin it uses the *software Orin*, a
model of the GPU inside the process::

    import numpy as np
    import tegra_hcq

    with tegra_hcq.Device() as device:
        add = device.load("kernels/vector_add.cubin")["vector_add"]
        a = device.from_numpy(np.arange(1000, dtype=np.float32))
        b = device.from_numpy(np.full(1000, 2, np.float32))
        total = device.alloc(1000, np.float32)
        add(a, b, total, 1000, grid=4, block=256)
        print(total.numpy())

Start at :class:`Device`. Launches run asynchronously; :meth:`Buffer.numpy` and every other access to a buffer waits for
the work that uses it. Failures are subclasses of :class:`TegraError`; :class:`GpuFault` has the decoded fault. Every
wait has a time-out and releases the GIL. All objects are context managers, and freed with their last reference
otherwise.

numpy is optional. There is no back end for PyTorch; ``torch.from_dlpack(buffer)`` shares memory with it.
"""

from __future__ import annotations

from . import _ffi
from ._arguments import Dim, KernelArg
from ._buffer import Buffer, Purpose
from ._device import Clocks, Device, Memory, OutputStream, Properties, Recovery
from ._dtypes import DtypeLike, Shape
from ._errors import (
    Busy,
    CompileError,
    DeviceError,
    Fault,
    FaultKind,
    GpuFault,
    GpuTimeout,
    InternalError,
    InvalidArgument,
    InvalidHandle,
    LibraryMissing,
    NotCpuVisible,
    NotFound,
    OutOfMemory,
    TegraError,
    Unsupported,
)
from ._graph import Graph, GraphBuilder
from ._log import TRACE, disable_logging, enable_logging
from ._matmul import matmul
from ._profile import Profile, Span, Work
from ._program import Kernel, KernelAttributes, Program
from ._queue import Fence, Queue, Signal
from ._version import __version__

__docformat__ = "restructuredtext"


def library_version() -> str:
    """Version of ``libtegra_hcq``.

    :raises LibraryMissing: if it cannot be loaded.
    """
    return _ffi.text(_ffi.lib().tegra_hcq_version()) or ""


__all__ = [
    "TRACE",
    "Buffer",
    "Busy",
    "Clocks",
    "CompileError",
    "Device",
    "DeviceError",
    "Dim",
    "DtypeLike",
    "Fault",
    "FaultKind",
    "Fence",
    "GpuFault",
    "GpuTimeout",
    "Graph",
    "GraphBuilder",
    "InternalError",
    "InvalidArgument",
    "InvalidHandle",
    "Kernel",
    "KernelArg",
    "KernelAttributes",
    "LibraryMissing",
    "Memory",
    "NotCpuVisible",
    "NotFound",
    "OutOfMemory",
    "OutputStream",
    "Profile",
    "Program",
    "Properties",
    "Purpose",
    "Queue",
    "Recovery",
    "Shape",
    "Signal",
    "Span",
    "TegraError",
    "Unsupported",
    "Work",
    "__version__",
    "disable_logging",
    "enable_logging",
    "library_version",
    "matmul",
]
