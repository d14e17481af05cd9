#!/usr/bin/env python3
"""Runs exported cases with NVIDIA's driver and keeps what they compute.

    run.py EXPORT OUT [--library LIBCUDA] [--only TEXT]

EXPORT is a folder that `cargo xtask silicon export` wrote. OUT gets two files: `results.jsonl`, a line about
the machine and then one line per case, and `outputs.bin`, the bytes of all outputs. Needs Python's standard
library and libcuda.so.1, and no compiler. A case that fails leaves an error in its line; the others go on.
"""

import argparse
import ctypes
import json
import pathlib
import sys


class CudaError(Exception):
    """A call into the driver did not return success."""


class Driver:
    """The few functions of libcuda that a launch needs, on the first GPU."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.call("cuInit", 0)
        self.device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        self.modules = {}
        self.open()

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(result, ctypes.byref(text))
            reason = text.value.decode() if text.value else f"error {result}"
            raise CudaError(f"{name}: {reason}")

    def open(self):
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)
        self.modules.clear()

    def reset(self):
        """A kernel that faulted takes the context with it: start a new one."""
        self.call("cuDevicePrimaryCtxReset_v2", self.device)
        self.open()

    def describe(self):
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, len(name), self.device)
        major, minor, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
        self.call("cuDeviceGetAttribute", ctypes.byref(major), 75, self.device)
        self.call("cuDeviceGetAttribute", ctypes.byref(minor), 76, self.device)
        self.call("cuDriverGetVersion", ctypes.byref(version))
        return {
            "device": name.value.decode(),
            "capability": f"{major.value}.{minor.value}",
            "driver": f"{version.value // 1000}.{version.value % 1000 // 10}",
        }

    def function(self, cubin, kernel):
        if cubin not in self.modules:
            module = ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), cubin.read_bytes())
            self.modules[cubin] = module
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), self.modules[cubin], kernel.encode())
        return function

    def allocate(self, data):
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(len(data), 1)))
        if data:
            self.call("cuMemcpyHtoD_v2", pointer, data, ctypes.c_size_t(len(data)))
        return pointer

    def fetch(self, pointer, length):
        data = ctypes.create_string_buffer(max(length, 1))
        if length:
            self.call("cuMemcpyDtoH_v2", data, pointer, ctypes.c_size_t(length))
        return data.raw[:length]

    def launch(self, function, case, values):
        # The driver knows each parameter's size; it is given the address of each value.
        array = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.addressof(value) for value in values])
        shape = [ctypes.c_uint(number) for number in case["grid"] + case["block"] + [case["shared_bytes"]]]
        self.call("cuLaunchKernel", function, *shape, ctypes.c_void_p(), array, ctypes.c_void_p())
        self.call("cuCtxSynchronize")


def run(driver, folder, inputs, case):
    """Runs one case; returns the bytes of its outputs in order."""
    values, outputs, pointers = [], [], []
    try:
        function = driver.function(folder / case["cubin"], case["kernel"])
        for argument in case["arguments"]:
            (kind, content), = argument.items()
            if kind == "scalar":
                data = bytes.fromhex(content)
                values.append(ctypes.create_string_buffer(data, len(data)))
                continue
            start, length = content["offset"], content["bytes"]
            pointer = driver.allocate(inputs[start:start + length])
            pointers.append(pointer)
            values.append(pointer)
            if kind == "output":
                outputs.append((pointer, length))
        driver.launch(function, case, values)
        return [driver.fetch(pointer, length) for pointer, length in outputs]
    finally:
        for pointer in pointers:
            driver.library.cuMemFree_v2(pointer)


def main():
    parser = argparse.ArgumentParser(description="Run exported cases with NVIDIA's driver.")
    parser.add_argument("export", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--library", default="libcuda.so.1", help="another libcuda")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    arguments = parser.parse_args()

    export = json.loads((arguments.export / "cases.json").read_text())
    if export["format"] != 1:
        print(f"format {export['format']} is not known here: use the run.py of the export", file=sys.stderr)
        return 2
    inputs = (arguments.export / "inputs.bin").read_bytes()
    try:
        driver = Driver(arguments.library)
        machine = driver.describe()
    except (OSError, AttributeError, CudaError) as error:
        print(f"no usable NVIDIA driver: {error}", file=sys.stderr)
        return 2
    print(f"{machine['device']}, sm_{machine['capability']}, CUDA {machine['driver']}")

    arguments.out.mkdir(parents=True, exist_ok=True)
    failed, done, offset = 0, 0, 0
    with open(arguments.out / "results.jsonl", "w") as results, open(arguments.out / "outputs.bin", "wb") as data:
        print(json.dumps(machine), file=results, flush=True)
        for case in export["cases"]:
            if arguments.only not in case["name"]:
                continue
            done += 1
            line = {"name": case["name"]}
            try:
                outputs = run(driver, arguments.export, inputs, case)
                line["outputs"] = []
                for output in outputs:
                    line["outputs"].append([offset, len(output)])
                    data.write(output)
                    offset += len(output)
            except CudaError as error:
                failed += 1
                line["error"] = str(error)
                print(f"{case['name']}: {error}", flush=True)
                driver.reset()
            data.flush()
            print(json.dumps(line), file=results, flush=True)
    print(f"{done} cases, {failed} failed, {offset} bytes of outputs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
