"""Faults and time-outs are exceptions, and the next kernel runs."""

import functools
import os
import signal
import threading

import pytest
from tegra_hcq import FaultKind
from tinygrad import Tensor, TinyJit
from tinygrad.device import CompileError, TinyELF
from tinygrad.dtype import dtypes

from tinygrad_orin.board import ORINFault, ORINTimeout

MISALIGNED = 'extern "C" __global__ void k(char *a) { *(long long *)(a + 4) = 1; }'
OUTSIDE = 'extern "C" __global__ void k(char *a) { a[1ull << 38] = 1; }'
ENDLESS = 'extern "C" __global__ void k(volatile char *a) { while (a[0] == 0) {} }'


@functools.cache
def program(device, source: str):
    lib = device.compiler.compile(source)
    return device.runtime(TinyELF(lib, "k", device.renderer.target, (("a", 0, dtypes.int8, (64,)),)))


def launch(device, source: str, **options):
    buffer = Tensor.zeros(64, dtype="int8").contiguous().realize().uop.base.realized
    return program(device, source)(buffer._buf, **options)


def works() -> bool:
    return (Tensor([1, 2, 3]) + 1).tolist() == [2, 3, 4]


@pytest.mark.parametrize("wait", [False, True])
def test_misaligned_access(device, wait):
    with pytest.raises(ORINFault, match="misaligned address") as caught:
        launch(device, MISALIGNED, wait=wait)
        device.synchronize()
    error = caught.value
    assert isinstance(error, RuntimeError) and error.fault.kind == FaultKind.SM and error.fault.kernel == "k"
    assert works()


def test_access_outside_of_all_buffers(device):
    with pytest.raises(ORINFault) as caught:
        launch(device, OUTSIDE, wait=True)
    assert caught.value.fault.address is not None
    assert works()


def test_a_jit_survives_a_fault(device):
    step = TinyJit(lambda x: ((x + 1).realize() * 2).realize())
    for _ in range(3):
        step(Tensor([1.0, 2.0]).realize())
    for _ in range(3):
        with pytest.raises(ORINFault):
            launch(device, MISALIGNED, wait=True)
        assert step(Tensor([3.0, 4.0]).realize()).tolist() == [8.0, 10.0]


def test_time_out_of_a_kernel(device):
    with pytest.raises(ORINTimeout) as caught:
        launch(device, ENDLESS, wait=True, timeout=200)
    assert isinstance(caught.value, RuntimeError)
    assert works()


def test_ctrl_c_ends_a_wait(device):
    # Shells start jobs in the background with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    program(device, ENDLESS)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        launch(device, ENDLESS, wait=True)
    assert works()


def test_a_fault_stops_only_its_device(two_devices):
    far = Tensor([5.0], device="ORIN:1").realize()
    with pytest.raises(ORINFault):
        launch(two_devices[0], MISALIGNED, wait=True)
    assert (far + 1).tolist() == [6.0] and works()


def test_wrong_number_of_arguments(device):
    lib = device.compiler.compile('extern "C" __global__ void k(int *a, int b) {}')
    kernel = device.runtime(TinyELF(lib, "k", device.renderer.target, ()))
    with pytest.raises(ValueError):
        kernel(wait=True)
    assert works()


def test_compile_error_has_the_log(device):
    with pytest.raises(CompileError, match="nonsense"):
        device.compiler.compile("nonsense")
