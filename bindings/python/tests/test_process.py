"""Logging, and the ends of interpreters and processes."""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

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


def printing(device: Device) -> Callable[[], None]:
    """Runs a kernel of which each of three threads prints a line, and waits."""
    kernel, results = device.load(ROOT / "kernels/device_calls.cubin")["print_many"], device.alloc(3, "int32")

    def run() -> None:
        kernel(1, results, grid=1, block=3)
        device.synchronize()

    return run


def test_output_of_kernels_goes_to_the_function(capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[tuple[int, str]] = []
    expected = [(tegra_hcq.OutputStream.OUT, f"{thread} 0 even\n") for thread in range(3)]
    with Device("sim") as device:
        run = printing(device)
        device.on_output(lambda stream, text: lines.append((stream, text)))
        run()
        assert lines == expected
        device.on_output(None)
        run()
        assert lines == expected and capfd.readouterr().out == "".join(text for _, text in expected)
        device.on_output(lambda stream, text: lines.append((stream, text)))
        assertion = device.load(ROOT / "kernels/device_calls.cubin")["assert_all"]
        assertion(1, device.alloc(3, "int32"), grid=1, block=3)
        with pytest.raises(tegra_hcq.GpuFault):
            device.synchronize()
        assert lines[3][0] is tegra_hcq.OutputStream.ERR and "thread != wrong" in lines[3][1]


def test_the_function_of_the_output_may_fail_and_drop_but_not_use_the_package() -> None:
    output = check("""
        import gc, sys, tegra_hcq
        device = tegra_hcq.Device("sim")
        kernel, results = device.load("kernels/device_calls.cubin")["print_many"], device.alloc(1, "int32")
        def run():
            kernel(1, results, grid=1, block=1)
            device.default_queue.wait()
        dropped, seen = [device.alloc(16)], []
        def uses(stream, text):
            dropped.clear()
            gc.collect()
            seen.append(len(tegra_hcq._resource._deferred))
            try:
                results.to_bytes()
            except tegra_hcq.Busy as error:
                seen.append(str(error))
        device.on_output(uses)
        run()
        device.trim()
        print(*seen, len(tegra_hcq._resource._deferred))
        sys.unraisablehook = lambda failure: print(repr(failure.exc_value))
        def fails(stream, text):
            raise OSError(text)
        device.on_output(fails)
        run()
        def stops(stream, text):
            raise KeyboardInterrupt
        device.on_output(stops)
        try:
            run()
            device.alloc(1)
        except KeyboardInterrupt:
            print("stopped")
        # The device is dropped with its function, which knows it.
        device.on_output(lambda stream, text, device=device: print(stream.name, text, end=""))
        kernel(1, results, grid=1, block=1)
        device.default_queue.submit()
        del device, kernel, results, run
        gc.collect()
    """)
    busy = "the function that receives the output of kernels must not use the package"
    assert output.splitlines() == [f"1 {busy} 0", "OSError('0 0 even\\n')", "stopped", "OUT 0 0 even"]


def test_the_sizes_for_output_and_heap_of_kernels(device: Device) -> None:
    assert (device.printf_bytes, device.kernel_heap_bytes) == (1 << 20, 8 << 20)
    device.printf_bytes, device.kernel_heap_bytes = 1 << 12, 1 << 16
    assert (device.printf_bytes, device.kernel_heap_bytes) == (1 << 12, 1 << 16)
    for wrong in (-1, "1", (4 << 30) + 1):
        with pytest.raises(tegra_hcq.InvalidArgument):
            device.printf_bytes = wrong  # type: ignore[assignment]
        with pytest.raises(tegra_hcq.InvalidArgument):
            device.kernel_heap_bytes = wrong  # type: ignore[assignment]
    with pytest.raises(tegra_hcq.InvalidArgument, match="function must be callable or None, not int"):
        device.on_output(1)  # type: ignore[arg-type]


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
            for call in (buffer.view, buffer.wait, lambda: buffer.part(0).to_bytes(), device.memory, device.queue):
                try:
                    call()
                except tegra_hcq.InvalidHandle:
                    continue
                os._exit(1)
            del buffer
            device.close()
            for _ in range(2):
                try:
                    tegra_hcq.Device("sim")
                except tegra_hcq.DeviceError as error:
                    assert str(error).startswith("forked child: "), error
                    continue
                os._exit(2)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(buffer.to_bytes())
    """)
    assert "before fork()" in output and output.endswith("b'abcd'\n")


def test_a_child_forked_without_an_open_device_opens_its_own() -> None:
    # Both processes use the library at the same time, and the parent has another thread.
    assert "ok" == check("""
        import os, threading, warnings, tegra_hcq
        warnings.simplefilter("ignore")
        def use(count):
            for turn in range(count):
                with tegra_hcq.Device("sim") as device:
                    text = bytes([turn]) * 5000
                    assert device.from_bytes(text).to_bytes() == text
        use(1)
        end = threading.Event()
        threading.Thread(target=end.wait).start()
        if (child := os.fork()) == 0:
            use(60)
            os._exit(0)
        use(60)
        end.set()
        assert os.waitpid(child, 0)[1] == 0
        print("ok", end="")
    """)


def test_children_forked_while_threads_are_inside_of_the_library_end() -> None:
    assert "ok" == check("""
        import os, signal, threading, time, warnings, tegra_hcq
        warnings.simplefilter("ignore")
        end = threading.Event()
        failures = []
        def use():
            with tegra_hcq.Device("sim") as device, device.queue() as queue:
                device.from_bytes(bytes(4096)).to_bytes()
                queue.submit().wait()
        def work():
            try:
                while not end.is_set():
                    use()
            except Exception as error:
                failures.append(error)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        refused = 0
        for turn in range(40):
            time.sleep(turn % 7 / 1000)
            if (child := os.fork()) == 0:
                signal.alarm(20)
                try:
                    use()
                except tegra_hcq.DeviceError as error:
                    os._exit(3 if str(error).startswith("forked child: ") else 1)
                os._exit(0)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code in (0, 3), code
            refused += code == 3
        end.set()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert refused > 0
        print("ok", end="")
    """)


ENDLESS = """
    import logging, os, signal, threading, time
    import tegra_hcq
    # Shells start jobs in the background with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    device = tegra_hcq.Device("sim")
    stop, turns = device.from_bytes(bytes(4)), device.alloc(4)
    def launch(queue):
        queue.launch(device.load("kernels/faults.cubin")["fault_endless"], stop, turns, grid=1, block=1)
        return queue.submit()
    def send(number, after=0.2):
        threading.Timer(after, os.kill, (os.getpid(), number)).start()
    def within_ten_seconds(call, expected):
        start = time.monotonic()
        try:
            call()
        except BaseException as error:
            assert type(error) is expected, repr(error)
        else:
            assert expected is None
        assert time.monotonic() - start < 10, "the limit of a close is 30 s"
"""


def test_ctrl_c_ends_a_wait_at_once() -> None:
    output = check(
        ENDLESS
        + """
    signal_object, queue = device.signal(), device.default_queue
    fence = launch(queue)
    queue.start_profile()
    for wait in (
        fence.wait, queue.wait, device.synchronize, turns.wait, turns.view, turns.to_bytes, queue.take_profile,
        lambda: signal_object.wait(1), lambda: turns.copy_from(b"1234"),
    ):
        send(signal.SIGINT)
        within_ten_seconds(wait, KeyboardInterrupt)
    assert device.recover().hanging == 1
    # A handler that raises nothing lets the wait go on, and may use the library.
    calls = []
    stop.copy_from(bytes(4))
    fence = launch(queue)
    signal.signal(signal.SIGUSR1, lambda *_: (calls.append(1), setattr(signal_object, "value", 1)))
    for _ in range(2):
        send(signal.SIGUSR1)
        signal_object.value = 0
        within_ten_seconds(lambda: signal_object.wait(1), None)
    assert calls == [1, 1]
    # One that raises another exception ends the wait with it, as in a test's time limit.
    def late(*_): raise OSError("too late")
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    within_ten_seconds(fence.wait, OSError)
    print("closed", end="")
    within_ten_seconds(device.close, None)
    """
    )
    assert output == "closed"


def test_a_close_that_waits_says_so_and_ends_on_ctrl_c() -> None:
    done = run(
        ENDLESS
        + """
    queues = [device.queue() for _ in range(3)]
    fences = [launch(queue) for queue in queues]
    send(signal.SIGINT, 3)
    within_ten_seconds(device.close, KeyboardInterrupt)
    assert device.closed
    with tegra_hcq.Device("sim") as device:
        stop, turns = device.from_bytes(bytes(4)), device.alloc(4)
        queue = device.queue()
        launch(queue)
        send(signal.SIGINT)
        within_ten_seconds(queue.close, KeyboardInterrupt)
        # A finalizer cannot raise; the next call does.
        queue = device.queue()
        launch(queue)
        send(signal.SIGINT)
        def drop():
            global queue
            queue = None
            device.alloc(4)
        within_ten_seconds(drop, KeyboardInterrupt)
    """
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("waits for its work on the GPU, at most 30 s") == 1, done.stderr
    assert done.stderr.startswith("closing the device")


def test_a_handler_that_raises_does_not_end_logging(caplog: pytest.LogCaptureFixture) -> None:
    names: list[str] = []

    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if threading.current_thread().name == "tegra_hcq-log":
                names.append(record.name)
            raise SystemExit if len(names) % 2 else RuntimeError("a fault of the handler")

    logger, handler = logging.getLogger("tegra_hcq.native"), Failing()
    caplog.set_level(tegra_hcq.TRACE, "tegra_hcq.native")
    logger.addHandler(handler)
    tegra_hcq.enable_logging(tegra_hcq.TRACE)
    try:
        with Device("sim") as device:
            device.alloc(16).to_bytes()
    finally:
        tegra_hcq.disable_logging()
        logger.removeHandler(handler)
    assert len(names) > 2


def test_findings_of_the_checks_name_the_calls_of_python(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import tegra_hcq
        class Model:
            def weights(self):
                return device.alloc(60, "float32")
        def main():
            global device
            device = tegra_hcq.Device("sim")
            saxpy = device.load("kernels/saxpy.cubin")["saxpy"]
            x, freed = Model().weights(), device.alloc(64, "float32")
            x.copy_from(bytes(240))
            address = freed.gpu_address
            freed.close()
            saxpy(2.0, x, address, 64, grid=1, block=64)
            device.synchronize()
        main()
        """)
    )
    report = tmp_path / "findings"
    environment = {**os.environ, "ORIN_SIM_CHECK": "memcheck", "ORIN_SIM_CHECK_REPORT": str(report)}
    command = [sys.executable, program]
    done = subprocess.run(command, cwd=ROOT, env=environment, timeout=60, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    # The last line is about the process, not a finding.
    objects = [(line["kind"], line["object"]) for line in lines if "kind" in line]
    calls = {(kind, *found["allocated"], *found.get("freed", ())) for kind, found in objects}
    weights = f"Model.weights at {program}:5" if sys.version_info >= (3, 11) else f"weights at {program}:5"
    main, module = f"main at {program}:{{}}", f"<module> at {program}:16"
    assert ("out-of-bounds", weights, main.format(10), module) in calls
    assert ("use-after-free", main.format(10), module, main.format(13), module) in calls
    assert all(line["launched"] == [main.format(14), module] for line in lines if "kind" in line)


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
