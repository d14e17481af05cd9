"""Recorded graphs."""

from __future__ import annotations

from ctypes import byref, c_size_t, c_uint32, c_void_p
from typing import TYPE_CHECKING

from . import _arguments, _checks, _ffi
from ._errors import InvalidArgument, TegraError
from ._program import launch_arguments
from ._queue import copy_arguments, fill_arguments
from ._resource import Owned, Resource, call, raw

if TYPE_CHECKING:
    from ._arguments import Dim, KernelArg
    from ._buffer import Buffer
    from ._device import Device
    from ._program import Kernel
    from ._queue import Fence, Queue


class GraphBuilder(Resource):
    """A graph while it is recorded: :meth:`Device.graph`. Each method adds a step and returns its number::

        with device.graph() as builder:
            step = builder.launch(add, a, b, total, 1000, grid=4, block=256)
            graph = builder.build()

    A recording that was not built is dropped.
    """

    def __init__(self, owned: Owned, device: Device) -> None:
        super().__init__(owned, device._state, "graph builder")
        self._opener = device
        self._sizes: dict[int, tuple[int, ...]] = {}

    def set_instances(self, count: int) -> None:
        """Sets how many replays of the graph may be in flight before the next one waits: 1 to 64, default 4."""
        call("tegra_hcq_graph_set_instances", self._raw, _checks.integer(count, "count", 64, least=1))

    def launch(self, kernel: Kernel, *args: KernelArg, grid: Dim, block: Dim, shared: int = 0) -> int:
        """Records a launch. The graph keeps its buffers allocated."""
        arguments, kept = launch_arguments(kernel, args, grid, block, shared)
        step = c_uint32()
        call("tegra_hcq_graph_launch", self._raw, *arguments, byref(step))
        del kept
        self._sizes[step.value] = kernel.parameter_sizes
        return step.value

    def copy(self, target: Buffer, source: Buffer) -> int:
        """Records a copy between buffers, or parts of them, of equal size that do not overlap."""
        step = c_uint32()
        call("tegra_hcq_graph_copy", self._raw, *copy_arguments(target, source), byref(step))
        return step.value

    def fill(self, target: Buffer, value: int = 0, width: int = 1) -> int:
        """Records a fill with an unsigned value of ``width`` 1 or 4 bytes."""
        step = c_uint32()
        call("tegra_hcq_graph_fill", self._raw, *fill_arguments(target, value, width), byref(step))
        return step.value

    def build(self) -> Graph:
        """Ends the recording."""
        out = c_void_p()
        call("tegra_hcq_graph_build", self._raw, byref(out))
        # The library has freed the builder.
        self._handle.forget()
        self._owned = None
        return Graph(self._device.own(out.value, "tegra_hcq_graph_free"), self._opener, self._sizes)

    def close(self) -> None:
        """Drops the recording if it was not built."""
        super().close()


class Graph(Resource):
    """A recorded sequence of launches, copies and fills, replayed by one submission. ``len(graph)`` is the number of
    steps.
    """

    def __init__(self, owned: Owned, device: Device, sizes: dict[int, tuple[int, ...]]) -> None:
        super().__init__(owned, device._state, "graph")
        self._opener = device
        self._sizes = sizes

    def replay(self, queue: Queue | None = None) -> Fence:
        """Submits the graph to a queue, by default :attr:`Device.default_queue`. Returns its end."""
        chosen = self._opener.default_queue if queue is None else queue
        raw(chosen, "queue", "queue")
        return chosen.replay(self)

    def set_argument(self, step: int, index: int, value: KernelArg) -> None:
        """Replaces argument ``index`` of a launch from the next replay on."""
        step = _checks.integer(step, "step", _checks.U32)
        sizes = self._sizes.get(step)
        if sizes is None:
            raise InvalidArgument(f"step {step} is not a launch of this graph")
        index = _checks.integer(index, "index")
        if index >= len(sizes):
            raise InvalidArgument(f"there is no argument {index}, the kernel has {len(sizes)} parameters")
        argument = _ffi.Arg()
        kept = _arguments.fill(argument, value, sizes[index], index)
        call("tegra_hcq_graph_set_argument", self._raw, step, index, byref(argument))
        del kept

    def set_size(self, step: int, grid: Dim, block: Dim) -> None:
        """Replaces grid and block of a launch from the next replay on."""
        sizes = _arguments.dim3(grid, "grid"), _arguments.dim3(block, "block")
        call("tegra_hcq_graph_set_size", self._raw, _checks.integer(step, "step", _checks.U32), *sizes)

    def set_copy(self, step: int, target: Buffer, source: Buffer) -> None:
        """Replaces target and source of a copy from the next replay on."""
        call(
            "tegra_hcq_graph_set_copy",
            self._raw,
            _checks.integer(step, "step", _checks.U32),
            *copy_arguments(target, source),
        )

    def __len__(self) -> int:
        count = c_size_t()
        call("tegra_hcq_graph_len", self._raw, byref(count))
        return count.value

    def __bool__(self) -> bool:
        return True

    def close(self) -> None:
        """Frees the graph after its replays have ended."""
        super().close()

    def _describe(self) -> str:
        try:
            return f" of {len(self)} steps"
        except TegraError:
            return ""
