"""The tests run on the software Orin unless `DEV` says otherwise; they need clang for tinygrad's CPU device."""

import os

os.environ.setdefault("DEV", "SIM+ORIN")

import subprocess
import sys
import textwrap

import pytest
from tinygrad import Device

import tinygrad_orin


@pytest.fixture
def device():
    """The device `ORIN`."""
    return Device["ORIN"]


@pytest.fixture
def python():
    """Runs a program in a new Python and returns its output; a failure of the program fails the test."""

    def run(source: str, *options: str, **environment: str) -> str:
        folders = [os.path.dirname(os.path.dirname(tinygrad_orin.__file__)), *sys.path]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders)), **environment}
        command = [sys.executable, *options, "-c", textwrap.dedent(source)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    return run


@pytest.fixture
def two_devices(device):
    """The devices `ORIN` and `ORIN:1`."""
    return device, Device["ORIN:1"]
