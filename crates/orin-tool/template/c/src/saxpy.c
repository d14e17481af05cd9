#include "saxpy.h"

#include <stdio.h>
#include <stdlib.h>

/* Ten seconds in nanoseconds. */
static const uint64_t TIMEOUT = 10000000000u;

/* Loads the program. Its file is relative to the current folder. */
static tegra_hcq_status load(tegra_hcq_device *device, tegra_hcq_program **program) {
  static const char PATH[] = "kernels/saxpy.sm_87.cubin";
  static unsigned char cubin[1 << 20];
  FILE *file = fopen(PATH, "rb");
  if (file == NULL) perror(PATH);
  size_t size = file == NULL ? 0 : fread(cubin, 1, sizeof cubin, file);
  if (file != NULL) fclose(file);
  return tegra_hcq_program_load(device, cubin, size, program);
}

tegra_hcq_status saxpy(tegra_hcq_device *device, float a, const float *x, float *y, uint32_t n) {
  const uint64_t bytes = (uint64_t)n * sizeof *y;
  tegra_hcq_program *program = NULL;
  tegra_hcq_kernel *kernel = NULL;
  tegra_hcq_queue *queue = NULL;
  tegra_hcq_buffer *gpu_x = NULL, *gpu_y = NULL;
  tegra_hcq_status status;

#define TRY(call) \
  if ((status = (call)) != TEGRA_HCQ_STATUS_OK) goto end
  TRY(load(device, &program));
  TRY(tegra_hcq_program_kernel(program, "saxpy", &kernel));
  TRY(tegra_hcq_queue_open(device, NULL, &queue));
  TRY(tegra_hcq_buffer_alloc(device, bytes, TEGRA_HCQ_PURPOSE_DEVICE, &gpu_x));
  TRY(tegra_hcq_buffer_alloc(device, bytes, TEGRA_HCQ_PURPOSE_DEVICE, &gpu_y));
  TRY(tegra_hcq_buffer_write(gpu_x, 0, x, bytes));
  TRY(tegra_hcq_buffer_write(gpu_y, 0, y, bytes));
  const tegra_hcq_dim3 block = {256, 1, 1}, grid = {(n + 255) / 256, 1, 1};
  const tegra_hcq_arg args[] = {tegra_hcq_arg_f32(a), tegra_hcq_arg_buffer(gpu_x, 0), tegra_hcq_arg_buffer(gpu_y, 0),
                                tegra_hcq_arg_u32(n)};
  TRY(tegra_hcq_queue_launch(queue, kernel, grid, block, 0, args, sizeof args / sizeof args[0]));
  TRY(tegra_hcq_queue_wait(queue, TIMEOUT));
  TRY(tegra_hcq_buffer_read(gpu_y, 0, y, bytes));

end:
  /* The last error stays: these do not fail. */
  if (gpu_x != NULL) tegra_hcq_buffer_free(gpu_x);
  if (gpu_y != NULL) tegra_hcq_buffer_free(gpu_y);
  if (queue != NULL) tegra_hcq_queue_close(queue);
  if (kernel != NULL) tegra_hcq_kernel_free(kernel);
  if (program != NULL) tegra_hcq_program_free(program);
  return status;
}

int saxpy_failed(void) {
  fprintf(stderr, "error: %s\n", tegra_hcq_last_error());
  return 1;
}
