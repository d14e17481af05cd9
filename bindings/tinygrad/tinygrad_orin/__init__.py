"""A tinygrad device for the Jetson Orin's GPU, over libtegra_hcq.

`DEV=ORIN python program.py` needs no import: the wheel's `tinygrad_orin.pth` imports this module when Python starts.
Without the wheel (a source tree on `PYTHONPATH`), write `import tinygrad_orin` before the first use of the device.

The import only installs a finder for the module that tinygrad looks for; it imports neither tinygrad nor ctypes and
opens no device.
"""

import sys

__version__ = "0.1.0"

_MODULE = "tinygrad.runtime.ops_orin"


class _Finder:
    """Finds `tinygrad.runtime.ops_orin`, the module where tinygrad expects the device ORIN, and nothing else."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Returns the spec of the device's module if that is `name`, else `None`."""
        if name != _MODULE:
            return None
        import os
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, os.path.join(os.path.dirname(__file__), "ops_orin.py"))


if _Finder not in sys.meta_path:
    sys.meta_path.append(_Finder)
