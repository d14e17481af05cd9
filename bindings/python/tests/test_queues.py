"""Queues, fences, signals, graphs, profiles, faults."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import select
import threading
import time
from pathlib import Path

import pytest
from conftest import KIND, Cubins

import tegra_hcq
from tegra_hcq import Device, FaultKind, Purpose, Work

np = pytest.importorskip("numpy")


def ones(device: Device, count: int = 256) -> tegra_hcq.Buffer:
    return device.from_numpy(np.ones(count, np.float32))


def test_work_starts_with_its_submission(device: Device, cubin: Cubins) -> None:
    saxpy, x = cubin("saxpy")["saxpy"], ones(device)
    with device.queue() as queue:
        for _ in range(3):
            queue.launch(saxpy, 1.0, x, x, 256, grid=1, block=256)
        fence = queue.submit()
        fence.wait()
        assert fence.done
        assert (x.to_numpy() == 8).all()
        queue.launch(saxpy, 1.0, x, x, 256, grid=1, block=256)
    assert (x.to_numpy() == 16).all(), "the end of the block submits and waits"
    assert queue.closed
    queue.close()


def test_a_block_that_raises_drops_its_work(device: Device, cubin: Cubins) -> None:
    saxpy, x = cubin("saxpy")["saxpy"], ones(device)
    with pytest.raises(KeyError), device.queue() as queue:
        queue.launch(saxpy, 1.0, x, x, 256, grid=1, block=256)
        raise KeyError
    assert (x.to_numpy() == 1).all()


def test_copies_and_fills(device: Device) -> None:
    a, b = device.from_numpy(np.arange(64, dtype=np.uint32)), device.alloc(64, "uint32")
    queue = device.queue()
    queue.copy(b, a)
    queue.copy(b.part(0, 16), a.part(192, 16))
    queue.fill(b.part(64, 2), 0xDEADBEEF, width=4)
    queue.fill(b.part(248, 1), 0xFF)
    fence = queue.upload(b, np.array([7, 8], np.uint32), offset=128)
    fence.wait()
    expected = np.arange(64, dtype=np.uint32)
    expected[:16] = expected[48:]
    expected[16:18] = 0xDEADBEEF
    expected[62] = 0xFFFFFFFF
    expected[32:34] = [7, 8]
    assert (b.to_numpy() == expected).all()
    for call in (
        lambda: queue.copy(b, a.part(4)),
        lambda: queue.fill(b, 256),
        lambda: queue.fill(b, -1),
        lambda: queue.fill(b, 1, width=2),
        lambda: queue.upload(b, bytes(257)),
    ):
        with pytest.raises(tegra_hcq.InvalidArgument):
            call()


def test_queues_wait_for_fences_and_signals(device: Device, cubin: Cubins) -> None:
    saxpy, x = cubin("saxpy")["saxpy"], ones(device)
    first, second, signal = device.queue(), device.queue(sleep=True), device.signal(5)
    assert signal.value == 5
    first.wait_signal(signal, 6)
    first.launch(saxpy, 1.0, x, x, 256, grid=1, block=256)
    fence = first.submit()
    second.wait_fence(fence)
    second.launch(saxpy, 2.0, x, x, 256, grid=1, block=256)
    second.signal(signal, 9)
    second.memory_barrier()
    last = second.submit()
    assert not fence.done
    with pytest.raises(tegra_hcq.GpuTimeout):
        fence.wait(0.01)
    with pytest.raises(TimeoutError):
        signal.wait(6, 0.01)
    signal.value = 6
    signal.wait(9)
    last.wait()
    assert (signal.value, x.to_numpy()[0]) == (9, 6)
    assert signal.gpu_time_ns > 0
    with pytest.raises(tegra_hcq.InvalidArgument):
        signal.value = -1


def test_time_outs_are_checked(device: Device) -> None:
    queue = device.queue()
    for timeout in (-1, float("inf"), float("nan")):
        with pytest.raises(tegra_hcq.InvalidArgument, match="timeout"):
            queue.wait(timeout)


def test_a_fence_is_a_file_for_event_loops(device: Device) -> None:
    queue, signal = device.queue(), device.signal()
    queue.wait_signal(signal, 1)
    fence = queue.submit()
    assert fence.fileno() == fence.fileno()
    assert select.select([fence], [], [], 0.05)[0] == []
    signal.value = 1
    assert select.select([fence], [], [], 10)[0] == [fence]
    fence.wait(0)
    descriptor = fence.fileno()
    fence.close()
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_asyncio_waits_for_fences(device: Device, cubin: Cubins) -> None:
    queue, signal = device.queue(), device.signal()

    async def release() -> float:
        await asyncio.sleep(0.05)
        signal.value = 1
        return time.monotonic()

    async def main() -> tuple[float, float]:
        queue.wait_signal(signal, 1)
        fence = queue.submit()

        async def wait() -> float:
            await fence
            return time.monotonic()

        waited, released = await asyncio.gather(wait(), release())
        await fence
        return waited, released

    waited, released = asyncio.run(main())
    assert waited >= released

    async def fault() -> None:
        out = device.alloc(4)
        queue.launch(cubin("faults")["fault_trap"], 0, out, grid=1, block=1)
        await queue.submit()

    with pytest.raises(tegra_hcq.GpuFault):
        asyncio.run(fault())
    device.recover()

    async def too_late() -> None:
        other = device.queue()
        other.wait_signal(signal, 2)
        await other.submit().wait_async(0.05)

    with pytest.raises(tegra_hcq.GpuTimeout):
        asyncio.run(too_late())
    signal.value = 2


def test_a_thread_that_waits_does_not_block_others(device: Device) -> None:
    queue, signal = device.queue(), device.signal()
    queue.wait_signal(signal, 1)
    fence = queue.submit()
    outcome: list[object] = []

    def wait() -> None:
        try:
            fence.wait(30)
            outcome.append(True)
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    # Without the GIL's release, none of these steps would run before the wait's time-out.
    start, steps = time.monotonic(), 0
    while time.monotonic() - start < 0.1:
        steps += 1
    assert thread.is_alive() and steps > 1000 and not outcome
    signal.value = 1
    thread.join(10)
    assert outcome == [True] and time.monotonic() - start < 10


def test_threads_share_a_queue(device: Device, cubin: Cubins) -> None:
    saxpy = cubin("saxpy")["saxpy"]
    queue = device.queue()
    buffers = [ones(device, 32) for _ in range(4)]

    def work(x: tegra_hcq.Buffer) -> None:
        for _ in range(20):
            queue.launch(saxpy, 1.0, x, x, 32, grid=1, block=32)
            queue.submit().wait()

    threads = [threading.Thread(target=work, args=(buffer,)) for buffer in buffers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((buffer.to_numpy() == 2**20).all() for buffer in buffers)


def test_graphs_are_recorded_changed_and_replayed(device: Device, cubin: Cubins) -> None:
    saxpy = cubin("saxpy")["saxpy"]
    x, y, z = ones(device), ones(device), device.alloc(256, "float32")
    with device.graph() as builder:
        builder.set_instances(2)
        cleared = builder.fill(z)
        launched = builder.launch(saxpy, 2.0, x, y, 256, grid=1, block=256)
        copied = builder.copy(z, y)
        graph = builder.build()
    assert (cleared, launched, copied, len(graph)) == (0, 1, 2, 3)
    assert builder.closed and "3 steps" in repr(graph)
    graph.replay().wait()
    assert (z.to_numpy() == 3).all()
    graph.set_argument(launched, 0, 3.0)
    graph.set_argument(launched, 1, y)
    graph.set_size(launched, (2, 1), 128)
    graph.set_copy(copied, x, y)
    with device.queue() as queue:
        graph.replay(queue)
        queue.replay(graph).wait()
    assert (x.to_numpy() == 48).all()
    for call in (
        lambda: graph.set_argument(copied, 0, 1.0),
        lambda: graph.set_argument(launched, 4, 1.0),
        lambda: graph.set_argument(launched, 3, 1.0 + 2j),  # type: ignore[arg-type]
        lambda: graph.set_size(7, 1, 1),
    ):
        with pytest.raises(tegra_hcq.InvalidArgument):
            call()


def test_a_recording_that_is_not_built_is_dropped(device: Device) -> None:
    with device.graph() as builder:
        builder.fill(device.alloc(16))
    assert builder.closed
    with pytest.raises(tegra_hcq.InvalidHandle):
        builder.build()


def test_a_graph_keeps_its_buffers(device: Device, cubin: Cubins) -> None:
    x = ones(device)
    builder = device.graph()
    builder.launch(cubin("saxpy")["saxpy"], 1.0, x, x, 256, grid=1, block=256)
    graph = builder.build()
    view = x.numpy() if x.cpu_visible else None
    x.close()
    graph.replay().wait()
    assert view is None or (view == 2).all()


def test_profiles_have_times_and_names(device: Device, cubin: Cubins, tmp_path: Path) -> None:
    saxpy, x = cubin("saxpy")["saxpy"], ones(device)
    queue = device.queue()
    queue.start_profile()
    with queue.span("step"):
        queue.launch(saxpy, 1.0, x, x, 256, grid=2, block=128)
        queue.fill(x, 0)
    queue.stop_profile()
    profile = queue.take_profile()
    kinds = [(span.work, span.name) for span in profile.spans]
    assert (Work.LAUNCH, "saxpy") in kinds and Work.FILL in [work for work, _ in kinds]
    launch = next(span for span in profile.spans if span.work is Work.LAUNCH)
    assert (launch.grid, launch.block, launch.step) == ((2, 1, 1), (128, 1, 1), None)
    assert launch.called_ns <= launch.submitted_ns and launch.duration_ns > 0
    assert len(profile) == len(profile.spans)
    assert "saxpy" in str(profile)
    profile.write_trace(tmp_path / "trace.json")
    assert "saxpy" in json.dumps(json.loads((tmp_path / "trace.json").read_text()))


def test_a_fault_is_decoded_and_the_next_kernel_runs(device: Device, cubin: Cubins, on_the_model: None) -> None:
    out = device.alloc(16, "uint32")
    out.set_name("result")
    # The program is a temporary.
    cubin("faults")["fault_misaligned"](out, 2, out, grid=1, block=1)
    with pytest.raises(tegra_hcq.GpuFault) as caught:
        device.synchronize()
    fault = caught.value.fault
    assert fault is not None
    assert (fault.kind, fault.kernel, fault.grid, fault.block) == (
        FaultKind.SM, "fault_misaligned", (1, 1, 1), (1, 1, 1)
    )  # fmt: skip
    assert fault.reason and "misaligned" in fault.reason and fault.text == str(caught.value)
    assert fault.code_offset is not None and fault.pc is not None
    assert device.recover().faults == 1
    saxpy, x = cubin("saxpy")["saxpy"], ones(device)
    saxpy(1.0, x, x, 256, grid=1, block=256)
    assert (x.to_numpy() == 2).all()
    copied = pickle.loads(pickle.dumps(caught.value))
    assert copied.fault == fault and copied.status == 2 and str(copied) == str(caught.value)


def test_an_mmu_fault_names_the_buffer(device: Device, cubin: Cubins, on_the_model: None) -> None:
    out = device.alloc(16, "uint32")
    out.set_name("weights")
    address = out.gpu_address + (1 << 30)
    cubin("faults")["fault_write"](np.uint64(address), 1, grid=1, block=1)
    with pytest.raises(tegra_hcq.GpuFault) as caught:
        device.synchronize()
    fault = caught.value.fault
    assert fault is not None and fault.kind is FaultKind.MMU
    assert fault.address == address & ~0xFFF
    assert "write" in (fault.reason or "")
    device.recover()


def test_hanging_work_is_stopped_by_a_recovery(device: Device, cubin: Cubins) -> None:
    stop = device.alloc(1, "uint32", Purpose.SIGNALS)
    stop.copy_from(bytes(4))
    cubin("faults")["fault_endless"](stop, device.alloc(1, "uint32"), grid=1, block=1)
    with pytest.raises(tegra_hcq.GpuTimeout):
        device.synchronize(0.05)
    assert device.recover() == (0, 1)


def test_devices_are_opened_by_kind_and_index() -> None:
    with Device(KIND) as device:
        found = device.properties
        assert found.kind == KIND and found.sm_count > 0 and found.arch.startswith("sm_")
        if KIND == "sim":
            assert (found.chip, found.sm_version, found.unified_memory) == ("ga10b", (8, 7), True)
            with Device("sim", 1) as other:
                assert other.memory().total > 0
        clocks = device.clocks()
        assert abs(clocks.unix_ns / 1e9 - time.time()) < 10
        assert device.trim() >= 0
    assert device.properties is found
    with pytest.raises(tegra_hcq.InvalidArgument):
        Device("none")
    with pytest.raises(tegra_hcq.InvalidArgument):
        Device(KIND, -1)


def test_each_exception_has_the_class_that_programs_catch() -> None:
    assert issubclass(tegra_hcq.GpuTimeout, TimeoutError)
    assert issubclass(tegra_hcq.OutOfMemory, MemoryError)
    assert issubclass(tegra_hcq.InvalidArgument, ValueError)
    assert issubclass(tegra_hcq.NotFound, LookupError)
    names = [name for name in tegra_hcq.__all__ if isinstance(getattr(tegra_hcq, name), type)]
    errors = [getattr(tegra_hcq, name) for name in names if issubclass(getattr(tegra_hcq, name), Exception)]
    assert len(errors) == 14 and all(issubclass(error, tegra_hcq.TegraError) for error in errors)
    for error in errors:
        assert str(pickle.loads(pickle.dumps(error("text")))) == "text"
