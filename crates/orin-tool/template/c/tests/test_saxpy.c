/* `make check` runs this on the software Orin and fails if a result is wrong, or if the kernel reads or writes where it
 * should not. */
#include <stdio.h>

#include "saxpy.h"

int main(void) {
  static const uint32_t SIZES[] = {1, 255, 256, 1000};
  static float x[1000], y[1000];
  tegra_hcq_device *device = NULL;
  if (tegra_hcq_device_open("auto", 0, &device) != TEGRA_HCQ_STATUS_OK) return saxpy_failed();
  for (size_t at = 0; at < sizeof SIZES / sizeof SIZES[0]; ++at) {
    const uint32_t n = SIZES[at];
    for (uint32_t i = 0; i < n; ++i) x[i] = (float)i, y[i] = 0.5f * (float)i;
    if (saxpy(device, 2, x, y, n) != TEGRA_HCQ_STATUS_OK) return saxpy_failed();
    for (uint32_t i = 0; i < n; ++i) {
      if (y[i] == 2.5f * (float)i) continue;
      fprintf(stderr, "n = %u: y[%u] is %g\n", n, i, y[i]);
      return 1;
    }
  }
  return tegra_hcq_device_close(device) == TEGRA_HCQ_STATUS_OK ? 0 : saxpy_failed();
}
