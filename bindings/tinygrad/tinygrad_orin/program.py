"""A compiled kernel of tinygrad on the device."""

import ctypes

from tegra_hcq import _ffi
from tinygrad.device import Compiled, ProfileProgramEvent, Program, TinyELF
from tinygrad.helpers import PROFILE, suppress_finalizing

from .allocator import Memory
from .board import Dim3


def buffer_arg(memory: Memory) -> _ffi.Arg:
    """A kernel argument: the address of a buffer."""
    return _ffi.Arg(_ffi.ARG_BUFFER, 8, memory.handle, memory.offset)


def value_arg(value: int, size: int) -> _ffi.Arg:
    """A kernel argument: an integer of `size` bytes, in two's complement."""
    return _ffi.Arg(_ffi.ARG_VALUE, size, value & ((1 << 8 * size) - 1), 0)


class ORINProgram(Program):
    """A kernel. Parameters are the addresses of the buffers, then the variables, in the sizes that the cubin names."""

    def __init__(self, dev, obj: TinyELF):
        self.dev, self.name, self.profile_key = dev, obj.name, obj.profile_key
        board = dev.board
        self._program = board.new(board.lib.program_load, board.handle, obj.lib, len(obj.lib))
        self.kernel = board.new(board.lib.program_kernel, self._program, obj.name.encode())
        count = ctypes.c_size_t()
        board.check(board.lib.kernel_parameters(self.kernel, None, 0, ctypes.byref(count)))
        sizes = (ctypes.c_uint32 * count.value)()
        board.check(board.lib.kernel_parameters(self.kernel, sizes, count.value, ctypes.byref(count)))
        self.sizes = tuple(sizes)
        # The argument list of launches, and the same memory as words: three of 64 bits for each argument.
        self._args = self.arguments((), (0,) * len(sizes))
        self._words = (ctypes.c_uint64 * (3 * len(sizes))).from_buffer(self._args)
        self._buffers: int | None = None
        if PROFILE:
            Compiled.profile_events.append(
                ProfileProgramEvent(dev.device, obj.name, obj.lib, None, None, obj.profile_key)
            )

    def arguments(self, bufs, vals) -> ctypes.Array:
        """Returns a new argument list."""
        values = [value_arg(value, size) for value, size in zip(vals, self.sizes[len(bufs) :], strict=True)]
        return (_ffi.Arg * len(self.sizes))(*map(buffer_arg, bufs), *values)

    def __call__(
        self, *bufs: Memory, global_size=(1, 1, 1), local_size=(1, 1, 1), vals=(), wait=False, timeout=None
    ) -> float | None:
        """Launches the kernel. With `wait`, returns its seconds on the GPU; `timeout` is in milliseconds."""
        dev = self.dev
        if PROFILE or dev.profile.active:
            dev.prepare()
            if PROFILE:
                dev.profile.launched(self)
        self._set_arguments(bufs, vals)
        if not wait:
            self._launch(global_size, local_size)
            return dev.submit()
        with dev.timed(timeout) as elapsed:
            self._launch(global_size, local_size)
        return elapsed()

    def _set_arguments(self, bufs: tuple[Memory, ...], vals: tuple[int, ...]) -> None:
        """Changes the argument list in place: a launch copies it."""
        if len(bufs) != self._buffers:
            self._args[:] = self.arguments(bufs, vals)
            self._buffers = len(bufs)
            return
        words, at = self._words, 1
        for memory in bufs:
            words[at], words[at + 1] = memory.handle, memory.offset
            at += 3
        for value in vals:
            # ctypes keeps the low 64 bits; the library reads as many as the parameter has.
            words[at] = value
            at += 3

    def _launch(self, grid, block) -> None:
        board, args = self.dev.board, self._args
        board.check(board.lib.queue_launch(self.dev.queue, self.kernel, Dim3(*grid), Dim3(*block), 0, args, len(args)))

    @suppress_finalizing
    def __del__(self):
        for name, free in (("kernel", "kernel_free"), ("_program", "program_free")):
            if (handle := getattr(self, name, None)) is not None:
                getattr(self.dev.board.lib, free)(handle)
