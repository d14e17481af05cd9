"""Recorded graphs: what tinygrad's JIT replays.

The calls of a graph are split where the GPU changes. The calls on one GPU are recorded once as a graph of the library,
which a replay submits as a whole; before it, only arguments, sizes and copies that have changed are replaced. A copy
between two GPUs runs between the graphs. Devices that share a GPU share its graphs.
"""

import ctypes
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tinygrad.device import Device, MultiBuffer
from tinygrad.engine.jit import GraphException, MultiGraphRunner
from tinygrad.helpers import PROFILE, TracingKey, suppress_finalizing
from tinygrad.uop.ops import Ops

from .board import Dim3
from .program import buffer_arg, value_arg

if TYPE_CHECKING:
    from .device import ORINDevice


@dataclass(eq=False)
class _Transfer:
    """A copy between two GPUs."""

    call: int
    target: "ORINDevice"
    source: "ORINDevice"

    def run(self, graph: "ORINGraph", wait: bool) -> float:
        """Copies, and returns the seconds that it took."""
        start, memory = time.perf_counter(), graph._memory[self.call]
        size = graph.calls[self.call][2][0].nbytes
        self.target.allocator._transfer(*memory, size, src_dev=self.source, dest_dev=self.target)
        return time.perf_counter() - start


@dataclass(eq=False)
class _Recording:
    """Calls on one GPU: the recorded graph, and the queue that it runs on."""

    dev: "ORINDevice"
    devices: set = field(default_factory=set)
    calls: list[int] = field(default_factory=list)
    handle: int | None = None
    # For profiles, of each step: (device, name, profile key), and the earlier steps that it depends on.
    entries: list[tuple] = field(default_factory=list)
    dependencies: list[list[int]] = field(default_factory=list)

    def run(self, graph: "ORINGraph", wait: bool) -> float | None:
        """Replays the graph. With `wait`, returns its seconds on the GPU."""
        dev = self.dev
        if PROFILE or dev.profile.active:
            dev.prepare()
            if PROFILE:
                dev.profile.replayed(self.entries, self.dependencies)
        if not wait:
            return self._replay()
        with dev.timed() as elapsed:
            self._replay()
        return elapsed()

    def _replay(self) -> None:
        dev = self.dev
        if len(self.devices) == 1:
            return dev.board.check(dev.board.lib.queue_replay(dev.queue, self.handle, None))
        with dev.ordered_with(self.devices):
            dev.board.check(dev.board.lib.queue_replay(dev.queue, self.handle, None))


class ORINGraph(MultiGraphRunner):
    """Replays the calls of a JIT."""

    def __init__(self, linear, input_uops=()):
        super().__init__(linear, input_uops)
        self._parts: list[_Recording | _Transfer] = []
        # Of each call: its part, its step in the recorded graph, and the memory that it uses now.
        self._part_of: list[_Recording | _Transfer | None] = []
        self._node = [0] * len(self.calls)
        self._memory = [[buf._buf for buf in bufs] for _, _, bufs, _ in self.calls]
        for j in range(len(self.calls)):
            self._add(j)
        for part in self._parts:
            if isinstance(part, _Recording):
                self._record(part)
        # Where each input is used: (call, position), by (input, device of a sharded input).
        self._uses: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for j, replace in enumerate(self.uop_replace):
            for position, index in replace:
                self._uses.setdefault((index, self.calls[j][0]), []).append((j, position))
        self._current: dict = {}

    def _add(self, j: int) -> None:
        """Assigns a call to the last part if that is on the same GPU, else to a new one."""
        _, ast, bufs, _ = self.calls[j]
        devices = [Device[buf.device] for buf in bufs]
        part = self._parts[-1] if self._parts else None
        if ast.op is Ops.COPY and not self.uop_replace[j] and _same(*self._memory[j]):
            # A copy of a buffer onto itself.
            self._part_of.append(None)
            return
        if len({dev.board for dev in devices}) > 1:
            if ast.op is not Ops.COPY:
                raise GraphException("a kernel uses buffers of several GPUs")
            self._parts.append(part := _Transfer(j, devices[0], devices[1]))
        else:
            if not isinstance(part, _Recording) or part.dev.board is not devices[0].board:
                self._parts.append(part := _Recording(devices[0]))
            part.devices.update(devices)
            part.calls.append(j)
        self._part_of.append(part)

    def _record(self, part: _Recording) -> None:
        board = part.dev.board
        builder = board.new(board.lib.graph_begin, board.handle)
        try:
            for step, j in enumerate(part.calls):
                node = ctypes.c_uint32()
                board.check(self._record_call(board, builder, j, ctypes.byref(node)))
                self._node[j] = node.value
                self._describe(part, step, j)
            part.handle = board.new(board.lib.graph_build, builder)
        except BaseException:
            board.lib.graph_abandon(builder)
            raise

    def _record_call(self, board, builder: int, j: int, node) -> int:
        _, ast, bufs, device_vars = self.calls[j]
        memory = self._memory[j]
        if ast.op is Ops.COPY:
            return board.lib.graph_copy(builder, *_ends(memory, bufs), node)
        program = self.runtimes[j]
        # Variables have their values only at a replay, which sets them; sizes of 0 are not recorded.
        grid, block = (Dim3(*(max(1, n) for n in dim)) for dim in ast.arg.launch_dims({v: 0 for v in self.vars}))
        args = program.arguments(memory, [device_vars.get(v.expr, 0) for v in ast.arg.vars])
        return board.lib.graph_launch(builder, program.kernel, grid, block, 0, args, len(args), node)

    def _describe(self, part: _Recording, step: int, j: int) -> None:
        """Notes name and dependencies of a step for profiles."""
        _, ast, bufs, _ = self.calls[j]
        program = self.runtimes[j]
        if program is None:
            name, key = TracingKey(f"{bufs[1].device} -> {bufs[0].device}", ret=bufs[0].nbytes), None
        else:
            name, key = program.name, program.profile_key
        part.entries.append((bufs[0].device, name, key))
        written = [0] if program is None else ast.arg.outs
        earlier = {d for p, d in self._access_resources(bufs, written, (part, step)) if p is part and d != step}
        part.dependencies.append(sorted(earlier))

    def __call__(self, input_uops, var_vals, wait=False):
        self._update(input_uops, var_vals)
        elapsed = [part.run(self, wait) for part in self._parts]
        return sum(elapsed) if wait else None

    def _update(self, input_uops, var_vals) -> None:
        """Replaces what differs from the last replay."""
        for (index, dev_idx), uses in self._uses.items():
            buffer = input_uops[index].buffer
            memory = (buffer.bufs[dev_idx] if isinstance(buffer, MultiBuffer) else buffer)._buf
            for j, position in uses:
                if self._memory[j][position] is not memory:
                    self._memory[j][position] = memory
                    self._replace(j, position)
        for j, i, value in self.updated_vars(var_vals):
            if self._changed((j, i), value):
                position = len(self.calls[j][2]) + i
                self._set_argument(j, position, value_arg(value, self.runtimes[j].sizes[position]))
        for j, grid, block in self.updated_launch_dims(var_vals):
            if self._changed(j, (grid, block)):
                board, graph = self._part_of[j].dev.board, self._part_of[j].handle
                board.check(board.lib.graph_set_size(graph, self._node[j], Dim3(*grid), Dim3(*block)))

    def _changed(self, key, value) -> bool:
        if self._current.get(key) == value:
            return False
        self._current[key] = value
        return True

    def _replace(self, j: int, position: int) -> None:
        """Makes a call use the memory that `_memory` names for it."""
        part, memory = self._part_of[j], self._memory[j]
        if isinstance(part, _Transfer):
            return
        if self.runtimes[j] is not None:
            return self._set_argument(j, position, buffer_arg(memory[position]))
        board = part.dev.board
        board.check(board.lib.graph_set_copy(part.handle, self._node[j], *_ends(memory, self.calls[j][2])))

    def _set_argument(self, j: int, position: int, arg) -> None:
        board, graph = self._part_of[j].dev.board, self._part_of[j].handle
        board.check(board.lib.graph_set_argument(graph, self._node[j], position, ctypes.byref(arg)))

    @suppress_finalizing
    def __del__(self):
        for part in getattr(self, "_parts", ()):
            if isinstance(part, _Recording) and part.handle is not None:
                part.dev.board.lib.graph_free(part.handle)


def _ends(memory, bufs) -> tuple[int, int, int, int, int]:
    """Target, its offset, source, its offset and size of a copy, as the library takes them."""
    target, source = memory
    return target.handle, target.offset, source.handle, source.offset, bufs[0].nbytes


def _same(target, source) -> bool:
    return (target.handle, target.offset) == (source.handle, source.offset)
