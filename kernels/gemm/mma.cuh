// Tensor cores, and the copies that feed them. Include <cuda_fp16.h> and <cuda_bf16.h> first.
//
// Tiles in shared memory have rows of 128 bytes: 8 pieces of 16 bytes, of which piece `p` of row `r` is at place
// `p ^ (r % 8)`. Any 8 neighbouring rows then have a given piece in different banks.
#pragma once
#include "../early.cuh"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define ALL 0xffffffffu
// Bytes of a tile's row.
#define ROW 128

static __device__ u32 shared_address(const void* p)
{
    return (u32)__cvta_generic_to_shared(p);
}

// ---- Copies from global to shared memory ----

static __device__ void copy16(u32 to, const void* from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// Copies the first `bytes` of 16 bytes; the rest becomes 0.
static __device__ void copy_part(u32 to, const void* from, u32 bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// The same for 8 and for 4 bytes.
static __device__ void copy_eight(u32 to, const void* from, u32 bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

static __device__ void copy_four(u32 to, const void* from, u32 bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

static __device__ void commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `PENDING` groups of copies are on their way.
template <int PENDING>
static __device__ void wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

static __device__ void store16(u32 to, uint4 v)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

static __device__ void store4(u32 to, float a)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(a) : "memory");
}

static __device__ void store8(u32 to, float a, float b)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}

static __device__ u32 load4(u32 from)
{
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
    return v;
}

// ---- Fragments ----

// Four matrices of 8 rows of 16 bytes; lane `l` gives the address of row `l % 8` of matrix `l / 8`.
static __device__ void load_matrices(u32 (&to)[4], u32 from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

// The same with rows and columns exchanged, for elements of 16 bits.
static __device__ void load_turned(u32 (&to)[4], u32 from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

// Rounds a float to the 11 bits of a TF32, to nearest.
static __device__ u32 to_tf32(float x)
{
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

static __device__ void mma_tf32(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Elements. A step of a product takes 32 bytes of each row: 16 columns of 2 bytes or 8 of 4 bytes. The fragments of
// both are the same bytes, so only the instruction differs.
struct F16 {
    static const int BYTES = 2;

    static __device__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

struct BF16 {
    static const int BYTES = 2;

    static __device__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

// Floats, rounded to TF32.
struct TF32 {
    static const int BYTES = 4;

    static __device__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
    {
        mma_tf32(c, a, b0, b1);
    }
};

// Floats as sums of two TF32: three products, without that of the two small parts.
struct F32 {
    static const int BYTES = 4;
};

// As F32, but `b` has no small parts.
struct F32OnTF32 {
    static const int BYTES = 4;
};

// As F32, but `a` has no small parts.
struct TF32OnF32 {
    static const int BYTES = 4;
};

// One instruction per pair of fragments.
template <class E>
struct Multiply {
    template <int M_TILES, int N_TILES>
    static __device__ void all(float (&sum)[M_TILES][N_TILES][4], u32 (&a)[M_TILES][4], u32 (&b)[N_TILES / 2][4])
    {
        if (E::BYTES == 4) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
#pragma unroll
                for (int i = 0; i < M_TILES; ++i)
                    a[i][e] = to_tf32(__uint_as_float(a[i][e]));
#pragma unroll
                for (int j = 0; j < N_TILES / 2; ++j)
                    b[j][e] = to_tf32(__uint_as_float(b[j][e]));
            }
        }
#pragma unroll
        for (int i = 0; i < M_TILES; ++i)
#pragma unroll
            for (int j = 0; j < N_TILES; ++j)
                E::mma(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
};

// Splits a float into two TF32; its bits are replaced by those of the large part.
static __device__ u32 split(u32& bits)
{
    float x = __uint_as_float(bits);
    bits = to_tf32(x);
    float rest = x - __uint_as_float(bits);
    // An infinity has no rest.
    return to_tf32(rest == rest ? rest : 0.0f);
}

template <bool SPLIT_A, bool SPLIT_B>
struct MultiplySplit {
    template <int M_TILES, int N_TILES>
    static __device__ void all(float (&sum)[M_TILES][N_TILES][4], u32 (&a)[M_TILES][4], u32 (&b)[N_TILES / 2][4])
    {
        u32 small_b[N_TILES / 2][4];
        if (SPLIT_B) {
#pragma unroll
            for (int j = 0; j < N_TILES / 2; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    small_b[j][e] = split(b[j][e]);
        }
#pragma unroll
        for (int i = 0; i < M_TILES; ++i) {
            u32 small_a[4];
            if (SPLIT_A) {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    small_a[e] = split(a[i][e]);
            }
            // The small products first.
            if (SPLIT_B) {
#pragma unroll
                for (int j = 0; j < N_TILES; ++j)
                    mma_tf32(sum[i][j], a[i], small_b[j / 2][j % 2 * 2], small_b[j / 2][j % 2 * 2 + 1]);
            }
            if (SPLIT_A) {
#pragma unroll
                for (int j = 0; j < N_TILES; ++j)
                    mma_tf32(sum[i][j], small_a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
            }
#pragma unroll
            for (int j = 0; j < N_TILES; ++j)
                mma_tf32(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
};

template <>
struct Multiply<F32> : MultiplySplit<true, true> {};
template <>
struct Multiply<F32OnTF32> : MultiplySplit<true, false> {};
template <>
struct Multiply<TF32OnF32> : MultiplySplit<false, true> {};

// The same products with `a` and `b` exchanged.
template <class E>
struct Exchanged {
    typedef E Type;
};
template <>
struct Exchanged<F32OnTF32> {
    typedef TF32OnF32 Type;
};
