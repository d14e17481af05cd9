"""Queues, fences and signals."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from ctypes import byref, c_bool, c_int32, c_uint64, c_void_p
from typing import TYPE_CHECKING

from . import _checks, _ffi
from ._buffer import Buffer, contiguous
from ._errors import InvalidArgument
from ._memory import Exported
from ._profile import Profile
from ._program import launch_arguments
from ._resource import Owned, Resource, announced, call, raw

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import TracebackType

    from ._arguments import Dim, KernelArg
    from ._checks import HasFileno
    from ._graph import Graph
    from ._program import Kernel
    from ._resource import DeviceState


class Fence(Resource):
    """The end of a submission. ``await fence`` waits in an event loop of asyncio."""

    def __init__(self, owned: Owned, device: DeviceState) -> None:
        self._descriptor = -1
        super().__init__(owned, device, "fence")

    @property
    def done(self) -> bool:
        """Whether the submission has ended, successfully or not: :meth:`wait` returns the outcome then."""
        done = c_bool()
        call("tegra_hcq_fence_poll", self._raw, byref(done))
        return done.value

    def wait(self, timeout: float = 30.0) -> None:
        """Waits until the submission has ended, at most ``timeout`` seconds. Other threads run meanwhile.

        :raises GpuFault: if the GPU stopped it.
        :raises GpuTimeout: if it has not ended.
        """
        call("tegra_hcq_fence_wait", self._raw, _checks.nanoseconds(timeout))

    def _eventfd(self, timeout: float) -> int:
        descriptor = c_int32()
        call("tegra_hcq_fence_eventfd", self._raw, _checks.nanoseconds(timeout), byref(descriptor))
        return descriptor.value

    def fileno(self) -> int:
        """A file descriptor for ``select`` and the like. It becomes readable when the submission has ended, has
        faulted, or has not ended within 30 s; then call :meth:`wait` with time-out 0 for the outcome. The fence closes
        it.
        """
        if self._descriptor < 0:
            self._descriptor = self._eventfd(30.0)
        return self._descriptor

    async def wait_async(self, timeout: float = 30.0) -> None:
        """Waits as :meth:`wait`, in an event loop of asyncio: other tasks run meanwhile."""
        if not self.done:
            loop = asyncio.get_running_loop()
            ended = loop.create_future()
            descriptor = self._eventfd(timeout)

            def readable() -> None:
                if not ended.done():
                    ended.set_result(None)

            try:
                loop.add_reader(descriptor, readable)
                await ended
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        self.wait(0)

    def __await__(self) -> Generator[object, None, None]:
        return self.wait_async().__await__()

    def close(self) -> None:
        """Frees the fence. The work goes on."""
        super().close()
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        # A failure cannot be handled here, and `os` may be gone at the end of the process.
        with contextlib.suppress(Exception):
            self._close_descriptor()


class Signal(Resource):
    """A 64-bit value that the CPU and queues set and wait for. :meth:`Device.signal` makes it."""

    def __init__(self, owned: Owned, device: DeviceState) -> None:
        super().__init__(owned, device, "signal")

    @property
    def value(self) -> int:
        """The value; assign to set it."""
        value = c_uint64()
        call("tegra_hcq_signal_value", self._raw, byref(value))
        return value.value

    @value.setter
    def value(self, value: int) -> None:
        call("tegra_hcq_signal_set", self._raw, _checks.integer(value, "value"))

    @property
    def gpu_time_ns(self) -> int:
        """GPU time of the last release by a queue, in nanoseconds of the GPU's clock; 0 before the first."""
        time = c_uint64()
        call("tegra_hcq_signal_gpu_time", self._raw, byref(time))
        return time.value

    def wait(self, value: int, timeout: float = 30.0) -> None:
        """Waits until the value is at least ``value``, at most ``timeout`` seconds. Other threads run meanwhile.

        :raises GpuTimeout: if it stays smaller.
        """
        call("tegra_hcq_signal_wait", self._raw, _checks.integer(value, "value"), _checks.nanoseconds(timeout))


def copy_arguments(target: Buffer, source: Buffer) -> list[object]:
    """What the C library's functions for copies take after the queue."""
    to, origin = raw(target, "buffer", "target"), raw(source, "buffer", "source")
    if target.nbytes != source.nbytes:
        raise InvalidArgument(
            f"the target has {target.nbytes} bytes and the source {source.nbytes}: "
            "copy parts of equal size (Buffer.part)"
        )
    return [to, target._offset, origin, source._offset, source.nbytes]


def fill_arguments(target: Buffer, value: int, width: int) -> list[object]:
    """What the C library's functions for fills take after the queue."""
    handle, width = raw(target, "buffer", "target"), _checks.integer(width, "width")
    if width not in (1, 4):
        raise InvalidArgument(f"width is {width}; permitted are 1 and 4 bytes")
    return [handle, target._offset, target.nbytes, _checks.integer(value, "value", (1 << 8 * width) - 1), width]


class Queue(Resource):
    """An in-order stream of launches, copies and signals, made by :meth:`Device.queue`.

    Methods add work; :meth:`submit` starts it. All methods may be called by any thread. At the end of a ``with`` block
    that raises no exception, the work is submitted and waited for, at most 30 s.
    """

    def __init__(self, owned: Owned, device: DeviceState) -> None:
        super().__init__(owned, device, "queue")

    def launch(self, kernel: Kernel, *args: KernelArg, grid: Dim, block: Dim, shared: int = 0) -> None:
        """Adds a launch. :class:`Kernel` describes the arguments. The work keeps its buffers allocated."""
        arguments, kept = launch_arguments(kernel, args, grid, block, shared)
        call("tegra_hcq_queue_launch", self._raw, *arguments)
        del kept

    def copy(self, target: Buffer, source: Buffer) -> None:
        """Adds a copy between buffers, or parts of them, of equal size that do not overlap."""
        call("tegra_hcq_queue_copy", self._raw, *copy_arguments(target, source))

    def fill(self, target: Buffer, value: int = 0, width: int = 1) -> None:
        """Adds a fill with an unsigned value of ``width`` 1 or 4 bytes."""
        call("tegra_hcq_queue_fill", self._raw, *fill_arguments(target, value, width))

    def upload(self, target: Buffer, source: object, offset: int = 0) -> Fence:
        """Copies an object with the buffer protocol to a buffer in the order of the queue, and submits. The object may
        change after the call. Returns the end of the copy.

        :param offset: first byte of the buffer that is written
        """
        with Exported(contiguous(source), "source") as memory:
            handle = raw(target, "buffer", "target")
            place = [handle, target._place(offset, memory.nbytes), memory.address, memory.nbytes]
            return self._fence("tegra_hcq_queue_upload", *place)

    def replay(self, graph: Graph) -> Fence:
        """Submits a graph to run after all earlier work of the queue. Returns its end."""
        return self._fence("tegra_hcq_queue_replay", raw(graph, "graph", "graph"))

    def submit(self) -> Fence:
        """Submits all work added so far. Returns its end."""
        return self._fence("tegra_hcq_queue_submit")

    def _fence(self, name: str, *arguments: object) -> Fence:
        out = c_void_p()
        call(name, self._raw, *arguments, byref(out))
        return Fence(self._device.own(out.value, "tegra_hcq_fence_free"), self._device)

    def wait(self, timeout: float = 30.0) -> None:
        """Submits, and waits until the queue's work has ended, at most ``timeout`` seconds. Other threads run
        meanwhile, and may use the queue.

        :raises GpuFault: if the GPU stopped it.
        :raises GpuTimeout: if it has not ended.
        """
        call("tegra_hcq_queue_wait", self._raw, _checks.nanoseconds(timeout))

    def wait_fence(self, fence: Fence) -> None:
        """Makes the queue wait on the GPU until a submission of another queue of its device has ended."""
        call("tegra_hcq_queue_wait_fence", self._raw, raw(fence, "fence", "fence"))

    def wait_signal(self, signal: Signal, value: int) -> None:
        """Makes the queue wait on the GPU until a signal is at least ``value``."""
        call("tegra_hcq_queue_wait_signal", self._raw, raw(signal, "signal", "signal"), _checks.integer(value, "value"))

    def wait_file(self, file: int | HasFileno) -> None:
        """Makes later work of the queue wait on the GPU until a fence as a file has signalled: a sync-file of a camera,
        a display, a video engine, or of :meth:`submit_to_file` of any process. The file may be closed afterwards.

        :raises Unsupported: if the driver has no fences as files.
        :raises DeviceError: if the file is no sync-file, or has a fence that the GPU cannot wait for: then wait on the
            CPU, with ``select.poll``.
        """
        call("tegra_hcq_queue_wait_file", self._raw, _checks.descriptor(file))

    def submit_to_file(self) -> int:
        """As :meth:`submit`; returns a descriptor that signals when all of the queue's work so far has ended: other
        drivers and processes wait for it, and ``select.poll`` reports it readable. Close it with ``os.close``.

        The kernel gives a wait by ``poll`` 30 s from the first on; then the file signals an error.

        :raises Unsupported: if the driver has no fences as files.
        """
        fd = c_int32()
        call("tegra_hcq_queue_submit_to_file", self._raw, byref(fd))
        return fd.value

    def signal(self, signal: Signal, value: int) -> None:
        """Sets a signal's value and time on the GPU after all earlier work of the queue."""
        call("tegra_hcq_queue_signal", self._raw, raw(signal, "signal", "signal"), _checks.integer(value, "value"))

    def memory_barrier(self) -> None:
        """Makes writes by the CPU and other queues visible to later work of the queue, and the other way round. Needed
        only if work is connected by other means than submissions, fences and signals.
        """
        call("tegra_hcq_queue_memory_barrier", self._raw)

    def start_profile(self) -> None:
        """Starts recording the times of the queue's operations."""
        call("tegra_hcq_queue_profile", self._raw, True)

    def stop_profile(self) -> None:
        """Stops recording. What was recorded stays until :meth:`take_profile`."""
        call("tegra_hcq_queue_profile", self._raw, False)

    def take_profile(self) -> Profile:
        """Submits, waits until the queue's work has ended, at most 30 s, and takes what was recorded."""
        out = c_void_p()
        call("tegra_hcq_queue_take_profile", self._raw, byref(out))
        return Profile(self._device.own(out.value, "tegra_hcq_profile_free"), self._device)

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Names the calls on the queue inside a ``with`` block, for its profile. Spans may be nested."""
        call("tegra_hcq_queue_begin_span", self._raw, _checks.string(name, "name"))
        try:
            yield
        finally:
            if not self.closed:
                call("tegra_hcq_queue_end_span", self._raw)

    def close(self) -> None:
        """Closes the queue after its submitted work has ended, at most 30 s; other work is dropped."""
        if not self.closed:
            with announced("the queue"):
                super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None and not self.closed:
                self.wait()
        finally:
            self.close()


def queue_options(sleep: bool, hold: bool) -> _ffi.QueueOptions:
    """Options for C."""
    return _ffi.QueueOptions(ctypes.sizeof(_ffi.QueueOptions), bool(sleep), bool(hold))
