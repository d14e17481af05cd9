"""Logging, and the ends of interpreters and processes."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import textwrap
import threading

import pytest
from conftest import ROOT, Cubins

import tegra_hcq
from tegra_hcq import Device


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in an interpreter of its own; warnings are errors."""
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)


def check(code: str) -> str:
    """Runs a program that must succeed without any text on standard error."""
    done = run(code)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_events_go_to_logging(caplog: pytest.LogCaptureFixture) -> None:
    threads = set()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            threads.add(threading.current_thread().name)

    caplog.set_level(tegra_hcq.TRACE, "tegra_hcq.native")
    handler = Handler()
    logging.getLogger("tegra_hcq.native").addHandler(handler)
    tegra_hcq.enable_logging(logging.DEBUG)
    try:
        with Device("sim") as device, device.queue() as queue:
            queue.submit().wait()
    finally:
        tegra_hcq.disable_logging()
        logging.getLogger("tegra_hcq.native").removeHandler(handler)
    records = [record for record in caplog.records if record.name.startswith("tegra_hcq.native.")]
    assert records and all(record.levelno >= logging.DEBUG for record in records)
    assert threads == {"tegra_hcq-log"}
    caplog.clear()
    with Device("sim"):
        pass
    assert not caplog.records, "no events after disable_logging"
    tegra_hcq.disable_logging()


def test_a_collection_inside_of_the_callback_frees_later(device: Device) -> None:
    from tegra_hcq import _log, _resource

    buffer = device.alloc(16)
    before = len(_resource._deferred)
    _resource.in_callback(True)
    try:
        del buffer
        gc.collect()
        assert len(_resource._deferred) == before + 1
    finally:
        _resource.in_callback(False)
    _resource.free_deferred()
    assert not _resource._deferred
    assert _log._thread is None


def test_a_program_may_end_with_everything_open() -> None:
    check("""
        import tegra_hcq
        device = tegra_hcq.Device("sim")
        program = device.load("kernels/saxpy.cubin")
        kernel, buffer = program["saxpy"], device.alloc(4096, "float32")
        view, queue = buffer.view(), device.queue()
        queue.launch(kernel, 1.0, buffer, buffer, 1024, grid=4, block=256)
        fence = queue.submit()
        fence.fileno()
        signal, graph = device.signal(), device.graph()
        cycle = [device, view]
        cycle.append(cycle)
        tegra_hcq.enable_logging(tegra_hcq.TRACE)
    """)


def test_a_program_may_end_with_work_that_hangs() -> None:
    check("""
        import tegra_hcq
        device = tegra_hcq.Device("sim")
        stop = device.from_bytes(bytes(4))
        device.load("kernels/faults.cubin")["fault_endless"](stop, device.alloc(4), grid=1, block=1)
    """)


def test_work_goes_on_in_handlers_of_the_exit() -> None:
    output = check("""
        import atexit, tegra_hcq
        device = tegra_hcq.Device("sim")
        buffer = device.from_bytes(b"abcd")
        atexit.register(lambda: print(buffer.to_bytes()))
    """)
    assert output == "b'abcd'\n"


def test_a_forked_child_leaves_the_device_alone() -> None:
    output = check("""
        import os, warnings, tegra_hcq
        warnings.simplefilter("ignore")  # Python 3.12 warns of fork() with threads.
        device = tegra_hcq.Device("sim")
        buffer = device.from_bytes(b"abcd")
        if (child := os.fork()) == 0:
            try:
                buffer.to_bytes()
            except tegra_hcq.InvalidHandle as error:
                print(error, flush=True)
            del buffer
            device.close()
            with tegra_hcq.Device("sim") as own:
                assert own.from_bytes(b"efgh").to_bytes() == b"efgh"
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(buffer.to_bytes())
    """)
    assert "before fork()" in output and output.endswith("b'abcd'\n")


def test_the_package_imports_without_numpy_and_library() -> None:
    output = check("""
        import os, sys
        os.environ["TEGRA_HCQ_LIBRARY"] = "/nowhere/x.so"
        sys.modules["numpy"] = None
        import tegra_hcq
        try:
            tegra_hcq.Device()
        except tegra_hcq.LibraryMissing as error:
            print(error)
    """)
    assert "TEGRA_HCQ_LIBRARY" in output


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="the interpreter is not that of a virtual environment")
def test_compilers_are_found_in_an_environment_that_is_not_active() -> None:
    output = check("""
        import os, tegra_hcq
        os.environ.pop("VIRTUAL_ENV", None)
        tegra_hcq.library_version()
        print(os.environ["VIRTUAL_ENV"])
    """)
    assert output.strip() == sys.prefix


def test_many_devices_and_objects_leave_nothing(cubin: Cubins) -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def round_trip() -> None:
        with Device("sim") as device:
            buffers = [device.alloc(4096) for _ in range(10)]
            views = [buffer.view() for buffer in buffers]
            fence = device.default_queue.submit()
            fence.wait()
            assert fence.fileno() > 0 and views

    round_trip()
    before = descriptors()
    for _ in range(5):
        round_trip()
    assert descriptors() <= before + 2
