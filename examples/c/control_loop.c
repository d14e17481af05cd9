/* A network of three layers in a control loop: recorded once, replayed in each cycle.
 *
 *   control_loop nn_linear.cubin [auto|nvgpu|nvrm|sim] [number of cycles]
 *
 * A cycle stores 12 inputs, replays the graph, waits and reads 4 outputs. Each result is compared with the CPU's.
 *
 * Exit codes: 0 success, 1 wrong result or GPU fault, 2 bad arguments or no such device. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tegra_hcq.h"

enum { LAYERS = 3, WIDEST = 128 };
static const uint32_t WIDTHS[LAYERS + 1] = {12, 128, 128, 4};
/* Ten seconds in nanoseconds. */
static const uint64_t TIMEOUT = 10000000000u;

static int report(const char *call, tegra_hcq_status status) {
  fprintf(stderr, "control_loop: %s: %s: %s\n", call, tegra_hcq_status_name((int32_t)status), tegra_hcq_last_error());
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

/* A number between -1 and 1; the same sequence in every run. */
static float noise(void) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / 8388608.0f - 1.0f;
}

static float weights[LAYERS][WIDEST * WIDEST], biases[LAYERS][WIDEST];

/* The network on the CPU. */
static void expect(const float *inputs, float *outputs) {
  float row[2][WIDEST];
  for (uint32_t i = 0; i < WIDTHS[0]; ++i) row[0][i] = inputs[i];
  for (int layer = 0; layer < LAYERS; ++layer) {
    const float *in = row[layer % 2];
    float *out = row[(layer + 1) % 2];
    for (uint32_t n = 0; n < WIDTHS[layer + 1]; ++n) {
      float sum = biases[layer][n];
      for (uint32_t k = 0; k < WIDTHS[layer]; ++k) sum += in[k] * weights[layer][n * WIDTHS[layer] + k];
      out[n] = layer + 1 < LAYERS && sum < 0.0f ? 0.0f : sum;
    }
  }
  for (uint32_t i = 0; i < WIDTHS[LAYERS]; ++i) outputs[i] = row[LAYERS % 2][i];
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  int exit_code = 1;
  tegra_hcq_device *device = NULL;
  uint64_t *times = NULL;
  void *cubin = NULL;
  size_t cubin_size = 0;
  unsigned long cycles = 1000;

  if (argc < 2 || argc > 4) {
    fprintf(stderr, "usage: %s CUBIN [DEVICE] [CYCLES]\n", argv[0]);
    return 2;
  }
  if (argc == 4) {
    char *end = NULL;
    errno = 0;
    cycles = strtoul(argv[3], &end, 10);
    if (errno != 0 || *end != '\0' || argv[3][0] == '-' || cycles < 1 || cycles > 100000000ul) {
      fprintf(stderr, "control_loop: '%s' is not a number from 1 to 100000000\n", argv[3]);
      return 2;
    }
  }
  cubin = read_file(argv[1], &cubin_size);
  times = malloc(cycles * sizeof *times);
  if (cubin == NULL || times == NULL) {
    fprintf(stderr, "control_loop: %s cannot be read\n", cubin == NULL ? argv[1] : "memory");
    free(cubin);
    free(times);
    return 2;
  }

  tegra_hcq_program *program = NULL;
  tegra_hcq_kernel *linear = NULL;
  tegra_hcq_queue *queue = NULL;
  TRY(tegra_hcq_device_open(argc > 2 ? argv[2] : "auto", 0, &device));
  TRY(tegra_hcq_program_load(device, cubin, cubin_size, &program));
  TRY(tegra_hcq_program_kernel(program, "linear_f32", &linear));
  TRY(tegra_hcq_queue_open(device, NULL, &queue));

  /* The rows between the layers. The CPU writes the first and reads the last. */
  tegra_hcq_buffer *rows[LAYERS + 1] = {NULL};
  for (int i = 0; i <= LAYERS; ++i) {
    const uint32_t purpose = i == 0        ? TEGRA_HCQ_PURPOSE_UPLOAD
                             : i == LAYERS ? TEGRA_HCQ_PURPOSE_READ_BACK
                                           : TEGRA_HCQ_PURPOSE_DEVICE;
    TRY(tegra_hcq_buffer_alloc(device, WIDTHS[i] * sizeof(float), purpose, &rows[i]));
  }

  tegra_hcq_graph_builder *builder = NULL;
  tegra_hcq_graph *graph = NULL;
  TRY(tegra_hcq_graph_begin(device, &builder));
  for (int layer = 0; layer < LAYERS; ++layer) {
    const uint32_t k = WIDTHS[layer], n = WIDTHS[layer + 1];
    const float scale = 1.0f / sqrtf((float)k);
    for (uint32_t i = 0; i < n * k; ++i) weights[layer][i] = scale * noise();
    for (uint32_t i = 0; i < n; ++i) biases[layer][i] = 0.1f * noise();
    tegra_hcq_buffer *w = NULL, *bias = NULL;
    TRY(tegra_hcq_buffer_alloc(device, n * k * sizeof(float), TEGRA_HCQ_PURPOSE_DEVICE, &w));
    TRY(tegra_hcq_buffer_alloc(device, n * sizeof(float), TEGRA_HCQ_PURPOSE_DEVICE, &bias));
    TRY(tegra_hcq_buffer_write(w, 0, weights[layer], n * k * sizeof(float)));
    TRY(tegra_hcq_buffer_write(bias, 0, biases[layer], n * sizeof(float)));
    const tegra_hcq_arg args[] = {
        tegra_hcq_arg_buffer(rows[layer], 0), tegra_hcq_arg_buffer(w, 0),
        tegra_hcq_arg_buffer(bias, 0),        tegra_hcq_arg_buffer(rows[layer + 1], 0),
        tegra_hcq_arg_u32(1),                 tegra_hcq_arg_u32(n),
        tegra_hcq_arg_u32(k),                 tegra_hcq_arg_u32(layer + 1 < LAYERS), /* ReLU */
    };
    const tegra_hcq_dim3 grid = {(n + 15) / 16, 1, 1}, block = {16, 16, 1};
    TRY(tegra_hcq_graph_launch(builder, linear, grid, block, 0, args, sizeof args / sizeof args[0], NULL));
    /* The graph keeps the memory. */
    TRY(tegra_hcq_buffer_free(w));
    TRY(tegra_hcq_buffer_free(bias));
  }
  TRY(tegra_hcq_graph_build(builder, &graph));

  float largest = 0.0f;
  for (unsigned long cycle = 0; cycle < cycles; ++cycle) {
    float inputs[12], outputs[4], wanted[4];
    for (int i = 0; i < 12; ++i) inputs[i] = noise();
    const uint64_t start = now();
    tegra_hcq_fence *fence = NULL;
    TRY(tegra_hcq_buffer_write(rows[0], 0, inputs, sizeof inputs));
    TRY(tegra_hcq_queue_replay(queue, graph, &fence));
    TRY(tegra_hcq_fence_wait(fence, TIMEOUT));
    TRY(tegra_hcq_fence_free(fence));
    TRY(tegra_hcq_buffer_read(rows[LAYERS], 0, outputs, sizeof outputs));
    times[cycle] = now() - start;
    expect(inputs, wanted);
    for (int i = 0; i < 4; ++i) {
      const float difference = fabsf(outputs[i] - wanted[i]);
      if (!(difference <= largest)) largest = difference;
    }
  }
  qsort(times, cycles, sizeof *times, ascending);
  printf("cycles       %lu\n", cycles);
  printf("cycle        median %.1f us, p99 %.1f us, longest %.1f us\n", (double)times[cycles / 2] / 1e3,
         (double)times[cycles * 99 / 100] / 1e3, (double)times[cycles - 1] / 1e3);
  printf("difference   %g at most between GPU and CPU\n", (double)largest);
  exit_code = largest <= 1e-4f ? 0 : 1;

end:
  if (device != NULL) tegra_hcq_device_close(device);
  free(times);
  free(cubin);
  if (fflush(stdout) != 0 && exit_code == 0) exit_code = 1;
  return exit_code;
}
