/* Runs the kernel on the Orin's GPU if there is one, else on a desktop GPU, else on the software Orin. */
#include <stdio.h>

#include "saxpy.h"

int main(void) {
  const float x[4] = {1, 2, 3, 4};
  float y[4] = {10, 20, 30, 40};
  tegra_hcq_device *device = NULL;
  if (tegra_hcq_device_open("auto", 0, &device) != TEGRA_HCQ_STATUS_OK) return saxpy_failed();
  if (saxpy(device, 2, x, y, 4) != TEGRA_HCQ_STATUS_OK) return saxpy_failed();
  printf("2 * x + y = %g %g %g %g\n", y[0], y[1], y[2], y[3]);
  return tegra_hcq_device_close(device) == TEGRA_HCQ_STATUS_OK ? 0 : saxpy_failed();
}
