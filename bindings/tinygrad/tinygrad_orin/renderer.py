"""CUDA C++ for tinygrad's kernels, compiled by NVRTC. Needs no device: compile workers import this module."""

from tinygrad.codegen.opt import tc
from tinygrad.device import Compiler
from tinygrad.dtype import dtypes
from tinygrad.helpers import ALLOW_TF32, Target
from tinygrad.renderer.cstyle import CStyleLanguage, CUDARenderer

from .nvrtc import nvrtc


class ORINCompiler(Compiler):
    """Makes cubins. The key of tinygrad's cache contains the compiler's version: an upgrade compiles again."""

    def __init__(self, arch: str):
        self.arch, self._nvrtc = arch, nvrtc()
        super().__init__("compile_orin_{}_nvrtc_{}_{}".format(arch, *self._nvrtc.version))

    def compile(self, src: str) -> bytes:
        return self._nvrtc.compile(src, self.arch)

    def disassemble(self, lib: bytes):
        from tinygrad.runtime.support.compiler_cuda import cuda_disassemble

        cuda_disassemble(lib, self.arch)


class ORINRenderer(CUDARenderer):
    """tinygrad's CUDA renderer with this device's compiler, and without TF32 unless `ALLOW_TF32` is set."""

    def __init__(self, target: Target):
        # CUDARenderer's own constructor would look for NVRTC in other places and cache without its version.
        CStyleLanguage.__init__(self, target)
        self.compiler = ORINCompiler(target.arch)

    @property
    def tensor_cores(self):
        """tinygrad keeps float32 products off TF32 tensor cores only for its own devices CUDA and NV."""
        cores = tc.get_cuda(self.target.arch)
        return cores if ALLOW_TF32 else [core for core in cores if core.dtype_in != dtypes.float]
