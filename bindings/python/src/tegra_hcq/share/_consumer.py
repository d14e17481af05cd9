"""The consumer's end: frames to read."""

from __future__ import annotations

import contextlib
import os
import time

from .._errors import GpuTimeout, InvalidArgument
from ._wire import (
    END,
    FIRST_MESSAGE,
    FRAME,
    FRAME_MESSAGE,
    HELLO,
    MAGIC,
    MAX_BUFFERS,
    MAX_META,
    REASONS,
    RELEASE,
    RELEASE_MESSAGE,
    VERSION,
    WELCOME,
    WELCOME_MESSAGE,
    Closing,
    Ended,
    Violation,
    checked,
    close_all,
    new_socket,
    poll,
    receive,
    send,
    wait_fences,
)


class Frame(Closing):
    """A frame that the consumer holds: the producer does not write its buffer. As a context manager, and with the last
    reference, it is released without a fence.
    """

    def __init__(self, consumer: Consumer, fields: list[int], fences: list[int]) -> None:
        self._consumer: Consumer | None = consumer
        self._fences = fences
        self.index, self.sequence, self.time_ns, self.nbytes, self.flags, self.dropped = fields
        self.buffer = consumer.buffers[self.index]
        """Descriptor of the buffer, which the consumer owns."""

    @property
    def fence(self) -> int | None:
        """The sync-file that signals when the data is ready, or ``None`` if it is."""
        return self._fences[0] if self._fences else None

    def wait(self, timeout: float) -> None:
        """Waits on the CPU until the data is ready.

        :raises GpuTimeout: if it is not in time.
        """
        wait_fences(self._fences, timeout)

    def close(self) -> None:
        """As :meth:`release`."""
        self.release()

    def release(self, fence: int | None = None) -> None:
        """Gives the buffer back. With a fence, a sync-file, the producer may write it once that has signalled; the
        caller closes it.

        :raises Ended: if the producer did not wait for this release: the data may have been overwritten.
        """
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        close_all(self._fences)
        self._fences = []
        if consumer.fileno() < 0:
            return
        message = RELEASE_MESSAGE.pack(RELEASE, self.index, self.sequence)
        try:
            send(consumer._socket, message, () if fence is None else (fence,))
        except (BrokenPipeError, ConnectionResetError):
            raise consumer._why_ended() from None


class Consumer(Closing):
    """The consuming end of a ring of buffers. ``select`` and ``asyncio`` take it: it has :meth:`fileno`.

    :param path: the producer's socket
    :param hold: largest number of frames that are held at once
    :param timeout: how long to wait for the producer and its answer, in seconds
    :raises Ended: if the producer refuses.
    :raises GpuTimeout: if there is none.
    """

    def __init__(self, path: str | os.PathLike[str], hold: int = 2, timeout: float = 5.0) -> None:
        if not 1 <= hold <= MAX_BUFFERS:
            raise InvalidArgument(f"hold is {hold}: give 1 to {MAX_BUFFERS}")
        deadline = time.monotonic() + timeout
        self._ended: Ended | None = None
        self.buffers: list[int] = []
        """Descriptors of the buffers, closed by :meth:`close`."""
        self._socket = new_socket()
        try:
            self._connect(os.fspath(path), deadline)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                send(self._socket, FIRST_MESSAGE.pack(HELLO, VERSION, MAGIC, hold, 0))
            if not poll(self._socket, deadline - time.monotonic()):
                raise GpuTimeout(f"the producer did not answer after {timeout} s")
            packet = self._packet()
            if packet is None:
                raise GpuTimeout("the producer did not answer")
            data, fds = packet
            self.buffers = fds
            if len(data) < WELCOME_MESSAGE.size or len(data) > WELCOME_MESSAGE.size + MAX_META:
                raise Violation(f"a first message of {len(data)} bytes")
            kind, version, magic, count, length, self.nbytes, lease = WELCOME_MESSAGE.unpack_from(data)
            if (kind, magic) != (WELCOME, MAGIC) or version != VERSION:
                raise Violation(f"message {kind} of version {version} is not the answer of a producer")
            self.meta = data[WELCOME_MESSAGE.size :]
            """What the buffers contain, as the producer describes it."""
            self.lease = lease / 1e6
            """How long a frame may be kept while the producer needs its buffer, in seconds."""
            if count != len(fds) or not 1 <= count <= MAX_BUFFERS or length != len(self.meta) or not self.nbytes:
                raise Violation(f"{count} buffers of {self.nbytes} bytes with {len(fds)} descriptors")
        except BaseException:
            self.close()
            raise

    def _connect(self, path: str, deadline: float) -> None:
        self._socket.setblocking(False)
        while True:
            try:
                return self._socket.connect(path)
            except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
                if time.monotonic() >= deadline:
                    raise GpuTimeout(f"no producer serves {path}") from None
                time.sleep(0.005)

    def fileno(self) -> int:
        """The socket: readable when a frame waits, or the connection has ended."""
        return self._socket.fileno()

    def recv(self, timeout: float) -> Frame | None:
        """The next frame, or ``None`` if none came in time.

        :raises Ended: if the producer has ended, died, or taken this consumer's part back.
        :raises Violation: if it sent a wrong message.
        """
        deadline = time.monotonic() + timeout
        while (packet := self._packet()) is None:
            if not poll(self._socket, deadline - time.monotonic()):
                return None
        data, fds = packet
        try:
            _, *fields = FRAME_MESSAGE.unpack(checked(data, fds, FRAME, FRAME_MESSAGE, 1))
            if fields[0] >= len(self.buffers) or fields[3] > self.nbytes:
                raise Violation(f"a frame of {fields[3]} bytes in buffer {fields[0]}")
            return Frame(self, fields, fds)
        except BaseException:
            close_all(fds)
            raise

    def _packet(self) -> tuple[bytes, list[int]] | None:
        """A packet that is not the last one; ``None`` if none waits."""
        if self._ended is not None:
            raise self._ended
        try:
            packet = receive(self._socket)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            # The kernel reports once that the producer has not read everything; its last message may follow.
            packet = None
            with contextlib.suppress(ConnectionResetError, BlockingIOError):
                packet = receive(self._socket)
        if packet is None:
            self._ended = Ended("died")
            raise self._ended
        data, fds = packet
        if len(data) == FIRST_MESSAGE.size and int.from_bytes(data[:4], "little") == END:
            close_all(fds)
            *_, reason, _reserved = FIRST_MESSAGE.unpack(data)
            self._ended = Ended(REASONS.get(reason, str(reason)))
            raise self._ended
        return packet

    def _why_ended(self) -> Ended:
        try:
            while (packet := self._packet()) is not None:
                close_all(packet[1])
        except Ended as ended:
            return ended
        return Ended("died")

    def close(self) -> None:
        """Ends the connection and closes the descriptors."""
        self._socket.close()
        self._ended = self._ended or Ended("closed")
        fds, self.buffers = self.buffers, []
        close_all(fds)
