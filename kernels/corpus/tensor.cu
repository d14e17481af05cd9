// Tensor cores: one product of small matrices per warp, fragments in the order of the PTX manual.
#include "corpus.cuh"

// Products into four words per lane: `ta` words of A, `tb` of B; C is added.
#define MMA_F32(name, shape, type, na, nb, a, b, c)                                                             \
    KERNEL name(const u32* A, const u32* B, const float* C, float* D)                                           \
    {                                                                                                           \
        u32 t = threadIdx.x, x[4], y[4];                                                                        \
        for (u32 k = 0; k < na; k++)                                                                            \
            x[k] = A[32 * k + t];                                                                               \
        for (u32 k = 0; k < nb; k++)                                                                            \
            y[k] = B[32 * k + t];                                                                               \
        float d[4] = {C[t], C[32 + t], C[64 + t], C[96 + t]};                                                   \
        asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, " a ", " b  \
                     ", " c ";"                                                                                 \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                           \
                     : "r"(x[0]), "r"(x[na > 1 ? 1 : 0]), "r"(x[na > 2 ? 2 : 0]), "r"(x[na > 2 ? 3 : 0]),       \
                       "r"(y[0]), "r"(y[nb > 1 ? 1 : 0]));                                                      \
        for (u32 k = 0; k < 4; k++)                                                                             \
            D[32 * k + t] = d[k];                                                                               \
    }
#define D4 "{%0, %1, %2, %3}"
MMA_F32(mma_f16_k16, "m16n8k16", "f16", 4, 2, "{%4, %5, %6, %7}", "{%8, %9}", D4)
MMA_F32(mma_f16_k8, "m16n8k8", "f16", 2, 1, "{%4, %5}", "{%8}", D4)
MMA_F32(mma_bf16_k16, "m16n8k16", "bf16", 4, 2, "{%4, %5, %6, %7}", "{%8, %9}", D4)
MMA_F32(mma_bf16_k8, "m16n8k8", "bf16", 2, 1, "{%4, %5}", "{%8}", D4)
MMA_F32(mma_tf32_k8, "m16n8k8", "tf32", 4, 2, "{%4, %5, %6, %7}", "{%8, %9}", D4)
MMA_F32(mma_tf32_k4, "m16n8k4", "tf32", 2, 1, "{%4, %5}", "{%8}", D4)

// Sums in half precision.
KERNEL mma_f16_accumulate(const u32* A, const u32* B, const u32* C, u32* D)
{
    u32 t = threadIdx.x, d0 = C[t], d1 = C[32 + t];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(d0), "+r"(d1)
                 : "r"(A[t]), "r"(A[32 + t]), "r"(A[64 + t]), "r"(A[96 + t]), "r"(B[t]), "r"(B[32 + t]));
    D[t] = d0;
    D[32 + t] = d1;
}

KERNEL mma_f64(const double* A, const double* B, const double* C, double* D)
{
    u32 t = threadIdx.x;
    double d0 = C[t], d1 = C[32 + t];
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(d0), "+d"(d1)
                 : "d"(A[t]), "d"(B[t]));
    D[t] = d0;
    D[32 + t] = d1;
}

// Integers of 8, 4 and 1 bits.
#define MMA_S32(name, shape, ta, tb, op, na, nb, nd, d, a, b)                                                   \
    KERNEL name(const u32* A, const u32* B, const s32* C, s32* D)                                               \
    {                                                                                                           \
        u32 t = threadIdx.x, x[4], y[2];                                                                        \
        s32 c[4] = {0, 0, 0, 0};                                                                                \
        for (u32 k = 0; k < na; k++)                                                                            \
            x[k] = A[32 * k + t];                                                                               \
        for (u32 k = 0; k < nb; k++)                                                                            \
            y[k] = B[32 * k + t];                                                                               \
        for (u32 k = 0; k < nd; k++)                                                                            \
            c[k] = C[32 * k + t];                                                                               \
        asm volatile("mma.sync.aligned." shape ".row.col.s32." ta "." tb ".s32" op " " d ", " a ", " b ", " d ";" \
                     : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                                           \
                     : "r"(x[0]), "r"(x[na > 1 ? 1 : 0]), "r"(x[na > 2 ? 2 : 0]), "r"(x[na > 2 ? 3 : 0]),       \
                       "r"(y[0]), "r"(y[nb > 1 ? 1 : 0]));                                                      \
        for (u32 k = 0; k < nd; k++)                                                                            \
            D[32 * k + t] = c[k];                                                                               \
    }
#define FOUR "{%4, %5, %6, %7}"
#define TWO "{%4, %5}"
MMA_S32(mma_s8_k32, "m16n8k32", "s8", "s8", "", 4, 2, 4, D4, FOUR, "{%8, %9}")
MMA_S32(mma_u8_s8_k32, "m16n8k32", "u8", "s8", "", 4, 2, 4, D4, FOUR, "{%8, %9}")
MMA_S32(mma_s8_u8_k16, "m16n8k16", "s8", "u8", "", 2, 1, 4, D4, TWO, "{%8}")
MMA_S32(mma_u8_k16, "m8n8k16", "u8", "u8", "", 1, 1, 2, "{%0, %1}", "{%4}", "{%8}")
MMA_S32(mma_s8_k16, "m16n8k16", "s8", "s8", "", 2, 1, 4, D4, TWO, "{%8}")
MMA_S32(mma_s8_k16_small, "m8n8k16", "s8", "s8", "", 1, 1, 2, "{%0, %1}", "{%4}", "{%8}")
MMA_S32(mma_s4_k32_small, "m8n8k32", "s4", "s4", "", 1, 1, 2, "{%0, %1}", "{%4}", "{%8}")
MMA_S32(mma_s4_u4_k32_large, "m16n8k32", "s4", "u4", "", 2, 1, 4, D4, TWO, "{%8}")
MMA_S32(mma_s4_k64, "m16n8k64", "s4", "s4", "", 4, 2, 4, D4, FOUR, "{%8, %9}")
MMA_S32(mma_u4_s4_k32, "m16n8k32", "u4", "s4", "", 2, 1, 4, D4, TWO, "{%8}")
MMA_S32(mma_s4_u4_k32, "m8n8k32", "s4", "u4", "", 1, 1, 2, "{%0, %1}", "{%4}", "{%8}")
MMA_S32(mma_b1_xor_k256, "m16n8k256", "b1", "b1", ".xor.popc", 4, 2, 4, D4, FOUR, "{%8, %9}")
MMA_S32(mma_b1_and_k128, "m16n8k128", "b1", "b1", ".and.popc", 2, 1, 4, D4, TWO, "{%8}")
MMA_S32(mma_b1_xor_k128, "m8n8k128", "b1", "b1", ".xor.popc", 1, 1, 2, "{%0, %1}", "{%4}", "{%8}")

// Sums that stop at the bounds of a word.
#define MMA_SAT(name, shape, types)                                                                             \
    KERNEL name(const u32* A, const u32* B, const s32* C, s32* D)                                               \
    {                                                                                                           \
        u32 t = threadIdx.x;                                                                                    \
        s32 c[4] = {C[t], C[32 + t], C[64 + t], C[96 + t]};                                                     \
        asm volatile("mma.sync.aligned." shape ".row.col.satfinite.s32." types ".s32 {%0, %1, %2, %3}, "         \
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                            \
                     : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                                           \
                     : "r"(A[t]), "r"(A[32 + t]), "r"(A[64 + t]), "r"(A[96 + t]), "r"(B[t]), "r"(B[32 + t]));   \
        for (u32 k = 0; k < 4; k++)                                                                             \
            D[32 * k + t] = c[k];                                                                               \
    }
MMA_SAT(mma_s8_saturating, "m16n8k32", "s8.s8")
MMA_SAT(mma_u4_s4_saturating, "m16n8k64", "u4.s4")

// Half of the depth, with sums in half precision.
KERNEL mma_f16_accumulate_k8(const u32* A, const u32* B, const u32* C, u32* D)
{
    u32 t = threadIdx.x, d0 = C[t], d1 = C[32 + t];
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
                 : "+r"(d0), "+r"(d1)
                 : "r"(A[t]), "r"(A[32 + t]), "r"(B[t]));
    D[t] = d0;
    D[32 + t] = d1;
}

// A with two of each four elements, chosen by `kept`.
KERNEL mma_sparse_f16(const u32* A, const u32* B, const float* C, float* D, u32 kept)
{
    u32 t = threadIdx.x;
    float d[4] = {C[t], C[32 + t], C[64 + t], C[96 + t]};
    asm volatile("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(A[t]), "r"(A[32 + t]), "r"(A[64 + t]), "r"(A[96 + t]), "r"(B[t]), "r"(B[32 + t]),
                   "r"(B[64 + t]), "r"(B[96 + t]), "r"(kept));
    for (u32 k = 0; k < 4; k++)
        D[32 * k + t] = d[k];
}

// Matrices of 8 x 8 halfwords out of shared memory, upright and turned.
KERNEL load_matrices(const uint4* in, u32* out)
{
    __shared__ __align__(16) uint4 rows[32];
    u32 t = threadIdx.x, r[4], address;
    rows[t] = in[t];
    __syncthreads();
    address = (u32)__cvta_generic_to_shared(&rows[t ^ 5]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
    for (u32 k = 0; k < 4; k++)
        out[32 * k + t] = r[k];
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(address));
    out[128 + t] = r[0];
    out[160 + t] = r[1];
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(address));
    out[192 + t] = r[0];
}

// A matrix of 8 x 8 halfwords turned within the registers of a warp.
KERNEL transpose_matrix(const u32* in, u32* out)
{
    u32 r, v = in[threadIdx.x];
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
    out[threadIdx.x] = r;
}

// A product of two matrices, tile by tile: 16 rows and 8 columns per block of one warp.
KERNEL gemm_f16(const u16* A, const u16* B, float* C, u32 columns, u32 depth)
{
    __shared__ __align__(16) u16 a[16][24], b[16][8];
    u32 t = threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 8;
    float d[4] = {0, 0, 0, 0};
    for (u32 k = 0; k < depth; k += 16) {
        for (u32 i = t; i < 256; i += 32)
            a[i / 16][i % 16] = A[(row + i / 16) * depth + k + i % 16];
        for (u32 i = t; i < 128; i += 32)
            b[i / 8][i % 8] = B[(k + i / 8) * columns + column + i % 8];
        __syncthreads();
        u32 x[4], y[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"((u32)__cvta_generic_to_shared(&a[t % 16][t / 16 * 8])));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(y[0]), "=r"(y[1]) : "r"((u32)__cvta_generic_to_shared(&b[t % 16][0])));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        __syncthreads();
    }
    u32 g = t / 4, c = column + t % 4 * 2;
    C[(row + g) * columns + c] = d[0];
    C[(row + g) * columns + c + 1] = d[1];
    C[(row + g + 8) * columns + c] = d[2];
    C[(row + g + 8) * columns + c + 1] = d[3];
}
