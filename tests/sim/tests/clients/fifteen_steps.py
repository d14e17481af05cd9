"""Fifteen steps from the first query to a launch, as a Python program takes them on a Jetson AGX Orin.

Expected values are those that a real board printed (L4T r36.4, mode 30W; `GiveThanksAlways/agx-orin-dev-kit`,
phase3.md and terminal-history-phase3.txt): characteristics, token, VEID and GPU addresses. Handle numbers, the
syncpoint and times differ between boards. Usage: fifteen_steps.py CUBIN [RELEASE], a cubin with the kernel vector_add.
With the release r39.2 the sizes, offsets and request codes are those of its headers; the values are the same.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import struct
import sys
import time


def iowr(family, number, size):
    return 3 << 30 | size << 16 | ord(family) << 8 | number


def iow(family, number, size):
    return 1 << 30 | size << 16 | ord(family) << 8 | number


def ior(family, number, size):
    return 2 << 30 | size << 16 | ord(family) << 8 | number


R39 = sys.argv[2:] == ["r39.2"]
# ALLOC of nvmap, and the layout of its argument; R39 appends an address.
ALLOCS = [(iow("N", 3, 20), "IIIIi"), (iow("N", 3, 32), "IIIIi12x")]
ALLOC, OTHER_ALLOC = ALLOCS[R39], ALLOCS[not R39]
# CACHE_LIST, SET_TAG_LABEL, GET_HEAP_SIZE.
REMOVED = [iow("N", 17, 32), iow("N", 24, 16), ior("N", 26, 16)]
RING_ENTRIES = 1024
GP_GET, GP_PUT, DOORBELL = 0x88, 0x8C, 0x90
COMPUTE, COPY = 0xC7C0, 0xC7B5
THREADS, COUNT = 32, 32
LIBC = ctypes.CDLL(None)


class Step:
    """Prints the result of a step, and ends the program at the first wrong value."""

    number = 0

    def __init__(self, name):
        Step.number += 1
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        print(f"{Step.number:2} {self.name}: {'failed' if kind else 'passed'}", flush=True)

    def check(self, what, value, expected):
        if value != expected:
            shown = [f"{x:#x}" if isinstance(x, int) else repr(x) for x in (value, expected)]
            raise SystemExit(f"{what} is {shown[0]}; the board has {shown[1]}")


def request(fd, code, layout, *values):
    """Sends a request. Returns the fields of its argument afterwards."""
    argument = bytearray(struct.pack(layout, *values))
    result = fcntl.ioctl(fd, code, argument)
    if result != 0:
        raise SystemExit(f"request {code:#x} returns {result}")
    return struct.unpack(layout, argument)


def refused(fd, code):
    """The error of a request with an argument of zeros; None if there is none."""
    try:
        fcntl.ioctl(fd, code, bytearray(code >> 16 & 0x3FFF))
    except OSError as error:
        return error.errno
    return None


class Buffer:
    """A dma-buf with its mappings."""

    def __init__(self, board, size, flags=1, on_gpu=True):
        self.size = size
        _, self.handle = request(board.nvmap, iowr("N", 0, 8), "II", size, 0)
        request(board.nvmap, *ALLOC, self.handle, 1 << 30, flags, 4096, 0)
        self.fd, _ = request(board.nvmap, iowr("N", 15, 8), "II", 0, self.handle)
        self.board, self.va, self.bytes = board, None, None
        if on_gpu:
            self.map_gpu()

    def map_gpu(self):
        values = (0, -1, 0, self.fd, 4096, 0, 0, 0)
        self.va = request(self.board.space, iowr("A", 7, 40), "IhhIIQQQ", *values)[-1]

    def map(self):
        if self.bytes is None:
            self.bytes = mmap.mmap(self.fd, self.size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        return self.bytes

    def free(self):
        if self.va is not None:
            request(self.board.space, iowr("A", 5, 8), "Q", self.va)
        if self.bytes is not None:
            self.bytes.close()
        os.close(self.fd)
        # A plain value, which may have its highest bit set.
        if LIBC.ioctl(self.board.nvmap, ord("N") << 8 | 4, ctypes.c_ulong(self.handle)) != 0:
            raise SystemExit("FREE fails")


class Board:
    def __init__(self):
        flags = os.O_RDWR | os.O_CLOEXEC
        self.nvmap, self.ctrl = os.open("/dev/nvmap", flags | os.O_SYNC), os.open("/dev/nvgpu/igpu0/ctrl", flags)
        self.put = 0

    def submit(self, words, at):
        """Sends words through the pushbuffer `at`."""
        self.put += 1
        at.map()[: 4 * len(words)] = struct.pack(f"{len(words)}I", *words)
        entry = at.va | 1 << 41 | len(words) << 42
        place = 8 * ((self.put - 1) % RING_ENTRIES)
        self.ring.map()[place : place + 8] = struct.pack("Q", entry)
        self.userd.map()[GP_PUT : GP_PUT + 4] = struct.pack("I", self.put % RING_ENTRIES)
        ctypes.c_uint32.from_buffer(self.doorbell, DOORBELL).value = self.token


def method(subchannel, address, *values):
    return [2 << 28 | len(values) << 16 | subchannel << 13 | address >> 2, *values]


def release(va, value):
    return method(0, 0x5C, va & 0xFFFFFFFF, va >> 32, value, 0, 1 | 1 << 20)


def wait(buffer, offset, value):
    end = time.monotonic() + 60
    while struct.unpack_from("I", buffer.map(), offset)[0] != value:
        if time.monotonic() > end:
            raise SystemExit(f"the semaphore does not become {value:#x}")
        time.sleep(0.0002)


def characteristics(board):
    with Step("GET_CHARACTERISTICS") as step:
        raw = ctypes.create_string_buffer(4096)
        size, _ = request(board.ctrl, iowr("G", 5, 16), "QQ", len(raw), ctypes.addressof(raw))
        step.check("the size", size, 0x158 if R39 else 0x148)
        for name, offset, expected in [
            ("arch", 0, 0x170),
            ("implementation", 4, 0xB),
            ("revision", 8, 0xA1),
            ("GPCs", 12, 1),
            ("NUMA domain", 16, 2**32 - 1),
        ]:
            step.check(name, struct.unpack_from("I", raw, offset)[0], expected)
        step.check("the L2", struct.unpack_from("Q", raw, 24)[0], 4 << 20)
        words = struct.unpack_from(f"{size // 4}I", raw)
        for name, expected in [("SM version", 0x807), ("SPA version", 0x806), ("warps", 96), ("clock", 1_300_000_000)]:
            step.check(f"{name} among the words", expected in words, True)
        step.check("the compute class", words[22 if R39 else 20], COMPUTE)
        step.check("the classes", [c in words for c in (0x902D, 0xC797, COMPUTE, 0xC76F, 0xA140, COPY)], [True] * 6)
        step.check("the chip's name", b"ga10b" in raw.raw, True)
        step.check("the flags", struct.pack("Q", 0x01BF5FFF7F5D035D) in raw.raw, True)


def queries(board):
    with Step("ZCULL_GET_CTX_SIZE") as step:
        step.check("the size", request(board.ctrl, ior("G", 1, 4), "I", 0)[0], 164352)
    with Step("GET_AVAILABLE_HEAPS") as step:
        step.check("the heaps", request(board.nvmap, ior("N", 25, 8), "Q", 0)[0], 0x10000004)


def memory(board):
    with Step("CREATE, ALLOC, GET_FD") as step:
        first = Buffer(board, 4096, on_gpu=False)
        step.check("the error of the other ALLOC", refused(board.nvmap, OTHER_ALLOC[0]), errno.ENOTTY)
        unknown = [refused(board.nvmap, code) == errno.ENOTTY for code in REMOVED]
        step.check("whether requests are removed", unknown, [R39] * 3)
    with Step("ALLOC_AS"):
        bounds = (0x200000, 0xFFFFE00000)
        board.space = request(board.ctrl, iowr("G", 8, 64), "IiIIQQQ24s", 0, 0, 2, 0, *bounds, 0, bytes(24))[1]
    with Step("MAP_BUFFER_EX") as step:
        first.map_gpu()
        step.check("the first address", first.va, 0xFFFFA00000)
    return first


def channel(board):
    with Step("a channel with its compute class") as step:
        tsg = request(board.ctrl, iowr("G", 9, 24), "IIQQ", 0, 0, 0, 0)[0]
        veid = request(tsg, iowr("T", 18, 16), "IiII", 1, board.space, 0, 0)[2]
        step.check("the VEID", veid, 1)
        (board.channel,) = request(board.ctrl, iowr("G", 11, 4), "i", -1)
        request(board.space, iowr("A", 1, 4), "I", board.channel)
        request(tsg, iowr("T", 11, 24), "iI16s", board.channel, veid, bytes(16))
        request(board.channel, iow("H", 119, 8), "II", 1, 0)
        board.ring, board.userd = Buffer(board, 8 * RING_ENTRIES, on_gpu=False), Buffer(board, 4096, on_gpu=False)
        setup = (RING_ENTRIES, 0, 8 | 2, board.userd.fd, board.ring.fd, 0, 0, 0, 0, 0, 0, bytes(40))
        setup = request(board.channel, iowr("H", 128, 104), "IIIiiIQQQQQ40s", *setup)
        board.token = setup[5]
        step.check("the token", board.token, 511)
        step.check("the addresses of SETUP_BIND", setup[8:11], (0, 0, 0))
        syncpoint = request(board.channel, ior("H", 126, 16), "QII", 0, 0, 0)
        step.check("the syncpoint's address", syncpoint[0], 0xFFFFE10000)
        request(board.channel, iowr("H", 108, 16), "IIQ", COMPUTE, 0, 0)
        # The kernel's way to submit is closed to this channel.
        try:
            request(board.channel, iowr("H", 107, 24), "QIIII", 0, 0, 0, 0, 0)
        except OSError:
            return
        raise SystemExit("SUBMIT_GPFIFO works on a usermode channel")


def contents(board):
    with Step("memory through the CPU") as step:
        buffer = Buffer(board, 4096, on_gpu=False)
        view = buffer.map()
        for pattern in (bytes(range(256)) * 16, b"\xaa" * 4096, bytes(4096)):
            view[:] = pattern
            step.check("the contents", view[:], pattern)
        buffer.free()
    with Step("two mappings, READ and WRITE") as step:
        buffer = Buffer(board, 8192, on_gpu=False)
        first, second = buffer.map(), mmap.mmap(buffer.fd, 8192)
        first[4094:4098] = b"edge"
        step.check("the other mapping", second[4094:4098], b"edge")
        words = ctypes.create_string_buffer(bytes(range(64)))
        transfer = (ctypes.addressof(words), buffer.handle, 0, 256, 64, 64, 64, 1)
        request(board.nvmap, iow("N", 6, 56), "QIIQQQQQ", *transfer)
        step.check("what WRITE stored", second[256:320], bytes(range(64)))
        second[256:320] = bytes(64)
        request(board.nvmap, iow("N", 7, 56), "QIIQQQQQ", *transfer)
        step.check("what READ copied", words.raw[:64], bytes(64))
        second.close()
        buffer.free()


def sizes(board):
    with Step("buffers of 4 KiB to 64 MiB") as step:
        places = {4: 0xFFFFA01000, 64: 0xFFFFA10000, 1024: 0xFFFFB00000, 16384: 0xFFFE200000, 65536: 0xFFF8200000}
        for kib, va in places.items():
            buffer = Buffer(board, kib << 10)
            step.check(f"the address of {kib} KiB", buffer.va, va)
            view = buffer.map()
            view[-4:] = b"last"
            step.check("the last word", view[-4:], b"last")
            buffer.free()
    with Step("four cache modes") as step:
        for flags in (1, 5, 0, 2):
            buffer = Buffer(board, 1 << 20, flags)
            step.check("the address", buffer.va, 0xFFFFB00000)
            buffer.map()[:] = b"\x55" * buffer.size
            step.check("the contents", buffer.map()[:], b"\x55" * buffer.size)
            buffer.free()


def submission(board):
    with Step("USERD, ring and doorbell") as step:
        step.check("GP_GET and GP_PUT", struct.unpack_from("II", board.userd.map(), GP_GET), (0, 0))
        step.check("the ring", board.ring.map()[:], bytes(8 * RING_ENTRIES))
        board.doorbell = mmap.mmap(board.ctrl, 0x10000, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    with Step("a semaphore release") as step:
        semaphore, words = Buffer(board, 4096), Buffer(board, 4096)
        step.check("the addresses", (semaphore.va, words.va), (0xFFFFA01000, 0xFFFFA02000))
        # The board served the copy engine's class without an object of it.
        objects = method(1, 0, COMPUTE) + method(4, 0, COPY)
        board.submit(objects + release(semaphore.va, 0x42), words)
        wait(semaphore, 0, 0x42)


def section(cubin, name):
    """Offset, size and info of a section."""
    (table,) = struct.unpack_from("Q", cubin, 0x28)
    size, count, names = struct.unpack_from("HHH", cubin, 0x3A)
    headers = [struct.unpack_from("IIQQQQIIQQ", cubin, table + size * at) for at in range(count)]
    for header in headers:
        start = headers[names][4] + header[0]
        if cubin[start : cubin.index(0, start)] == name.encode():
            return header[4], header[5], header[7]
    raise SystemExit(f"no section {name}")


def launch(board, path):
    with Step("the code of a kernel") as step:
        with open(path, "rb") as file:
            cubin = file.read()
        offset, size, info = section(cubin, ".text.vector_add")
        step.check("the code", size % 128 == 0 and cubin[:4] == b"\x7fELF", True)
    with Step("a launch by its descriptor") as step:
        out, code, bank, qmd, words = (Buffer(board, size) for size in (4096, 8192, 8192, 4096, 4096))
        addresses = tuple(buffer.va for buffer in (out, code, bank, qmd, words))
        expected = (0xFFFFA03000, 0xFFFFA04000, 0xFFFFA06000, 0xFFFFA08000, 0xFFFFA09000)
        step.check("the addresses", addresses, expected)
        code.map()[:size] = cubin[offset : offset + size]
        squares = [float(i * i) for i in range(COUNT)]
        out.map()[0x400 : 0x400 + 4 * COUNT] = struct.pack(f"{COUNT}f", *squares)
        out.map()[0x800 : 0x800 + 4 * COUNT] = struct.pack(f"{COUNT}f", *[1.0] * COUNT)
        struct.pack_into("QQQI", bank.map(), 0x160, out.va + 0x400, out.va + 0x800, out.va, COUNT)
        struct.pack_into("III", bank.map(), 0, THREADS, 1, 1)
        # Lowest bit and width of each field of the descriptor, version 3.0.
        fields = {
            (128, 6): 0x3F,  # QMD_GROUP_ID
            (134, 1): 1,  # SM_GLOBAL_CACHING_ENABLE
            (368, 2): 1,  # CWD_MEMBAR_TYPE
            (378, 1): 1,  # API_VISIBLE_CALL_LIMIT
            (382, 1): 1,  # SAMPLER_INDEX
            (384, 32): 1,  # CTA_RASTER
            (416, 16): 1,
            (448, 16): 1,
            (544, 18): 0x400,  # SHARED_MEMORY_SIZE
            (562, 6): 3,
            (569, 6): 0x1A,
            (580, 4): 3,  # QMD_MAJOR_VERSION
            (592, 16): THREADS,  # CTA_THREAD_DIMENSION
            (608, 16): 1,
            (624, 16): 1,
            (640, 1): 1,  # CONSTANT_BUFFER_VALID
            (648, 9): max(info >> 24, 16),  # REGISTER_COUNT_V
            (657, 6): 3,
            (1024, 32): bank.va & 0xFFFFFFFF,  # CONSTANT_BUFFER_ADDR
            (1056, 17): bank.va >> 32,
            (1075, 13): 0x180 // 16,
            (1536, 32): code.va & 0xFFFFFFFF,  # PROGRAM_ADDRESS
            (1568, 17): code.va >> 32,
            (1656, 8): 0x87,  # SASS_VERSION
        }
        descriptor = 0
        for (low, bits), value in fields.items():
            step.check("what exceeds the field", value >> bits, 0)
            descriptor |= value << low
        qmd.map()[:256] = descriptor.to_bytes(256, "little")
        board.submit(
            method(1, 0, COMPUTE)
            + method(1, 0x2A0, 0xFE, 0)
            + method(1, 0x7B0, 0xFD, 0)
            + method(1, 0x21C, 0x1011)
            + method(1, 0x2B4, qmd.va >> 8)
            + method(1, 0x2C0, 9)
            + release(words.va + 0x800, 0xDEAD),
            words,
        )
        wait(words, 0x800, 0xDEAD)
        result = list(struct.unpack_from(f"{COUNT}f", out.map()))
        step.check("the result", result, [square + 1 for square in squares])
        step.check("its start", result[:8], [1.0, 2.0, 5.0, 10.0, 17.0, 26.0, 37.0, 50.0])


def main():
    board = Board()
    characteristics(board)
    queries(board)
    memory(board)
    channel(board)
    contents(board)
    sizes(board)
    submission(board)
    launch(board, sys.argv[1])
    print(f"{Step.number} of 15 steps passed")


main()
