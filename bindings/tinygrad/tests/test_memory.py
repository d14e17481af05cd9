"""Allocation, views and copies."""

import ctypes
import mmap
import os

import numpy as np
import pytest
from tinygrad import Device, Tensor, dtypes
from tinygrad.device import Buffer, BufferSpec


def filled(device: str, values: np.ndarray) -> Buffer:
    return Buffer(device, values.size, dtypes.uint8, initial_value=values.tobytes())


@pytest.mark.parametrize("size", [1, 3, 255, 256, 257, 4096, 1_000_003])
def test_round_trip_of_any_size(size):
    values = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    buffer = filled("ORIN", values)
    assert bytes(buffer.as_memoryview()) == values.tobytes()


@pytest.mark.parametrize("offset, size", [(0, 16), (1, 7), (255, 2), (4095, 1)])
def test_views_share_memory(offset, size):
    values = np.arange(4096, dtype=np.uint16).astype(np.uint8)
    view = filled("ORIN", values).view(size, dtypes.uint8, offset).ensure_allocated()
    assert bytes(view.as_memoryview()) == values[offset : offset + size].tobytes()


def test_cpu_visible_memory_is_not_copied(device):
    buffer = filled("ORIN", np.arange(64, dtype=np.uint8))
    if not device.board.unified:
        assert not hasattr(device.allocator, "_as_buffer")
        return
    seen = buffer.as_memoryview(force_zero_copy=True)
    seen[5] = 200
    assert buffer.as_memoryview()[5] == 200
    view = buffer.view(8, dtypes.uint8, 4).ensure_allocated().as_memoryview(force_zero_copy=True)
    assert view[1] == 200 and len(view) == 8


def test_read_only_source(device):
    memory = device.allocator.alloc(8)
    device.allocator._copyin(memory, memoryview(b"\1\2\3\4\5\6\7\10"))
    target = memoryview(bytearray(8))
    device.allocator._copyout(target, memory)
    assert bytes(target) == b"\1\2\3\4\5\6\7\10"


def test_zeroed_allocation(device):
    memory = device.allocator.alloc(1000, BufferSpec(zero=True))
    target = memoryview(bytearray(b"x" * 1000))
    device.allocator._copyout(target, memory)
    assert bytes(target) == bytes(1000)


@pytest.mark.parametrize("offset", [0, 64])
def test_memory_of_the_process_is_used_in_place(device, offset):
    if device.board.kind == "nvrm":
        pytest.skip("imports need CPU memory that the GPU can map")
    pages = mmap.mmap(-1, 8192)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + offset
    numbers = np.frombuffer(pages, np.float32, 16, offset)
    numbers[:] = range(16)
    tensor = Tensor.from_blob(address, (16,), dtype=dtypes.float32, device="ORIN")
    assert (tensor * 2).tolist() == [2.0 * i for i in range(16)]
    numbers[3] = 50
    assert (tensor + 1).tolist()[3] == 51.0


def test_full_memory_is_an_error_and_the_cache_is_emptied(device):
    freed = []
    original = device.allocator.free_cache
    device.allocator.free_cache = lambda: (freed.append(1), original())
    try:
        with pytest.raises(MemoryError):
            device.allocator.alloc(1 << 50)
    finally:
        device.allocator.free_cache = original
    assert freed
    assert (Tensor([1, 2]) + 1).tolist() == [2, 3]


def test_thousands_of_allocations_leak_nothing(device):
    def cycle():
        memory = device.allocator._alloc(1 << 20, BufferSpec())
        device.allocator._free(memory, BufferSpec())

    def descriptors():
        return len(os.listdir("/proc/self/fd")), len(open("/proc/self/maps").readlines())

    for _ in range(10):
        cycle()
    before = descriptors()
    for _ in range(1000):
        cycle()
    after = descriptors()
    assert after[0] - before[0] < 50 and after[1] - before[1] < 50


def test_transfer_between_devices(two_devices):
    values = np.random.default_rng(0).integers(0, 256, 10_001, dtype=np.uint8)
    target = Buffer("ORIN:1", values.size, dtypes.uint8).ensure_allocated()
    target.copy_from(filled("ORIN", values))
    assert bytes(target.as_memoryview()) == values.tobytes()
    back = Buffer("ORIN", values.size, dtypes.uint8).ensure_allocated()
    back.copy_from(target)
    assert bytes(back.as_memoryview()) == values.tobytes()


def test_software_orins_are_separate_boards(two_devices):
    first, second = two_devices
    if first.board.kind == "sim":
        assert first.board is not second.board


SHARED = """
    import tinygrad_orin, numpy as np
    from tinygrad import Device, Tensor, TinyJit
    a, b = Device["ORIN"], Device["ORIN:1"]
    assert a.board is b.board and a.queue != b.queue
    x = Tensor(np.arange(1000, dtype=np.float32), device="ORIN").realize()
    for step in range(20):
        # Each copy must wait for the kernel before it, and each kernel for the copy before it, on the other queue.
        y = (x.to("ORIN:1") + 1).realize()
        x = (y.to("ORIN") * 2).realize()
    expected = np.arange(1000, dtype=np.float32)
    for step in range(20): expected = (expected + 1) * 2
    assert (x.numpy() == expected).all()

    @TinyJit
    def step(x): return ((x + 1).realize().to("ORIN:1").realize() * 2).realize().to("ORIN").realize()
    from tinygrad.engine.jit import GraphRunner
    for i in range(6):
        t = Tensor(np.full(100, i, dtype=np.float32), device="ORIN").realize()
        assert (step(t).numpy() == (i + 1) * 2).all(), i
    s = Tensor.arange(64).contiguous().realize().shard(("ORIN", "ORIN:1"), axis=0).realize()
    assert (s * 2).sum().item() == 64 * 63
    print("done")
"""


def test_devices_that_share_a_gpu_are_ordered_on_it(python):
    assert python(SHARED, ORIN_GPUS="1").strip() == "done"


def test_indices_choose_gpus(python):
    out = python(
        """
        import tinygrad_orin
        from tinygrad import Device
        from tinygrad_orin.interfaces import SIMIface
        print([SIMIface.gpu(i) for i in range(4)])
        """,
        DEV="SIM:2,5+ORIN",
    )
    assert out.strip() == "[2, 5, 2, 5]"


def test_unknown_interface_is_refused(python):
    out = python(
        """
        import tinygrad_orin
        from tinygrad import Device
        try: Device["ORIN"]
        except Exception as error: print(type(error).__name__, error)
        """,
        DEV="NVGPU+ORIN",
    )
    assert "/dev" in out or "ORIN" in out


def test_default_device_is_unaffected():
    assert "ORIN" not in Device._devices
