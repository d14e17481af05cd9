"""The messages, packets with descriptors, and bounded waits."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._errors import DeviceError, GpuTimeout

if TYPE_CHECKING:
    if sys.version_info >= (3, 11):
        from typing import Self
    else:
        from typing_extensions import Self

# See crates/tegra-share/src/wire.rs.
MAGIC, VERSION = b"TGRSHARE", 1
MAX_BUFFERS = 64
"""Largest number of buffers of a ring, and of consumers of a producer."""
MAX_META = 4096
"""Largest meta, in bytes."""
HELLO, WELCOME, FRAME, RELEASE, END = range(1, 6)
FIRST_MESSAGE = struct.Struct("<II8sII")
WELCOME_MESSAGE = struct.Struct("<II8sIIQQ")
FRAME_MESSAGE = struct.Struct("<IIQQQII")
RELEASE_MESSAGE = struct.Struct("<IIQ")
REASONS = {1: "closed", 2: "lease", 3: "fence", 4: "violation", 5: "version", 6: "full"}
NUMBERS = {reason: number for number, reason in REASONS.items()}
LATER = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)


class Violation(DeviceError):
    """The peer has sent a wrong message."""


class Ended(DeviceError):
    """The connection to the producer has ended. Frames that are still held may be overwritten."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the producer has ended the connection: {reason}")
        self.reason = reason
        """``died``, ``closed``, ``lease``, ``fence``, ``violation``, ``version``, ``full``, or a number."""


class NoBuffer(GpuTimeout):
    """No buffer became free in time: consumers hold them."""


def receive(sock: socket.socket) -> tuple[bytes, list[int]] | None:
    """The next packet and its descriptors, which the caller closes; ``None`` at the end of the connection.

    :raises BlockingIOError: if no packet waits.
    """
    size = WELCOME_MESSAGE.size + MAX_META
    data, fds, flags, _ = socket.recv_fds(sock, size, MAX_BUFFERS, socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        close_all(fds)
        raise Violation("a message is too long, or has too many descriptors")
    return (data, fds) if data else None


def close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def checked(data: bytes, fds: list[int], kind: int, layout: struct.Struct, most: int) -> bytes:
    """A message, if it is of that kind."""
    if len(data) != layout.size or len(fds) > most or int.from_bytes(data[:4], "little") != kind:
        raise Violation(f"a message of {len(data)} bytes with {len(fds)} descriptors is not one of kind {kind}")
    return data


def send(sock: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    socket.send_fds(sock, [data], fds, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)


def poll(fd: int | socket.socket, seconds: float, events: int = select.POLLIN) -> bool:
    poller = select.poll()
    poller.register(fd, events)
    return bool(poller.poll(max(0.0, seconds) * 1000))


def wait_fences(fences: Sequence[int], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    for fence in fences:
        if not poll(fence, deadline - time.monotonic()):
            raise GpuTimeout(f"a fence did not signal after {timeout} s")


def new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Closing:
    """A context manager that closes itself, as the last reference does."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # The interpreter may be ending.
        with contextlib.suppress(Exception):
            self.close()
