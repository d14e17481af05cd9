"""The producer's end: buffers to write, consumers, events."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .._errors import InvalidArgument
from ._wire import (
    END,
    FIRST_MESSAGE,
    FRAME,
    FRAME_MESSAGE,
    HELLO,
    LATER,
    MAGIC,
    MAX_BUFFERS,
    MAX_META,
    NUMBERS,
    RELEASE,
    RELEASE_MESSAGE,
    VERSION,
    WELCOME,
    WELCOME_MESSAGE,
    Closing,
    NoBuffer,
    Violation,
    checked,
    close_all,
    new_socket,
    poll,
    receive,
    send,
    wait_fences,
)


class Writable:
    """A buffer that no consumer uses, except for its fences. With the last reference it is free again."""

    def __init__(self, index: int, slot: _Slot) -> None:
        self._slot: _Slot | None = slot
        self.index = index
        """Index of the buffer in the ring."""
        self.fences = [guard.fd for guard in slot.guards]
        """Sync-files that must signal before the buffer is written. The producer closes them."""

    def wait(self, timeout: float) -> None:
        """Waits on the CPU for the fences.

        :raises GpuTimeout: if they do not signal in time.
        """
        wait_fences(self.fences, timeout)

    def __del__(self) -> None:
        if self._slot is not None:
            self._slot.writing = False


@dataclass
class _Guard:
    """A fence that protects a free buffer."""

    fd: int
    since: float
    peer: int | None
    """Descriptor of the consumer's socket; -1 of one that has left, ``None`` for the producer."""


@dataclass
class _Slot:
    guards: list[_Guard] = field(default_factory=list)
    sequence: int = 0
    frame: tuple[int, int, int] = (0, 0, 0)
    """Time stamp, bytes, flags."""
    fence: int | None = None
    readers: int = 0
    writing: bool = False

    def forget(self, which: Callable[[_Guard], bool]) -> None:
        """Closes some of the fences."""
        gone = [guard for guard in self.guards if which(guard)]
        self.guards = [guard for guard in self.guards if guard not in gone]
        close_all([guard.fd for guard in gone])


@dataclass
class _Peer:
    number: int
    pid: int
    sock: socket.socket
    since: float
    hold: int | None = None
    """``None`` before its first message."""
    unread: deque[int] = field(default_factory=deque)
    held: dict[int, float] = field(default_factory=dict)
    """Buffers, and when they were sent."""
    dropped: int = 0


class Producer(Closing):
    """The producing end of a ring of buffers. Consumers are served during its calls.

    :param path: the socket; must not exist, or be that of a producer that has died
    :param buffers: descriptors of the buffers, which the caller keeps open
    :param nbytes: size of each buffer
    :param meta: what the buffers contain, for the application
    :param drop_oldest: drop the oldest frame that no consumer has yet if a buffer is needed; otherwise :meth:`acquire`
        waits
    :param lease: how long a consumer may keep a frame while the producer has newer ones or needs the buffer, in seconds
    :param consumers: largest number of consumers
    :param mode: rights of the socket's file, less the umask
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        buffers: Sequence[int],
        nbytes: int,
        meta: bytes = b"",
        *,
        drop_oldest: bool = True,
        lease: float = 1.0,
        consumers: int = 16,
        mode: int = 0o600,
    ) -> None:
        if not 1 <= len(buffers) <= MAX_BUFFERS or nbytes < 1 or len(meta) > MAX_META:
            raise InvalidArgument(f"{len(buffers)} buffers of {nbytes} bytes with a meta of {len(meta)} bytes")
        self._buffers, self._nbytes, self._meta = list(buffers), nbytes, bytes(meta)
        self._drop_oldest, self._lease, self._limit = drop_oldest, lease, min(consumers, MAX_BUFFERS)
        self._slots = [_Slot() for _ in buffers]
        self._peers: dict[int, _Peer] = {}
        self._sequence = self._connections = 0
        self.events: deque[tuple[str, int, int]] = deque(maxlen=256)
        """What happened to consumers: ``"joined"`` or the reason why one left, its number and its process."""
        self._path: Path | None = None
        self._poll = select.epoll()
        self._listener = new_socket()
        try:
            self._listener.setblocking(False)
            # The kernel gives these rights, less the umask, to the file that it makes.
            os.fchmod(self._listener.fileno(), mode)
            self._bind(Path(path))
            self._listener.listen(MAX_BUFFERS)
            self._poll.register(self._listener, select.EPOLLIN)
        except BaseException:
            self.close()
            raise

    def _bind(self, path: Path) -> None:
        try:
            self._listener.bind(str(path))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not path.is_socket():
                raise
            with new_socket() as probe:
                # Only a socket that no process serves refuses.
                if probe.connect_ex(str(path)) != errno.ECONNREFUSED:
                    raise
            path.unlink()
            self._listener.bind(str(path))
        self._path = path
        self._inode = path.lstat().st_ino

    def fileno(self) -> int:
        """Readable when :meth:`wait` has something to do."""
        return self._poll.fileno()

    @property
    def consumers(self) -> int:
        """Number of consumers."""
        return sum(peer.hold is not None for peer in self._peers.values())

    def wait(self, timeout: float) -> None:
        """Serves consumers: waits until something is to be done, and does it."""
        self._serve(timeout, False)

    def flush(self, timeout: float) -> bool:
        """Serves consumers until they have received and released all frames. Returns whether they have, in time."""
        deadline = time.monotonic() + timeout
        self._serve(0, False)
        while (busy := any(slot.readers for slot in self._slots)) and (left := deadline - time.monotonic()) > 0:
            self._serve(min(left, self._lease / 8, 0.1), False)
        return not busy

    def acquire(self, timeout: float) -> Writable:
        """Serves consumers, and returns a buffer that none of them uses, except for its fences.

        :raises NoBuffer: if none became free in time.
        """
        deadline = time.monotonic() + timeout
        self._serve(0, False)
        while (index := self._free()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                holders = [f"{peer.number} (process {peer.pid})" for peer in self._peers.values() if peer.held]
                raise NoBuffer(f"no buffer became free in {timeout} s; consumers that hold frames: {holders}")
            self._serve(min(left, self._lease / 8, 0.1), True)
        slot = self._slots[index]
        slot.writing = True
        return Writable(index, slot)

    def _free(self) -> int | None:
        free = []
        for index, slot in enumerate(self._slots):
            if not slot.readers and not slot.writing:
                slot.forget(lambda guard: poll(guard.fd, 0))
                free.append((bool(slot.guards), slot.sequence, index))
        if free:
            return min(free)[2]
        held = {index for peer in self._peers.values() for index in peer.held}
        unread = [index for index, slot in enumerate(self._slots) if slot.readers and index not in held]
        if not self._drop_oldest or not unread:
            return None
        index = min(unread, key=lambda index: self._slots[index].sequence)
        for peer in self._peers.values():
            if index in peer.unread:
                peer.unread.remove(index)
                peer.dropped += 1
                self._drop_reader(index)
        return index

    def publish(
        self, buffer: Writable, nbytes: int, *, time_ns: int | None = None, flags: int = 0, fence: int | None = None
    ) -> int:
        """Sends a frame to all consumers, and returns its number.

        :param time_ns: ``CLOCK_MONOTONIC``; now by default
        :param fence: a sync-file that signals when the data is ready, which the caller closes; without it, it is ready
        """
        slot = self._slots[buffer.index] if buffer.index < len(self._slots) else None
        if slot is None or buffer._slot is not slot:
            raise InvalidArgument("the buffer was published already, or acquired from another producer")
        if not 0 <= nbytes <= self._nbytes:
            raise InvalidArgument(f"a frame cannot have {nbytes} bytes: a buffer has {self._nbytes}")
        duplicate = None if fence is None else os.dup(fence)
        buffer._slot = None
        slot.forget(lambda _: True)
        self._sequence += 1
        slot.sequence, slot.writing, slot.fence = self._sequence, False, duplicate
        slot.frame = (time.monotonic_ns() if time_ns is None else time_ns, nbytes, flags)
        slot.readers = 1
        for peer in self._peers.values():
            if peer.hold is not None:
                peer.unread.append(buffer.index)
                slot.readers += 1
        self._drop_reader(buffer.index)
        self._serve(0, False)
        return self._sequence

    def _drop_reader(self, index: int) -> None:
        slot = self._slots[index]
        slot.readers -= 1
        if not slot.readers and slot.fence is not None:
            # The producer's own work may not have ended.
            slot.guards.append(_Guard(slot.fence, time.monotonic(), None))
            slot.fence = None

    def _serve(self, timeout: float, needs_buffer: bool) -> None:
        for fd, _ in self._poll.poll(timeout, MAX_BUFFERS + 1):
            if fd == self._listener.fileno():
                self._accept()
            elif fd in self._peers:
                self._read(self._peers[fd])
        now = time.monotonic()
        for peer in list(self._peers.values()):
            wanted = needs_buffer or peer.unread or peer.dropped
            if wanted and any(now - since > self._lease for since in peer.held.values()):
                self._leave(peer, "lease")
            elif peer.hold is None and now - peer.since > self._lease:
                self._leave(peer, "violation")
        idle = [slot for slot in self._slots if not slot.writing]
        for guard in [guard for slot in idle for guard in slot.guards if now - guard.since > self._lease]:
            if guard.peer in self._peers and not poll(guard.fd, 0):
                self._leave(self._peers[guard.peer], "fence")
        for slot in idle:
            slot.forget(lambda guard: guard.peer == -1 and now - guard.since > self._lease)
        for peer in list(self._peers.values()):
            self._send_frames(peer)

    def _accept(self) -> None:
        for _ in range(MAX_BUFFERS):
            try:
                sock, _address = self._listener.accept()
            except BlockingIOError:
                return
            self._connections += 1
            pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            sock.setblocking(False)
            peer = _Peer(self._connections, pid, sock, time.monotonic())
            self._peers[sock.fileno()] = peer
            self._poll.register(sock, select.EPOLLIN)
            if len(self._peers) > self._limit:
                self._leave(peer, "full")

    def _read(self, peer: _Peer) -> None:
        while peer.sock.fileno() >= 0:
            try:
                packet = receive(peer.sock)
                if packet is None:
                    return self._leave(peer, "hung up")
                data, fds = packet
                try:
                    self._handle(peer, data, fds)
                finally:
                    close_all(fds)
            except BlockingIOError:
                return
            except Violation as violation:
                version = data[:4] == b"\1\0\0\0" and data[8:16] == MAGIC and data[4:8] != b"\1\0\0\0"
                return self._leave(peer, "version" if version else "violation", str(violation))
            except OSError:
                return self._leave(peer, "hung up")

    def _handle(self, peer: _Peer, data: bytes, fds: list[int]) -> None:
        if peer.hold is None:
            _, version, magic, hold, _ = FIRST_MESSAGE.unpack(checked(data, fds, HELLO, FIRST_MESSAGE, 0))
            if (version, magic) != (VERSION, MAGIC) or not 1 <= hold <= MAX_BUFFERS:
                raise Violation(f"a first message of version {version} for {hold} frames")
            lease = int(self._lease * 1e6)
            count = len(self._buffers)
            welcome = WELCOME_MESSAGE.pack(WELCOME, VERSION, MAGIC, count, len(self._meta), self._nbytes, lease)
            send(peer.sock, welcome + self._meta, self._buffers)
            peer.hold = min(hold, max(1, count - 1))
            self.events.append(("joined", peer.number, peer.pid))
            return
        _, index, sequence = RELEASE_MESSAGE.unpack(checked(data, fds, RELEASE, RELEASE_MESSAGE, 1))
        if index not in peer.held or self._slots[index].sequence != sequence:
            raise Violation(f"frame {sequence} in buffer {index} was released and is not held")
        del peer.held[index]
        if fds:
            self._slots[index].guards.append(_Guard(fds.pop(), time.monotonic(), peer.sock.fileno()))
        self._drop_reader(index)

    def _send_frames(self, peer: _Peer) -> None:
        while peer.hold is not None and peer.unread and len(peer.held) < peer.hold:
            index = peer.unread[0]
            slot = self._slots[index]
            message = FRAME_MESSAGE.pack(FRAME, index, slot.sequence, *slot.frame, peer.dropped)
            try:
                send(peer.sock, message, () if slot.fence is None else (slot.fence,))
            except OSError as error:
                if error.errno not in LATER:
                    self._leave(peer, "hung up")
                return
            peer.unread.popleft()
            peer.held[index], peer.dropped = time.monotonic(), 0

    def _leave(self, peer: _Peer, reason: str, detail: str = "") -> None:
        fd = peer.sock.fileno()
        del self._peers[fd]
        for index in [*peer.unread, *peer.held]:
            self._drop_reader(index)
        for slot in self._slots:
            if reason != "hung up" and not slot.writing:
                slot.forget(lambda guard: guard.peer == fd)
            for guard in slot.guards:
                # The number may be given to another consumer.
                guard.peer = -1 if guard.peer == fd else guard.peer
        if reason in NUMBERS:
            with contextlib.suppress(OSError):
                send(peer.sock, FIRST_MESSAGE.pack(END, VERSION, MAGIC, NUMBERS[reason], 0))
        peer.sock.close()
        self.events.append((f"{reason}: {detail}" if detail else reason, peer.number, peer.pid))

    def close(self) -> None:
        """Ends all connections and removes the socket."""
        for peer in list(self._peers.values()):
            self._leave(peer, "closed")
        for slot in self._slots:
            slot.forget(lambda _: True)
        self._listener.close()
        self._poll.close()
        path, self._path = self._path, None
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_ino == self._inode:
                    path.unlink()
