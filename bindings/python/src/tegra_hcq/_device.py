"""Devices."""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import byref, c_char_p, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from . import _checks, _dtypes, _ffi
from ._buffer import Buffer, Purpose, contiguous, numpy_module
from ._errors import InvalidArgument
from ._graph import GraphBuilder
from ._memory import Exported, check_elements
from ._program import Program
from ._queue import Queue, Signal, queue_options
from ._resource import DeviceState, Owned, Single, call, in_callback

if TYPE_CHECKING:
    import sys
    from collections.abc import Callable, Sequence
    from types import TracebackType

    import numpy.typing as npt

    from ._checks import HasFileno
    from ._dtypes import DtypeLike, Shape

    if sys.version_info >= (3, 11):
        from typing import Self
    else:
        from typing_extensions import Self


@dataclass(frozen=True)
class Properties:
    """Properties of a GPU."""

    kind: str
    """Driver: "nvgpu" (an Orin), "nvrm" (NVIDIA's desktop driver) or "sim" (the software Orin)."""
    chip: str
    """Name of the chip, for example "ga10b"."""
    sm_version: tuple[int, int]
    """SM version: (8, 7) on an Orin."""
    sm_count: int
    """Number of streaming multiprocessors in use."""
    warps_per_sm: int
    """Number of warps that an SM holds at a time."""
    max_block_threads: int
    """Largest number of threads of a block."""
    unified_memory: bool
    """Whether CPU and GPU use the same memory."""
    gpc_count: int
    """Number of clusters of SMs (GPCs) in use."""
    l2_bytes: int
    """Size of the L2 cache in bytes."""
    max_clock_hz: int | None
    """Highest clock in Hz; ``None`` if the driver does not report it."""

    @property
    def arch(self) -> str:
        """Architecture as compilers name it, for example "sm_87"."""
        return f"sm_{self.sm_version[0]}{self.sm_version[1]}"


class Memory(NamedTuple):
    """Memory of the machine or GPU."""

    total: int
    """Size in bytes."""
    free: int
    """Free memory in bytes."""


class Clocks(NamedTuple):
    """One instant by two clocks."""

    gpu_ns: int
    """By the GPU's clock, in nanoseconds."""
    unix_ns: int
    """By the system's clock, in nanoseconds since the UNIX epoch."""


class Recovery(NamedTuple):
    """What :meth:`Device.recover` has stopped."""

    faults: int
    """Number of queues that had faulted."""
    hanging: int
    """Number of queues on which a wait had timed out."""


class OutputStream(IntEnum):
    """Where the output of kernels belongs."""

    OUT = 1
    """Standard output: ``printf``."""
    ERR = 2
    """Standard error: failed assertions, and notes about output that was lost."""


class Device(Single):
    """An open GPU.

    :param kind: "auto", "nvgpu" (an Orin), "nvrm" (NVIDIA's desktop driver) or "sim" (the software Orin). "auto" takes
        the first of these that exists.
    :param index: chooses among several GPUs; each software Orin is a board of its own
    :raises DeviceError: if the device, the permission or a feature of its driver is missing; the text names the remedy.
    :raises LibraryMissing: if ``libtegra_hcq`` cannot be loaded.

    A device is a context manager. :meth:`close` closes all its objects. All methods may be called by any thread.
    """

    def __init__(self, kind: str = "auto", index: int = 0) -> None:
        out = c_void_p()
        call(
            "tegra_hcq_device_open",
            _checks.string(kind, "kind"),
            _checks.integer(index, "index", _checks.U32),
            byref(out),
        )
        self._state = DeviceState(Owned(out.value, "tegra_hcq_device_close", None), self)
        self._properties = self._read_properties()
        self._default: Queue | None = None
        self._opening = threading.Lock()

    @property
    def _raw(self) -> int:
        return self._state.handle.raw

    def _read_properties(self) -> Properties:
        found = _ffi.Properties()
        found.struct_size = ctypes.sizeof(found)
        call("tegra_hcq_device_properties", self._raw, byref(found))
        return Properties(
            kind=_ffi.fixed_text(found.kind),
            chip=_ffi.fixed_text(found.chip),
            sm_version=(found.sm_major, found.sm_minor),
            sm_count=found.sm_count,
            warps_per_sm=found.warps_per_sm,
            max_block_threads=found.max_block_threads,
            unified_memory=bool(found.unified_memory),
            gpc_count=found.gpc_count,
            l2_bytes=found.l2_bytes,
            max_clock_hz=found.max_clock_hz or None,
        )

    @property
    def properties(self) -> Properties:
        """Properties of the GPU; also after the device was closed."""
        return self._properties

    @property
    def closed(self) -> bool:
        """Whether the device was closed."""
        return self._state.owned is None

    def memory(self) -> Memory:
        """Total and free memory of the machine or GPU.

        :raises Unsupported: if the driver does not report it.
        """
        total, free = c_uint64(), c_uint64()
        call("tegra_hcq_device_memory", self._raw, byref(total), byref(free))
        return Memory(total.value, free.value)

    def clocks(self) -> Clocks:
        """The current time by the GPU's clock and by the system's."""
        gpu, unix = c_uint64(), c_uint64()
        call("tegra_hcq_device_clocks", self._raw, byref(gpu), byref(unix))
        return Clocks(gpu.value, unix.value)

    def recover(self) -> Recovery:
        """Stops all queues that have faulted, or on which a wait has timed out. Their unfinished work is lost; its
        fences keep reporting the cause. Buffers, programs and the queues themselves remain valid.
        """
        faults, hanging = c_uint32(), c_uint32()
        call("tegra_hcq_device_recover", self._raw, byref(faults), byref(hanging))
        return Recovery(faults.value, hanging.value)

    def trim(self) -> int:
        """Returns idle memory of the device's allocator to the system, and its size in bytes."""
        released = c_uint64()
        call("tegra_hcq_device_trim", self._raw, byref(released))
        return released.value

    def synchronize(self, timeout: float = 30.0) -> None:
        """Submits and waits for the work of all queues, each at most ``timeout`` seconds."""
        for child in list(self._state.children):
            if isinstance(child, Queue) and not child.closed:
                child.wait(timeout)

    # Output and memory of kernels.

    def on_output(self, function: Callable[[OutputStream, str], object] | None) -> None:
        """Passes what kernels print to a function instead of the process's standard streams; ``None`` passes it to
        those again, which are not ``sys.stdout`` and ``sys.stderr``.

        The function is called before a wait for the device returns, by the thread that waits, and before the device is
        closed. It must not use the package: that raises :class:`Busy`. Its exceptions are passed to
        ``sys.unraisablehook``.
        """
        callback = _ffi.OutputCallback() if function is None else _output(function)
        call("tegra_hcq_device_set_output", self._raw, callback, None)
        # The library does not call the earlier one any more.
        self._state.handle.kept = callback

    @property
    def printf_bytes(self) -> int:
        """Size in bytes of the buffer for what kernels print between two waits; 1 MiB at first. It is rounded up to a
        power of two, at least 4 KiB. While the buffer is full, ``printf`` returns -1. Each change keeps the old buffer
        until the device is closed.
        """
        return self._size("tegra_hcq_device_printf_bytes")

    @printf_bytes.setter
    def printf_bytes(self, value: int) -> None:
        call("tegra_hcq_device_set_printf_bytes", self._raw, _checks.integer(value, "printf_bytes"))

    @property
    def kernel_heap_bytes(self) -> int:
        """Size in bytes of the heap for ``malloc`` in kernels; 8 MiB at first. It is rounded down to pages of 4 KiB. It
        can be changed while kernels have freed all memory of the heap, and no kernel runs that calls ``malloc``.
        """
        return self._size("tegra_hcq_device_kernel_heap_bytes")

    @kernel_heap_bytes.setter
    def kernel_heap_bytes(self, value: int) -> None:
        call("tegra_hcq_device_set_kernel_heap_bytes", self._raw, _checks.integer(value, "kernel_heap_bytes"))

    def _size(self, name: str) -> int:
        found = c_uint64()
        call(name, self._raw, byref(found))
        return found.value

    # Memory.

    def alloc(self, shape: Shape, dtype: DtypeLike = "uint8", purpose: Purpose = Purpose.DEVICE) -> Buffer:
        """Allocates a buffer, aligned to 256 bytes. Its contents are unspecified.

        :param shape: number of elements, or the size of each dimension
        :param dtype: element type; bytes by default
        :raises OutOfMemory: if there is not enough memory.
        """
        parsed, sizes = _dtypes.parse(dtype), _dtypes.dimensions(shape)
        nbytes = _checks.integer(_dtypes.count(sizes) * parsed.size, "the size in bytes")
        out = c_void_p()
        call("tegra_hcq_buffer_alloc", self._raw, nbytes, _checks.integer(purpose, "purpose", max(Purpose)), byref(out))
        return Buffer(self._state.own(out.value, "tegra_hcq_buffer_free"), self._state, parsed, sizes)

    def from_numpy(self, array: npt.ArrayLike | Buffer, purpose: Purpose = Purpose.DEVICE) -> Buffer:
        """Allocates a buffer with the contents, element type and shape of an array.

        An element type that the package does not know, for example a structured one, makes a buffer of bytes:
        ``buffer.numpy(dtype)`` converts it back.

        :raises InvalidArgument: if the elements are Python objects, or have the other byte order.
        """
        np = numpy_module()
        if isinstance(array, Buffer):
            array = array.to_numpy()
        try:
            source = np.ascontiguousarray(array).reshape(np.shape(array))
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"numpy makes no array of the {type(array).__name__}: {error}") from None
        check_elements(source.dtype, "array")
        found = _dtypes.find(source.dtype)
        if found is None:
            buffer = self.alloc(source.nbytes, purpose=purpose)
        else:
            buffer = self.alloc(source.shape, found.name, purpose)
        buffer.copy_from(source.reshape(-1).view(np.uint8))
        return buffer

    def from_bytes(self, data: object, purpose: Purpose = Purpose.DEVICE) -> Buffer:
        """Allocates a buffer of bytes with the contents of an object with the buffer protocol; needs no numpy."""
        with Exported(contiguous(data), "data") as memory:
            buffer = self.alloc(memory.nbytes, purpose=purpose)
            buffer.copy_from(data)
            return buffer

    def import_memory(self, source: object, dtype: DtypeLike | None = None, shape: Shape | None = None) -> Buffer:
        """Maps memory of the process for the GPU in place, without a copy: an ``mmap``, or a numpy array over one.

        The memory must begin a page, and is kept until the buffer is freed. The GPU can also access the rest of the
        last page.

        :param dtype: the array's, or bytes, by default
        :param shape: the array's, or one dimension, by default
        :raises InvalidArgument: if the memory is not writable, contiguous and aligned to a page.
        """
        memory = Exported(source, "source", writable=True)
        page = os.sysconf("SC_PAGE_SIZE")
        if memory.address % page or not memory.nbytes:
            raise InvalidArgument(
                f"the memory of {memory.nbytes} bytes at {memory.address:#x} does not begin a page of {page} bytes: "
                "import an mmap, or an array over one; or copy with from_numpy()"
            )
        own = _dtypes.find(getattr(source, "dtype", None)) or _dtypes.UINT8
        parsed = own if dtype is None else _dtypes.parse(dtype)
        if shape is None:
            keep = dtype is None and hasattr(source, "dtype") and own.size * _size_of(source) == memory.nbytes
            sizes = tuple(source.shape) if keep else (memory.nbytes // parsed.size,)  # type: ignore[attr-defined]
        else:
            sizes = _dtypes.dimensions(shape)
        if _dtypes.count(sizes) * parsed.size > memory.nbytes:
            raise InvalidArgument(f"{sizes} {parsed.name} exceed the memory of {memory.nbytes} bytes")
        out = c_void_p()
        call("tegra_hcq_buffer_import", self._raw, memory.address, memory.nbytes, byref(out))
        owned = self._state.own(out.value, "tegra_hcq_buffer_free", kept=memory)
        return Buffer(owned, self._state, parsed, sizes)

    def alloc_shared(self, shape: Shape, dtype: DtypeLike = "uint8") -> Buffer:
        """Allocates a zeroed buffer that other processes and drivers can map, through :meth:`Buffer.export`."""
        parsed, sizes = _dtypes.parse(dtype), _dtypes.dimensions(shape)
        out = c_void_p()
        call("tegra_hcq_buffer_alloc_shared", self._raw, _dtypes.count(sizes) * parsed.size, byref(out))
        owned = self._state.own(out.value, "tegra_hcq_buffer_free")
        return Buffer(owned, self._state, parsed, sizes)

    def import_file(
        self,
        file: int | HasFileno,
        shape: Shape | None = None,
        dtype: DtypeLike = "uint8",
        offset: int = 0,
        *,
        read_only: bool = False,
    ) -> Buffer:
        """Maps the memory behind a file for the GPU, without a copy: one that :meth:`Buffer.export` of any process has
        returned, or on a Jetson a dma-buf of any driver (a camera, a display, a dma-heap, NvBufSurface). The file may
        be closed afterwards. The same memory is mapped once.

        Nothing orders the accesses of other owners: see :meth:`Queue.wait_file`.

        :param file: a descriptor, or an object with ``fileno()``
        :param shape: what follows ``offset``, in one dimension, by default
        :param offset: first byte, a multiple of the element size
        :param read_only: a kernel that writes the buffer stops with a fault, and copies to it are refused
        :raises InvalidArgument: if the elements do not lie in the memory.
        :raises DeviceError: if the file has no memory that the GPU can map.
        """
        out = c_void_p()
        number = _checks.descriptor(file)
        call("tegra_hcq_buffer_import_file", self._raw, number, not read_only, byref(out))
        owned = self._state.own(out.value, "tegra_hcq_buffer_free")
        size = c_uint64()
        call("tegra_hcq_buffer_size", owned.raw, byref(size))
        whole = Buffer(owned, self._state, _dtypes.UINT8, (size.value,), read_only=read_only)
        return whole.part(offset, shape, dtype)

    # Programs.

    def load(self, cubin: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Program:
        """Loads a cubin, the machine code of kernels for the device's SM version: a file's path, or its contents."""
        if isinstance(cubin, (str, os.PathLike)):
            _checks.path(cubin, "cubin")
            with open(cubin, "rb") as file:
                cubin = file.read()
        elif cubin is None or _checks.is_integer(cubin):
            raise InvalidArgument(f"cubin must be a file's path or its contents, not {type(cubin).__name__}")
        out = c_void_p()
        with Exported(cubin, "cubin") as memory:
            call("tegra_hcq_program_load", self._raw, memory.address, memory.nbytes, byref(out))
        return self._program(out)

    def compile(self, source: str, options: Sequence[str] = (), name: str = "program.cu") -> Program:
        """Compiles CUDA C++ with NVIDIA's NVRTC, where it is installed, and loads the result. Results are cached.

        :param options: those of nvcc and NVRTC, for example "-I/opt/include" and "-DN=4"
        :param name: stands for the file in error messages
        :raises CompileError: if the source does not compile; :attr:`CompileError.log` is the compiler's log.
        :raises LibraryMissing: if NVRTC is not installed; the text says how to get it.
        """
        out = c_void_p()
        texts = _texts(options)
        c_source, c_name = _checks.string(source, "source"), _checks.string(name, "name")
        call("tegra_hcq_program_compile", self._raw, c_source, c_name, texts, len(texts), byref(out))
        return self._program(out)

    def compile_ptx(self, ptx: str, options: Sequence[str] = ()) -> Program:
        """Compiles PTX with NVIDIA's nvJitLink or ptxas, where one is installed, and loads the result.

        :param options: nvJitLink's, for example "-O3"
        :raises CompileError: if it does not compile.
        :raises LibraryMissing: if neither is installed; the text says how to get it.
        """
        out = c_void_p()
        texts = _texts(options)
        call("tegra_hcq_program_compile_ptx", self._raw, _checks.string(ptx, "ptx"), texts, len(texts), byref(out))
        return self._program(out)

    def _program(self, out: c_void_p) -> Program:
        return Program(self._state.own(out.value, "tegra_hcq_program_free"), self)

    # Work.

    @property
    def default_queue(self) -> Queue:
        """The queue of launches that name none; opened on first use."""
        with self._opening:
            if self._default is None or self._default.closed:
                self._default = self.queue()
            return self._default

    def queue(self, sleep: bool = False, hold: bool = False) -> Queue:
        """Opens a queue.

        :param sleep: threads that wait sleep on an interrupt soon, instead of polling, which is faster by microseconds
        :param hold: the queue holds its engine while it waits for a signal
        """
        out = c_void_p()
        call("tegra_hcq_queue_open", self._raw, byref(queue_options(sleep, hold)), byref(out))
        return Queue(self._state.own(out.value, "tegra_hcq_queue_close"), self._state)

    def signal(self, value: int = 0) -> Signal:
        """Creates a signal with a value."""
        out = c_void_p()
        call("tegra_hcq_signal_create", self._raw, _checks.integer(value, "value"), byref(out))
        return Signal(self._state.own(out.value, "tegra_hcq_signal_free"), self._state)

    def graph(self) -> GraphBuilder:
        """Begins the recording of a graph."""
        out = c_void_p()
        call("tegra_hcq_graph_begin", self._raw, byref(out))
        return GraphBuilder(self._state.own(out.value, "tegra_hcq_graph_abandon"), self)

    # Lifetime.

    def close(self) -> None:
        """Closes all objects of the device after their submitted work has ended, then the device. Memory with views
        stays allocated until the last view is gone.
        """
        self._state.close()

    def __enter__(self) -> Self:
        """The device.

        :raises InvalidHandle: if it was closed.
        """
        _ = self._raw
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        found = self._properties
        return f"<tegra_hcq.Device {found.kind} {found.chip}{' closed' if self.closed else ''}>"


def _output(function: Callable[[OutputStream, str], object]) -> ctypes._FuncPointer:
    """The callback of C that passes output to a function."""
    if not callable(function):
        raise InvalidArgument(f"function must be callable or None, not {type(function).__name__}")

    def receive(stream: int, text: int, size: int, _user: object) -> None:
        in_callback(True)
        try:
            function(OutputStream(stream), ctypes.string_at(text, size).decode("utf-8", "replace"))
        except BaseException as error:
            if isinstance(error, Exception):
                raise
            # Of a signal's handler, such as KeyboardInterrupt: it ends the wait.
            _ffi.raised.append(error)
        finally:
            in_callback(False)

    return _ffi.OutputCallback(receive)


def _size_of(array: object) -> int:
    return _dtypes.count(tuple(getattr(array, "shape", ())))


def _texts(options: Sequence[str]) -> ctypes.Array[c_char_p]:
    if not isinstance(options, (list, tuple)):
        raise InvalidArgument(f"options must be a list of strings, not {type(options).__name__}")
    return (c_char_p * len(options))(*(_checks.string(option, "an option") for option in options))
