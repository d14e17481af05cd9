"""Adds ``libtegra_hcq.so``, its licences and the platform's tag to the wheel.

``cargo xtask wheel`` sets the variables.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLES = LIBRARY, PLATFORM, NOTICES = (
    "TEGRA_HCQ_WHEEL_LIBRARY",
    "TEGRA_HCQ_WHEEL_PLATFORM",
    "TEGRA_HCQ_WHEEL_NOTICES",
)


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    """One wheel serves every Python 3 of a platform, since the package uses the library by ctypes."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it packs."""
        if version == "editable":
            return
        library, platform, notices = (os.environ.get(name) for name in VARIABLES)
        if not library or not platform or not notices:
            raise SystemExit(f"{', '.join(VARIABLES)} are not all set: build the wheel by `cargo xtask wheel`")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][library] = "tegra_hcq/libtegra_hcq.so"
        build_data["force_include"][notices] = "tegra_hcq/THIRD-PARTY.txt"
