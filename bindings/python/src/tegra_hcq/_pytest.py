"""pytest's option ``--orin-cuda``: runs the tests of programs that use CUDA's driver API on the software Orin, with
checks, and fails each test whose launches have findings.

CUDA's library is chosen when the process starts, so pytest starts itself again as a program of ``orin cuda``. That
command is not part of this package.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

_STARTED = "ORIN_CUDA_REPORT"
"""The variable that ``orin cuda`` sets for its program."""
_TOOLS = "ORIN_SIM_CHECK"
"""The variable that it sets with ``--check``."""

_Found = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
_SUCCESS, _NOT_INITIALIZED = 0, 3


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("orin-cuda", "CUDA programs on the software Orin")
    group.addoption(
        "--orin-cuda",
        action="store_true",
        help="run on the software Orin under `orin cuda --check`; tests whose kernels have findings fail",
    )
    group.addoption(
        "--orin-cuda-check",
        metavar="TOOLS",
        default="memcheck",
        help="tools of --orin-cuda: memcheck, racecheck, initcheck, synccheck, leakcheck, with commas (%(default)s)",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """Starts pytest again, before it captures output and before any other module can load CUDA's library."""
    options = early_config.known_args_namespace
    if options.orin_cuda and _STARTED not in os.environ:
        _restart(options.orin_cuda_check)
    return (yield)


def _restart(tools: str) -> None:
    orin = shutil.which("orin")
    if orin is None:
        raise pytest.UsageError(
            "--orin-cuda: there is no program `orin` in PATH. Install it and its CUDA library: "
            "`cargo install --path crates/orin-tool` and `cargo xtask install-library`, or a pack"
        )
    os.execv(orin, [orin, "cuda", "--check", tools, "--", sys.executable, *sys.orig_argv[1:]])


def pytest_configure(config: pytest.Config) -> None:
    """Watches the tests."""
    if config.getoption("orin_cuda"):
        config.pluginmanager.register(_Watch(), "orin-cuda-watch")


class _Watch:
    """Looks for new findings after each phase of each test."""

    def __init__(self) -> None:
        if not os.environ.get(_TOOLS):
            raise pytest.UsageError(
                "--orin-cuda: pytest runs under `orin cuda` without --check, so it can find nothing"
            )
        try:
            # The folder of `orin cuda` is the first that the loader searches.
            self._findings = ctypes.CDLL("libcuda.so.1").orin_cuda_findings
        except (OSError, AttributeError) as error:
            raise pytest.UsageError(f"--orin-cuda: libcuda.so.1 is not that of `orin cuda`: {error}") from None
        self._findings.argtypes = [_Found, ctypes.c_void_p]
        self._findings.restype = ctypes.c_uint32
        self._before: Counter[str] = Counter()

    def _new(self) -> list[str]:
        """The findings since the last call. Waits for all work of the process."""
        found: list[str] = []
        result = self._findings(_Found(lambda text, _: found.append((text or b"").decode("utf-8", "replace"))), None)
        if result not in (_SUCCESS, _NOT_INITIALIZED):
            raise RuntimeError(f"orin_cuda_findings: CUresult {result}")
        new = Counter(found) - self._before
        self._before = Counter(found)
        return list(new.elements())

    def _phase(self, item: pytest.Item, name: str) -> Generator[None, Any, Any]:
        try:
            result = yield
        except BaseException:
            if new := self._new():
                item.add_report_section(name, "orin cuda", "\n".join(new))
            raise
        if new := self._new():
            count = "a finding" if len(new) == 1 else f"{len(new)} findings"
            pytest.fail("\n".join([f"{count} of orin cuda --check:", *new]), pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Of fixtures."""
        return (yield from self._phase(item, "setup"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Of the test itself."""
        return (yield from self._phase(item, "call"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Of the end of fixtures."""
        return (yield from self._phase(item, "teardown"))

    def pytest_report_header(self) -> str:
        """A line at the start."""
        return f"orin cuda: software Orin, {os.environ[_TOOLS]}"
