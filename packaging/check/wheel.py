"""Adds two vectors with the package tegra_hcq and without numpy: wheel.py CUBIN."""

import array
import sys

import tegra_hcq

COUNT = 1000
with tegra_hcq.Device("sim") as device:
    add = device.load(sys.argv[1])["vector_add"]
    a = device.from_bytes(array.array("f", range(COUNT)))
    b = device.from_bytes(array.array("f", [2] * COUNT))
    total = device.alloc(COUNT, "float32")
    add(a, b, total, COUNT, grid=4, block=256)
    assert list(total.view().cast("B").cast("f")) == [i + 2 for i in range(COUNT)]
    print("wheel.py: right,", device.properties.chip, tegra_hcq.__version__, tegra_hcq.__file__)
