"""Buffers: views, copies, interchange, lifetimes."""

from __future__ import annotations

import ctypes
import gc
import mmap
import sys
import weakref
from types import ModuleType

import pytest
from conftest import KIND, Cubins

import tegra_hcq
from tegra_hcq import Buffer, Device, Purpose

np = pytest.importorskip("numpy")


@pytest.fixture
def visible(device: Device) -> Device:
    """A device whose memory the CPU sees."""
    with device.alloc(16) as buffer:
        if not buffer.cpu_visible:
            pytest.skip("the CPU does not see the GPU's memory")
    return device


def test_an_array_makes_the_round_trip(device: Device) -> None:
    for dtype in ("bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "complex64"):
        array = np.arange(24).reshape(2, 3, 4).astype(dtype)
        buffer = device.from_numpy(array)
        assert (buffer.dtype, buffer.shape, buffer.nbytes) == (dtype, (2, 3, 4), array.nbytes)
        assert (buffer.to_numpy() == array).all()
        assert buffer.to_bytes() == array.tobytes()


def test_layouts_that_are_not_contiguous_are_copied(device: Device) -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    for part in (array[:, ::2], array.T, array[1:3], array[::-1]):
        assert (device.from_numpy(part).to_numpy() == part).all()
    buffer = device.alloc(24, np.int32)
    buffer.copy_from(array.T)
    assert (buffer.to_numpy(shape=(6, 4)) == array.T).all()


def test_scalars_and_structured_types(device: Device) -> None:
    assert device.from_numpy(np.float32(3)).shape == ()
    kind = np.dtype([("x", np.float32), ("n", np.int16)])
    records = np.array([(1.5, 2), (2.5, 3)], kind)
    buffer = device.from_numpy(records)
    assert buffer.dtype == "uint8"
    assert (buffer.to_numpy(kind) == records).all()


def test_from_numpy_of_a_buffer_converts_and_broadcasts(device: Device) -> None:
    buffer = device.alloc((2, 3), "float32")
    buffer.from_numpy([1, 2, 3])
    assert buffer.to_numpy().tolist() == [[1, 2, 3], [1, 2, 3]]
    with pytest.raises(tegra_hcq.InvalidArgument):
        buffer.from_numpy([1, 2])


def test_a_view_is_the_memory(visible: Device, cubin: Cubins) -> None:
    buffer = visible.alloc((2, 2), np.float32)
    array = buffer.numpy()
    array[:] = [[1, 2], [3, 4]]
    assert buffer.to_numpy().tolist() == [[1, 2], [3, 4]]
    saxpy = cubin("saxpy")["saxpy"]
    saxpy(2.0, buffer, buffer, 4, grid=1, block=32)
    buffer.wait()
    assert array.tolist() == [[3, 6], [9, 12]], "the same memory"
    assert buffer.view().nbytes == 16
    buffer.view()[0:4] = np.float32(7).tobytes()
    assert array[0, 0] == 7
    assert np.asarray(buffer)[0, 0] == 7
    assert np.shares_memory(np.asarray(buffer), array)
    assert not np.shares_memory(np.array(buffer), array)
    assert np.asarray(buffer, np.float64).dtype == np.float64


@pytest.mark.skipif(sys.version_info < (3, 12), reason="PEP 688 is Python 3.12's")
def test_the_buffer_protocol(visible: Device) -> None:
    buffer = visible.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    view = memoryview(buffer)
    assert (view.format, view.shape, view[1, 2]) == ("f", (2, 3), 5)
    view[0, 0] = 9
    assert buffer.to_numpy()[0, 0] == 9
    assert bytes(visible.from_bytes(b"abc")) == b"abc"
    assert memoryview(visible.alloc(4, "complex64")).nbytes == 32


def test_a_view_of_another_type_must_fit(visible: Device) -> None:
    buffer = visible.alloc(16)
    assert buffer.numpy("float32").shape == (4,)
    assert buffer.numpy("int16", (2, 3)).shape == (2, 3)
    with pytest.raises(tegra_hcq.InvalidArgument, match="exceeds a buffer of 16 bytes"):
        buffer.numpy("int16", 9)


def test_views_wait_for_the_gpu(visible: Device, cubin: Cubins) -> None:
    spin = cubin("faults")["fault_endless"]
    stop, turns = visible.alloc(1, "uint32", Purpose.SIGNALS), visible.alloc(1, "uint32")
    flag = stop.numpy()
    flag[0] = 0
    spin(stop, turns, grid=1, block=1)
    with pytest.raises(tegra_hcq.GpuTimeout):
        turns.numpy(timeout=0.05)
    flag[0] = 1
    assert turns.numpy()[0] >= 0


def test_work_that_was_not_submitted_is_refused(visible: Device, cubin: Cubins) -> None:
    a = visible.alloc(4, "float32")
    queue = visible.queue()
    queue.launch(cubin("saxpy")["saxpy"], 1.0, a, a, 4, grid=1, block=32)
    with pytest.raises(tegra_hcq.Busy):
        a.numpy()
    queue.submit()
    a.numpy()


def test_views_keep_memory_of_closed_buffers_and_devices() -> None:
    device = Device(KIND)
    buffer = device.from_numpy(np.arange(1000))
    if not buffer.cpu_visible:
        device.close()
        pytest.skip("the CPU does not see the GPU's memory")
    state = weakref.ref(device._state.handle)
    array, view, part = buffer.numpy(), buffer.view(), buffer.part(80)
    buffer.close()
    device.close()
    assert part.closed and device.closed
    # Other allocations would reuse freed memory.
    with Device(KIND) as other:
        kept = [other.from_numpy(np.zeros(1000)) for _ in range(8)]
        assert array.sum() == 499500 and view[8] == 1
        array[:] = 5
        del kept
    assert state() is not None, "the device's handle is kept by the views"
    del array
    gc.collect()
    assert state() is not None
    del view
    assert state() is None, "the last view closes the device"


def test_the_memory_is_freed_with_the_last_reference(device: Device) -> None:
    def handles() -> int:
        out = ctypes.c_uint64()
        return device.alloc(16).gpu_address + out.value

    first = handles()
    assert all(handles() == first for _ in range(100)), "each buffer reuses the memory of the one before"


def test_closed_buffers_and_devices_are_refused(device: Device) -> None:
    buffer = device.alloc(16)
    buffer.close()
    buffer.close()
    for call in (
        buffer.view,
        buffer.numpy,
        buffer.to_numpy,
        buffer.wait,
        lambda: np.asarray(buffer),
        lambda: buffer.part(0),
        lambda: buffer.from_numpy(1),
        lambda: device.from_numpy(buffer),
        lambda: device.alloc(16).from_numpy(buffer),
        lambda: device.alloc(16).copy_from(buffer),
        lambda: device.queue().copy(buffer, buffer),
    ):
        with pytest.raises(tegra_hcq.InvalidHandle, match="the buffer cannot be used: it was closed"):
            call()
    other = device.alloc(16)
    device.close()
    device.close()
    with pytest.raises(tegra_hcq.InvalidHandle, match="its device was closed"):
        other.to_bytes()
    with pytest.raises(ValueError, match="the device was closed"):
        device.alloc(16)
    assert "closed" in repr(other) and "closed" in repr(device)


def test_parts_share_the_memory(device: Device) -> None:
    buffer = device.from_numpy(np.arange(10, dtype=np.uint16))
    part = buffer.part(4, 3)
    assert part.to_numpy().tolist() == [2, 3, 4]
    assert part.gpu_address == buffer.gpu_address + 4
    assert part.part(2).part(2).offset == 8
    part.copy_from(np.array([20, 30, 40], np.uint16))
    assert buffer.to_numpy().tolist() == [0, 1, 20, 30, 40, 5, 6, 7, 8, 9]
    assert buffer.part(20).nbytes == 0
    assert buffer.part(0, (1, 5), "int32").to_numpy().shape == (1, 5)
    for arguments in ((21,), (-1,), (18, 2), (0, 6, "int32")):
        with pytest.raises(tegra_hcq.InvalidArgument):
            buffer.part(*arguments)
    buffer.close()
    assert part.to_numpy()[0] == 20, "a part keeps the memory"


def test_copies_check_their_range(device: Device) -> None:
    buffer = device.from_bytes(b"0123456789")
    buffer.copy_from(b"ab", 8)
    target = bytearray(4)
    buffer.copy_to(target, 6)
    assert bytes(target) == b"67ab"
    for call in (
        lambda: buffer.copy_from(b"abc", 8),
        lambda: buffer.copy_to(bytearray(11)),
        lambda: buffer.copy_to(bytearray(1), -1),
    ):
        with pytest.raises(tegra_hcq.InvalidArgument, match=r"outside of a buffer of 10 bytes|offset is -1"):
            call()
    with pytest.raises(tegra_hcq.InvalidArgument, match="writable contiguous memory"):
        buffer.copy_to(b"1234567890")
    with pytest.raises(tegra_hcq.InvalidArgument, match="not int"):
        buffer.copy_from(7)
    if buffer.cpu_visible:
        device.alloc(10).copy_from(buffer)


def test_shapes_and_types_are_checked(device: Device) -> None:
    assert device.alloc((3, 5), "bfloat16").nbytes == 30
    assert len(device.alloc((3, 5), float)) == 3
    for shape, dtype in ((-1, "uint8"), (1.5, "uint8"), (4, "int7"), (4, object), (2**40, "complex128")):
        with pytest.raises((tegra_hcq.InvalidArgument, tegra_hcq.OutOfMemory, TypeError)):
            device.alloc(shape, dtype)
    with pytest.raises(MemoryError):
        device.alloc(2**46)
    with pytest.raises(tegra_hcq.InvalidArgument):
        device.alloc(16, purpose=9)


def test_memory_of_the_process_is_imported_in_place(visible: Device, cubin: Cubins, on_the_model: None) -> None:
    memory = mmap.mmap(-1, 8192)
    array = np.frombuffer(memory, np.float32)
    array[:] = 3
    buffer = visible.import_memory(array)
    assert (buffer.dtype, buffer.shape) == ("float32", (2048,))
    cubin("saxpy")["saxpy"](2.0, buffer, buffer, 2048, grid=2, block=256)
    buffer.wait()
    assert (array == 9).all()
    assert visible.import_memory(memory, "int64").shape == (1024,)
    # The process keeps the memory while the GPU may access it.
    kept = weakref.ref(buffer._handle.kept)
    del buffer
    assert kept() is None
    with pytest.raises(tegra_hcq.InvalidArgument, match="does not begin a page"):
        visible.import_memory(array[1:])
    with pytest.raises(tegra_hcq.InvalidArgument, match="writable"):
        visible.import_memory(b"0" * 4096)
    with pytest.raises(tegra_hcq.InvalidArgument, match="exceed"):
        visible.import_memory(memory, "int64", 1025)


def test_numpy_takes_memory_by_dlpack(visible: Device) -> None:
    device = Device(KIND)
    buffer = device.from_numpy(np.arange(6, dtype=np.int16).reshape(2, 3))
    array = np.from_dlpack(buffer)
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.shares_memory(array, buffer.numpy())
    state = weakref.ref(device._state.handle)
    device.close()
    assert array.sum() == 15 and state() is not None
    del array, buffer
    assert state() is None, "the consumer's last reference frees the memory"


def test_dlpack_capsules_have_the_version_that_is_asked_for(visible: Device) -> None:
    buffer = visible.alloc(4)
    assert buffer.__dlpack_device__() == (1, 0)
    new = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
    assert '"dltensor"' in repr(buffer.__dlpack__())
    assert '"dltensor"' in repr(buffer.__dlpack__(max_version=(0, 8)))
    versioned = repr(buffer.__dlpack__(max_version=(1, 0)))
    assert ('"dltensor_versioned"' if new else '"dltensor"') in versioned
    assert not np.shares_memory(np.from_dlpack(Copied(buffer)), buffer.numpy())
    with pytest.raises(BufferError):
        buffer.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        buffer.__dlpack__(stream=1)  # type: ignore[arg-type]
    with pytest.raises(BufferError, match="bfloat16"):
        visible.alloc(4, "bfloat16").__dlpack__()


class Copied:
    """Exports a copy."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._buffer.__dlpack_device__()

    def __dlpack__(self, **_: object) -> object:
        return self._buffer.__dlpack__(copy=True)


def test_a_capsule_dropped_while_an_exception_is_raised_frees_the_memory(visible: Device) -> None:
    def fail() -> None:
        raise KeyError("the original")

    kept = []
    for _ in range(3):
        buffer = visible.alloc(16)
        kept.append(weakref.ref(buffer._handle))
        with pytest.raises(KeyError, match="the original"):
            print(buffer.__dlpack__(), fail())
        del buffer
    gc.collect()
    assert [reference() for reference in kept] == [None] * 3


def test_memory_that_the_cpu_does_not_see_has_no_views(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = device.from_numpy(np.arange(4, dtype=np.float32))
    if buffer.cpu_visible:

        def unsupported(self: Buffer) -> int:
            raise tegra_hcq.NotCpuVisible("the buffer is in the GPU's own memory")

        monkeypatch.setattr(Buffer, "_address", unsupported)
    assert not buffer.cpu_visible
    for view in (buffer.view, buffer.numpy, buffer.__dlpack__, buffer.__dlpack_device__):
        with pytest.raises(BufferError):
            view()
    assert buffer.to_numpy().tolist() == np.asarray(buffer).tolist() == [0, 1, 2, 3]
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="without a copy"):
            np.asarray(buffer, copy=False)


def test_there_is_no_cuda_array_interface(device: Device) -> None:
    buffer = device.alloc(16)
    assert not hasattr(buffer, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="CUDA context"):
        _ = buffer.__cuda_array_interface__


def test_torch_takes_memory_by_dlpack(visible: Device) -> None:
    torch: ModuleType = pytest.importorskip("torch")
    buffer = visible.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    tensor = torch.from_dlpack(buffer)
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5]]
    tensor[0, 0] = 7
    assert buffer.to_numpy()[0, 0] == 7, "the same memory"
    halves = visible.alloc((2, 2), "bfloat16")
    half = torch.from_dlpack(halves.part(0, halves.shape, "int16")).view(torch.bfloat16)
    half[:] = 1.5
    assert halves.to_bytes() == b"\xc0\x3f" * 4
    state = weakref.ref(buffer._handle)
    buffer.close()
    visible.close()
    assert tensor.sum() == 22
    del tensor, buffer
    assert state() is None


def test_without_numpy_the_errors_name_it(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    buffer = device.from_bytes(b"1234")
    for call in (buffer.numpy, buffer.to_numpy, lambda: device.from_numpy([1])):
        with pytest.raises(tegra_hcq.Unsupported, match="pip install numpy"):
            call()
    if buffer.cpu_visible:
        assert bytes(buffer.view()) == b"1234"
    assert buffer.to_bytes() == b"1234"
