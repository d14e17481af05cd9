"""Memory of the device for tinygrad."""

import ctypes
import mmap
from dataclasses import dataclass

from tinygrad.device import BufferSpec, LRUAllocator
from tinygrad.helpers import PROFILE, cpu_profile, mv_address, suppress_finalizing, to_mv

_DEVICE, _UPLOAD = 0, 1  # tegra_hcq_purpose


@dataclass(eq=False, slots=True)
class Memory:
    """A piece of a buffer of the library: what tinygrad passes around as its opaque buffer."""

    handle: int
    offset: int
    size: int
    cpu: int | None
    """Address of the piece on the CPU; `None` if the CPU does not see it."""


class ORINAllocator(LRUAllocator):
    """Buffers that the CPU may not see: bytes go in and out by copies."""

    def _alloc(self, size: int, options: BufferSpec) -> Memory:
        board = self.dev.board
        if options.external_ptr is not None:
            return self._import(size, options.external_ptr)
        purpose = _UPLOAD if options.host or options.cpu_access else _DEVICE
        handle = board.new(board.lib.buffer_alloc, board.handle, size, purpose)
        if options.zero:
            board.check(board.lib.queue_fill(self.dev.queue, handle, 0, size, 0, 1))
            self.dev.submit()
        return Memory(handle, 0, size, self._cpu_address(handle))

    def _import(self, size: int, address: int) -> Memory:
        """Maps memory of the process in place; it is imported by whole pages."""
        board, offset = self.dev.board, address % mmap.PAGESIZE
        handle = board.new(board.lib.buffer_import, board.handle, address - offset, size + offset)
        return Memory(handle, offset, size, address)

    def _cpu_address(self, handle: int) -> int | None:
        return None

    @suppress_finalizing
    def _free(self, opaque: Memory, options: BufferSpec) -> None:
        # The library frees the memory after the work that uses it. A device that is closed has freed it already.
        self.dev.board.lib.buffer_free(opaque.handle)

    def _offset(self, buf: Memory, size: int, offset: int) -> Memory:
        return Memory(buf.handle, buf.offset + offset, size, None if buf.cpu is None else buf.cpu + offset)

    def _copyin(self, dest: Memory, src: memoryview) -> None:
        board = self.dev.board
        # A read-only view has no address in ctypes: copy it.
        source = bytearray(src) if src.readonly else src
        self.dev.prepare()
        board.check(
            board.lib.queue_upload(self.dev.queue, dest.handle, dest.offset, mv_address(source), len(src), None)
        )

    def _copyout(self, dest: memoryview, src: Memory) -> None:
        board = self.dev.board
        self.dev.synchronize()
        # Work of other queues of the board, with this device's time-out; the read itself waits for 30 s only.
        board.check(board.lib.buffer_wait(src.handle, board.timeout_ns))
        with cpu_profile(f"{self.dev.device} -> TINY", f"{self.dev.device}:COPY", display=bool(PROFILE)):
            board.check(board.lib.buffer_read(src.handle, src.offset, mv_address(dest), len(dest)))

    def _transfer(self, dest: Memory, src: Memory, sz: int, src_dev, dest_dev) -> None:
        """Copies between devices: on the GPU if they share one, else through memory of the process."""
        board = dest_dev.board
        if (dest.handle, dest.offset) == (src.handle, src.offset):
            return
        if src_dev.board is not board:
            staging = memoryview(bytearray(sz))
            src_dev.allocator._copyout(staging, src)
            dest_dev.allocator._copyin(dest, staging)
            return
        src_dev.prepare()
        with dest_dev.ordered_with({src_dev}):
            board.check(board.lib.queue_copy(dest_dev.queue, dest.handle, dest.offset, src.handle, src.offset, sz))


class ORINUnifiedAllocator(ORINAllocator):
    """Buffers that the CPU sees, as on an Orin: tinygrad reads and writes them in place."""

    def _cpu_address(self, handle: int) -> int:
        board, address = self.dev.board, ctypes.c_void_p()
        board.check(board.lib.buffer_cpu_address(handle, ctypes.byref(address)))
        return address.value

    def _as_buffer(self, src: Memory) -> memoryview:
        return to_mv(src.cpu, src.size)
