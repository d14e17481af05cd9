/* libtegra_hcq: run CUDA kernels on the Jetson Orin's GPU without CUDA.
 *
 * Generated from crates/tegra-hcq-capi by cbindgen; changed there.
 *
 * Every function that can fail returns a tegra_hcq_status; tegra_hcq_last_error returns the text. Handles are opaque
 * numbers in the form of pointers: a handle that was freed, that is NULL, or that names another kind of object gives
 * TEGRA_HCQ_STATUS_INVALID_HANDLE. Time-outs are nanoseconds. All functions may be called by any thread at any time.
 */

#ifndef TEGRA_HCQ_H
#define TEGRA_HCQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Number of the ABI: grows when a function or struct changes so that programs must be compiled again.
 */
#define TEGRA_HCQ_ABI 1

/**
 * Result of a call. 0 is success; `tegra_hcq_last_error` returns the text of a failure.
 */
enum tegra_hcq_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * The call has succeeded.
   */
  TEGRA_HCQ_STATUS_OK = 0,
  /**
   * The work did not end in time. It may still end later.
   */
  TEGRA_HCQ_STATUS_TIMEOUT = 1,
  /**
   * The GPU stopped the work: `tegra_hcq_last_fault` returns why. Call `tegra_hcq_device_recover`.
   */
  TEGRA_HCQ_STATUS_FAULT = 2,
  /**
   * There is not enough memory.
   */
  TEGRA_HCQ_STATUS_OUT_OF_MEMORY = 3,
  /**
   * A size, range, count, name or combination of arguments is invalid.
   */
  TEGRA_HCQ_STATUS_INVALID_ARGUMENT = 4,
  /**
   * A handle is NULL, was freed, belongs to a closed device, or names another kind of object.
   */
  TEGRA_HCQ_STATUS_INVALID_HANDLE = 5,
  /**
   * There is no kernel or variable of that name.
   */
  TEGRA_HCQ_STATUS_NOT_FOUND = 6,
  /**
   * The device or this build of the library does not offer it.
   */
  TEGRA_HCQ_STATUS_UNSUPPORTED = 7,
  /**
   * The source does not compile; the text is the compiler's log.
   */
  TEGRA_HCQ_STATUS_COMPILATION = 8,
  /**
   * NVRTC, nvJitLink or ptxas is not installed; the text says how to get it.
   */
  TEGRA_HCQ_STATUS_LIBRARY_MISSING = 9,
  /**
   * The device cannot be opened, or its driver has refused a call.
   */
  TEGRA_HCQ_STATUS_DEVICE = 10,
  /**
   * The object is in use: work was launched but not submitted, or all queues are open.
   */
  TEGRA_HCQ_STATUS_BUSY = 11,
  /**
   * A fault of this library.
   */
  TEGRA_HCQ_STATUS_INTERNAL = 12,
  /**
   * The function of `tegra_hcq_set_interrupt` has ended the wait.
   */
  TEGRA_HCQ_STATUS_INTERRUPTED = 13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tegra_hcq_status tegra_hcq_status;
#else
typedef int32_t tegra_hcq_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What a buffer is used for, a hint that selects its memory and how the CPU caches it. The purpose parameter of
 * `tegra_hcq_buffer_alloc` takes these values.
 */
enum tegra_hcq_purpose
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Data of kernels, rarely accessed by the CPU. On a GPU with its own memory, memory of the GPU.
   */
  TEGRA_HCQ_PURPOSE_DEVICE = 0,
  /**
   * Written by the CPU, read by the GPU.
   */
  TEGRA_HCQ_PURPOSE_UPLOAD = 1,
  /**
   * Written by the GPU, read by the CPU.
   */
  TEGRA_HCQ_PURPOSE_READ_BACK = 2,
  /**
   * Small values that CPU and GPU exchange while both run.
   */
  TEGRA_HCQ_PURPOSE_SIGNALS = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tegra_hcq_purpose tegra_hcq_purpose;
#else
typedef uint32_t tegra_hcq_purpose;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Kind of a kernel argument, in `tegra_hcq_arg`.
 */
enum tegra_hcq_arg_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * A pointer into a buffer: `value` is the handle, `offset` the offset in bytes.
   */
  TEGRA_HCQ_ARG_KIND_BUFFER = 0,
  /**
   * A number: the low `size` bytes of `value`, 1, 2, 4 or 8.
   */
  TEGRA_HCQ_ARG_KIND_VALUE = 1,
  /**
   * A struct by value: `value` is the address of `size` bytes, read during the call.
   */
  TEGRA_HCQ_ARG_KIND_BYTES = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tegra_hcq_arg_kind tegra_hcq_arg_kind;
#else
typedef uint32_t tegra_hcq_arg_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Kind of an operation in a profile.
 */
enum tegra_hcq_work
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * A launch of a kernel.
   */
  TEGRA_HCQ_WORK_LAUNCH = 0,
  /**
   * A copy.
   */
  TEGRA_HCQ_WORK_COPY = 1,
  /**
   * A fill.
   */
  TEGRA_HCQ_WORK_FILL = 2,
  /**
   * A replay of a graph; its steps follow.
   */
  TEGRA_HCQ_WORK_GRAPH = 3,
  /**
   * Any other operation.
   */
  TEGRA_HCQ_WORK_OTHER = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tegra_hcq_work tegra_hcq_work;
#else
typedef uint32_t tegra_hcq_work;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Kind of a fault.
 */
enum tegra_hcq_fault_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * An access to an address that is not mapped, or not mapped for this kind of access.
   */
  TEGRA_HCQ_FAULT_KIND_MMU = 0,
  /**
   * An SM stopped at an instruction: `reason` says why.
   */
  TEGRA_HCQ_FAULT_KIND_SM = 1,
  /**
   * The launch descriptor was refused.
   */
  TEGRA_HCQ_FAULT_KIND_LAUNCH_DESCRIPTOR = 2,
  /**
   * The graphics engine stopped without more detail.
   */
  TEGRA_HCQ_FAULT_KIND_GRAPHICS_EXCEPTION = 3,
  /**
   * Malformed or forbidden commands.
   */
  TEGRA_HCQ_FAULT_KIND_PUSHBUFFER = 4,
  /**
   * The copy engine refused a copy.
   */
  TEGRA_HCQ_FAULT_KIND_COPY_ENGINE = 5,
  /**
   * The work hung until a recovery stopped it.
   */
  TEGRA_HCQ_FAULT_KIND_ABANDONED = 6,
  /**
   * Any other error of the channel.
   */
  TEGRA_HCQ_FAULT_KIND_OTHER = 7,
  /**
   * An `assert` of a kernel has failed: `reason` has the messages.
   */
  TEGRA_HCQ_FAULT_KIND_ASSERT = 8,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tegra_hcq_fault_kind tegra_hcq_fault_kind;
#else
typedef uint32_t tegra_hcq_fault_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Where the output of kernels belongs.
 */
enum tegra_hcq_output_stream
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Standard output: `printf`.
   */
  TEGRA_HCQ_OUTPUT_STREAM_OUT = 1,
  /**
   * Standard error: failed assertions, and notes about output that was lost.
   */
  TEGRA_HCQ_OUTPUT_STREAM_ERR = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tegra_hcq_output_stream tegra_hcq_output_stream;
#else
typedef uint32_t tegra_hcq_output_stream;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Elements of the matrices of a product.
 */
enum tegra_hcq_element
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * IEEE halves.
   */
  TEGRA_HCQ_ELEMENT_F16 = 0,
  /**
   * bfloat16 numbers: the upper halves of floats.
   */
  TEGRA_HCQ_ELEMENT_BF16 = 1,
  /**
   * 32-bit floats.
   */
  TEGRA_HCQ_ELEMENT_F32 = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tegra_hcq_element tegra_hcq_element;
#else
typedef uint32_t tegra_hcq_element;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How the second factor of a product is stored.
 */
enum tegra_hcq_form
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * `k` rows of `n` elements.
   */
  TEGRA_HCQ_FORM_ROWS = 0,
  /**
   * `n` rows of `k` elements: transposed.
   */
  TEGRA_HCQ_FORM_COLUMNS = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tegra_hcq_form tegra_hcq_form;
#else
typedef uint32_t tegra_hcq_form;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How exactly a product multiplies floats.
 */
enum tegra_hcq_precision
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Each product of two floats has about 22 bits.
   */
  TEGRA_HCQ_PRECISION_FULL = 0,
  /**
   * Each float is rounded to 11 bits.
   */
  TEGRA_HCQ_PRECISION_TF32 = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tegra_hcq_precision tegra_hcq_precision;
#else
typedef uint32_t tegra_hcq_precision;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Memory that the GPU accesses.
 */
typedef struct tegra_hcq_buffer tegra_hcq_buffer;

/**
 * An open GPU. Handles are not pointers to memory: they are compared and passed on, never dereferenced.
 */
typedef struct tegra_hcq_device tegra_hcq_device;

/**
 * The end of a submission.
 */
typedef struct tegra_hcq_fence tegra_hcq_fence;

/**
 * Kernels for products of matrices, loaded on a device.
 */
typedef struct tegra_hcq_gemm tegra_hcq_gemm;

/**
 * A recorded sequence of launches, copies and fills.
 */
typedef struct tegra_hcq_graph tegra_hcq_graph;

/**
 * A graph while it is recorded.
 */
typedef struct tegra_hcq_graph_builder tegra_hcq_graph_builder;

/**
 * A kernel of a program. It keeps the program loaded.
 */
typedef struct tegra_hcq_kernel tegra_hcq_kernel;

/**
 * Times of operations that a queue has recorded.
 */
typedef struct tegra_hcq_profile tegra_hcq_profile;

/**
 * A loaded cubin.
 */
typedef struct tegra_hcq_program tegra_hcq_program;

/**
 * An in-order stream of launches, copies and signals.
 */
typedef struct tegra_hcq_queue tegra_hcq_queue;

/**
 * A 64-bit value that the CPU and queues set and wait for.
 */
typedef struct tegra_hcq_signal tegra_hcq_signal;

/**
 * Properties of a GPU. Set `struct_size` to the size of the struct before the call.
 */
typedef struct tegra_hcq_properties {
  /**
   * Size of this struct, set by the caller. Fields beyond it are not written.
   */
  uint32_t struct_size;
  /**
   * SM version, major: 8 on an Orin.
   */
  uint32_t sm_major;
  /**
   * SM version, minor: 7 on an Orin.
   */
  uint32_t sm_minor;
  /**
   * Number of streaming multiprocessors in use.
   */
  uint32_t sm_count;
  /**
   * Number of warps that an SM holds at a time.
   */
  uint32_t warps_per_sm;
  /**
   * Largest number of threads of a block.
   */
  uint32_t max_block_threads;
  /**
   * 1 if CPU and GPU use the same memory, 0 if the GPU has its own.
   */
  uint32_t unified_memory;
  /**
   * Number of graphics processing clusters in use.
   */
  uint32_t gpc_count;
  /**
   * Size of the L2 cache in bytes.
   */
  uint64_t l2_bytes;
  /**
   * Highest clock in Hz; 0 if the driver does not report it.
   */
  uint64_t max_clock_hz;
  /**
   * Driver: "nvgpu", "nvrm" or "sim". Ends with a zero byte.
   */
  uint8_t kind[16];
  /**
   * Name of the chip, for example "ga10b". Ends with a zero byte.
   */
  uint8_t chip[64];
} tegra_hcq_properties;

/**
 * A function that receives what kernels print, from the thread whose wait has ended or that closes the device: a
 * `tegra_hcq_output_stream`, the text, which does not end with a zero byte, its size in bytes, and the pointer given
 * with the function. The text is valid during the call. The function must not call functions of this library and must
 * not unwind.
 */
typedef void (*tegra_hcq_output_callback)(uint32_t stream,
                                          const char *text,
                                          uint64_t bytes,
                                          void *user);

/**
 * Numbers of blocks in a grid or of threads in a block, 1 or more each.
 */
typedef struct tegra_hcq_dim3 {
  /**
   * First dimension.
   */
  uint32_t x;
  /**
   * Second dimension.
   */
  uint32_t y;
  /**
   * Third dimension.
   */
  uint32_t z;
} tegra_hcq_dim3;

/**
 * Why the GPU has stopped the work of a queue. Set `struct_size` before the call. Strings are valid until the
 * thread's next failed call, and NULL where unknown.
 */
typedef struct tegra_hcq_fault {
  /**
   * Size of this struct, set by the caller. Fields beyond it are not written.
   */
  uint32_t struct_size;
  /**
   * A `tegra_hcq_fault_kind`.
   */
  uint32_t kind;
  /**
   * 1 if `address` is known.
   */
  uint32_t has_address;
  /**
   * 1 if `pc` is known.
   */
  uint32_t has_pc;
  /**
   * Address of the access; of an MMU fault, its page.
   */
  uint64_t address;
  /**
   * Address of the faulting instruction.
   */
  uint64_t pc;
  /**
   * Offset of that instruction in the kernel's code, in bytes.
   */
  uint64_t code_offset;
  /**
   * Kernel that contains the instruction; the last launched kernel if the instruction is unknown.
   */
  const char *kernel;
  /**
   * What happened, for example "misaligned address" or "page table entry invalid, write access".
   */
  const char *reason;
  /**
   * The nearest buffer, for example "4 bytes past the end of weights (0x1000, 256 bytes)".
   */
  const char *nearest;
  /**
   * The whole report in one line.
   */
  const char *text;
  /**
   * Grid of the kernel's last launch; zeros if unknown.
   */
  struct tegra_hcq_dim3 grid;
  /**
   * Block of the kernel's last launch; zeros if unknown.
   */
  struct tegra_hcq_dim3 block;
} tegra_hcq_fault;

/**
 * Sizes and kinds of a product of matrices: `out = scale * a * b + bias` for `batch` pairs of matrices that follow
 * each other. All are row major, without gaps between rows: `a` has `m` rows of `k` elements, `out` has `m` rows of
 * `n` elements.
 */
typedef struct tegra_hcq_product {
  /**
   * Size of this struct, set by the caller.
   */
  uint32_t struct_size;
  /**
   * A `tegra_hcq_element`: the elements of both factors.
   */
  uint32_t element;
  /**
   * A `tegra_hcq_element`: the elements of the result.
   */
  uint32_t output;
  /**
   * A `tegra_hcq_form`.
   */
  uint32_t form;
  /**
   * A `tegra_hcq_precision`; for other elements than floats without effect.
   */
  uint32_t precision;
  /**
   * 1 to add the product to the elements that `out` has, 0 to replace them.
   */
  uint32_t accumulate;
  /**
   * Factor of the sums, in most cases 1.
   */
  float scale;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * Number of products, in most cases 1.
   */
  uint64_t batch;
  /**
   * Rows of `a` and of the result.
   */
  uint64_t m;
  /**
   * Columns of `b` and of the result.
   */
  uint64_t n;
  /**
   * Length of the sums, at least 1.
   */
  uint64_t k;
} tegra_hcq_product;

/**
 * A kernel argument. The functions `tegra_hcq_arg_buffer`, `tegra_hcq_arg_f32` and so on make them.
 */
typedef struct tegra_hcq_arg {
  /**
   * A `tegra_hcq_arg_kind`.
   */
  uint32_t kind;
  /**
   * Size in bytes; 8 for a buffer.
   */
  uint32_t size;
  /**
   * Handle, number or address.
   */
  uint64_t value;
  /**
   * Offset in the buffer, in bytes.
   */
  uint64_t offset;
} tegra_hcq_arg;

/**
 * A function that ends a wait of its thread by returning a value other than 0. `user` is the pointer given with the
 * function. It must not unwind. It may call functions of this library; on objects that the interrupted call uses they
 * return TEGRA_HCQ_STATUS_BUSY.
 */
typedef int32_t (*tegra_hcq_interrupt_callback)(void *user);

/**
 * A function that receives the events of the library, from any thread: level (1 error, 2 warning, 3 information,
 * 4 debug, 5 trace), module, text, and the pointer given with the function. The strings are valid during the call. The
 * function must not call functions of this library and must not unwind.
 */
typedef void (*tegra_hcq_log_callback)(uint32_t level,
                                       const char *module,
                                       const char *text,
                                       void *user);

/**
 * An operation in a profile. Times are nanoseconds since the UNIX epoch. Set `struct_size` before the call.
 */
typedef struct tegra_hcq_span {
  /**
   * Size of this struct, set by the caller. Fields beyond it are not written.
   */
  uint32_t struct_size;
  /**
   * A `tegra_hcq_work`.
   */
  uint32_t work;
  /**
   * Name of the kernel, or "copy", "fill", "graph of 3 steps". Valid until the profile is freed.
   */
  const char *name;
  /**
   * CPU time of the call.
   */
  uint64_t called_ns;
  /**
   * CPU time just before the doorbell.
   */
  uint64_t submitted_ns;
  /**
   * GPU time at the start.
   */
  uint64_t start_ns;
  /**
   * GPU time at the end.
   */
  uint64_t end_ns;
  /**
   * Size of a copy or fill in bytes, else 0.
   */
  uint64_t bytes;
  /**
   * Grid of a launch, else zeros.
   */
  struct tegra_hcq_dim3 grid;
  /**
   * Block of a launch, else zeros.
   */
  struct tegra_hcq_dim3 block;
  /**
   * Number of the queue.
   */
  uint32_t queue;
  /**
   * Index of the step of a graph, -1 for an operation of its own.
   */
  int32_t step;
} tegra_hcq_span;

/**
 * Resources of a kernel. Set `struct_size` to the size of the struct before the call.
 */
typedef struct tegra_hcq_kernel_attributes {
  /**
   * Size of this struct, set by the caller. Fields beyond it are not written.
   */
  uint32_t struct_size;
  /**
   * Registers of a thread.
   */
  uint32_t registers;
  /**
   * Static shared memory of a block in bytes.
   */
  uint32_t static_shared_bytes;
  /**
   * Largest dynamic shared memory of a block in bytes.
   */
  uint32_t max_dynamic_shared_bytes;
  /**
   * Local memory of a thread in bytes.
   */
  uint32_t local_bytes;
  /**
   * Largest number of threads of a block.
   */
  uint32_t max_threads;
} tegra_hcq_kernel_attributes;

/**
 * Options of a queue. Set `struct_size` to the size of the struct and the other fields to 0 for the defaults.
 */
typedef struct tegra_hcq_queue_options {
  /**
   * Size of this struct.
   */
  uint32_t struct_size;
  /**
   * 1: threads that wait sleep on an interrupt soon; 0: they poll, which is faster by microseconds.
   */
  uint32_t sleep;
  /**
   * 1: the queue holds its engine while it waits for a signal.
   */
  uint32_t hold;
} tegra_hcq_queue_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Allocates `bytes` bytes, aligned to 256, for a `tegra_hcq_purpose`. The contents are unspecified. `*out` is set only
 * on success. Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_OUT_OF_MEMORY if there is not enough memory.
 *
 * Preconditions:
 *
 * `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_buffer_alloc(struct tegra_hcq_device *device,
                                        uint64_t bytes,
                                        uint32_t purpose,
                                        struct tegra_hcq_buffer **out);

/**
 * Maps `bytes` bytes of the process for the GPU in place, without a copy. `memory` must begin a page and stay mapped
 * and writable until the buffer is freed and the work that uses it has ended. The GPU can also access the rest of the
 * last page. `*out` is set only on success. Thread-safe.
 *
 * Preconditions:
 *
 * `memory` is as described. `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_buffer_import(struct tegra_hcq_device *device,
                                         void *memory,
                                         uint64_t bytes,
                                         struct tegra_hcq_buffer **out);

/**
 * Frees a buffer. Its memory is freed after the work that uses it has ended. Thread-safe.
 */
tegra_hcq_status tegra_hcq_buffer_free(struct tegra_hcq_buffer *buffer);

/**
 * Size of a buffer in bytes. Thread-safe.
 *
 * Preconditions:
 *
 * `bytes` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_buffer_size(struct tegra_hcq_buffer *buffer, uint64_t *bytes);

/**
 * Address of a buffer on the GPU, for structs and arrays of pointers. The library does not know work that reaches the
 * buffer by its address: keep the buffer until such work has ended. Thread-safe.
 *
 * Preconditions:
 *
 * `address` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_buffer_gpu_address(struct tegra_hcq_buffer *buffer,
                                              uint64_t *address);

/**
 * Address of a buffer on the CPU, valid until the buffer is freed. Accesses through it are not synchronised with the
 * GPU: call `tegra_hcq_buffer_wait` before, and let them end before the next launch that uses the buffer. Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_UNSUPPORTED for memory of a GPU that the CPU does not see: use `tegra_hcq_buffer_read` and
 * `tegra_hcq_buffer_write`.
 *
 * Preconditions:
 *
 * `address` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_buffer_cpu_address(struct tegra_hcq_buffer *buffer,
                                              void **address);

/**
 * Gives a buffer a name for fault reports. Thread-safe.
 *
 * Preconditions:
 *
 * `name` is NULL or a string that ends with a zero byte.
 */
tegra_hcq_status tegra_hcq_buffer_set_name(struct tegra_hcq_buffer *buffer, const char *name);

/**
 * Waits for the work that uses a buffer, at most `timeout_ns` nanoseconds. Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_BUSY if such work has been launched but not submitted.
 */
tegra_hcq_status tegra_hcq_buffer_wait(struct tegra_hcq_buffer *buffer, uint64_t timeout_ns);

/**
 * Waits for the work that uses a buffer, at most 30 s, then copies `bytes` bytes of the process to it, from `offset`
 * on. Thread-safe, but two threads that write the same bytes race.
 *
 * Preconditions:
 *
 * `source` is valid for reads of `bytes` bytes.
 */
tegra_hcq_status tegra_hcq_buffer_write(struct tegra_hcq_buffer *buffer,
                                        uint64_t offset,
                                        const void *source,
                                        uint64_t bytes);

/**
 * Waits for the work that uses a buffer, at most 30 s, then copies `bytes` bytes of it, from `offset` on, to the
 * process. Thread-safe.
 *
 * Preconditions:
 *
 * `target` is valid for writes of `bytes` bytes.
 */
tegra_hcq_status tegra_hcq_buffer_read(struct tegra_hcq_buffer *buffer,
                                       uint64_t offset,
                                       void *target,
                                       uint64_t bytes);

/**
 * Sets the calls that findings of the checks (`docs/check.md`) show for what this thread allocates, frees and
 * launches from now on, innermost first, for example "main at program.py:12". Without calls, they are those of the
 * native stack, and none for launches. For languages whose calls are not on it. Thread-safe; each thread has its own.
 *
 * Returns TEGRA_HCQ_STATUS_UNSUPPORTED in a library without the software Orin.
 *
 * Preconditions:
 *
 * `calls` is valid for `count` reads of strings that end with a zero byte.
 */
tegra_hcq_status tegra_hcq_set_calls(const char *const *calls,
                                     size_t count);

/**
 * Opens a GPU. `kind` is "auto", "nvgpu" (an Orin), "nvrm" (NVIDIA's desktop driver) or "sim" (the software Orin);
 * NULL is "auto", which takes the first of these that exists. `index` chooses among several GPUs; each software Orin,
 * of which there are 16, is a board of its own. `*out` is set only on success. Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_DEVICE if the device, the permission or a feature of its driver is missing (the text names
 * the remedy), TEGRA_HCQ_STATUS_UNSUPPORTED if this build of the library has no such driver.
 *
 * Preconditions:
 *
 * `kind` is NULL or a string that ends with a zero byte. `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_device_open(const char *kind,
                                       uint32_t index,
                                       struct tegra_hcq_device **out);

/**
 * Closes a device with all its buffers, programs, queues and other objects, whose handles become invalid. Waits for
 * submitted work to end, at most 30 s. Thread-safe; calls of other threads on its objects end first or fail.
 */
tegra_hcq_status tegra_hcq_device_close(struct tegra_hcq_device *device);

/**
 * Fills `*properties`, whose `struct_size` the caller has set. Thread-safe.
 *
 * Preconditions:
 *
 * `properties` is NULL or valid for reads and writes of `struct_size` bytes.
 */
tegra_hcq_status tegra_hcq_device_properties(struct tegra_hcq_device *device,
                                             struct tegra_hcq_properties *properties);

/**
 * Total and free memory of the machine or GPU, in bytes. Free is what allocations can get now. Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_UNSUPPORTED if the driver does not report it.
 *
 * Preconditions:
 *
 * `total` and `free` are NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_device_memory(struct tegra_hcq_device *device,
                                         uint64_t *total,
                                         uint64_t *free);

/**
 * The current time by the GPU's clock, and by the system's as nanoseconds since the UNIX epoch. Thread-safe.
 *
 * Preconditions:
 *
 * `gpu_ns` and `unix_ns` are NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_device_clocks(struct tegra_hcq_device *device,
                                         uint64_t *gpu_ns,
                                         uint64_t *unix_ns);

/**
 * Stops all queues that have faulted, or on which a wait has timed out. Their unfinished work is lost; its fences
 * keep reporting the cause. Buffers, programs and the queues themselves remain valid. `*faults` and `*hanging`, if not
 * NULL, are set to the number of queues stopped for either reason. Thread-safe.
 *
 * Preconditions:
 *
 * `faults` and `hanging` are NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_device_recover(struct tegra_hcq_device *device,
                                          uint32_t *faults,
                                          uint32_t *hanging);

/**
 * Returns idle memory of the device's allocator to the system. If `released` is not NULL, `*released` receives its
 * size in bytes. Thread-safe.
 *
 * Preconditions:
 *
 * `released` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_device_trim(struct tegra_hcq_device *device,
                                       uint64_t *released);

/**
 * Passes what kernels print to a function instead of the process's standard streams; NULL passes it to those again.
 * Output arrives before a wait for the device returns, and before the device is closed. When this call returns, the
 * earlier function is not called any more. Thread-safe, but not to be called by the function.
 *
 * Preconditions:
 *
 * Any thread may call `callback` with `user` until it is replaced or the device is closed.
 */
tegra_hcq_status tegra_hcq_device_set_output(struct tegra_hcq_device *device,
                                             tegra_hcq_output_callback callback,
                                             void *user);

/**
 * Size in bytes of the buffer for what kernels print between two waits. Initially 1 MiB. Thread-safe.
 *
 * Preconditions:
 *
 * `bytes` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_device_printf_bytes(struct tegra_hcq_device *device,
                                               uint64_t *bytes);

/**
 * Sets the size of the buffer for what kernels print, in bytes; it is rounded up to a power of two, at least 4 KiB.
 * While the buffer is full, `printf` returns -1. Each change keeps the old buffer until the device is closed.
 * Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_INVALID_ARGUMENT for more than 4 GiB, TEGRA_HCQ_STATUS_OUT_OF_MEMORY.
 */
tegra_hcq_status tegra_hcq_device_set_printf_bytes(struct tegra_hcq_device *device,
                                                   uint64_t bytes);

/**
 * Size in bytes of the heap for `malloc` in kernels. Initially 8 MiB. Thread-safe.
 *
 * Preconditions:
 *
 * `bytes` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_device_kernel_heap_bytes(struct tegra_hcq_device *device,
                                                    uint64_t *bytes);

/**
 * Sets the size of the heap for `malloc` in kernels, in bytes; it is rounded down to pages of 4 KiB. No kernel may run
 * that calls `malloc`: memory that it gets meanwhile cannot be freed. Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_INVALID_ARGUMENT for more than 4 GiB, and if kernels have not freed all memory of the
 * present heap; TEGRA_HCQ_STATUS_OUT_OF_MEMORY.
 */
tegra_hcq_status tegra_hcq_device_set_kernel_heap_bytes(struct tegra_hcq_device *device,
                                                        uint64_t bytes);

/**
 * Fills `*fault`, whose `struct_size` the caller has set, with the fault of this thread's last failed call.
 * Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_NOT_FOUND, and leaves the last error as it is, if that call has not returned
 * TEGRA_HCQ_STATUS_FAULT.
 *
 * Preconditions:
 *
 * `fault` is NULL or valid for reads and writes of `struct_size` bytes.
 */
tegra_hcq_status tegra_hcq_last_fault(struct tegra_hcq_fault *fault);

/**
 * Waits until a submission has ended, at most `timeout_ns` nanoseconds. Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_FAULT if the GPU stopped it, TEGRA_HCQ_STATUS_TIMEOUT if it has not ended; it may still end
 * later.
 */
tegra_hcq_status tegra_hcq_fence_wait(struct tegra_hcq_fence *fence,
                                      uint64_t timeout_ns);

/**
 * Sets `*done` to whether a submission has ended, successfully or not: `tegra_hcq_fence_wait` returns the outcome
 * without waiting. Thread-safe.
 *
 * Preconditions:
 *
 * `done` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_fence_poll(struct tegra_hcq_fence *fence,
                                      bool *done);

/**
 * Creates an eventfd that becomes readable when a submission has ended, faulted, or not ended within `timeout_ns`
 * nanoseconds; then call `tegra_hcq_fence_wait` with time-out 0 for the outcome. For poll, epoll and event loops. The
 * caller closes the descriptor. Nothing is written to it after the fence is freed. Thread-safe.
 *
 * Preconditions:
 *
 * `descriptor` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_fence_eventfd(struct tegra_hcq_fence *fence,
                                         uint64_t timeout_ns,
                                         int32_t *descriptor);

/**
 * Frees a fence. The work goes on. Thread-safe.
 */
tegra_hcq_status tegra_hcq_fence_free(struct tegra_hcq_fence *fence);

/**
 * Allocates `bytes` zeroed bytes that other processes and drivers can map, through `tegra_hcq_buffer_export`. `*out`
 * is set only on success. Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_OUT_OF_MEMORY if there is not enough memory.
 *
 * Preconditions:
 *
 * `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_buffer_alloc_shared(struct tegra_hcq_device *device,
                                               uint64_t bytes,
                                               struct tegra_hcq_buffer **out);

/**
 * Maps all of the memory behind a file for the GPU, without a copy: one that `tegra_hcq_buffer_export` of any process
 * has returned, or on a Jetson a dma-buf of any driver (a camera, a display, a dma-heap, udmabuf, NvBufSurface). `fd`
 * stays the caller's and may be closed afterwards. The same memory is mapped once. Without `writable`, kernels that
 * write it stop with a fault, and copies to it are refused. `*out` is set only on success. Thread-safe.
 *
 * Nothing orders the accesses of other owners: see `tegra_hcq_queue_wait_file`.
 *
 * Preconditions:
 *
 * `fd` is an open descriptor, or negative, which is refused. `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_buffer_import_file(struct tegra_hcq_device *device,
                                              int32_t fd,
                                              bool writable,
                                              struct tegra_hcq_buffer **out);

/**
 * A file of the memory of a buffer of `tegra_hcq_buffer_alloc_shared` or `tegra_hcq_buffer_import_file`, for other
 * owners: send it over a Unix socket. `*fd` is the caller's to close, is closed on exec, and set only on success. The
 * memory lives as long as any buffer or file of it. Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_UNSUPPORTED for every other buffer, and if the driver cannot restrict the file to reading.
 *
 * Preconditions:
 *
 * `fd` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_buffer_export(struct tegra_hcq_buffer *buffer,
                                         bool writable,
                                         int32_t *fd);

/**
 * Tells the driver that made shared memory that accesses of the CPU through `tegra_hcq_buffer_cpu_address` begin, so
 * that the CPU sees what devices have written. Other memory needs no such call. Thread-safe.
 */
tegra_hcq_status tegra_hcq_buffer_begin_cpu(struct tegra_hcq_buffer *buffer,
                                            bool writable);

/**
 * Tells the driver that the accesses of `tegra_hcq_buffer_begin_cpu` have ended, so that devices see what the CPU has
 * written. Thread-safe.
 */
tegra_hcq_status tegra_hcq_buffer_end_cpu(struct tegra_hcq_buffer *buffer,
                                          bool writable);

/**
 * Makes later work of a queue wait on the GPU until a fence as a file has signalled: a sync-file of a camera, a
 * display, a video engine, or of `tegra_hcq_queue_submit_to_file` of any process. `fd` stays the caller's and may be
 * closed afterwards. If the fence has signalled, nothing is waited for.
 *
 * Returns TEGRA_HCQ_STATUS_UNSUPPORTED if the driver has no fences as files; an error if the file is no sync-file, or
 * has a fence that the GPU cannot wait for: then wait on the CPU, with poll().
 *
 * Preconditions:
 *
 * `fd` is an open descriptor, or negative, which is refused.
 */
tegra_hcq_status tegra_hcq_queue_wait_file(struct tegra_hcq_queue *queue,
                                           int32_t fd);

/**
 * Submits what was added to a queue, and returns a file that signals when all of the queue's work so far has ended:
 * other drivers and processes wait for it, and poll() reports it readable. The kernel gives a wait by poll() 30 s from
 * the first on; then the file signals an error. `*fd` is the caller's to close, is closed on exec, and set only on
 * success.
 *
 * Returns TEGRA_HCQ_STATUS_UNSUPPORTED if the driver has no fences as files.
 *
 * Preconditions:
 *
 * `fd` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_queue_submit_to_file(struct tegra_hcq_queue *queue,
                                                int32_t *fd);

/**
 * Loads the kernels for products of matrices. `*out` is set only on success. Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_UNSUPPORTED if the library was built without them.
 *
 * Preconditions:
 *
 * `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_gemm_load(struct tegra_hcq_device *device, struct tegra_hcq_gemm **out);

/**
 * Frees the kernels. Work that was launched with them goes on. Thread-safe.
 */
tegra_hcq_status tegra_hcq_gemm_free(struct tegra_hcq_gemm *gemm);

/**
 * Adds a product of matrices. It runs after all earlier work of the queue, once submitted. `operands` are arguments of
 * kind buffer: `a`, `b`, `out` and, if `operand_count` is 4, a bias of `n` floats that is added to each row; `out`
 * overlaps none of the others. Sums are in 32-bit floats, in a fixed order: the same factors give the same bits. Rows
 * that begin at multiples of 16 bytes are fastest. Thread-safe; calls on one queue run one after the other.
 *
 * Preconditions:
 *
 * `product` is NULL or valid for reads of its `struct_size` bytes, `operands` for `operand_count` reads. As for
 * `tegra_hcq_queue_copy`, for each operand.
 */
tegra_hcq_status tegra_hcq_queue_multiply(struct tegra_hcq_queue *queue,
                                          struct tegra_hcq_gemm *gemm,
                                          const struct tegra_hcq_product *product,
                                          const struct tegra_hcq_arg *operands,
                                          size_t operand_count);

/**
 * Records a product of matrices, as `tegra_hcq_queue_multiply` adds it. If `node` is not NULL, `*node` receives the
 * number of the step, whose arguments cannot be changed. Thread-safe.
 *
 * Preconditions:
 *
 * As for `tegra_hcq_queue_multiply`, for every replay. `node` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_graph_multiply(struct tegra_hcq_graph_builder *builder,
                                          struct tegra_hcq_gemm *gemm,
                                          const struct tegra_hcq_product *product,
                                          const struct tegra_hcq_arg *operands,
                                          size_t operand_count,
                                          uint32_t *node);

/**
 * Begins the recording of a graph. `*out` is set only on success. Thread-safe.
 *
 * Preconditions:
 *
 * `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_graph_begin(struct tegra_hcq_device *device,
                                       struct tegra_hcq_graph_builder **out);

/**
 * Sets how many replays of the graph may be in flight before the next one waits: 1 to 64, default 4. Thread-safe.
 */
tegra_hcq_status tegra_hcq_graph_set_instances(struct tegra_hcq_graph_builder *builder,
                                               size_t count);

/**
 * Records a launch. If `node` is not NULL, `*node` receives the number of the step. The graph keeps its buffers alive.
 * Thread-safe.
 *
 * Preconditions:
 *
 * As for `tegra_hcq_queue_launch`, for every replay. `node` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_graph_launch(struct tegra_hcq_graph_builder *builder,
                                        struct tegra_hcq_kernel *kernel,
                                        struct tegra_hcq_dim3 grid,
                                        struct tegra_hcq_dim3 block,
                                        uint32_t shared_bytes,
                                        const struct tegra_hcq_arg *args,
                                        size_t arg_count,
                                        uint32_t *node);

/**
 * Records a copy between buffers, or between two parts of one buffer that do not overlap. Thread-safe.
 *
 * Preconditions:
 *
 * As for `tegra_hcq_queue_copy`, for every replay. `node` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_graph_copy(struct tegra_hcq_graph_builder *builder,
                                      struct tegra_hcq_buffer *target,
                                      uint64_t target_offset,
                                      struct tegra_hcq_buffer *source,
                                      uint64_t source_offset,
                                      uint64_t bytes,
                                      uint32_t *node);

/**
 * Records a fill, as `tegra_hcq_queue_fill`. Thread-safe.
 *
 * Preconditions:
 *
 * As for `tegra_hcq_queue_fill`, for every replay. `node` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_graph_fill(struct tegra_hcq_graph_builder *builder,
                                      struct tegra_hcq_buffer *target,
                                      uint64_t offset,
                                      uint64_t bytes,
                                      uint32_t value,
                                      uint32_t width,
                                      uint32_t *node);

/**
 * Ends the recording. The builder's handle becomes invalid if the call succeeds; `*out` is set only then. Thread-safe.
 *
 * Preconditions:
 *
 * `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_graph_build(struct tegra_hcq_graph_builder *builder,
                                       struct tegra_hcq_graph **out);

/**
 * Drops a recording that was not built. Thread-safe.
 */
tegra_hcq_status tegra_hcq_graph_abandon(struct tegra_hcq_graph_builder *builder);

/**
 * Replaces argument `index` of launch `node` from the next replay on. Thread-safe.
 *
 * Preconditions:
 *
 * As for `tegra_hcq_graph_launch`. `arg` is NULL or valid for a read.
 */
tegra_hcq_status tegra_hcq_graph_set_argument(struct tegra_hcq_graph *graph,
                                              uint32_t node,
                                              size_t index,
                                              const struct tegra_hcq_arg *arg);

/**
 * Replaces grid and block of launch `node` from the next replay on. Thread-safe.
 *
 * Preconditions:
 *
 * As for `tegra_hcq_graph_launch`.
 */
tegra_hcq_status tegra_hcq_graph_set_size(struct tegra_hcq_graph *graph,
                                          uint32_t node,
                                          struct tegra_hcq_dim3 grid,
                                          struct tegra_hcq_dim3 block);

/**
 * Replaces source and target of copy `node` from the next replay on. Thread-safe.
 *
 * Preconditions:
 *
 * As for `tegra_hcq_graph_copy`.
 */
tegra_hcq_status tegra_hcq_graph_set_copy(struct tegra_hcq_graph *graph,
                                          uint32_t node,
                                          struct tegra_hcq_buffer *target,
                                          uint64_t target_offset,
                                          struct tegra_hcq_buffer *source,
                                          uint64_t source_offset,
                                          uint64_t bytes);

/**
 * Submits a graph to run after all earlier work of the queue. If `fence` is not NULL, `*fence` receives a fence for
 * the replay. Thread-safe; calls on one queue or graph run one after the other.
 *
 * Preconditions:
 *
 * `fence` is NULL or valid for a write. The promises of the recording hold for this replay.
 */
tegra_hcq_status tegra_hcq_queue_replay(struct tegra_hcq_queue *queue,
                                        struct tegra_hcq_graph *graph,
                                        struct tegra_hcq_fence **fence);

/**
 * Number of steps of a graph. Thread-safe.
 *
 * Preconditions:
 *
 * `count` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_graph_len(struct tegra_hcq_graph *graph, size_t *count);

/**
 * Frees a graph after its replays have ended. Thread-safe.
 */
tegra_hcq_status tegra_hcq_graph_free(struct tegra_hcq_graph *graph);

/**
 * Sets the function that waits of this thread call every 20 ms; NULL removes it. Once it returns a value other than 0,
 * the wait fails with TEGRA_HCQ_STATUS_INTERRUPTED. The work of an interrupted wait counts as hanging until it has
 * ended: `tegra_hcq_queue_close` and `tegra_hcq_device_close` do not wait for it, and `tegra_hcq_device_recover` stops
 * it. Thread-safe; each thread has a function of its own.
 *
 * Preconditions:
 *
 * This thread may call `callback` with `user` until it is replaced or the thread ends.
 */
tegra_hcq_status tegra_hcq_set_interrupt(tegra_hcq_interrupt_callback callback,
                                         void *user);

/**
 * Passes events of the library up to `level` (0 none, 1 error, 2 warning, 3 information, 4 debug, 5 trace) to a
 * function; NULL stops that. Applies to the whole process. When the call returns, the earlier function is not called
 * any more. Thread-safe, but not to be called by the function.
 *
 * Returns TEGRA_HCQ_STATUS_BUSY if a Rust program in this process has its own subscriber.
 *
 * Preconditions:
 *
 * Any thread may call `callback` with `user` until it is replaced.
 */
tegra_hcq_status tegra_hcq_set_log(uint32_t level,
                                   tegra_hcq_log_callback callback,
                                   void *user);

/**
 * Number of operations in a profile. Thread-safe.
 *
 * Preconditions:
 *
 * `count` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_profile_span_count(struct tegra_hcq_profile *profile, size_t *count);

/**
 * Fills `*span`, whose `struct_size` the caller has set, with operation `index`. Thread-safe.
 *
 * Preconditions:
 *
 * `span` is NULL or valid for reads and writes of `struct_size` bytes.
 */
tegra_hcq_status tegra_hcq_profile_span(struct tegra_hcq_profile *profile,
                                        size_t index,
                                        struct tegra_hcq_span *span);

/**
 * The profile as a table for people: lines of UTF-8. `*text` is valid until the profile is freed. Thread-safe.
 *
 * Preconditions:
 *
 * `text` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_profile_table(struct tegra_hcq_profile *profile,
                                         const char **text);

/**
 * Writes the profile to a file that Perfetto and Chrome open. Thread-safe.
 *
 * Preconditions:
 *
 * `path` is NULL or a string that ends with a zero byte.
 */
tegra_hcq_status tegra_hcq_profile_write_trace(struct tegra_hcq_profile *profile, const char *path);

/**
 * Frees a profile. Thread-safe.
 */
tegra_hcq_status tegra_hcq_profile_free(struct tegra_hcq_profile *profile);

/**
 * Loads a cubin, the machine code of kernels for the device's SM version. The bytes are not needed after the call.
 * `*out` is set only on success. Thread-safe.
 *
 * Preconditions:
 *
 * `cubin` is valid for reads of `bytes` bytes. `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_program_load(struct tegra_hcq_device *device,
                                        const void *cubin,
                                        uint64_t bytes,
                                        struct tegra_hcq_program **out);

/**
 * Compiles CUDA C++ with NVIDIA's NVRTC, where it is installed, and loads the result. `name` stands for the file in
 * error messages; NULL is "program.cu". `options` are those of nvcc and NVRTC, for example "-I/opt/include" and
 * "-DN=4". Results are cached on disk. `*out` is set only on success. Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_COMPILATION with the compiler's log, or TEGRA_HCQ_STATUS_LIBRARY_MISSING.
 *
 * Preconditions:
 *
 * `source`, `name` and the options are strings that end with a zero byte; `options` is valid for `option_count`
 * pointers. `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_program_compile(struct tegra_hcq_device *device,
                                           const char *source,
                                           const char *name,
                                           const char *const *options,
                                           size_t option_count,
                                           struct tegra_hcq_program **out);

/**
 * Compiles PTX with NVIDIA's nvJitLink or ptxas, where one is installed, and loads the result. `options` are
 * nvJitLink's, for example "-O3". `*out` is set only on success. Thread-safe.
 *
 * Returns as `tegra_hcq_program_compile`.
 *
 * Preconditions:
 *
 * As for `tegra_hcq_program_compile`.
 */
tegra_hcq_status tegra_hcq_program_compile_ptx(struct tegra_hcq_device *device,
                                               const char *ptx,
                                               const char *const *options,
                                               size_t option_count,
                                               struct tegra_hcq_program **out);

/**
 * Frees a program. Its kernels stay usable, and its memory stays, until they are freed and their work has ended.
 * Thread-safe.
 */
tegra_hcq_status tegra_hcq_program_free(struct tegra_hcq_program *program);

/**
 * Number of kernels of a program. Thread-safe.
 *
 * Preconditions:
 *
 * `count` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_program_kernel_count(struct tegra_hcq_program *program, size_t *count);

/**
 * Name of kernel `index` of a program, in the order of the file. `*name` is valid until the program is freed.
 * Thread-safe.
 *
 * Preconditions:
 *
 * `name` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_program_kernel_name(struct tegra_hcq_program *program,
                                               size_t index,
                                               const char **name);

/**
 * Finds a kernel by its name in the cubin: mangled for C++ unless it is `extern "C"`. `*out` is set only on success.
 * Thread-safe.
 *
 * Returns TEGRA_HCQ_STATUS_NOT_FOUND if there is none; the text lists the existing ones.
 *
 * Preconditions:
 *
 * `name` is NULL or a string that ends with a zero byte. `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_program_kernel(struct tegra_hcq_program *program,
                                          const char *name,
                                          struct tegra_hcq_kernel **out);

/**
 * Frees a kernel. Launches that use it are not affected. Thread-safe.
 */
tegra_hcq_status tegra_hcq_kernel_free(struct tegra_hcq_kernel *kernel);

/**
 * Name of a kernel. `*name` is valid until the kernel is freed. Thread-safe.
 *
 * Preconditions:
 *
 * `name` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_kernel_name(struct tegra_hcq_kernel *kernel, const char **name);

/**
 * Sizes of a kernel's parameters in bytes, in order. `*count` is set to their number; at most `capacity` sizes are
 * written to `sizes`, which may be NULL if `capacity` is 0. Thread-safe.
 *
 * Preconditions:
 *
 * `sizes` is valid for `capacity` writes. `count` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_kernel_parameters(struct tegra_hcq_kernel *kernel,
                                             uint32_t *sizes,
                                             size_t capacity,
                                             size_t *count);

/**
 * Fills `*attributes`, whose `struct_size` the caller has set. Thread-safe.
 *
 * Preconditions:
 *
 * `attributes` is NULL or valid for reads and writes of `struct_size` bytes.
 */
tegra_hcq_status tegra_hcq_kernel_get_attributes(struct tegra_hcq_kernel *kernel,
                                                 struct tegra_hcq_kernel_attributes *attributes);

/**
 * Waits for the launches of a program, then reads its `__device__` or `__constant__` variable `name` of exactly
 * `bytes` bytes. Thread-safe.
 *
 * Preconditions:
 *
 * `name` is a string that ends with a zero byte; `target` is valid for writes of `bytes` bytes.
 */
tegra_hcq_status tegra_hcq_program_read_variable(struct tegra_hcq_program *program,
                                                 const char *name,
                                                 void *target,
                                                 uint64_t bytes);

/**
 * Waits for the launches of a program, then writes its `__device__` or `__constant__` variable `name` of exactly
 * `bytes` bytes. Thread-safe.
 *
 * Preconditions:
 *
 * `name` is a string that ends with a zero byte; `source` is valid for reads of `bytes` bytes.
 */
tegra_hcq_status tegra_hcq_program_write_variable(struct tegra_hcq_program *program,
                                                  const char *name,
                                                  const void *source,
                                                  uint64_t bytes);

/**
 * Opens a queue. `options` is NULL for the defaults. `*out` is set only on success. Thread-safe.
 *
 * Preconditions:
 *
 * `options` is NULL or valid for reads of its `struct_size` bytes. `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_queue_open(struct tegra_hcq_device *device,
                                      const struct tegra_hcq_queue_options *options,
                                      struct tegra_hcq_queue **out);

/**
 * Closes a queue after its submitted work has ended; work that was not submitted is dropped. Thread-safe.
 */
tegra_hcq_status tegra_hcq_queue_close(struct tegra_hcq_queue *queue);

/**
 * Adds a launch of `grid` blocks of `block` threads, with `shared_bytes` of dynamic shared memory per block. It runs
 * after all earlier work of the queue, once submitted. Number and sizes of the arguments are checked against the
 * kernel's parameters. The work keeps its buffers. Thread-safe; calls on one queue run one after the other.
 *
 * Preconditions:
 *
 * `args` is valid for `arg_count` reads, and addresses in it for theirs. The kernel accesses only the buffers among
 * the arguments, the variables of its program, and memory that stays allocated until the work has ended; the CPU
 * accesses none of them meanwhile.
 */
tegra_hcq_status tegra_hcq_queue_launch(struct tegra_hcq_queue *queue,
                                        struct tegra_hcq_kernel *kernel,
                                        struct tegra_hcq_dim3 grid,
                                        struct tegra_hcq_dim3 block,
                                        uint32_t shared_bytes,
                                        const struct tegra_hcq_arg *args,
                                        size_t arg_count);

/**
 * Adds a copy of `bytes` bytes between buffers of the queue's device, or between two parts of one buffer that do not
 * overlap. Thread-safe; calls on one queue run one after the other.
 *
 * Preconditions:
 *
 * Until the copy has ended, the CPU does not access the target, and does not write the source, by their addresses.
 */
tegra_hcq_status tegra_hcq_queue_copy(struct tegra_hcq_queue *queue,
                                      struct tegra_hcq_buffer *target,
                                      uint64_t target_offset,
                                      struct tegra_hcq_buffer *source,
                                      uint64_t source_offset,
                                      uint64_t bytes);

/**
 * Adds a fill of `bytes` bytes of a buffer with a value of `width` 1 or 4 bytes. A width of 4 demands an offset and a
 * size that are multiples of 4. Thread-safe; calls on one queue run one after the other.
 *
 * Preconditions:
 *
 * As for `tegra_hcq_queue_copy`.
 */
tegra_hcq_status tegra_hcq_queue_fill(struct tegra_hcq_queue *queue,
                                      struct tegra_hcq_buffer *target,
                                      uint64_t offset,
                                      uint64_t bytes,
                                      uint32_t value,
                                      uint32_t width);

/**
 * Copies `bytes` bytes of the process to a buffer in the order of the queue, and submits. The bytes are not needed
 * after the call. If `fence` is not NULL, `*fence` receives a fence for the copy. Thread-safe; calls on one queue run
 * one after the other.
 *
 * Preconditions:
 *
 * `source` is valid for reads of `bytes` bytes. As for `tegra_hcq_queue_copy`. `fence` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_queue_upload(struct tegra_hcq_queue *queue,
                                        struct tegra_hcq_buffer *target,
                                        uint64_t offset,
                                        const void *source,
                                        uint64_t bytes,
                                        struct tegra_hcq_fence **fence);

/**
 * Submits all work added so far. If `fence` is not NULL, `*fence` receives a fence for it. Thread-safe; calls on one
 * queue run one after the other.
 *
 * Preconditions:
 *
 * `fence` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_queue_submit(struct tegra_hcq_queue *queue,
                                        struct tegra_hcq_fence **fence);

/**
 * Submits all work added so far and waits until the queue's work has ended, at most `timeout_ns` nanoseconds.
 * Thread-safe; other threads may use the queue during the wait.
 */
tegra_hcq_status tegra_hcq_queue_wait(struct tegra_hcq_queue *queue,
                                      uint64_t timeout_ns);

/**
 * Makes the queue wait on the GPU until a submission of another queue of its device has ended. Thread-safe; calls on
 * one queue run one after the other.
 */
tegra_hcq_status tegra_hcq_queue_wait_fence(struct tegra_hcq_queue *queue,
                                            struct tegra_hcq_fence *fence);

/**
 * Makes the queue wait on the GPU until a signal is at least `value`. Thread-safe; calls on one queue run one after
 * the other.
 */
tegra_hcq_status tegra_hcq_queue_wait_signal(struct tegra_hcq_queue *queue,
                                             struct tegra_hcq_signal *signal,
                                             uint64_t value);

/**
 * Sets a signal's value and time on the GPU after all earlier work of the queue. Thread-safe; calls on one queue run
 * one after the other.
 */
tegra_hcq_status tegra_hcq_queue_signal(struct tegra_hcq_queue *queue,
                                        struct tegra_hcq_signal *signal,
                                        uint64_t value);

/**
 * Makes writes by the CPU and other queues visible to later work of the queue, and the other way round. Needed only
 * if work is connected by other means than submissions, fences and signals. Thread-safe; calls on one queue run one
 * after the other.
 */
tegra_hcq_status tegra_hcq_queue_memory_barrier(struct tegra_hcq_queue *queue);

/**
 * Starts or stops recording the times of the queue's operations. Thread-safe; calls on one queue run one after the
 * other.
 */
tegra_hcq_status tegra_hcq_queue_profile(struct tegra_hcq_queue *queue,
                                         bool enabled);

/**
 * Submits, waits until the queue's work has ended, at most 30 s, and takes what was recorded. `*out` is set only on
 * success. Thread-safe; calls on one queue run one after the other.
 *
 * Preconditions:
 *
 * `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_queue_take_profile(struct tegra_hcq_queue *queue,
                                              struct tegra_hcq_profile **out);

/**
 * Names the calls on the queue until `tegra_hcq_queue_end_span`, for its profile. Spans may be nested. Thread-safe;
 * calls on one queue run one after the other.
 *
 * Preconditions:
 *
 * `name` is NULL or a string that ends with a zero byte.
 */
tegra_hcq_status tegra_hcq_queue_begin_span(struct tegra_hcq_queue *queue,
                                            const char *name);

/**
 * Ends the innermost span of the queue. Thread-safe; calls on one queue run one after the other.
 */
tegra_hcq_status tegra_hcq_queue_end_span(struct tegra_hcq_queue *queue);

/**
 * Creates a signal with a value. `*out` is set only on success. Thread-safe.
 *
 * Preconditions:
 *
 * `out` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_signal_create(struct tegra_hcq_device *device,
                                         uint64_t value,
                                         struct tegra_hcq_signal **out);

/**
 * Frees a signal after the work that uses it has ended. Thread-safe.
 */
tegra_hcq_status tegra_hcq_signal_free(struct tegra_hcq_signal *signal);

/**
 * Sets the value. Writes that the CPU made before are visible to every waiter. Thread-safe.
 */
tegra_hcq_status tegra_hcq_signal_set(struct tegra_hcq_signal *signal, uint64_t value);

/**
 * The value. Writes that the GPU made before it set the signal are visible to the caller. Thread-safe.
 *
 * Preconditions:
 *
 * `value` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_signal_value(struct tegra_hcq_signal *signal,
                                        uint64_t *value);

/**
 * GPU time of the last release by a queue, in nanoseconds of the GPU's clock; 0 before the first. Thread-safe.
 *
 * Preconditions:
 *
 * `time_ns` is NULL or valid for a write.
 */
tegra_hcq_status tegra_hcq_signal_gpu_time(struct tegra_hcq_signal *signal,
                                           uint64_t *time_ns);

/**
 * Waits until the value is at least `value`, at most `timeout_ns` nanoseconds. Thread-safe.
 */
tegra_hcq_status tegra_hcq_signal_wait(struct tegra_hcq_signal *signal,
                                       uint64_t value,
                                       uint64_t timeout_ns);

/**
 * Text of this thread's last failed call: one or more lines of UTF-8, never NULL, empty before the first failure. It
 * is valid until the thread's next failed call. Calls that succeed do not change it. Thread-safe.
 */
const char *tegra_hcq_last_error(void);

/**
 * Name of a status, for example "invalid handle"; "unknown status" for other numbers. Never NULL, never freed.
 * Thread-safe.
 */
const char *tegra_hcq_status_name(int32_t status);

/**
 * Version of the library that the program runs with, for example "0.1.0". The string is never freed. Thread-safe.
 */
const char *tegra_hcq_version(void);

/**
 * ABI of the library that the program runs with. A program compares it with TEGRA_HCQ_ABI, which it was compiled
 * with: they must be equal. Thread-safe.
 */
uint32_t tegra_hcq_abi(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TEGRA_HCQ_H */

#ifndef TEGRA_HCQ_ARGS_H
#define TEGRA_HCQ_ARGS_H

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A pointer to byte `offset` of a buffer. */
static inline tegra_hcq_arg tegra_hcq_arg_buffer(const tegra_hcq_buffer *buffer, uint64_t offset) {
  tegra_hcq_arg arg = {TEGRA_HCQ_ARG_KIND_BUFFER, 8, (uint64_t)(uintptr_t)buffer, offset};
  return arg;
}

/** A value of 1, 2, 4 or 8 bytes. */
static inline tegra_hcq_arg tegra_hcq_arg_value(uint64_t value, uint32_t size) {
  tegra_hcq_arg arg = {TEGRA_HCQ_ARG_KIND_VALUE, size, value, 0};
  return arg;
}

/** A struct by value: `size` bytes, read during the call that gets the argument. */
static inline tegra_hcq_arg tegra_hcq_arg_bytes(const void *bytes, uint32_t size) {
  tegra_hcq_arg arg = {TEGRA_HCQ_ARG_KIND_BYTES, size, (uint64_t)(uintptr_t)bytes, 0};
  return arg;
}

/** An unsigned number of 32 bits. */
static inline tegra_hcq_arg tegra_hcq_arg_u32(uint32_t value) { return tegra_hcq_arg_value(value, 4); }

/** A signed number of 32 bits. */
static inline tegra_hcq_arg tegra_hcq_arg_i32(int32_t value) { return tegra_hcq_arg_value((uint32_t)value, 4); }

/** An unsigned number of 64 bits. */
static inline tegra_hcq_arg tegra_hcq_arg_u64(uint64_t value) { return tegra_hcq_arg_value(value, 8); }

/** A signed number of 64 bits. */
static inline tegra_hcq_arg tegra_hcq_arg_i64(int64_t value) { return tegra_hcq_arg_value((uint64_t)value, 8); }

/** A floating-point number of 32 bits. */
static inline tegra_hcq_arg tegra_hcq_arg_f32(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return tegra_hcq_arg_value(bits, 4);
}

/** A floating-point number of 64 bits. */
static inline tegra_hcq_arg tegra_hcq_arg_f64(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return tegra_hcq_arg_value(bits, 8);
}

#ifdef __cplusplus
}
#endif

#endif /* TEGRA_HCQ_ARGS_H */
