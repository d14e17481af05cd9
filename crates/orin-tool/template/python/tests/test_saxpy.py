"""`orin check -- python3 -m unittest discover tests` runs this on the software Orin and fails if the result is wrong, or
if the kernel reads or writes where it should not."""

import sys
import unittest
from array import array
from pathlib import Path

import tegra_hcq

sys.path.insert(0, str(Path(__file__).parent.parent))
import saxpy


class Saxpy(unittest.TestCase):
    def test_it_computes_what_the_cpu_computes(self) -> None:
        with tegra_hcq.Device() as device:
            kernel = saxpy.load(device)
            for n in (1, 255, 256, 1000):
                x, y = array("f", range(n)), array("f", (0.5 * i for i in range(n)))
                gpu_x, gpu_y = device.alloc(n, "float32"), device.alloc(n, "float32")
                gpu_x.copy_from(x)
                gpu_y.copy_from(y)
                saxpy.launch(kernel, 2.0, gpu_x, gpu_y, n)
                expected = [2.0 * x + y for x, y in zip(x, y)]
                self.assertEqual(array("f", gpu_y.to_bytes()).tolist(), expected, f"n = {n}")


if __name__ == "__main__":
    unittest.main()
