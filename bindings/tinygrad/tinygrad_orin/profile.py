"""Times of work on the GPU as tinygrad's profile events."""

import ctypes
import time
from collections import deque
from decimal import Decimal

from tegra_hcq import _ffi
from tinygrad.device import Compiled, ProfileGraphEntry, ProfileGraphEvent
from tinygrad.helpers import ProfileRangeEvent, perf_counter_us

_LAUNCH, _GRAPH = 0, 3  # tegra_hcq_work


class Profile:
    """Records the operations of a device's queue while tinygrad profiles."""

    def __init__(self, dev):
        self.dev, self.active = dev, False
        # What the spans of launches and graphs belong to, in the order of the queue.
        self._launches, self._graphs = deque(), deque()

    def set_active(self, active: bool) -> None:
        """Starts or stops recording."""
        board = self.dev.board
        board.check(board.lib.queue_profile(self.dev.queue, active))
        self.active = active
        if not active:
            self.discard()

    def launched(self, program) -> None:
        """Notes that the next launch is that of `program`."""
        self._launches.append(program)

    def replayed(self, entries, dependencies) -> None:
        """Notes that the next graph consists of `entries`, (device, name, profile key) for each step."""
        self._graphs.append((entries, dependencies))

    def discard(self) -> None:
        """Forgets what was noted, after the queue has lost its work."""
        self._launches.clear()
        self._graphs.clear()

    def collect(self) -> None:
        """Takes the times of the work that has ended and appends their events to tinygrad's."""
        board = self.dev.board
        handle = board.new(board.lib.queue_take_profile, self.dev.queue)
        try:
            spans = self._spans(handle)
        finally:
            board.lib.profile_free(handle)
        graph = None
        for work, name, start, end, step in spans:
            if step >= 0 and graph is not None:
                graph.append((start, end))
                continue
            self._finish(graph)
            graph = None
            if work == _GRAPH:
                graph = []
                continue
            key = None
            if work == _LAUNCH and self._launches:
                program = self._launches.popleft()
                name, key = program.name, program.profile_key
            Compiled.profile_events.append(ProfileRangeEvent(self.dev.device, name, start, end, profile_key=key))
        self._finish(graph)

    def _finish(self, steps) -> None:
        """Appends the event of a graph whose steps ran at the given times."""
        if steps is None or not self._graphs:
            return
        entries, dependencies = self._graphs.popleft()
        if len(steps) != len(entries):
            return
        ents = [ProfileGraphEntry(device, name, 2 * i, 2 * i + 1, key) for i, (device, name, key) in enumerate(entries)]
        times = [time for step in steps for time in step]
        Compiled.profile_events.append(ProfileGraphEvent(ents, dependencies, times))

    def _spans(self, handle: int) -> list[tuple[int, str, Decimal, Decimal, int]]:
        """Returns (kind, name, start, end, step) of each operation, in microseconds of `perf_counter_us`."""
        board, count = self.dev.board, ctypes.c_size_t()
        board.check(board.lib.profile_span_count(handle, ctypes.byref(count)))
        epoch = perf_counter_us() - Decimal(time.time_ns()) / 1000
        spans, span = [], _ffi.Span(struct_size=ctypes.sizeof(_ffi.Span))
        for index in range(count.value):
            board.check(board.lib.profile_span(handle, index, ctypes.byref(span)))
            start, end = (epoch + Decimal(ns) / 1000 for ns in (span.start_ns, span.end_ns))
            spans.append((span.work, span.name.decode(errors="replace"), start, end, span.step))
        return spans
