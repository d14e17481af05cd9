"""Profiles: times of operations."""

from __future__ import annotations

import ctypes
import enum
from ctypes import byref, c_char_p, c_size_t
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import _checks, _ffi
from ._resource import Owned, Resource, call

if TYPE_CHECKING:
    import os

    from ._resource import DeviceState


class Work(enum.IntEnum):
    """Kind of an operation in a profile."""

    LAUNCH = 0
    """A launch of a kernel."""
    COPY = 1
    """A copy."""
    FILL = 2
    """A fill."""
    GRAPH = 3
    """A replay of a graph; its steps follow."""
    OTHER = 4
    """Any other operation."""


@dataclass(frozen=True)
class Span:
    """An operation in a profile. Times are nanoseconds since the UNIX epoch."""

    name: str
    """Name of the kernel, or "copy", "fill", "graph of 3 steps"."""
    work: Work
    """Kind of the operation."""
    called_ns: int
    """CPU time of the call."""
    submitted_ns: int
    """CPU time just before the doorbell."""
    start_ns: int
    """GPU time at the start."""
    end_ns: int
    """GPU time at the end."""
    nbytes: int
    """Size of a copy or fill in bytes, else 0."""
    grid: tuple[int, int, int] | None
    """Grid of a launch, else ``None``."""
    block: tuple[int, int, int] | None
    """Block of a launch, else ``None``."""
    queue: int
    """Number of the queue."""
    step: int | None
    """Index of the step of a graph, ``None`` for an operation of its own."""

    @property
    def duration_ns(self) -> int:
        """Time on the GPU."""
        return self.end_ns - self.start_ns


def _span(found: _ffi.Span) -> Span:
    grid, block = ((size.x, size.y, size.z) for size in (found.grid, found.block))
    return Span(
        name=_ffi.text(found.name) or "",
        work=Work(found.work) if found.work in iter(Work) else Work.OTHER,
        called_ns=found.called_ns,
        submitted_ns=found.submitted_ns,
        start_ns=found.start_ns,
        end_ns=found.end_ns,
        nbytes=found.bytes,
        grid=grid if any(grid) else None,
        block=block if any(block) else None,
        queue=found.queue,
        step=found.step if found.step >= 0 else None,
    )


class Profile(Resource):
    """Times of operations that a queue has recorded: :meth:`Queue.take_profile`. ``print(profile)`` is a table."""

    def __init__(self, owned: Owned, device: DeviceState) -> None:
        super().__init__(owned, device, "profile")

    @property
    def spans(self) -> list[Span]:
        """The operations, in the order of the calls."""
        found = _ffi.Span()
        found.struct_size = ctypes.sizeof(found)
        spans = []
        for index in range(len(self)):
            call("tegra_hcq_profile_span", self._raw, index, byref(found))
            spans.append(_span(found))
        return spans

    def __len__(self) -> int:
        """Number of operations."""
        count = c_size_t()
        call("tegra_hcq_profile_span_count", self._raw, byref(count))
        return count.value

    def table(self) -> str:
        """The profile as a table for people."""
        table = c_char_p()
        call("tegra_hcq_profile_table", self._raw, byref(table))
        return _ffi.text(table.value) or ""

    def __str__(self) -> str:
        return self.table()

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a file that Perfetto and Chrome open."""
        call("tegra_hcq_profile_write_trace", self._raw, _checks.path(path, "path"))
