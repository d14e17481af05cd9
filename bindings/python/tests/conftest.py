"""What the tests share. TEGRA_HCQ_TEST_DEVICE names another device than the software Orin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import tegra_hcq

ROOT = Path(__file__).resolve().parents[3]
KIND = os.environ.get("TEGRA_HCQ_TEST_DEVICE", "sim")


@pytest.fixture
def device() -> Iterator[tegra_hcq.Device]:
    """A device of its own for the test."""
    with tegra_hcq.Device(KIND) as device:
        yield device


@pytest.fixture
def cubin(device: tegra_hcq.Device) -> Cubins:
    """Loads a program of the repository by name."""
    return Cubins(device)


class Cubins:
    """The programs of the repository, for the device's architecture."""

    def __init__(self, device: tegra_hcq.Device) -> None:
        self._device = device
        arch = device.properties.arch
        self._folder = ROOT / "kernels" / ("" if arch == "sm_87" else arch)

    def __call__(self, name: str) -> tegra_hcq.Program:
        return self._device.load(self._folder / f"{name}.cubin")


@pytest.fixture
def on_the_model(device: tegra_hcq.Device) -> None:
    """Skips a test that only the software Orin runs."""
    if device.properties.kind != "sim":
        pytest.skip("only the software Orin")
