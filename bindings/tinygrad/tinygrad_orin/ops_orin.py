"""The module that tinygrad imports for `DEV=ORIN`."""

from tinygrad_orin.device import ORINDevice

__all__ = ["ORINDevice"]
