"""tinygrad finds the device, and finding it costs nothing."""

import sys

import tinygrad_orin


def test_program_needs_only_the_variable_dev(python):
    # What the wheel's .pth does at start-up is an import; the program itself names nothing of ours.
    out = python(
        """
        import tinygrad_orin
        from tinygrad import Device, Tensor
        print((Tensor([1.0, 2.0, 3.0]) * 2 + 1).tolist(), Device.DEFAULT)
        """
    )
    assert out.split("\n")[0] == "[3.0, 5.0, 7.0] ORIN"


def test_import_loads_nothing_heavy(python):
    out = python(
        """
        import sys
        before = set(sys.modules)
        import tinygrad_orin
        print(sorted(set(sys.modules) - before))
        """,
        "-S",
    )
    assert out.strip() == "['tinygrad_orin']"


def test_pth_imports_the_package():
    from pathlib import Path

    text = (Path(tinygrad_orin.__file__).parent.parent / "tinygrad_orin.pth").read_text()
    assert text == "import tinygrad_orin\n"


def test_finder_serves_exactly_one_module():
    finder = next(finder for finder in sys.meta_path if getattr(finder, "__module__", "") == "tinygrad_orin")
    assert finder.find_spec("tinygrad.runtime.ops_orin").origin.endswith("ops_orin.py")
    for other in ("tinygrad.runtime.ops_cpu", "tinygrad.runtime.ops_orin2", "ops_orin"):
        assert finder.find_spec(other) is None


def test_a_compile_worker_opens_no_device(python):
    out = python(
        """
        import tinygrad_orin
        from tinygrad import Device
        Device.get_class("ORIN")
        from tinygrad.helpers import Target
        from tinygrad_orin.renderer import ORINRenderer
        lib = ORINRenderer(Target("ORIN", arch="sm_87")).compiler.compile('extern "C" __global__ void k() {}')
        from tinygrad_orin.board import library
        print(lib[:4], library.cache_info().currsize)
        """,
        ALLOW_DEVICE_USAGE="0",
        PARALLEL="0",
    )
    assert out.strip() == r"b'\x7fELF' 0"


def test_spawned_workers_compile(python):
    # More than one new kernel at once goes to workers, which are spawned.
    out = python(
        """
        import tinygrad_orin
        from tinygrad import Tensor
        x = Tensor.arange(12).reshape(3, 4).contiguous().realize()
        results = x.sum(0), x.max(1), (x * 3 - 1).contiguous()
        Tensor.realize(*results)
        print([result.tolist() for result in results[:2]])
        """,
        PARALLEL="2",
        CCACHE="0",
    )
    assert out.strip() == "[[12, 15, 18, 21], [3, 7, 11]]"
