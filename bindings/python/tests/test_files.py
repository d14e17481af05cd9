"""Memory and fences as files, between devices and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from conftest import KIND, ROOT, Cubins

import tegra_hcq
from tegra_hcq import Device, DeviceError, InvalidArgument, Unsupported

np = pytest.importorskip("numpy")


def test_another_process_reads_and_writes_the_same_memory(device: Device, cubin: Cubins) -> None:
    shared = device.alloc_shared(1000, "uint32")
    fill = cubin("basics").kernel("fill_u32")
    with device.queue() as queue:
        queue.launch(fill, shared, 7, 1000, grid=4, block=256)
        queue.wait()
    child = """
import sys, tegra_hcq
with tegra_hcq.Device(sys.argv[1]) as device:
    theirs = device.import_file(int(sys.argv[2]), 1000, "uint32")
    print(int(theirs.to_numpy().sum()))
    theirs.copy_from(bytes([9, 0, 0, 0]), offset=4)
"""
    fd = shared.export()
    try:
        command = [sys.executable, "-c", child, KIND, str(fd)]
        printed = subprocess.run(command, pass_fds=[fd], check=True, capture_output=True, text=True, timeout=120)
    finally:
        os.close(fd)
    assert printed.stdout == "7000\n"
    assert shared.to_numpy()[:3].tolist() == [7, 9, 7]


def test_an_import_for_reading_is_not_written(device: Device, on_the_model: None) -> None:
    shared = device.alloc_shared((2, 4), "float32")
    assert not shared.read_only
    fd = shared.export(read_only=True)
    theirs = device.import_file(fd, (2, 4), "float32", read_only=True)
    os.close(fd)
    shared.from_numpy(3)
    with theirs.cpu_access() as view:
        assert view.readonly
        assert view.tobytes() == shared.to_bytes()
    assert theirs.read_only
    assert not theirs.numpy().flags.writeable
    with pytest.raises(InvalidArgument, match="reading only"):
        theirs.copy_from(b"1234")
    with shared.cpu_access() as view:
        view[:4] = np.float32(5).tobytes()
    assert theirs.to_numpy()[0].tolist() == [5, 3, 3, 3]
    with pytest.raises(InvalidArgument, match="outside"):
        device.import_file(shared.export(), 9, "float32", offset=4096 - 32)


def test_queues_wait_through_files(device: Device, on_the_model: None) -> None:
    with device.queue() as first, device.queue() as second:
        word, copy = device.alloc_shared(100, "uint32"), device.alloc(100, "uint32")
        first.fill(word, 6, width=4)
        ready = first.submit_to_file()
        second.wait_file(ready)
        os.close(ready)
        second.copy(copy, word)
        second.wait()
        assert copy.to_numpy().tolist() == [6] * 100


def test_frames_of_a_synthetic_camera_reach_the_kernels() -> None:
    program = ROOT / "examples" / "camera" / "camera.py"
    options = ["--frames", "3", "--width", "64", "--height", "48", "--rate", "50", "--json"]
    command = [sys.executable, str(program), "--device", KIND, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    figures = json.loads(done.stdout)
    assert figures["frames"] == 3
    # Grey: chroma is 128 everywhere, luma from 16 to 235.
    red, green, blue = figures["colour"]
    assert 0 < red < 1
    assert abs(red - green) + abs(red - blue) < 1e-5
    wrong = subprocess.run([*command, "--camera", os.devnull], capture_output=True, text=True, timeout=60, check=False)
    assert (wrong.returncode, "no V4L2 device" in wrong.stderr) == (1, True)


def test_what_is_no_file_of_memory_or_fence_is_refused(device: Device) -> None:
    for wrong in (-1, 2.5, "file", None):
        with pytest.raises(InvalidArgument, match="file is"):
            device.import_file(wrong)  # type: ignore[arg-type]
    with open(os.devnull, "rb") as null, device.queue() as queue:
        with pytest.raises(DeviceError):
            device.import_file(null)
        with pytest.raises(tegra_hcq.TegraError):
            queue.wait_file(null)
    with pytest.raises(InvalidArgument, match="no descriptor"):
        device.import_file(null)
    with pytest.raises(Unsupported, match="not shared"):
        device.alloc(4).export()
