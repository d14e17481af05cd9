"""The kernel of kernels/saxpy.cu, and a program that runs it on the Orin's GPU if there is one, else on a desktop GPU,
else on the software Orin."""

from array import array
from pathlib import Path

import tegra_hcq

CUBIN = Path(__file__).with_name("kernels") / "saxpy.sm_87.cubin"


def load(device: tegra_hcq.Device) -> tegra_hcq.Kernel:
    return device.load(CUBIN)["saxpy"]


def launch(saxpy: tegra_hcq.Kernel, a: float, x: tegra_hcq.Buffer, y: tegra_hcq.Buffer, n: int) -> None:
    """y[i] = a * x[i] + y[i] for i < n. Does not wait."""
    if min(x.nbytes, y.nbytes) < 4 * n:
        raise ValueError(f"x and y must have {n} floats")
    saxpy(a, x, y, n, grid=(n + 255) // 256, block=256)


def main() -> None:
    with tegra_hcq.Device() as device:
        print("device:", device.properties.chip, f"({device.properties.kind})")
        x, y = device.alloc(4, "float32"), device.alloc(4, "float32")
        x.copy_from(array("f", [1, 2, 3, 4]))
        y.copy_from(array("f", [10, 20, 30, 40]))
        launch(load(device), 2.0, x, y, 4)
        print("2 * x + y =", array("f", y.to_bytes()).tolist())


if __name__ == "__main__":
    main()
