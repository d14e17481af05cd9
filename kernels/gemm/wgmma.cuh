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
#define SUMS128 SUMS16(0), SUMS16(16), SUMS16(32), SUMS16(48), SUMS16(64), SUMS16(80), SUMS16(96), SUMS16(112)

// c += a * b: 64 x 256 sums, 16 columns of `a`. TURNED: rows of `b` are along the sums' columns.
#define PRODUCT(type)                                                                                                  \
    template <int TURNED>                                                                                              \
    static __device__ void product(float (&c)[128], u64 a, u64 b)                                                      \
    {                                                                                                                  \
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type                                      \
                     " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "    \
                     "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "      \
                     "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "      \
                     "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, "      \
                     "%74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "      \
                     "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "  \
                     "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, "      \
                     "%124, %125, %126, %127}, %128, %129, 1, 1, 1, 0, %130;"                                          \
                     : SUMS128                                                                                         \
                     : "l"(a), "l"(b), "n"(TURNED));                                                                   \
    }

struct WideF16 {
    PRODUCT("f16")
};

struct WideBF16 {
    PRODUCT("bf16")
};
