"""Links one relocatable object to a loadable cubin with nvJitLink, through its C interface.

    link.py LIBRARY OBJECT OUTPUT ARCHITECTURE
"""

import ctypes
import pathlib
import sys

INPUT_CUBIN = 1


def main():
    path, source, output, architecture = sys.argv[1:]
    library = ctypes.CDLL(path)
    # The symbols carry the version of the toolkit, of which the header's macros tell the compiler.
    versions = [f"_{major}_{minor}" for major in (12, 13) for minor in range(10)]
    suffix = next(v for v in versions if hasattr(library, f"__nvJitLinkCreate{v}"))

    def call(name, *arguments):
        result = getattr(library, f"__{name}{suffix}")(*arguments)
        if result != 0:
            sys.exit(f"{name}: error {result}")

    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(f"-arch={architecture}".encode())
    call("nvJitLinkCreate", ctypes.byref(handle), 1, options)
    data = pathlib.Path(source).read_bytes()
    call("nvJitLinkAddData", handle, INPUT_CUBIN, data, ctypes.c_size_t(len(data)), source.encode())
    call("nvJitLinkComplete", handle)
    call("nvJitLinkGetLinkedCubinSize", handle, ctypes.byref(size))
    linked = ctypes.create_string_buffer(size.value)
    call("nvJitLinkGetLinkedCubin", handle, linked)
    pathlib.Path(output).write_bytes(linked.raw)


if __name__ == "__main__":
    main()
