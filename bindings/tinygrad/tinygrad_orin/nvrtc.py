"""NVIDIA's run-time compiler NVRTC: where it and CUDA's headers are, and how CUDA C++ becomes a cubin.

The search takes the first that exists of: `NVRTC_PATH` (tinygrad's variable) and `NVGPU_NVRTC` (this project's), a file
or a folder; the wheels `nvidia-cuda-nvrtc-cu12` and `nvidia-cuda-nvrtc` (CUDA 13) of this Python; the toolkits in
`CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda*` (JetPack's is there) and `/opt/cuda`; the dynamic loader's folders.
Release 12 is preferred over 13 in each place.

Headers (`cuda_fp16.h`, `cuda_bf16.h`, `cuda_fp8.h`) are taken from the toolkit or wheels that the library belongs to,
else from the first place that has them. Kernels with half or bfloat16 numbers need them.
"""

import ctypes
import functools
import glob
import os
import sys
from pathlib import Path

from tinygrad.device import CompileError

# NVRTC 12 first: its cubins are the ones that the tests of the Orin cover most.
_NAMES = ("libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so")
_TARGETS = ("targets/aarch64-linux", "targets/sbsa-linux", "targets/x86_64-linux")
_LIBRARY_FOLDERS = ("", "lib", "lib64", *(f"{target}/lib" for target in _TARGETS))
_INCLUDE_FOLDERS = ("include", *(f"{target}/include" for target in _TARGETS))
_TOOLKITS = ("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda")
_PROBE = "cuda_fp16.h"


class NVRTCNotFound(RuntimeError):
    """NVRTC is not installed in any of the searched places, which the text lists."""


def _named() -> list[Path]:
    return [Path(value) for name in ("NVRTC_PATH", "NVGPU_NVRTC") if (value := os.environ.get(name))]


def _wheels() -> list[Path]:
    """Folders of NVIDIA's wheels: each package's own for CUDA 12, one for all packages of CUDA 13."""
    roots = [Path(folder) / "nvidia" for folder in sys.path if folder]
    return [root / name for root in roots for name in ("cuda_nvrtc", "cu13") if (root / name).is_dir()]


def _toolkits() -> list[Path]:
    named = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    found = [folder for pattern in _TOOLKITS for folder in sorted(glob.glob(pattern), reverse=True)]
    return [Path(folder) for folder in [*named, *found] if folder and os.path.isdir(folder)]


def find_library() -> str:
    """Returns the path of NVRTC, or its name if the dynamic loader finds it. Raises `NVRTCNotFound`."""
    for place in _named():
        if place.is_file():
            return str(place)
    folders = [place / sub for place in (*_named(), *_wheels(), *_toolkits()) for sub in _LIBRARY_FOLDERS]
    for folder in folders:
        for name in _NAMES:
            if (folder / name).is_file():
                return str(folder / name)
    for name in _NAMES:
        try:
            ctypes.CDLL(name)
            return name
        except OSError:
            continue
    places = sorted({str(folder.parent if folder.name.startswith("lib") else folder) for folder in folders})
    raise NVRTCNotFound(
        "NVRTC (libnvrtc.so.12 or .13), which compiles kernels, was not found. Install it with `pip install "
        "nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12`, on a Jetson with `apt install cuda-nvrtc-12-6`, or set "
        f"NVRTC_PATH. Searched: {', '.join(places) or 'no wheel or toolkit exists'}, and the loader's folders."
    )


def find_headers(library: str) -> list[str]:
    """Returns the folders of CUDA's headers, best first; empty if there are none."""
    beside = []
    for parent in Path(library).resolve().parents if os.path.sep in library else ():
        # A wheel of CUDA 12 keeps its headers in the neighbour `cuda_runtime`; CUDA 13 and toolkits have one tree.
        beside += [parent / "cuda_runtime" / "include", *(parent / folder for folder in _INCLUDE_FOLDERS)]
    wheels = [Path(p) / "nvidia" / name / "include" for p in sys.path if p for name in ("cuda_runtime", "cu13")]
    toolkits = [root / folder for root in _toolkits() for folder in _INCLUDE_FOLDERS]
    found = next((str(folder) for folder in [*beside, *wheels, *toolkits] if (folder / _PROBE).is_file()), None)
    return [found] if found else []


class NVRTC:
    """The loaded compiler."""

    def __init__(self, path: str):
        self.path = path
        self._dll = ctypes.CDLL(path)
        self._dll.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._dll.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = (major.value, minor.value)
        self.options = [f"-I{folder}" for folder in find_headers(path)]
        if self.version >= (12, 4):
            self.options.append("--minimal")

    def compile(self, source: str, arch: str) -> bytes:
        """Returns the cubin of CUDA C++ for an architecture such as `sm_87`. Raises `CompileError` with the log."""
        program = ctypes.c_void_p()
        self._check(self._dll.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None))
        try:
            options = [option.encode() for option in (f"--gpu-architecture={arch}", *self.options)]
            status = self._dll.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
            if status:
                log = self._text(program, "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace")
                self._check(status, f"\n{log}")
            return self._text(program, "nvrtcGetCUBIN")
        finally:
            self._dll.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, function: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._dll, function + "Size")(program, ctypes.byref(size)))
        text = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._dll, function)(program, text))
        return text.raw

    def _check(self, status: int, log: str = "") -> None:
        if status:
            raise CompileError(f"NVRTC: {self._dll.nvrtcGetErrorString(status).decode()}{log}")


@functools.cache
def nvrtc() -> NVRTC:
    """Finds and loads the compiler once per process."""
    return NVRTC(find_library())
