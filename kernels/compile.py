"""Compiles CUDA C++ sources to cubins with NVRTC, through its C interface.

Called by `cargo xtask kernels`. Needs only Python's standard library.

    compile.py --nvrtc LIBRARY --version
    compile.py --nvrtc LIBRARY --source FILE.cu --output FILE.cubin [--option OPTION]...

The first form prints the version of NVRTC ("12.6"). The second form prints NVRTC's log (warnings and errors) to stderr. It
exits with 1 if the program does not compile.
"""

import argparse
import ctypes
import os
import pathlib
import sys


class NvrtcError(Exception):
    """A call into NVRTC did not return success."""


class Nvrtc:
    """The functions of libnvrtc that compilation needs."""

    def __init__(self, path):
        # NVRTC loads its builtins library by name at the first compilation. Loading the copy next to it with
        # RTLD_GLOBAL makes that lookup succeed.
        for builtins in sorted(pathlib.Path(path).resolve().parent.glob("libnvrtc-builtins.so*")):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            break
        self.library = ctypes.CDLL(str(path))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            raise NvrtcError(f"{name}: {self.library.nvrtcGetErrorString(result).decode()}")

    def version(self):
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def buffer(self, what, program):
        """Returns `ProgramLog` or `CUBIN` of a program."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, data)
        return data.raw

    def compile(self, source, name, options):
        """Returns the cubin (None if compilation failed) and the log."""
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), source, name.encode(), 0, None, None)
        try:
            encoded = [option.encode() for option in options]
            array = (ctypes.c_char_p * len(encoded))(*encoded)
            failure = None
            # Line information contains the working folder, and the time of a source that exists there.
            os.chdir("/")
            try:
                self.call("nvrtcCompileProgram", program, len(encoded), array)
            except NvrtcError as error:
                failure = str(error)
            log = self.buffer("ProgramLog", program).rstrip(b"\0\n").decode(errors="replace")
            if failure is not None:
                return None, f"{log}\n{failure}"
            return self.buffer("CUBIN", program), log
        finally:
            self.call("nvrtcDestroyProgram", ctypes.byref(program))


def main():
    parser = argparse.ArgumentParser(description="Compile CUDA C++ to a cubin with NVRTC.")
    parser.add_argument("--nvrtc", required=True, help="path of libnvrtc.so")
    parser.add_argument("--version", action="store_true", help="print the version of NVRTC")
    parser.add_argument("--source", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--option", action="append", default=[], help="an option for NVRTC")
    arguments = parser.parse_args()

    try:
        nvrtc = Nvrtc(arguments.nvrtc)
    except (OSError, AttributeError) as error:
        print(f"not a usable NVRTC: {error}", file=sys.stderr)
        return 2
    if arguments.version:
        print(nvrtc.version())
        return 0
    if arguments.source is None or arguments.output is None:
        parser.error("compiling needs --source and --output")

    output = arguments.output.absolute()
    # Pass only the file name: the cubin must not depend on the location of the sources.
    cubin, log = nvrtc.compile(arguments.source.read_bytes(), arguments.source.name, arguments.option)
    if log:
        print(log, file=sys.stderr)
    if cubin is None:
        return 1
    # Replace the output atomically, so that a failed write leaves no partial cubin.
    partial = output.with_suffix(".partial")
    partial.write_bytes(cubin)
    os.replace(partial, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
