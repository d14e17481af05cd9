"""Ways to a GPU: `DEV=SIM+ORIN`, `DEV=NVGPU+ORIN`, `DEV=NVRM+ORIN`, and `DEV=ORIN` for the first that exists."""

import glob
import os

from tinygrad.helpers import DEV

from .board import Board


class Interface:
    """A GPU for device index `device_id`. tinygrad takes the name from the class, less "Iface"."""

    kind: str

    def __init__(self, dev, device_id: int):
        self.board = Board.open(self.kind, self.gpu(device_id))

    @classmethod
    def gpu(cls, device_id: int) -> int:
        """Returns the GPU of a device index: indices beyond the GPUs are further queues of the same GPUs."""
        if (indices := DEV.target("ORIN").indices) != "":
            first, _, last = indices.partition("-")
            chosen = range(int(first), int(last) + 1) if last else [int(index) for index in indices.split(",")]
        else:
            limit = int(os.environ.get("ORIN_GPUS") or 0)
            gpus = cls.gpus()
            chosen = range(min(gpus, limit) if limit else gpus)
        return chosen[device_id % len(chosen)]

    @classmethod
    def gpus(cls) -> int:
        """Number of GPUs of this kind."""
        return 1

    @property
    def count(self) -> int:
        """Number of GPUs, as tinygrad asks for it."""
        return self.gpus()


class NVGPUIface(Interface):
    """The GPU of a Jetson Orin."""

    kind = "nvgpu"


class NVRMIface(Interface):
    """GPUs of NVIDIA's desktop driver."""

    kind = "nvrm"

    @classmethod
    def gpus(cls) -> int:
        return max(1, len(glob.glob("/dev/nvidia[0-9]*")))


class SIMIface(Interface):
    """Software Orins: each index is a board of its own."""

    kind = "sim"

    @classmethod
    def gpus(cls) -> int:
        return 8


class AUTOIface(Interface):
    """The first of the others that exists, by the library's rule: a GPU that fails to open is an error."""

    kind = "auto"

    def __init__(self, dev, device_id: int):
        # GPU 0 tells the kind, which tells how many there are.
        kind = Board.open(self.kind, 0).kind
        iface = next(iface for iface in (NVGPUIface, NVRMIface, SIMIface) if iface.kind == kind)
        index = iface.gpu(device_id)
        self.board, self.gpus = Board.open(self.kind, index), iface.gpus
