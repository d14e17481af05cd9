/* Adds two vectors on the GPU.
 *
 *   vector_add vector_add.cubin [auto|nvgpu|nvrm|sim] [number of elements]
 *
 * Exit codes: 0 success, 1 wrong result or GPU fault, 2 bad arguments or no such device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tegra_hcq.h"

/* Ten seconds in nanoseconds. */
static const uint64_t TIMEOUT = 10000000000u;

static int report(const char *call, tegra_hcq_status status) {
  fprintf(stderr, "vector_add: %s: %s: %s\n", call, tegra_hcq_status_name((int32_t)status), tegra_hcq_last_error());
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

/* Reads a whole file; NULL on failure. */
static void *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  long length = -1;
  void *bytes = NULL;
  if (file != NULL && fseek(file, 0, SEEK_END) == 0 && (length = ftell(file)) > 0) {
    rewind(file);
    bytes = malloc((size_t)length);
    if (bytes != NULL && fread(bytes, 1, (size_t)length, file) != (size_t)length) {
      free(bytes);
      bytes = NULL;
    }
  }
  if (file != NULL) fclose(file);
  *size = length > 0 ? (size_t)length : 0;
  return bytes;
}

int main(int argc, char **argv) {
  int exit_code = 1;
  tegra_hcq_device *device = NULL;
  float *numbers = NULL;
  void *cubin = NULL;
  size_t cubin_size = 0;

  if (argc < 2 || argc > 4) {
    fprintf(stderr, "usage: %s CUBIN [DEVICE] [ELEMENTS]\n", argv[0]);
    return 2;
  }
  unsigned long elements = 1u << 16;
  if (argc == 4) {
    char *end = NULL;
    errno = 0;
    elements = strtoul(argv[3], &end, 10);
    if (errno != 0 || *end != '\0' || argv[3][0] == '-' || elements < 1 || elements > 1ul << 28) {
      fprintf(stderr, "vector_add: '%s' is not a number from 1 to %lu\n", argv[3], 1ul << 28);
      return 2;
    }
  }
  cubin = read_file(argv[1], &cubin_size);
  numbers = malloc(3 * elements * sizeof *numbers);
  if (cubin == NULL || numbers == NULL) {
    fprintf(stderr, "vector_add: %s cannot be read\n", cubin == NULL ? argv[1] : "memory");
    free(cubin);
    free(numbers);
    return 2;
  }

  TRY(tegra_hcq_device_open(argc > 2 ? argv[2] : "auto", 0, &device));
  tegra_hcq_properties properties = {0};
  properties.struct_size = sizeof properties;
  TRY(tegra_hcq_device_properties(device, &properties));

  tegra_hcq_program *program = NULL;
  tegra_hcq_kernel *kernel = NULL;
  tegra_hcq_queue *queue = NULL;
  TRY(tegra_hcq_program_load(device, cubin, cubin_size, &program));
  TRY(tegra_hcq_program_kernel(program, "vector_add", &kernel));
  TRY(tegra_hcq_queue_open(device, NULL, &queue));

  const uint64_t bytes = elements * sizeof *numbers;
  float *const a = numbers, *const b = numbers + elements, *const sum = b + elements;
  for (unsigned long i = 0; i < elements; ++i) {
    a[i] = (float)i;
    b[i] = 0.5f * (float)i;
  }
  tegra_hcq_buffer *buffers[3] = {NULL, NULL, NULL};
  for (int i = 0; i < 3; ++i) TRY(tegra_hcq_buffer_alloc(device, bytes, TEGRA_HCQ_PURPOSE_DEVICE, &buffers[i]));
  TRY(tegra_hcq_buffer_write(buffers[0], 0, a, bytes));
  TRY(tegra_hcq_buffer_write(buffers[1], 0, b, bytes));

  const tegra_hcq_dim3 block = {256, 1, 1}, grid = {(uint32_t)((elements + 255) / 256), 1, 1};
  const tegra_hcq_arg args[] = {
      tegra_hcq_arg_buffer(buffers[0], 0),
      tegra_hcq_arg_buffer(buffers[1], 0),
      tegra_hcq_arg_buffer(buffers[2], 0),
      tegra_hcq_arg_u32((uint32_t)elements),
  };
  TRY(tegra_hcq_queue_launch(queue, kernel, grid, block, 0, args, sizeof args / sizeof args[0]));
  TRY(tegra_hcq_queue_wait(queue, TIMEOUT));
  TRY(tegra_hcq_buffer_read(buffers[2], 0, sum, bytes));

  unsigned long wrong = 0;
  for (unsigned long i = 0; i < elements; ++i) wrong += sum[i] != a[i] + b[i];
  printf("device   %s (%s), %u SMs, libtegra_hcq %s\n", (const char *)properties.chip, (const char *)properties.kind,
         properties.sm_count, tegra_hcq_version());
  printf("result   %lu elements, %lu wrong\n", elements, wrong);
  exit_code = wrong == 0 ? 0 : 1;

end:
  /* Closes everything that was opened on the device. */
  if (device != NULL) tegra_hcq_device_close(device);
  free(numbers);
  free(cubin);
  if (fflush(stdout) != 0 && exit_code == 0) exit_code = 1;
  return exit_code;
}
