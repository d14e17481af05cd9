"""The renderer and the search for NVRTC."""

import pytest
from tinygrad import Tensor
from tinygrad.dtype import dtypes
from tinygrad.helpers import Context, Target

from tinygrad_orin import nvrtc
from tinygrad_orin.renderer import ORINRenderer


@pytest.fixture
def renderer():
    return ORINRenderer(Target("ORIN", arch="sm_87"))


def test_tf32_only_if_allowed(renderer):
    def inputs():
        return {core.dtype_in for core in renderer.tensor_cores}

    assert dtypes.half in inputs() and dtypes.float not in inputs()
    with Context(ALLOW_TF32=1):
        assert dtypes.float in inputs()


def test_cache_key_names_the_version(renderer):
    major, minor = nvrtc.nvrtc().version
    assert ORINRenderer(Target("ORIN", arch="sm_87")).compiler.cachekey == f"compile_orin_sm_87_nvrtc_{major}_{minor}"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float64"])
def test_types(dtype):
    assert (Tensor([1, 2, 3]).cast(dtype) * 2).sum().cast("float32").item() == 12


def test_tensor_cores_give_the_right_product():
    import numpy as np

    a, b = (np.random.default_rng(seed).standard_normal((32, 32)).astype(np.float16) for seed in (1, 2))
    found = (Tensor(a) @ Tensor(b)).numpy().astype(np.float32)
    np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32), atol=0.05)


def test_beam(python):
    out = python(
        """
        import tinygrad_orin
        import numpy as np
        from tinygrad import Tensor
        a, b = (np.random.default_rng(seed).standard_normal((24, 24)).astype(np.float32) for seed in (1, 2))
        print(np.abs((Tensor(a) @ Tensor(b)).numpy() - a @ b).max() < 1e-4)
        """,
        BEAM="1",
        IGNORE_BEAM_CACHE="1",
        PARALLEL="0",
    )
    assert out.strip() == "True"


class Places:
    """A file system in a folder: wheels on the path of Python, toolkits, and environment variables."""

    def __init__(self, root, monkeypatch):
        self.root, self.monkeypatch = root, monkeypatch
        for name in ("NVRTC_PATH", "NVGPU_NVRTC", "CUDA_HOME", "CUDA_PATH"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(nvrtc.sys, "path", [str(root / "site")])
        monkeypatch.setattr(nvrtc.glob, "glob", lambda pattern: [])

    def file(self, name: str) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return str(path)


@pytest.fixture
def places(tmp_path, monkeypatch):
    return Places(tmp_path, monkeypatch)


def test_wheels_of_cuda_12_and_13(places):
    new = places.file("site/nvidia/cu13/lib/libnvrtc.so.13")
    header = places.file("site/nvidia/cu13/include/cuda_fp16.h")
    assert nvrtc.find_library() == new
    assert nvrtc.find_headers(new) == [header.rsplit("/", 1)[0]]
    old = places.file("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
    header = places.file("site/nvidia/cuda_runtime/include/cuda_fp16.h")
    assert nvrtc.find_library() == old
    assert nvrtc.find_headers(old) == [header.rsplit("/", 1)[0]]


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
@pytest.mark.parametrize("folder", ["lib64", "targets/aarch64-linux/lib"])
def test_toolkit(places, variable, folder):
    library = places.file(f"cuda/{folder}/libnvrtc.so.12")
    header = places.file("cuda/targets/aarch64-linux/include/cuda_fp16.h")
    places.monkeypatch.setenv(variable, str(places.root / "cuda"))
    assert nvrtc.find_library() == library
    assert nvrtc.find_headers(library) == [header.rsplit("/", 1)[0]]


@pytest.mark.parametrize("variable", ["NVRTC_PATH", "NVGPU_NVRTC"])
def test_named_library_comes_first(places, variable):
    places.file("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
    named = places.file("mine/libnvrtc.so.13")
    places.monkeypatch.setenv(variable, named)
    assert nvrtc.find_library() == named
    places.monkeypatch.setenv(variable, str(places.root / "mine"))
    assert nvrtc.find_library() == named


def test_missing_compiler_names_the_cure(places, monkeypatch):
    def refuse(name):
        raise OSError(name)

    monkeypatch.setattr(nvrtc.ctypes, "CDLL", refuse)
    with pytest.raises(nvrtc.NVRTCNotFound, match="pip install nvidia-cuda-nvrtc-cu12"):
        nvrtc.find_library()
