"""Frames of a camera to kernels of the GPU, without a copy: the Python twin of `cargo run -p camera`.

python examples/camera/camera.py                        # a synthetic camera in a thread
python examples/camera/camera.py --camera /dev/video0   # a V4L2 camera with NV12
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import queue
import select
import struct
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import tegra_hcq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
SIDE, BUFFERS, PATIENCE = 32, 4, 10.0


class Layout(NamedTuple):
    """An NV12 image; the chroma follows the luma."""

    width: int
    height: int
    pitch: int

    @property
    def nbytes(self) -> int:
        """Size of a frame in bytes."""
        return self.pitch * self.height * 3 // 2


class Frame(NamedTuple):
    """A complete frame."""

    buffer: int
    sequence: int
    began: float


class Camera(Protocol):
    """A camera that captures into a ring of dma-bufs."""

    name: str
    layout: Layout
    files: list[int]

    def next_frame(self) -> Frame:
        """Waits for a frame."""

    def give_back(self, index: int) -> None:
        """Gives a buffer back, to be written."""

    def close(self) -> None:
        """Stops."""


class Synthetic:
    """A thread that writes frames to exported memory, as another driver would."""

    name = "synthetic camera in a thread"

    def __init__(self, device: tegra_hcq.Device, width: int, height: int, rate: float) -> None:
        self.layout = Layout(width, height, (width + 255) // 256 * 256)
        self._buffers = [device.alloc_shared(self.layout.nbytes) for _ in range(BUFFERS)]
        self.files = [buffer.export() for buffer in self._buffers]
        self._free: queue.Queue[int] = queue.Queue()
        self._done: queue.Queue[Frame] = queue.Queue()
        self._stop = threading.Event()
        for index in range(BUFFERS):
            self._free.put(index)
        self._thread = threading.Thread(target=self._run, args=(1 / rate,), name="camera")
        self._thread.start()

    def _run(self, interval: float) -> None:
        rows, pitch = self.layout.height, self.layout.pitch
        sequence = 0
        while not self._stop.wait(interval):
            with contextlib.suppress(queue.Empty):
                index, began = self._free.get_nowait(), time.monotonic()
                luma = bytes((16 + (4 * sequence + x) % 220) for x in range(pitch))
                # The queue has waited for the GPU; the memory is the CPU's.
                with self._buffers[index].cpu_access() as memory:
                    memory[: pitch * rows] = luma * rows
                    memory[pitch * rows :] = bytes([128]) * (pitch * rows // 2)
                self._done.put(Frame(index, sequence, began))
            sequence += 1

    def next_frame(self) -> Frame:
        """Waits for a frame."""
        try:
            return self._done.get(timeout=PATIENCE)
        except queue.Empty:
            raise TimeoutError(f"no frame within {PATIENCE} s") from None

    def give_back(self, index: int) -> None:
        """Gives a buffer back, to be written."""
        self._free.put(index)

    def close(self) -> None:
        """Stops the thread."""
        self._stop.set()
        self._thread.join()
        for file in self.files:
            os.close(file)


class V4l2:
    """A V4L2 camera: buffers of its driver, exported (Linux `videodev2.h`, 64 bits)."""

    QUERYCAP, S_FMT, REQBUFS, EXPBUF = 0x80685600, 0xC0D05605, 0xC0145608, 0xC0405610
    QBUF, DQBUF, STREAMON = 0xC058560F, 0xC0585611, 0x40045612
    CAPTURE, MMAP, PROGRESSIVE, NV12, DAMAGED = 1, 1, 1, 0x3231564E, 0x40

    def __init__(self, path: str, width: int, height: int) -> None:
        self._node = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            try:
                found = self._ask(self.QUERYCAP, bytearray(104))
            except OSError as error:
                raise OSError(f"{path} is no V4L2 device: {error}") from None
            self.name = found[16:48].rstrip(b"\0").decode(errors="replace")
            format_ = bytearray(208)
            struct.pack_into("<I4x4I", format_, 0, self.CAPTURE, width, height, self.NV12, self.PROGRESSIVE)
            width, height, code, _, pitch = struct.unpack_from("<5I", self._ask(self.S_FMT, format_), 8)
            if code != self.NV12:
                raise OSError(f"{path} has no NV12")
            self.layout = Layout(width, height, pitch)
            request = self._ask(self.REQBUFS, bytearray(struct.pack("<3I8x", BUFFERS, self.CAPTURE, self.MMAP)))
            self.files = []
            for index in range(struct.unpack_from("<I", request)[0]):
                export = bytearray(struct.pack("<4Ii44x", self.CAPTURE, index, 0, os.O_CLOEXEC, 0))
                self.files.append(struct.unpack_from("<i", self._ask(self.EXPBUF, export), 16)[0])
                self.give_back(index)
            self._ask(self.STREAMON, bytearray(struct.pack("<I", self.CAPTURE)))
        except BaseException:
            os.close(self._node)
            raise

    def _ask(self, request: int, argument: bytearray) -> bytearray:
        fcntl.ioctl(self._node, request, argument)
        return argument

    def _buffer(self, index: int = 0) -> bytearray:
        buffer = bytearray(88)
        struct.pack_into("<2I", buffer, 0, index, self.CAPTURE)
        struct.pack_into("<I", buffer, 60, self.MMAP)
        return buffer

    def next_frame(self) -> Frame:
        """Waits for a frame; damaged ones are given back."""
        end = time.monotonic() + PATIENCE
        while (left := end - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(self._node, select.POLLIN)
            poll.poll(left * 1e3)
            try:
                done = self._ask(self.DQBUF, self._buffer())
            except BlockingIOError:
                continue
            index, flags = struct.unpack_from("<I8xI", done)
            if flags & self.DAMAGED:
                self.give_back(index)
                continue
            seconds, micros, sequence = struct.unpack_from("<2q16xI", done, 24)
            return Frame(index, sequence, seconds + micros / 1e6)
        raise TimeoutError(f"no frame within {PATIENCE} s")

    def give_back(self, index: int) -> None:
        """Gives a buffer back, to be written."""
        self._ask(self.QBUF, self._buffer(index))

    def close(self) -> None:
        """Closes the camera."""
        for file in (*self.files, self._node):
            os.close(file)


def pipeline(device: tegra_hcq.Device, camera: Camera) -> Callable[[int], list[float]]:
    """Imports the camera's buffers once. Returns what computes a frame's mean colour."""
    arch = device.properties.arch
    program = device.load(KERNELS / ("" if arch == "sm_87" else arch) / "image.cubin")
    yuv_to_rgb, resize = program.kernel("yuv_to_rgb"), program.kernel("resize")
    layout = camera.layout
    desktop = device.properties.kind == "nvrm"  # has no imports for reading only
    frames = [device.import_file(file, layout.nbytes, read_only=not desktop) for file in camera.files]
    rgb = device.alloc((3, layout.height, layout.width), "float32")
    small = device.alloc((3, SIDE, SIDE), "float32")
    # BT.709, limited range: see Colour in crates/tegra-image.
    factors = (1.5748 / 224, 0.0722 * 1.8556 / 0.7152 / 224, 0.2126 * 1.5748 / 0.7152 / 224, 1.8556 / 224)
    offset = layout.pitch * layout.height
    colours = struct.pack(
        "<2Q6I6f", 0, offset, layout.pitch, layout.pitch, layout.width, layout.height, 1, 1, 16.0, 219.0, *factors
    )
    step = (layout.width / SIDE, layout.height / SIDE)
    sizes = struct.pack("<8I3f", layout.width, layout.height, SIDE, SIDE, 0, 0, SIDE, SIDE, *step, 0.0)
    work = device.queue()

    def blocks(width: int, height: int, planes: int = 1) -> tuple[int, int, int]:
        return (width + 31) // 32, (height + 7) // 8, planes

    def one(index: int) -> list[float]:
        work.launch(yuv_to_rgb, frames[index], rgb, colours, grid=blocks(layout.width, layout.height), block=(32, 8))
        work.launch(resize, rgb, small, sizes, grid=blocks(SIDE, SIDE, 3), block=(32, 8))
        work.wait(60.0)
        return [float(value) for value in small.to_numpy().mean(axis=(1, 2))]

    return one


@contextlib.contextmanager
def opened(options: argparse.Namespace, device: tegra_hcq.Device) -> Iterator[Camera]:
    """The camera, open."""
    camera: Camera
    if options.camera is None:
        camera = Synthetic(device, options.width, options.height, options.rate)
    else:
        camera = V4l2(options.camera, options.width, options.height)
    try:
        yield camera
    finally:
        camera.close()


def run(options: argparse.Namespace) -> int:
    """Runs the program. Returns its exit code."""
    milliseconds: list[float] = []
    colour: list[float] = []
    code = 0
    with tegra_hcq.Device(options.device) as device, opened(options, device) as camera:
        one = pipeline(device, camera)
        try:
            for _ in range(options.frames):
                frame = camera.next_frame()
                colour = one(frame.buffer)
                milliseconds.append((time.monotonic() - frame.began) * 1e3)
                camera.give_back(frame.buffer)
        except KeyboardInterrupt:
            code = 130
        name = camera.name
    if milliseconds:
        milliseconds.sort()
        figures = {
            "camera": name,
            "frames": len(milliseconds),
            "latency_ms": {"p50": milliseconds[len(milliseconds) // 2], "max": milliseconds[-1]},
            "colour": colour,
        }
        text = [f"{key:<13} {value}" for key, value in figures.items()]
        print(json.dumps(figures) if options.json else "\n".join(text))
    return code


def main() -> int:
    """Parses the command line and runs the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="auto", help="auto, nvgpu, nvrm or sim")
    parser.add_argument("--camera", help="V4L2 device, such as /dev/video0; without it a synthetic camera")
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--rate", type=float, default=5.0, help="frames per second of the synthetic camera")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.frames < 1 or options.rate <= 0 or min(options.width, options.height) < 2:
        parser.error("--frames, --rate, --width and --height are positive; images have at least 2 x 2 pixels")
    if options.width % 2 or options.height % 2:
        parser.error("NV12 has an even width and height")
    try:
        return run(options)
    except (tegra_hcq.TegraError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
