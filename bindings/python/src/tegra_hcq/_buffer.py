"""Buffers: memory that the GPU accesses."""

from __future__ import annotations

import contextlib
import ctypes
import enum
from ctypes import byref, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, NoReturn

from . import _checks, _dtypes
from ._errors import InvalidArgument, NotCpuVisible, Unsupported
from ._memory import Exported
from ._resource import Owned, Resource, call

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from ._dtypes import DtypeLike, Shape
    from ._resource import DeviceState

_DLPACK_CPU = (1, 0)
"""kDLCPU, device 0."""


class Purpose(enum.IntEnum):
    """What a buffer is used for: a hint that selects its memory and how the CPU caches it."""

    DEVICE = 0
    """Data of kernels, rarely accessed by the CPU. On a GPU with its own memory, memory of the GPU."""
    UPLOAD = 1
    """Written by the CPU, read by the GPU."""
    READ_BACK = 2
    """Written by the GPU, read by the CPU."""
    SIGNALS = 3
    """Small values that CPU and GPU exchange while both run."""


def numpy_module() -> Any:
    """numpy.

    :raises Unsupported: if it is not installed.
    """
    try:
        import numpy
    except ImportError:
        raise Unsupported(
            "numpy is not installed: run `pip install numpy`, or use Buffer.view(), copy_from() and copy_to()"
        ) from None
    return numpy


def contiguous(data: object) -> object:
    """The object itself, or a contiguous copy of a numpy array that is not contiguous."""
    flags = getattr(data, "flags", None)
    if flags is not None and getattr(flags, "c_contiguous", True) is False:
        return numpy_module().ascontiguousarray(data)
    return data


class Buffer(Resource):
    """Memory that the GPU accesses, with an element type and a shape.

    :meth:`Device.alloc`, :meth:`Device.from_numpy` and :meth:`Device.import_memory` make buffers, and :meth:`part`
    makes a buffer that shares the memory of another one.

    Where the CPU sees the memory (always on a Jetson and on the software Orin), :meth:`view`, :meth:`numpy`,
    ``memoryview(buffer)`` (Python 3.12), ``numpy.asarray(buffer)`` and ``torch.from_dlpack(buffer)`` return views
    without a copy. They wait for the work that uses the buffer. They do not wait again later: call :meth:`wait`, or
    make a new view, before you read results of later launches. A view keeps the memory allocated after the buffer, and
    after the device, was closed.
    """

    def __init__(
        self,
        owned: Owned,
        device: DeviceState,
        dtype: _dtypes.Dtype,
        shape: tuple[int, ...],
        offset: int = 0,
        read_only: bool = False,
    ) -> None:
        self._read_only = read_only
        self._dtype = dtype
        self._shape = shape
        self._offset = offset
        super().__init__(owned, device, "buffer")

    @property
    def dtype(self) -> str:
        """Name of the element type, as numpy's: "float32"."""
        return self._dtype.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each dimension."""
        return self._shape

    @property
    def itemsize(self) -> int:
        """Size of an element in bytes."""
        return self._dtype.size

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return _dtypes.count(self._shape) * self._dtype.size

    @property
    def offset(self) -> int:
        """Offset in the allocation in bytes: 0 unless :meth:`part` made the buffer."""
        return self._offset

    @property
    def gpu_address(self) -> int:
        """Address on the GPU, for structs and arrays of pointers.

        The library does not know work that reaches the buffer by its address: keep the buffer until it has ended.
        """
        address = c_uint64()
        call("tegra_hcq_buffer_gpu_address", self._raw, byref(address))
        return address.value + self._offset

    @property
    def cpu_visible(self) -> bool:
        """Whether the CPU sees the memory: if not, there are no views, only copies."""
        try:
            self._address()
        except NotCpuVisible:
            return False
        return True

    def _address(self) -> int:
        address = c_void_p()
        try:
            call("tegra_hcq_buffer_cpu_address", self._raw, byref(address))
        except Unsupported as error:
            raise NotCpuVisible(f"{error}: use to_numpy(), copy_to() and copy_from()") from None
        return (address.value or 0) + self._offset

    def __len__(self) -> int:
        """Size of the first dimension."""
        if not self._shape:
            raise TypeError("a buffer without dimensions has no length")
        return self._shape[0]

    def set_name(self, name: str) -> None:
        """Names the allocation for fault reports."""
        call("tegra_hcq_buffer_set_name", self._raw, _checks.string(name, "name"))

    def wait(self, timeout: float = 30.0) -> None:
        """Waits for the work that uses the buffer, at most ``timeout`` seconds.

        :raises Busy: if such work was launched but not submitted.
        :raises GpuFault: if the GPU stopped it.
        :raises GpuTimeout: if it has not ended.
        """
        call("tegra_hcq_buffer_wait", self._raw, _checks.nanoseconds(timeout))

    def close(self) -> None:
        """Frees the memory once its work has ended, and its views and the buffers that share it are gone."""
        self._owned = None

    def part(self, offset: int, shape: Shape | None = None, dtype: DtypeLike | None = None) -> Buffer:
        """A buffer that shares the memory from ``offset`` on, for kernels, copies and views.

        :param offset: in bytes, not in elements: ``4 * n`` begins at element ``n`` of a float32 buffer
        :param shape: the rest of the buffer, in one dimension, by default
        :param dtype: this buffer's by default
        :raises InvalidArgument: if the part exceeds the buffer, or does not begin at a multiple of the element size,
            which kernels need.
        """
        parsed = self._dtype if dtype is None else _dtypes.parse(dtype)
        offset = _checks.integer(offset, "offset")
        rest = self.nbytes - offset
        sizes = (rest // parsed.size,) if shape is None else _dtypes.dimensions(shape)
        needed = _dtypes.count(sizes) * parsed.size
        if offset > self.nbytes or needed > rest:
            raise InvalidArgument(f"{needed} bytes at offset {offset} are outside of a buffer of {self.nbytes} bytes")
        if (self._offset + offset) % parsed.size:
            raise InvalidArgument(
                f"offset is {offset} bytes, {self._offset + offset} from the start of the allocation: {parsed.name} "
                f"needs a multiple of {parsed.size}. Offsets are in bytes; pass dtype='uint8' for bytes at any offset"
            )
        return Buffer(self._handle, self._device, parsed, sizes, self._offset + offset, self._read_only)

    # Files.

    @property
    def read_only(self) -> bool:
        """Whether the buffer was imported for reading only."""
        return self._read_only

    def export(self, *, read_only: bool = False) -> int:
        """A descriptor of the whole memory of a buffer of :meth:`Device.alloc_shared` or :meth:`Device.import_file`,
        for other owners: ``socket.send_fds`` sends it. Close it with ``os.close``; the memory lives as long as any
        buffer or file of it.

        :raises Unsupported: for every other buffer, and if the driver cannot restrict the file to reading.
        """
        fd = ctypes.c_int32()
        call("tegra_hcq_buffer_export", self._raw, not read_only, byref(fd))
        return fd.value

    @contextlib.contextmanager
    def cpu_access(self, timeout: float = 30.0) -> Iterator[memoryview]:
        """As :meth:`view`, for memory of other drivers: tells the driver that made it when accesses of the CPU begin
        and end, for its caches. Use the memory inside of the ``with`` only.
        """
        view = self.view(timeout)
        call("tegra_hcq_buffer_begin_cpu", self._raw, not self._read_only)
        try:
            yield view
        finally:
            call("tegra_hcq_buffer_end_cpu", self._raw, not self._read_only)

    # Views.

    def view(self, timeout: float = 30.0) -> memoryview:
        """The bytes as the CPU sees them, without a copy; waits as :meth:`wait`.

        :raises NotCpuVisible: if the memory is the GPU's own.
        """
        handle = self._handle
        address = self._address()
        self.wait(timeout)
        array = (ctypes.c_ubyte * self.nbytes).from_address(address)
        # The array, and so each view of it, keeps the memory allocated.
        array.owner = handle  # type: ignore[attr-defined]
        view = memoryview(array).cast("B")
        return view.toreadonly() if self._read_only else view

    def __buffer__(self, flags: int) -> memoryview:
        view = self.view()
        if self._dtype.format is None or not self._shape or 0 in self._shape:
            return view
        return view.cast(self._dtype.format, list(self._shape))  # type: ignore[call-overload, no-any-return]

    def numpy(
        self, dtype: npt.DTypeLike | None = None, shape: Shape | None = None, timeout: float = 30.0
    ) -> np.ndarray[Any, Any]:
        """The memory as a writable numpy array, without a copy; waits as :meth:`wait`.

        :param dtype: the buffer's by default; any numpy type without Python objects, also structured ones
        :param shape: the buffer's by default; with ``dtype`` alone, as many elements as fit
        :raises NotCpuVisible: if the memory is the GPU's own: use :meth:`to_numpy`.
        :raises Unsupported: if numpy is not installed.
        """
        np = numpy_module()
        kind, sizes = self._numpy_layout(np, dtype, shape)
        memory = self.view(timeout)
        try:
            return np.ndarray(sizes, kind, buffer=memory)  # type: ignore[no-any-return]
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"numpy makes no array of {sizes} {kind}: {error}") from None

    def _numpy_layout(self, np: Any, dtype: Any, shape: Shape | None) -> tuple[Any, tuple[int, ...]]:
        try:
            kind = np.dtype(self._dtype.name if dtype is None else dtype)
        except Exception as error:
            raise InvalidArgument(f"numpy has no such element type: {error}; pass dtype") from None
        if kind.hasobject or not kind.itemsize:
            what = "are addresses of Python objects" if kind.hasobject else "have no size"
            raise InvalidArgument(f"elements of type {kind} {what}: pass a type of numbers, such as 'float32'")
        if shape is not None:
            sizes = _dtypes.dimensions(shape)
        else:
            sizes = self._shape if dtype is None else (self.nbytes // kind.itemsize,)
        if _dtypes.count(sizes) * kind.itemsize > self.nbytes:
            raise InvalidArgument(f"an array of {sizes} {kind} exceeds a buffer of {self.nbytes} bytes")
        return kind, sizes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """For ``numpy.asarray(buffer)``: a view where the CPU sees the memory, else a copy."""
        visible = self.cpu_visible
        if copy is False and not visible:
            raise ValueError("the buffer is in the GPU's own memory: numpy cannot see it without a copy")
        array = self.numpy() if visible else self.to_numpy()
        if dtype is not None and array.dtype != numpy_module().dtype(dtype):
            if copy is False:
                raise ValueError(f"a conversion from {array.dtype} to {dtype} needs a copy")
            return array.astype(dtype)
        return array.copy() if copy and visible else array

    # Interchange.

    def __dlpack_device__(self) -> tuple[int, int]:
        """Device of :meth:`__dlpack__`: the CPU, whose memory it is."""
        if not self.cpu_visible:
            self._refuse_dlpack()
        return _DLPACK_CPU

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule of the memory as the CPU sees it, for ``torch.from_dlpack(buffer)``; needs numpy.

        The consumer keeps the memory allocated. numpy makes the capsule: its deleter is C code, and a deleter in Python
        would crash if an exception is being raised meanwhile.

        :raises BufferError: if the memory or the element type cannot be described, or another device is demanded.
        """
        if stream is not None:
            raise BufferError("stream must be None for memory of the CPU")
        if dl_device is not None and tuple(dl_device) != _DLPACK_CPU:
            raise BufferError(f"the buffer cannot be exported to device {dl_device}, only to the CPU {_DLPACK_CPU}")
        if not self.cpu_visible:
            self._refuse_dlpack()
        if self._dtype.name == "bfloat16":
            raise BufferError(
                "numpy has no bfloat16 to export: export buffer.part(0, buffer.shape, 'int16') and convert it "
                "with tensor.view(torch.bfloat16)"
            )
        array = self.numpy()
        if copy:
            array = array.copy()
        np = numpy_module()
        if max_version is None or np.lib.NumpyVersion(np.__version__) < "2.1.0":
            return array.__dlpack__()
        return array.__dlpack__(max_version=max_version)

    def _refuse_dlpack(self) -> NoReturn:
        raise NotCpuVisible(
            "DLPack cannot describe the buffer: it is in the GPU's own memory, and its GPU address means nothing "
            "without a CUDA context: use to_numpy()"
        )

    @property
    def __cuda_array_interface__(self) -> NoReturn:
        """Always an ``AttributeError``: its pointer would belong to a CUDA context, and there is none."""
        raise AttributeError(
            "a tegra_hcq.Buffer has no __cuda_array_interface__: it would promise a pointer in a CUDA context, and "
            "this driver works without CUDA. Use __dlpack__ or numpy() where the CPU sees the memory"
        )

    # Copies.

    def copy_from(self, source: object, offset: int = 0) -> None:
        """Waits for the work that uses the buffer, at most 30 s, then copies all bytes of an object with the buffer
        protocol. The rest of the buffer is left as it is.

        A :class:`Buffer` as source is copied through its :meth:`view`; :meth:`Queue.copy` copies on the GPU.

        :param offset: first byte that is written, an offset in bytes
        """
        data = source.view() if isinstance(source, Buffer) else contiguous(source)
        with Exported(data, "source") as memory:
            call("tegra_hcq_buffer_write", self._raw, self._place(offset, memory.nbytes), memory.address, memory.nbytes)

    def copy_to(self, target: object, offset: int = 0) -> None:
        """Waits for the work that uses the buffer, at most 30 s, then fills an object with writable memory:
        as many bytes are copied as the object has.

        :param offset: first byte that is read, an offset in bytes
        """
        with Exported(target, "target", writable=True) as memory:
            call("tegra_hcq_buffer_read", self._raw, self._place(offset, memory.nbytes), memory.address, memory.nbytes)

    def from_numpy(self, array: npt.ArrayLike | Buffer) -> None:
        """Copies an array, converted to the buffer's element type; its shape is broadcast to the buffer's."""
        np = numpy_module()
        kind, sizes = self._numpy_layout(np, None, None)
        if isinstance(array, Buffer):
            array = array.to_numpy()
        try:
            source = np.asarray(array, dtype=kind)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"array has no elements of type {kind}: {error}") from None
        try:
            full = np.broadcast_to(source, sizes)
        except ValueError:
            raise InvalidArgument(
                f"an array of shape {source.shape} cannot be broadcast to the buffer's shape, {tuple(sizes)}"
            ) from None
        self.copy_from(np.ascontiguousarray(full).reshape(-1).view(np.uint8))

    def to_numpy(self, dtype: npt.DTypeLike | None = None, shape: Shape | None = None) -> np.ndarray[Any, Any]:
        """A copy as a numpy array, also of memory that the CPU does not see. Parameters as for :meth:`numpy`."""
        np = numpy_module()
        kind, sizes = self._numpy_layout(np, dtype, shape)
        try:
            array = np.empty(sizes, kind)
        except ValueError as error:
            raise InvalidArgument(f"numpy makes no array of {sizes} {kind}: {error}") from None
        self.copy_to(array.reshape(-1).view(np.uint8))
        return array  # type: ignore[no-any-return]

    def to_bytes(self) -> bytes:
        """A copy of the contents."""
        target = bytearray(self.nbytes)
        self.copy_to(target)
        return bytes(target)

    def _place(self, offset: int, nbytes: int) -> int:
        """Offset in the allocation of ``nbytes`` bytes at ``offset`` of the buffer."""
        offset = _checks.integer(offset, "offset")
        if nbytes > self.nbytes - offset:
            raise InvalidArgument(f"{nbytes} bytes at offset {offset} are outside of a buffer of {self.nbytes} bytes")
        return self._offset + offset

    def _describe(self) -> str:
        return f" {self._dtype.name} {list(self._shape)}"
