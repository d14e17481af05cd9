/* Multiplies two matrices on the GPU's tensor cores: c = a * transpose of b, of 32-bit floats.
 *
 *   matmul [auto|nvgpu|nvrm|sim] [rows]
 *
 * Exit codes: 0 success, 1 wrong result or GPU fault, 2 bad arguments or no such device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tegra_hcq.h"

/* Ten seconds in nanoseconds. */
static const uint64_t TIMEOUT = 10000000000u;
/* Columns of the result, and length of the sums. */
enum { N = 24, K = 40 };

static int report(const char *call, tegra_hcq_status status) {
  fprintf(stderr, "matmul: %s: %s: %s\n", call, tegra_hcq_status_name((int32_t)status), tegra_hcq_last_error());
  return status == TEGRA_HCQ_STATUS_FAULT || status == TEGRA_HCQ_STATUS_TIMEOUT ? 1 : 2;
}

#define TRY(call)                              \
  do {                                         \
    tegra_hcq_status status_ = (call);         \
    if (status_ != TEGRA_HCQ_STATUS_OK) {      \
      exit_code = report(#call, status_);      \
      goto end;                                \
    }                                          \
  } while (0)

int main(int argc, char **argv) {
  const unsigned long m = argc > 2 ? strtoul(argv[2], NULL, 10) : 16;
  if (argc > 3 || m < 1 || m > 1u << 20) {
    fprintf(stderr, "usage: %s [DEVICE] [ROWS from 1 to %u]\n", argv[0], 1u << 20);
    return 2;
  }
  int exit_code = 1;
  tegra_hcq_device *device = NULL;
  const size_t counts[3] = {m * K, N * K, m * N};
  float *matrices[3] = {NULL, NULL, NULL};
  for (int i = 0; i < 3; ++i) {
    matrices[i] = malloc(counts[i] * sizeof(float));
    if (matrices[i] == NULL) goto end;
    for (size_t j = 0; j < counts[i]; ++j) matrices[i][j] = (float)(j * 7 % 31) / 31.0f - 0.5f;
  }

  TRY(tegra_hcq_device_open(argc > 1 ? argv[1] : "auto", 0, &device));
  tegra_hcq_queue *queue = NULL;
  tegra_hcq_gemm *gemm = NULL;
  TRY(tegra_hcq_queue_open(device, NULL, &queue));
  TRY(tegra_hcq_gemm_load(device, &gemm));
  tegra_hcq_arg operands[3];
  for (int i = 0; i < 3; ++i) {
    tegra_hcq_buffer *buffer = NULL;
    const uint64_t bytes = counts[i] * sizeof(float);
    TRY(tegra_hcq_buffer_alloc(device, bytes, TEGRA_HCQ_PURPOSE_DEVICE, &buffer));
    TRY(tegra_hcq_buffer_write(buffer, 0, matrices[i], bytes));
    operands[i] = tegra_hcq_arg_buffer(buffer, 0);
  }

  tegra_hcq_product product = {0};
  product.struct_size = sizeof product;
  product.element = product.output = TEGRA_HCQ_ELEMENT_F32;
  product.form = TEGRA_HCQ_FORM_COLUMNS;
  product.scale = 1.0f;
  product.batch = 1;
  product.m = m;
  product.n = N;
  product.k = K;
  TRY(tegra_hcq_queue_multiply(queue, gemm, &product, operands, 3));
  TRY(tegra_hcq_queue_wait(queue, TIMEOUT));
  tegra_hcq_buffer *c = (tegra_hcq_buffer *)(uintptr_t)operands[2].value;
  TRY(tegra_hcq_buffer_read(c, 0, matrices[2], counts[2] * sizeof(float)));

  double worst = 0;
  for (size_t row = 0; row < m; ++row) {
    for (size_t column = 0; column < N; ++column) {
      double sum = 0;
      for (size_t i = 0; i < K; ++i) sum += (double)matrices[0][row * K + i] * (double)matrices[1][column * K + i];
      worst = fmax(worst, fabs(sum - (double)matrices[2][row * N + column]));
    }
  }
  printf("%lu x %d x %d, largest error %.1e\n", m, N, K, worst);
  exit_code = worst < 1e-5 ? 0 : 1;

end:
  /* Closes everything that was opened on the device. */
  if (device != NULL) tegra_hcq_device_close(device);
  for (int i = 0; i < 3; ++i) free(matrices[i]);
  if (fflush(stdout) != 0 && exit_code == 0) exit_code = 1;
  return exit_code;
}
