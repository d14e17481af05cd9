"""The examples of the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

PAGES = ["README.md", "bindings/python/README.md", "docs/python.md", "docs/gemm.md", "docs/share.md"]


def examples() -> list[tuple[str, str]]:
    """The page and the code of each Python example."""
    found = []
    for page in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), flags=re.S | re.M)
        assert blocks, f"{page} has no example"
        found += [(page, block) for block in blocks]
    return found


@pytest.mark.parametrize(("page", "code"), examples())
def test_the_examples_run(page: str, code: str, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    for optional in re.findall(r"^import (torch)$", code, flags=re.M):
        pytest.importorskip(optional)
    if ".compile(" in code:
        import tegra_hcq

        try:
            with tegra_hcq.Device("sim") as device:
                device.compile('extern "C" __global__ void k() {}')
        except tegra_hcq.LibraryMissing:
            pytest.skip("NVRTC is not installed")
    (tmp_path / "kernels").symlink_to(ROOT / "kernels")
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), f"{page}: {done.stderr}"
