// Products of two matrices on the tensor cores: c (m x n) = scale * a (m x k) * b + bias, or added to c. Row major, any
// sizes; a batch has one block in z per matrix. The matrices of a batch have equal distances, or a pointer each.
//
// A block computes a tile of c. It copies a and b to shared memory two stages ahead, 128 bytes of each row at a time,
// and loads the fragments of a step while the tensor cores multiply those of the step before. Sums are in 32 bits and
// have a fixed order.
//
// Names: product_ELEMENT_FORM_SIZE. ELEMENT is f16, bf16, tf32 (floats rounded to 11 bits) or f32 (floats split into
// two parts of 11 bits each, three products). FORM is `rows` for b (k x n), `columns` for b (n x k). SIZE is `large`
// (tiles of 128 x 256, f32 128 x 128, 256 threads), `small` (64 x 64, 128 threads), or `any`, as `small` but with rows
// that begin at any element. Grid (tiles, 1, batch). Dynamic shared memory: 3 * 128 bytes * (rows + columns of a tile).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "dense.cuh"

// A matrix of a batch, with equal distances or from an array of pointers.
static __device__ u8* matrix_of(const u8* first, u64 distance, bool is_array)
{
    u8* matrix = is_array ? ((u8* const*)first)[blockIdx.z] : (u8*)first + blockIdx.z * distance;
    __builtin_assume(__isGlobal(matrix));
    return matrix;
}

template <class T>
static __device__ void product(const u8* a, const u8* b, u8* c, const float* bias, const DenseParams& p)
{
    u32 tile_m, tile_n;
    place_of(blockIdx.x, (p.m + T::BM - 1) / T::BM, (p.n + T::BN - 1) / T::BN, tile_m, tile_n);
    T tile(p, tile_m * T::BM, tile_n * T::BN);
    tile.a = matrix_of(a, p.a_batch, p.arrays & 1);
    tile.b = matrix_of(b, p.b_batch, p.arrays & 2);
    tile.c = matrix_of(c, p.c_batch, p.arrays & 4);
    tile.bias = bias;
    tile.run();
    tile.store();
}

#define KERNEL(name, threads, blocks, ...)                                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        name(const u8* a, const u8* b, u8* c, const float* bias, const __grid_constant__ DenseParams p)                \
    {                                                                                                                  \
        product<Tile<__VA_ARGS__>>(a, b, c, bias, p);                                                                  \
    }

#define FORMS(name, element, large_tiles)                                                                              \
    KERNEL(product_##name##_columns_large, 256, 1, element, 2, 4, 4, large_tiles, false, true)                         \
    KERNEL(product_##name##_rows_large, 256, 1, element, 2, 4, 4, large_tiles, true, true)                             \
    KERNEL(product_##name##_columns_small, 128, 3, element, 2, 2, 2, 4, false, true)                                   \
    KERNEL(product_##name##_rows_small, 128, 3, element, 2, 2, 2, 4, true, true)                                       \
    KERNEL(product_##name##_columns_any, 128, 3, element, 2, 2, 2, 4, false, false)                                    \
    KERNEL(product_##name##_rows_any, 128, 3, element, 2, 2, 2, 4, true, false)

FORMS(f16, F16, 8)
FORMS(bf16, BF16, 8)
FORMS(tf32, TF32, 8)
FORMS(f32, F32, 4)
