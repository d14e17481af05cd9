"""Programs, kernels, arguments."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest
from conftest import ROOT, Cubins

import tegra_hcq
from tegra_hcq import Device

np = pytest.importorskip("numpy")


def test_the_first_program(device: Device, cubin: Cubins) -> None:
    add = cubin("vector_add")["vector_add"]
    a = device.from_numpy(np.arange(1000, dtype=np.float32))
    b = device.from_numpy(np.full(1000, 2, np.float32))
    total = device.alloc(1000, np.float32)
    add(a, b, total, 1000, grid=4, block=256)
    assert (total.to_numpy() == np.arange(1000) + 2).all()


def test_a_program_lists_its_kernels(cubin: Cubins) -> None:
    program = cubin("globals")
    assert set(program) == {"filter5", "look_up", "remember", "remember_by_pointer"}
    assert len(program) == 4 and "remember" in program and "forget" not in program
    assert program["remember"] is program.kernel("remember")
    with pytest.raises(LookupError, match="remember_by_pointer"):
        program["forget"]


def test_a_kernel_has_properties(cubin: Cubins) -> None:
    kernel = cubin("params")["mixed_params"]
    assert kernel.name == "mixed_params"
    assert kernel.parameter_sizes == (1, 2, 4, 8, 4, 8, 1, 8, 2)
    assert 0 < kernel.attributes.registers <= 255
    assert cubin("params")["pointer_params"].attributes.max_threads == 128
    assert "mixed_params" in repr(kernel)


def mixed(device: Device, cubin: Cubins, values: list[object]) -> list[int]:
    out = device.alloc(8, "uint64")
    kernel = cubin("params")["mixed_params"]
    kernel(*values[:7], out, values[7], grid=1, block=1)
    return [int(value) for value in out.to_numpy()]


EXPECTED = [
    2**64 - 3, 2**64 - 300, 2**64 - 70000, 2**64 - 2**40,
    struct.unpack("<I", struct.pack("<f", 1.5))[0], struct.unpack("<Q", struct.pack("<d", -2.25))[0], 200, 60000,
]  # fmt: skip


def test_numbers_are_converted_by_the_size_of_the_parameter(device: Device, cubin: Cubins) -> None:
    assert mixed(device, cubin, [-3, -300, -70000, -(2**40), 1.5, -2.25, 200, 60000]) == EXPECTED


def test_typed_numbers_are_passed_as_they_are(device: Device, cubin: Cubins) -> None:
    of_numpy = [
        np.int8(-3), np.int16(-300), np.int32(-70000), np.int64(-(2**40)), np.float32(1.5), np.float64(-2.25),
        np.uint8(200), np.uint16(60000),
    ]  # fmt: skip
    of_ctypes = [
        ctypes.c_int8(-3), ctypes.c_int16(-300), ctypes.c_int32(-70000), ctypes.c_int64(-(2**40)), ctypes.c_float(1.5),
        ctypes.c_double(-2.25), ctypes.c_uint8(200), ctypes.c_uint16(60000),
    ]  # fmt: skip
    formats = zip("bhiqfdBH", [-3, -300, -70000, -(2**40), 1.5, -2.25, 200, 60000], strict=True)
    of_bytes = [struct.pack(f"<{kind}", value) for kind, value in formats]
    for values in (of_numpy, of_ctypes, of_bytes):
        assert mixed(device, cubin, values) == EXPECTED


@pytest.mark.parametrize(
    ("index", "value", "text"),
    [
        (0, 256, "256 does not fit into the parameter's 1 bytes"),
        (0, -129, "does not fit"),
        (3, 2**64, "does not fit"),
        (1, 1.5, "argument 1 is a float, and the kernel's parameter has 2 bytes"),
        (4, 1e300, "too large for a float of 4 bytes"),
        (4, np.float64(1.5), "argument 4 is a float64 of 8 bytes, and the kernel's parameter has 4"),
        (2, ctypes.c_int64(1), "argument 2 is a c_long of 8 bytes"),
        (2, b"123", "argument 2 is a bytes of 3 bytes"),
        (2, "text", "argument 2 is a str; permitted are"),
        (2, None, "argument 2 is a NoneType; permitted are"),
        (5, np.zeros(4), "kernels take buffers; copy it with device.from_numpy()"),
    ],
)
def test_arguments_that_do_not_match_are_refused(
    device: Device, cubin: Cubins, index: int, value: object, text: str
) -> None:
    values: list[object] = [0, 0, 0, 0, 0.0, 0.0, 0, 0]
    values[index] = value
    with pytest.raises(tegra_hcq.InvalidArgument) as caught:
        mixed(device, cubin, values)
    assert text in str(caught.value)


def test_a_struct_is_passed_by_value(device: Device, cubin: Cubins) -> None:
    class Inner(ctypes.Structure):
        _fields_ = [("scale", ctypes.c_float), ("shift", ctypes.c_int8)]

    class Parameters(ctypes.Structure):
        _fields_ = [
            ("count", ctypes.c_uint32), ("bias", ctypes.c_double), ("inner", Inner * 3), ("steps", ctypes.c_int16 * 5),
            ("data", ctypes.c_uint64),
        ]  # fmt: skip

    data = device.from_numpy(np.arange(30, dtype=np.float32))
    out = device.alloc(30, "float32")
    inner = (Inner * 3)(Inner(1, -1), Inner(2, -2), Inner(3, -3))
    steps = (ctypes.c_int16 * 5)(10, 20, 30, 40, 50)
    kernel = cubin("params")["struct_param"]
    kernel(Parameters(30, 0.5, inner, steps, data.gpu_address), out, grid=1, block=32)
    expected = [i * (i % 3 + 1) - (i % 3 + 1) + 0.5 + 10 * (i % 5 + 1) for i in range(30)]
    assert out.to_numpy().tolist() == expected
    large = cubin("params")["large_param"]
    words = np.arange(960, dtype=np.uint32)
    large(out, words.tobytes(), grid=1, block=1)
    assert out.to_numpy(np.uint32)[0] == words.sum()


def test_the_number_of_arguments_is_checked(device: Device, cubin: Cubins) -> None:
    add = cubin("vector_add")["vector_add"]
    with pytest.raises(tegra_hcq.InvalidArgument, match="has 4 parameters, and 1 arguments were passed"):
        add(1, grid=1, block=1)
    buffer = device.alloc(16)
    with pytest.raises(tegra_hcq.InvalidArgument, match="argument 3 is a buffer"):
        add(buffer, buffer, buffer, buffer, grid=1, block=1)


def test_sizes_have_one_to_three_dimensions(device: Device, cubin: Cubins) -> None:
    coordinates = device.alloc(16, "float32")
    add = cubin("vector_add")["vector_add"]
    for size in (1, (1,), (1, 1), (1, 1, 1), [1, 1], np.int64(1)):
        add(coordinates, coordinates, coordinates, 1, grid=size, block=size)
    for wrong in (0, -1, (), (1, 1, 1, 1), (1, 0), 1.5, (1.5,), 2**32, None):
        with pytest.raises(tegra_hcq.InvalidArgument, match="grid is"):
            add(coordinates, coordinates, coordinates, 1, grid=wrong, block=1)
    with pytest.raises(tegra_hcq.InvalidArgument):
        add(coordinates, coordinates, coordinates, 1, grid=1, block=1025)


def test_dynamic_shared_memory(device: Device, cubin: Cubins) -> None:
    program = cubin("dynamic_shared")
    limit = max(program[name].attributes.max_dynamic_shared_bytes for name in program)
    kernel = program[program.kernel_names[0]]
    arguments: list[object] = [device.alloc(4096) if size == 8 else 1 for size in kernel.parameter_sizes]
    with pytest.raises(tegra_hcq.InvalidArgument, match="shared"):
        kernel(*arguments, grid=1, block=32, shared=limit + 1)
    with pytest.raises(tegra_hcq.InvalidArgument, match="shared is -1"):
        kernel(*arguments, grid=1, block=32, shared=-1)


def test_variables_of_a_program(device: Device, cubin: Cubins) -> None:
    program = cubin("globals")
    out = device.alloc(65, "uint32")
    program["remember"](out, grid=1, block=64)
    assert struct.unpack("<I", program.read_variable("launches", 4)) == (42,)
    program.write_variable("launches", np.uint32(7))
    program["remember"](out, grid=1, block=64)
    assert out.to_numpy()[0] == 8
    taps = np.frombuffer(program.read_variable("taps", 20), np.float32)
    assert taps.tolist() == [0.0625, 0.25, 0.375, 0.25, 0.0625]
    with pytest.raises(tegra_hcq.NotFound):
        program.read_variable("nothing", 4)
    with pytest.raises(tegra_hcq.InvalidArgument, match="4"):
        program.read_variable("launches", 8)


def test_a_kernel_keeps_its_program(device: Device, cubin: Cubins) -> None:
    program = cubin("saxpy")
    kernel = program["saxpy"]
    program.close()
    buffer = device.from_numpy(np.ones(4, np.float32))
    kernel(2.0, buffer, buffer, 4, grid=1, block=32)
    assert buffer.to_numpy().tolist() == [3, 3, 3, 3]
    with pytest.raises(tegra_hcq.InvalidHandle, match="the program cannot be used"):
        program["saxpy"]


def test_cubins_are_files_or_bytes(device: Device, tmp_path: Path) -> None:
    path = ROOT / "kernels" / "saxpy.cubin"
    if device.properties.arch != "sm_87":
        path = ROOT / "kernels" / device.properties.arch / "saxpy.cubin"
    content = path.read_bytes()
    for cubin in (path, str(path), content, bytearray(content), memoryview(content)):
        assert list(device.load(cubin)) == ["saxpy"]
    with pytest.raises(tegra_hcq.InvalidArgument):
        device.load(b"no cubin")
    with pytest.raises(FileNotFoundError):
        device.load(tmp_path / "absent")


SOURCE = 'extern "C" __global__ void scale(float* x, float by) { x[threadIdx.x] *= by * FACTOR; }'


def test_source_is_compiled(device: Device) -> None:
    try:
        program = device.compile(SOURCE, ["-DFACTOR=2"])
    except tegra_hcq.LibraryMissing as missing:
        pytest.skip(f"NVRTC is not installed: {str(missing).splitlines()[0]}")
    x = device.from_numpy(np.arange(32, dtype=np.float32))
    program["scale"](x, 3.0, grid=1, block=32)
    assert x.to_numpy().tolist() == [6 * i for i in range(32)]
    with pytest.raises(tegra_hcq.CompileError) as caught:
        device.compile(SOURCE, name="wrong.cu")
    assert "FACTOR" in caught.value.log and "wrong.cu" in caught.value.log


def test_texts_are_checked(device: Device) -> None:
    with pytest.raises(tegra_hcq.InvalidArgument, match="zero byte"):
        device.compile("int\0")
    with pytest.raises(tegra_hcq.InvalidArgument, match="source must be a str, not bytes"):
        device.compile(SOURCE.encode())  # type: ignore[arg-type]
    with pytest.raises(tegra_hcq.InvalidArgument, match="list of strings"):
        device.compile(SOURCE, "-DFACTOR=2")
