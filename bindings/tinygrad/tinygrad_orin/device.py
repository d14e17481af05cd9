"""The device ORIN of tinygrad."""

import contextlib
import ctypes

from tinygrad.device import Compiled, ProfileDeviceEvent
from tinygrad.helpers import PROFILE

from .allocator import ORINAllocator, ORINUnifiedAllocator
from .graph import ORINGraph
from .interfaces import AUTOIface, NVGPUIface, NVRMIface, SIMIface
from .profile import Profile
from .program import ORINProgram
from .renderer import ORINRenderer


class ORINDevice(Compiled):
    """A queue of a GPU. `ORIN`, `ORIN:1`, ... are queues of one GPU on an Orin, and GPUs where there are several."""

    ifaces = [AUTOIface, NVGPUIface, NVRMIface, SIMIface]

    def __init__(self, device: str):
        self.iface = self._select_iface(device)
        self.board = board = self.iface.board
        self.queue = board.open_queue(self)
        self.profile = Profile(self)
        self._marks = [board.new(board.lib.signal_create, board.handle, 0) for _ in range(2)]
        self._mark = 0
        allocator = (ORINUnifiedAllocator if board.unified else ORINAllocator)(self)
        super().__init__(device, allocator, [ORINRenderer], ORINProgram, ORINGraph, arch=board.arch)

    def submit(self) -> None:
        """Starts the work that was added to the queue."""
        self.board.check(self.board.lib.queue_submit(self.queue, None))

    def restart(self) -> None:
        """Forgets the work that a recovery has discarded."""
        self.profile.discard()

    def prepare(self) -> None:
        """Makes the queue record times if tinygrad profiles. Called before work is added."""
        if bool(PROFILE) != self.profile.active:
            self.profile.set_active(bool(PROFILE))

    def synchronize(self, timeout: int | None = None) -> None:
        """Waits for the queue's work, at most `timeout` milliseconds or `ORIN_TIMEOUT`."""
        limit = self.board.timeout_ns if timeout is None else min(timeout * 1_000_000, self.board.timeout_ns)
        self.board.check(self.board.lib.queue_wait(self.queue, limit))
        if self.profile.active:
            self.profile.collect()

    @contextlib.contextmanager
    def timed(self, timeout: int | None = None):
        """Waits for the work that is added in the block; gives a function that returns its seconds on the GPU."""
        board, times = self.board, []
        self._mark += 1
        board.check(board.lib.queue_signal(self.queue, self._marks[0], self._mark))
        yield lambda: times[1] - times[0]
        board.check(board.lib.queue_signal(self.queue, self._marks[1], self._mark))
        self.synchronize(timeout)
        for mark in self._marks:
            nanoseconds = ctypes.c_uint64()
            board.check(board.lib.signal_gpu_time(mark, ctypes.byref(nanoseconds)))
            times.append(nanoseconds.value * 1e-9)

    @contextlib.contextmanager
    def ordered_with(self, devices):
        """Work that is added in the block runs after earlier work of other devices, and before their later work.

        The devices share this device's board. The work is submitted at the end.
        """
        others = [device for device in devices if device is not self]
        for other in others:
            self._follow(other)
        yield
        if not others:
            return self.submit()
        for other in others:
            other._follow(self)

    def _follow(self, other: "ORINDevice") -> None:
        """Submits `other`'s work and makes this queue wait for it on the GPU."""
        board = self.board
        fence = board.new(board.lib.queue_submit, other.queue)
        try:
            board.check(board.lib.queue_wait_fence(self.queue, fence))
        finally:
            board.lib.fence_free(fence)

    def count(self) -> int:
        """Number of GPUs."""
        return self.iface.count

    def _at_profile_finalize(self) -> None:
        # Times are converted to the CPU's clock when they are collected.
        Compiled.profile_events.append(ProfileDeviceEvent(self.device, props=self.board.properties))

    def finalize(self) -> None:
        """Waits for the work at exit. The GPU stays open: functions that run later at exit may still use it."""
        self.synchronize()
