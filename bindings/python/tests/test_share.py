"""Frames between processes: both ends in Python. `crates/tegra-share/tests/python.rs` has each end against Rust's."""

from __future__ import annotations

import gc
import json
import mmap
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import KIND, ROOT

import tegra_hcq
from tegra_hcq import GpuTimeout, InvalidArgument, share
from tegra_hcq.share import Consumer, Ended, NoBuffer, Producer, Violation

SIZE = 4096
LEASE = 0.2


def memory() -> int:
    fd = os.memfd_create("share")
    os.ftruncate(fd, SIZE)
    return fd


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


@pytest.fixture
def producer(path: Path) -> Iterator[Producer]:
    before = len(os.listdir("/proc/self/fd"))
    buffers = [memory() for _ in range(3)]
    with Producer(path, buffers, SIZE, b"meta", lease=LEASE) as producer:
        yield producer
    for fd in buffers:
        os.close(fd)
    assert (path.exists(), len(os.listdir("/proc/self/fd"))) == (False, before)


def beside(producer: Producer, call: Callable[[], object]) -> object:
    """Calls in another thread while the producer serves; returns the result or the exception."""
    result: list[object] = []

    def body() -> None:
        try:
            result.append(call())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    while thread.is_alive():
        producer.wait(0.005)
    return result[0]


def join(producer: Producer, path: Path, hold: int = 2) -> Consumer:
    consumer = beside(producer, lambda: Consumer(path, hold))
    assert isinstance(consumer, Consumer), consumer
    return consumer


def until(producer: Producer, reason: str) -> None:
    deadline = time.monotonic() + 20
    while not any(event[0].startswith(reason) for event in producer.events):
        assert time.monotonic() < deadline, producer.events
        producer.wait(0.01)


def test_a_frame_arrives_with_all_that_was_said_of_it(producer: Producer, path: Path) -> None:
    with join(producer, path) as consumer:
        assert (len(consumer.buffers), consumer.nbytes, consumer.meta, consumer.lease) == (3, SIZE, b"meta", LEASE)
        assert consumer.recv(0) is None
        buffer = producer.acquire(1)
        with mmap.mmap(producer._buffers[buffer.index], SIZE) as image:
            image[:5] = b"hello"
        reader, writer = os.pipe()
        assert producer.publish(buffer, 5, time_ns=7, flags=8, fence=reader) == 1
        with pytest.raises(InvalidArgument):
            producer.publish(buffer, 5)
        frame = consumer.recv(1)
        assert frame is not None
        assert (frame.sequence, frame.time_ns, frame.nbytes, frame.flags, frame.dropped) == (1, 7, 5, 8, 0)
        with pytest.raises(GpuTimeout):
            frame.wait(0.01)
        os.write(writer, b"x")
        frame.wait(1)
        with mmap.mmap(frame.buffer, SIZE, prot=mmap.PROT_READ) as image:
            assert image[: frame.nbytes] == b"hello"
        second, end = os.pipe()
        frame.release(second)
        all_of_them = [producer.acquire(1) for _ in range(3)]
        assert [len(buffer.fences) for buffer in all_of_them] == [0, 0, 1]
        with pytest.raises(NoBuffer):
            producer.acquire(0.01)
        with pytest.raises(GpuTimeout):
            all_of_them[2].wait(0.01)
        os.write(end, b"x")
        all_of_them[2].wait(1)
        del buffer, all_of_them
        for fd in (reader, writer, second, end):
            os.close(fd)
        for _ in range(6):
            producer.publish(producer.acquire(1), 0)
        got = []
        while (frame := consumer.recv(0.05)) is not None:
            with frame:
                got.append((frame.sequence, frame.dropped))
            producer.wait(0.05)
        assert got == [(2, 0), (3, 0), (7, 3)]
        producer.close()
        with pytest.raises(Ended, match="closed"):
            consumer.recv(1)


def test_a_consumer_that_hangs_loses_its_part(producer: Producer, path: Path) -> None:
    with join(producer, path, 1) as consumer:
        for _ in range(2):
            producer.publish(producer.acquire(1), 0)
        frame = consumer.recv(1)
        until(producer, "lease")
        with pytest.raises(Ended, match="lease"):
            frame.release()
    with join(producer, path, 1) as consumer:
        producer.publish(producer.acquire(1), 0)
        fence, end = os.pipe()
        frame = consumer.recv(1)
        frame.release(fence)
        until(producer, "fence")
        os.close(fence)
        os.close(end)
        assert all(not buffer.fences for buffer in [producer.acquire(1) for _ in range(3)])


def test_a_killed_producer_and_a_killed_consumer_are_noticed(producer: Producer, path: Path, tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom tegra_hcq.share import *\nimport os\n"
        "if sys.argv[1] == 'consumer':\n c = Consumer(sys.argv[2])\n f = c.recv(20)\n"
        "else:\n fd = os.memfd_create('x'); os.ftruncate(fd, 1)\n p = Producer(sys.argv[2], [fd], 1)\n"
        " while not p.consumers: p.wait(1)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )

    def start(part: str, path: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", script, part, str(path)], stdout=subprocess.PIPE)

    with start("consumer", path) as child:
        while not producer.consumers:
            producer.wait(1)
        producer.publish(producer.acquire(1), 0)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        child.kill()
    until(producer, "hung up")
    assert producer.events[-1] == ("hung up", 1, child.pid)
    assert len({producer.acquire(1).index for _ in range(3)}) >= 1
    other = tmp_path / "other"
    with start("producer", other) as child:
        consumer = Consumer(other, timeout=20)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        child.kill()
    with pytest.raises(Ended, match="died"):
        consumer.recv(20)
    consumer.close()
    # Its socket is replaced.
    fd = memory()
    Producer(other, [fd], SIZE).close()
    os.close(fd)


@pytest.mark.parametrize("killed", [False, True])
def test_the_example_reads_frames_in_place(device: tegra_hcq.Device, path: Path, killed: bool) -> None:
    before = len(os.listdir("/proc/self/fd"))
    count = 1000
    memory = [device.alloc_shared(count, "float32") for _ in range(3)]
    files = [buffer.export(read_only=device.properties.kind != "nvrm") for buffer in memory]
    command = [sys.executable, str(ROOT / "examples/share.py"), str(path), "--device", KIND, "--json"]
    with (
        Producer(path, files, 4 * count, drop_oldest=False, lease=30) as producer,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader,
    ):
        while not producer.consumers:
            assert reader.poll() is None
            producer.wait(0.1)
        for number in range(1, 51):
            buffer = producer.acquire(30)
            buffer.wait(30)
            memory[buffer.index].copy_from(struct.pack("f", number) * count)
            producer.publish(buffer, 4 * count)
        assert producer.flush(30)
        if killed:
            # As if it had died: no last message.
            for peer in producer._peers.values():
                peer.sock.shutdown(socket.SHUT_RDWR)
        producer.close()
        output, _ = reader.communicate(timeout=60)
    report = json.loads(output)["consumer"]
    assert (reader.returncode, report["frames"], report["dropped"]) == (int(killed), 50, 0)
    for fd in files:
        os.close(fd)
    del memory, buffer
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


HELLO = struct.pack("<II8sII", 1, 1, b"TGRSHARE", 2, 0)


@pytest.mark.parametrize(
    ("packets", "reason"),
    [
        ([b"GET / HTTP/1.1"], "violation"),
        ([HELLO[:-1]], "violation"),
        ([HELLO[:16] + b"\0" * 8], "violation"),
        ([HELLO[:4] + b"\2" + HELLO[5:]], "version"),
        ([HELLO, HELLO], "violation"),
        ([HELLO, struct.pack("<IIQ", 4, 0, 1)], "violation"),
        ([HELLO, struct.pack("<IIQ", 4, 99, 1)], "violation"),
        ([HELLO, b"x" * 9000], "violation"),
    ],
)
def test_a_consumer_that_sends_rubbish_loses_its_part(
    producer: Producer, path: Path, packets: list[bytes], reason: str
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.connect(str(path))
        for packet in packets:
            peer.send(packet)
        until(producer, reason)
    assert not producer.consumers
    assert len({buffer.index for buffer in [producer.acquire(1) for _ in range(3)]}) == 3


WELCOME = struct.pack("<II8sIIQQ", 2, 1, b"TGRSHARE", 1, 0, SIZE, 1)
FRAME = struct.pack("<IIQQQII", 3, 0, 1, 0, SIZE, 0, 0)


@pytest.mark.parametrize(
    ("packets", "error"),
    [
        ([(b"x", 0)], Violation),
        ([(WELCOME, 2)], Violation),
        ([(WELCOME[:4] + b"\2" + WELCOME[5:], 1)], Violation),
        ([(FRAME, 0)], Violation),
        ([(WELCOME, 1), (FRAME[:-1], 0)], Violation),
        ([(WELCOME, 1), (FRAME, 2)], Violation),
        ([(WELCOME, 1), (FRAME[:4] + b"\1" + FRAME[5:], 0)], Violation),
        ([(WELCOME, 1), (struct.pack("<II8sII", 5, 1, b"TGRSHARE", 77, 0), 0)], Ended),
        ([(WELCOME, 1)], Ended),
    ],
)
def test_a_consumer_refuses_a_wrong_producer(path: Path, packets: list[tuple[bytes, int]], error: type) -> None:
    fd = memory()
    before = len(os.listdir("/proc/self/fd"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                for packet, count in packets:
                    socket.send_fds(peer, [packet], [fd] * count)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(error), Consumer(path) as consumer:
            consumer.recv(20)
        thread.join()
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(fd)


def test_what_cannot_be_served_is_refused(producer: Producer, path: Path, tmp_path: Path) -> None:
    for buffers, size, meta in [([], 1, b""), ([0] * 65, 1, b""), ([0], 0, b""), ([0], 1, b"x" * 4097)]:
        with pytest.raises(InvalidArgument):
            Producer(tmp_path / "x", buffers, size, meta)
    with pytest.raises(OSError, match="in use"):
        Producer(path, [0], 1)
    with pytest.raises(GpuTimeout):
        Consumer(tmp_path / "nobody", timeout=0.01)
    with pytest.raises(InvalidArgument):
        Consumer(path, share.MAX_BUFFERS + 1)
