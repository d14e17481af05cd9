"""Adds two vectors through CUDA's driver API and ctypes: cuda.py CUBIN."""

import ctypes
import sys

COUNT = 1000
cuda = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: object) -> None:
    """Calls a function of the driver, and fails if it does."""
    status = getattr(cuda, name)(*arguments)
    assert status == 0, f"{name}: {status}"


device, context, module, kernel = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
call("cuModuleLoad", ctypes.byref(module), sys.argv[1].encode())
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"vector_add")
values = (ctypes.c_float * COUNT)(*range(COUNT))
a, b, total = (ctypes.c_uint64() for _ in range(3))
for address in (a, b, total):
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(ctypes.sizeof(values)))
for address in (a, b):
    call("cuMemcpyHtoD_v2", address, values, ctypes.c_size_t(ctypes.sizeof(values)))
count = ctypes.c_uint(COUNT)
parameters = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in (a, b, total, count)))
call("cuLaunchKernel", kernel, 4, 1, 1, 256, 1, 1, 0, None, parameters, None)
call("cuMemcpyDtoH_v2", values, total, ctypes.c_size_t(ctypes.sizeof(values)))
assert list(values) == [2 * i for i in range(COUNT)]
print("cuda.py: right")
