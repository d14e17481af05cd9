"""The option ``--orin-cuda`` of pytest, with tests of a program that uses CUDA's driver API by ctypes."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from conftest import ROOT

ORIN = shutil.which("orin") or str(ROOT / "target/debug/orin")
"""The program; `cargo build -p orin-tool -p orin-libcuda` builds it with its library."""

PROGRAM = f"""
import ctypes
import pytest

cuda = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)

@pytest.fixture(scope="session")
def add():
    device, context, module, kernel = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoad", ctypes.byref(module), b"{ROOT}/kernels/vector_add.cubin")
    call("cuModuleGetFunction", ctypes.byref(kernel), module, b"vector_add")

    def run(count, bytes=4000):
        # Does not wait.
        buffers = [ctypes.c_uint64() for _ in range(3)]
        for buffer in buffers:
            call("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(bytes))
        values = [*buffers, ctypes.c_int(count)]
        places = (ctypes.c_void_p * 4)(*map(ctypes.addressof, values))
        call("cuLaunchKernel", kernel, 4, 1, 1, 256, 1, 1, 0, None, places, None)

    return run

@pytest.fixture
def careless(add):
    add(1001)
    yield
    add(1002)

def test_clean(add):
    add(1000)

def test_three_too_many(add):
    add(1003)

def test_clean_again(add):
    add(1000)

def test_one_too_many(add):
    add(1001)

def test_fails_itself(add):
    add(1001)
    assert not "right"

def test_careless_fixture(careless):
    pass

def test_no_kernel():
    pass
"""


def run(folder: Path, *arguments: str, prefix: Sequence[str] = (), **variables: str) -> tuple[int, str]:
    """Runs pytest in a folder with a file of tests. Returns the exit code and all output."""
    (folder / "test_kernels.py").write_text(PROGRAM)
    path = f"{Path(ORIN).parent}:{os.environ['PATH']}"
    try:
        importlib.metadata.distribution("tegra-hcq")
        plugin: list[str] = []
    except importlib.metadata.PackageNotFoundError:
        plugin = ["-p", "tegra_hcq._pytest"]
    command = [*prefix, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, *arguments]
    done = subprocess.run(
        [*command, "test_kernels.py"],
        cwd=folder,
        env={**os.environ, "PATH": path, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


def test_tests_with_findings_fail_and_others_pass(tmp_path: Path) -> None:
    code, output = run(tmp_path, "--orin-cuda", "-v", "-rA")
    assert code == 1, output
    assert "orin cuda: software Orin, memcheck" in output
    lines = [line.split("test_kernels.py::")[1] for line in output.splitlines() if line.startswith("test_kernels.py::")]
    results = {line.split()[0]: line.split()[1] for line in lines}
    assert results.pop("test_careless_fixture") == "ERROR", output
    assert results == {
        "test_clean": "PASSED",
        "test_three_too_many": "FAILED",
        "test_clean_again": "PASSED",
        "test_one_too_many": "FAILED",
        "test_fails_itself": "FAILED",
        "test_no_kernel": "PASSED",
    }, output
    failures = output.partition("= FAILURES =")[2]
    assert "3 findings of orin cuda --check:\nmemcheck: out-of-bounds: " in failures, output
    assert "vector_add+0x" in failures and "0 bytes past the end of" in failures
    assert "Captured orin cuda call" in failures, "a test that fails itself has its findings, too"
    # Once for the fixture's start, once for its end.
    assert output.count("ERROR test_kernels.py::test_careless_fixture") == 2, output
    # What `orin cuda` prints at the end.
    assert output.rstrip().endswith("launches checked (memcheck), 3 findings"), output


def test_without_findings_the_result_is_pytest_s(tmp_path: Path) -> None:
    code, output = run(tmp_path, "--orin-cuda", "-k", "clean or no_kernel", "--orin-cuda-check", "memcheck,racecheck")
    assert (code, "3 passed" in output) == (0, True), output
    assert output.rstrip().endswith("2 launches checked (memcheck, racecheck), 0 findings"), output
    assert run(tmp_path, "--orin-cuda", "-k", "nothing_like_this")[0] == 5
    # Under `orin cuda` already, and with an output of that.
    prefix = [ORIN, "cuda", "--check", "--sarif", str(tmp_path / "sarif"), "--"]
    code, output = run(tmp_path, "--orin-cuda", "-k", "clean", prefix=prefix)
    assert (code, "2 passed" in output, (tmp_path / "sarif").exists()) == (0, True, True), output


def test_wrong_uses_are_explained(tmp_path: Path) -> None:
    empty = str(tmp_path / "empty")
    Path(empty).mkdir()
    for arguments, variables, words in (
        (["--orin-cuda"], {"PATH": empty}, "--orin-cuda: there is no program `orin` in PATH. Install it"),
        (["--orin-cuda", "--orin-cuda-check", "most"], {}, "most"),
        (["--orin-cuda"], {"ORIN_CUDA_REPORT": "/dev/null"}, "without --check, so it can find nothing"),
        (
            ["--orin-cuda"],
            {"ORIN_CUDA_REPORT": "/dev/null", "ORIN_SIM_CHECK": "memcheck", "LD_LIBRARY_PATH": empty},
            "libcuda.so.1 is not that of `orin cuda`",
        ),
    ):
        code, output = run(tmp_path, *arguments, **variables)
        assert code != 0 and words in output, output
        assert "Traceback" not in output and "passed" not in output, output
