"""Time to a first result, and the memory of the process then (docs/comparison.md).

    python benches/first_result.py hcq saxpy.cubin              # the package tegra_hcq
    python benches/first_result.py cuda saxpy.cubin [LIBRARY]   # libcuda.so.1, or the one at LIBRARY
    DEV=CUDA python benches/first_result.py tinygrad            # tinygrad

The cubin is kernels/saxpy.cu for the GPU: orin compile kernels/saxpy.cu --arch sm_90. All compute 1,000 elements of
2 * x + y. The time begins before the first import.
"""

import array
import ctypes
import subprocess
import sys
import time
from pathlib import Path

COUNT = 1000
ONES = array.array("f", [1.0] * COUNT)


def hcq(cubin: str) -> float:
    import tegra_hcq

    device = keep(tegra_hcq.Device("auto"))
    saxpy = device.load(Path(cubin).read_bytes())["saxpy"]
    x, y = device.alloc(COUNT, "float32"), device.alloc(COUNT, "float32")
    x.copy_from(ONES)
    y.copy_from(ONES)
    saxpy(2.0, x, y, COUNT, grid=4, block=256)
    return memoryview(y.to_bytes()).cast("f")[-1]


def cuda(cubin: str, library: str = "libcuda.so.1") -> float:
    driver = ctypes.CDLL(library)

    def call(function: str, *arguments: object) -> None:
        code = getattr(driver, function)(*arguments)
        assert code == 0, f"{function}: {code}"

    device, context, module, kernel = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), Path(cubin).read_bytes())
    call("cuModuleGetFunction", ctypes.byref(kernel), module, b"saxpy")
    x, y = ctypes.c_uint64(), ctypes.c_uint64()
    values = (ctypes.c_float * COUNT).from_buffer_copy(ONES)
    for place in (x, y):
        call("cuMemAlloc_v2", ctypes.byref(place), ctypes.sizeof(values))
        call("cuMemcpyHtoD_v2", place, values, ctypes.sizeof(values))
    arguments = (ctypes.c_float(2), x, y, ctypes.c_uint32(COUNT))
    places = (ctypes.c_void_p * 4)(*(ctypes.addressof(argument) for argument in arguments))
    call("cuLaunchKernel", kernel, 4, 1, 1, 256, 1, 1, 0, None, places, None)
    call("cuCtxSynchronize")
    call("cuMemcpyDtoH_v2", values, y, ctypes.sizeof(values))
    return values[COUNT - 1]


def tinygrad() -> float:
    from tinygrad import Tensor

    return (keep(Tensor([1.0] * COUNT)) * 2 + Tensor([1.0] * COUNT)).tolist()[-1]


kept: list[object] = []


def keep(what):
    """Keeps an object until the memory has been read."""
    kept.append(what)
    return what


def resident() -> float:
    """MiB of the process."""
    rss = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(rss.split()[1]) / 1024


def of_gpu() -> int:
    """MiB that all processes use on the first GPU of NVIDIA's desktop driver; 0 without one."""
    try:
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])
    except FileNotFoundError:
        return 0


if __name__ == "__main__":
    work = {"hcq": hcq, "cuda": cuda, "tinygrad": tinygrad}[sys.argv[1]]
    gpu, cpu, start = of_gpu(), resident(), time.perf_counter()
    last = work(*sys.argv[2:])
    seconds = time.perf_counter() - start
    assert last == 3, last
    print(f"{seconds * 1e3:.0f} ms, GPU memory {of_gpu() - gpu} MiB, CPU memory {resident() - cpu:.0f} MiB")
