/* The kernel of kernels/saxpy.cu. */
#ifndef SAXPY_H
#define SAXPY_H

#include <stdint.h>

#include "tegra_hcq.h"

/* Computes y[i] = a * x[i] + y[i] for i < n on a device, and waits. */
tegra_hcq_status saxpy(tegra_hcq_device *device, float a, const float *x, float *y, uint32_t n);

/* Prints the last error of the library. Returns 1, the exit code. */
int saxpy_failed(void);

#endif
