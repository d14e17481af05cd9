// Products of a warpgroup (128 threads) with factors in shared memory, and the tensor copies that bring them: SM 9.0.
//
// A factor's tile consists of parts of 128 bytes x N rows, in the order of `mma.cuh`: pieces of 16 bytes, of which piece
// `p` of row `r` is at place `p ^ (r % 8)`. Parts begin at multiples of 1,024 bytes.
#pragma once
#include "mma.cuh"

// A tensor map: see `ampere_cmd::tensor_map`.
struct alignas(64) TensorMap {
    u32 words[32];
};

// ---- Barriers in shared memory ----

static __device__ void barrier_init(u32 barrier, u32 arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

static __device__ void barrier_arrive(u32 barrier)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and makes the turn last until `bytes` more have been copied.
static __device__ void barrier_expect(u32 barrier, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Waits for the end of a turn.
static __device__ void barrier_wait(u32 barrier, u32 parity)
{
    u32 ended;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ended) : "r"(barrier), "r"(parity) : "memory");
    } while (!ended);
}

// Copies a part: from column `x` and row `y` of matrix `z` on. What lies outside is zeros.
static __device__ void copy_part(u32 to, const TensorMap& map, u32 x, u32 y, u32 z, u32 barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
                 "%4}], [%5];" ::"r"(to), "l"((u64)&map), "r"(x), "r"(y), "r"(z), "r"(barrier) : "memory");
}

// ---- Registers ----

// The registers of a thread of the warpgroup from now on. All its threads are here, and it is a branch of its own.
template <int COUNT>
static __device__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
static __device__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- Products ----

// What the tensor cores read: a part at `at`. For factors whose rows are along the sums, `next` is not used; for others
// it is the distance of parts.
static __device__ u64 descriptor(u32 at, u32 next)
{
    const u64 SWIZZLE_128 = 1;
    const u32 EIGHT_ROWS = 8 * ROW;
    return SWIZZLE_128 << 62 | (u64)(EIGHT_ROWS >> 4) << 32 | (u64)(next >> 4) << 16 | (at >> 4 & 0x3fff);
}

static __device__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int PENDING>
static __device__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

#define SUMS4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define SUMS16(i) SUMS4(i), SUMS4(i + 4), SUMS4(i + 8), SUMS4(i + 12)
#define SUMS64 SUMS16(0), SUMS16(16), SUMS16(32), SUMS16(48)
#define SUMS128 SUMS64, SUMS16(64), SUMS16(80), SUMS16(96), SUMS16(112)
#define NAMES64                                                                                                        \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "                       \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "                       \
    "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "                       \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES128 NAMES64 ", "                                                                                          \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "                       \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, "                       \
    "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, "                       \
    "%115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// c += a * b: 64 x 2 N sums (N of a thread), 32 bytes of a row of `a`. TURNED: rows of `b` are along the sums' columns.
#define PRODUCT(N, shape, a_name, b_name, turned_name)                                                                 \
    template <int TURNED>                                                                                              \
    static __device__ void product(float (&c)[N], u64 a, u64 b)                                                        \
    {                                                                                                                  \
        asm volatile("wgmma.mma_async.sync.aligned." shape " {" NAMES##N "}, " a_name ", " b_name                      \
                     ", 1, 1, 1, 0, " turned_name ";"                                                                  \
                     : SUMS##N                                                                                         \
                     : "l"(a), "l"(b), "n"(TURNED));                                                                   \
    }

struct WideF16 {
    static const int BYTES = 2;

    PRODUCT(128, "m64n256k16.f32.f16.f16", "%128", "%129", "%130")
    PRODUCT(64, "m64n128k16.f32.f16.f16", "%64", "%65", "%66")
};

struct WideBF16 {
    static const int BYTES = 2;

    PRODUCT(128, "m64n256k16.f32.bf16.bf16", "%128", "%129", "%130")
};

// Floats that the copy has rounded to TF32. There is no instruction for a `b` with rows along the sums' columns.
struct WideTF32 {
    static const int BYTES = 4;

    template <int TURNED>
    static __device__ void product(float (&c)[128], u64 a, u64 b)
    {
        static_assert(!TURNED, "no such instruction");
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {" NAMES128 "}, %128, %129, 1, 1, 1;"
                     : SUMS128
                     : "l"(a), "l"(b));
    }

    // The same with a fragment of `a`, as of `mma_tf32`, in registers.
    static __device__ void product(float (&c)[128], const u32 (&a)[4], u64 b)
    {
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {" NAMES128 "}, {%128, %129, %130, %131}, "
                     "%132, 1, 1, 1;"
                     : SUMS128
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};
