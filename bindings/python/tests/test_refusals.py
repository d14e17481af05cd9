"""What is refused, and how: each wrong argument is a `TegraError`, and no safe call crashes the process."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import logging
import mmap
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cubins

import tegra_hcq
from tegra_hcq import Device, InvalidArgument

np = pytest.importorskip("numpy")

WRONG: list[object] = [
    None, "x", "\ud800", b"x", -1, 1.5, float("nan"), 1 << 64, 1 << 200, [], {}, (1, "x"), (-1,), object(), Device, 1j,
    np.float32(1), np.array([1.5]), np.array(None, object), ctypes.c_int(1), memoryview(b"12")[::2],
]  # fmt: skip


def calls(device: Device, cubin: Cubins, folder: Path) -> list[tuple[Callable[..., object], dict[str, object]]]:
    """Each public method that takes arguments, with arguments that it accepts."""
    program = cubin("saxpy")
    kernel, queue, signal, x = program["saxpy"], device.queue(), device.signal(), device.alloc(64, "float32")
    other, builder, target = device.alloc(64, "float32"), device.graph(), bytearray(4)
    step = builder.launch(kernel, 1.0, x, x, 64, grid=1, block=64)
    moved = builder.copy(other, x)
    graph = builder.build()
    recorder = device.graph()
    arguments = {"args": (1.0, x, x, 64), "grid": 1, "block": 64, "shared": 0}
    queue.start_profile()
    profile = queue.take_profile()
    return [
        (Device, {"kind": "sim", "index": 0}),
        (device.alloc, {"shape": 4, "dtype": "uint8", "purpose": 0}),
        (device.from_numpy, {"array": np.zeros(4), "purpose": 0}),
        (device.from_bytes, {"data": b"1234", "purpose": 0}),
        (device.import_memory, {"source": mmap.mmap(-1, 4096), "dtype": "uint8", "shape": 4096}),
        (device.load, {"cubin": program_file(device, folder)}),
        (device.compile, {"source": "int x = ;", "options": [], "name": "x.cu"}),
        (device.compile_ptx, {"ptx": "x", "options": []}),
        (device.queue, {"sleep": False, "hold": False}),
        (device.signal, {"value": 0}),
        (device.synchronize, {"timeout": 30}),
        (x.set_name, {"name": "x"}),
        (x.wait, {"timeout": 30}),
        (x.part, {"offset": 4, "shape": 4, "dtype": "float32"}),
        (x.view, {"timeout": 30}),
        (x.numpy, {"dtype": "float32", "shape": 64, "timeout": 30}),
        (x.to_numpy, {"dtype": "float32", "shape": 64}),
        (x.from_numpy, {"array": np.zeros(64)}),
        (x.part(0, dtype="int32").from_numpy, {"array": np.zeros(64)}),
        (x.copy_from, {"source": b"1234", "offset": 0}),
        (x.copy_to, {"target": target, "offset": 0}),
        (program.kernel, {"name": "saxpy"}),
        (program.read_variable, {"name": "x", "nbytes": 4}),
        (program.write_variable, {"name": "x", "value": b"1234"}),
        (kernel, {**arguments, "queue": queue}),
        (queue.launch, {"kernel": kernel, **arguments}),
        (queue.copy, {"target": other, "source": x}),
        (queue.fill, {"target": x, "value": 0, "width": 1}),
        (queue.upload, {"target": x, "source": b"1234", "offset": 0}),
        (queue.replay, {"graph": graph}),
        (queue.wait, {"timeout": 30}),
        (queue.wait_fence, {"fence": queue.submit()}),
        (queue.wait_signal, {"signal": signal, "value": 0}),
        (queue.signal, {"signal": signal, "value": 0}),
        (queue.submit().wait, {"timeout": 30}),
        (signal.wait, {"value": 0, "timeout": 30}),
        (recorder.launch, {"kernel": kernel, **arguments}),
        (recorder.copy, {"target": other, "source": x}),
        (recorder.fill, {"target": x, "value": 0, "width": 1}),
        (recorder.set_instances, {"count": 4}),
        (graph.replay, {"queue": queue}),
        (graph.set_argument, {"step": step, "index": 3, "value": 64}),
        (graph.set_size, {"step": step, "grid": 1, "block": 64}),
        (graph.set_copy, {"step": moved, "target": other, "source": x}),
        (profile.write_trace, {"path": folder / "trace.json"}),
        (tegra_hcq.enable_logging, {"level": logging.INFO, "root": "x"}),
    ]


def program_file(device: Device, folder: Path) -> Path:
    """A file that is no cubin."""
    file = folder / "x.cubin"
    file.write_bytes(b"x")
    return file


def apply(function: Callable[..., object], arguments: dict[str, object]) -> None:
    """Calls a method; what it answers does not matter, unless it is an exception of another kind."""
    rest = dict(arguments)
    positional: Any = rest.pop("args", ())
    if "kernel" in rest:
        positional = (rest.pop("kernel"), *positional)
    try:
        function(*positional, **rest)
    except (tegra_hcq.TegraError, OSError):
        pass


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_each_wrong_argument_is_an_error_of_the_package(
    device: Device, cubin: Cubins, tmp_path: Path, on_the_model: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        for function, arguments in calls(device, cubin, tmp_path):
            apply(function, arguments)
            for name in arguments:
                for wrong in WRONG:
                    value = (wrong,) * 4 if name == "args" else wrong
                    try:
                        apply(function, {**arguments, name: value})
                    except BaseException as error:
                        raise AssertionError(f"{function}({name}={wrong!r}): {error!r}") from error
    finally:
        tegra_hcq.disable_logging()


def test_integers_of_numpy_are_integers(device: Device, cubin: Cubins) -> None:
    x = device.alloc(np.int64(64), "float32")
    assert x.shape == (64,) and type(x.shape[0]) is int
    assert device.alloc((np.uint8(2), np.int16(3))).shape == (2, 3)
    part = x.part(np.int64(4), np.uint32(8))
    assert (part.offset, part.shape) == (4, (8,)) and type(part.offset) is int
    kernel, queue = cubin("saxpy")["saxpy"], device.queue()
    kernel(1.0, x, x, 64, grid=np.int32(1), block=(np.int64(64), 1), shared=np.int64(0))
    queue.fill(x, np.uint8(1), width=np.int64(1))
    queue.upload(x, b"1234", np.int64(4)).wait(np.float32(30))
    x.copy_to(target := bytearray(4), np.int64(4))
    assert target == b"1234"
    for offset in (1.5, np.float64(4), "4", None):
        with pytest.raises(InvalidArgument, match="offset is"):
            x.part(offset)  # type: ignore[arg-type]


def test_parts_begin_at_whole_elements(device: Device) -> None:
    x = device.alloc(64, "float32")
    with pytest.raises(InvalidArgument, match=r"offset is 2 bytes, 2 from .*float32 needs a multiple of 4"):
        x.part(2, 4)
    assert x.part(2, 4, "uint16").part(2, 1, "float32").offset == 4, "counted from the start of the allocation"
    with pytest.raises(InvalidArgument, match="float32 needs a multiple of 4"):
        x.part(2, 4, "uint16").part(4, 1, "float32")
    for wrong in (1 << 64, 9, -1):
        with pytest.raises(InvalidArgument, match="purpose is"):
            device.alloc(4, purpose=wrong)  # type: ignore[arg-type]


OBJECTS = [
    object,
    np.dtype([("a", object), ("b", "i8")]),
    np.dtype([("t", "M8[D]"), ("a", object)]),
    np.dtype((object, 2)),
]


@pytest.mark.parametrize("kind", OBJECTS, ids=str)
def test_addresses_of_objects_do_not_leave_python(device: Device, cubin: Cubins, kind: Any) -> None:
    x = device.from_numpy(np.arange(64, dtype=np.int64) + 12345678901)
    array = np.zeros(4, kind)
    views = [memoryview(array)] if kind is object else []
    for call in (lambda: x.numpy(kind), lambda: x.to_numpy(kind), lambda: device.from_numpy(array)):
        with pytest.raises(InvalidArgument, match="Python objects"):
            call()
    for data in (array, *views):
        for call in (
            lambda data=data: x.copy_to(data),
            lambda data=data: x.copy_from(data),
            lambda data=data: device.from_bytes(data),
            lambda data=data: device.queue().upload(x, data),
            lambda data=data: device.import_memory(data),
            lambda data=data: cubin("globals").write_variable("launches", data),
        ):
            with pytest.raises(InvalidArgument, match="Python objects"):
                call()
    with pytest.raises(InvalidArgument, match="Python objects"):
        x.copy_to((ctypes.py_object * 4)())


def test_elements_without_a_size_and_arrays_that_numpy_refuses(device: Device) -> None:
    x = device.alloc(64, "float32")
    for kind in ("V0", "U0", "S0", np.dtype([])):
        for shape in (None, 1 << 60):
            with pytest.raises(InvalidArgument, match="have no size"):
                x.numpy(kind, shape)
    for call in (x.numpy, x.to_numpy):
        with pytest.raises(InvalidArgument):
            call("float32", (0, 1 << 62))
    with pytest.raises(InvalidArgument, match="numpy makes no array"):
        device.from_numpy([[1], [2, 3]])
    # Formats that the buffer protocol cannot express are bytes like any other.
    days = np.array(["2020-01-01", "2020-01-02"], "M8[D]")
    assert (device.from_numpy(days).to_numpy("M8[D]") == days).all()
    x.copy_from(days)
    x.copy_to(back := np.zeros(2, "M8[D]"))
    assert (back == days).all()


def test_a_refusal_says_what_was_wanted(device: Device) -> None:
    x = device.alloc(64, "float32")
    closed = device.queue()
    closed.close()
    for call, error, words in (
        (lambda: device.alloc("10"), InvalidArgument, "shape is '10'; permitted are an integer"),
        (lambda: x.from_numpy(np.zeros((3, 2))), InvalidArgument, r"shape \(3, 2\) cannot be broadcast .* \(64,\)"),
        (lambda: device.load(None), InvalidArgument, "a file's path or its contents, not NoneType"),
        (closed.__enter__, tegra_hcq.InvalidHandle, "it was closed"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_the_other_byte_order_is_refused(device: Device, cubin: Cubins) -> None:
    swapped = np.arange(3, dtype=">i4")
    x = device.alloc(64, "int32")
    for call in (
        lambda: device.from_numpy(swapped),
        lambda: device.from_numpy(np.zeros(2, [("a", ">f4"), ("b", "i4")])),
        lambda: device.from_bytes(swapped),
        lambda: device.from_bytes(memoryview(swapped)),
        lambda: x.copy_from(swapped),
        lambda: x.copy_to(swapped),
        lambda: device.queue().upload(x, swapped),
        lambda: cubin("saxpy")["saxpy"](np.array(1.0, ">f4"), x, x, 4, grid=1, block=4),
    ):
        with pytest.raises(InvalidArgument, match="the other byte order"):
            call()
    assert (device.from_numpy(swapped.astype("i4")).to_numpy() == [0, 1, 2]).all()
    x.copy_from(swapped.view(np.uint8))
    assert (x.numpy(">i4", 3) == swapped).all(), "a view may be read in any order"
    x.from_numpy(np.full(64, 7, ">i4"))
    assert (x.to_numpy() == 7).all()


def test_handles_have_no_copies(device: Device, cubin: Cubins) -> None:
    @dataclasses.dataclass
    class Layer:
        weights: tegra_hcq.Buffer

    program, x, queue, builder = cubin("saxpy"), device.from_bytes(b"abcd"), device.queue(), device.graph()
    builder.fill(x)
    queue.start_profile()
    handles = [
        device, x, x.part(0), program, program["saxpy"], queue, queue.submit(), device.signal(), queue.take_profile(),
        device.graph(), builder.build(),
    ]  # fmt: skip
    assert {type(handle) for handle in handles} >= {
        kind
        for name in tegra_hcq.__all__
        if isinstance(kind := getattr(tegra_hcq, name), type) and hasattr(kind, "close")
    }
    for handle in handles:
        for call in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(
                tegra_hcq.Unsupported, match=f"{type(handle).__name__} can be neither copied nor pickled"
            ):
                call(handle)
    with pytest.raises(tegra_hcq.Unsupported):
        dataclasses.asdict(Layer(x))
    with pytest.raises(tegra_hcq.Unsupported):
        copy.deepcopy({"weights": [x]})
    with pytest.raises(tegra_hcq.Unsupported):
        copy.copy(x._owned)
    assert x.to_bytes() == b"abcd", "the original is alive"
