// Small programs as people write them.
#include "corpus.cuh"

// SHA-256 of one block of 64 bytes per thread.
__constant__ u32 sha_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
    0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
    0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
    0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};

__device__ __forceinline__ u32 rotate(u32 x, u32 by) { return __funnelshift_r(x, x, by); }

KERNEL sha256_block(const u32* in, u32* out, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    u32 w[64];
    for (u32 k = 0; k < 16; k++)
        w[k] = in[16 * i + k];
    for (u32 k = 16; k < 64; k++) {
        u32 a = w[k - 15], b = w[k - 2];
        w[k] = w[k - 16] + w[k - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    u32 h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    u32 v[8];
    for (u32 k = 0; k < 8; k++)
        v[k] = h[k];
#pragma unroll 1
    for (u32 k = 0; k < 64; k++) {
        u32 t1 = v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) +
                 sha_constants[k] + w[k];
        u32 t2 = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
#pragma unroll
        for (u32 j = 7; j > 0; j--)
            v[j] = v[j - 1];
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (u32 k = 0; k < 8; k++)
        out[8 * i + k] = h[k] + v[k];
}

// CRC-32 of rows of bytes, bit by bit.
KERNEL crc32_rows(const u8* in, u32* out, u32 rows, u32 length)
{
    u32 row = INDEX;
    if (row >= rows)
        return;
    u32 crc = ~0u;
    for (u32 k = 0; k < length; k++) {
        crc ^= in[row * length + k];
        for (u32 bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    out[row] = ~crc;
}

// Sorts the words of a block in shared memory; the block has a power of two of threads.
KERNEL bitonic_sort(const u32* in, u32* out)
{
    __shared__ u32 s[256];
    u32 t = threadIdx.x;
    s[t] = in[INDEX];
    __syncthreads();
    for (u32 size = 2; size <= 256; size <<= 1)
        for (u32 stride = size >> 1; stride; stride >>= 1) {
            u32 other = t ^ stride;
            if (other > t) {
                bool ascending = (t & size) == 0;
                u32 a = s[t], b = s[other];
                if (a > b == ascending) {
                    s[t] = b;
                    s[other] = a;
                }
            }
            __syncthreads();
        }
    out[INDEX] = s[t];
}

// A Fourier transform of 64 complex numbers per block; the roots come from outside.
KERNEL fft_64(const float2* in, float2* out, const float2* roots)
{
    __shared__ float2 s[64];
    u32 t = threadIdx.x;
    s[__brev(t) >> 26] = in[64 * blockIdx.x + t];
    s[__brev(t + 32) >> 26] = in[64 * blockIdx.x + t + 32];
    __syncthreads();
    for (u32 half = 1; half < 64; half <<= 1) {
        u32 at = (t / half) * 2 * half + t % half;
        float2 w = roots[t % half * (32 / half)], a = s[at], b = s[at + half];
        float re = fmaf(b.x, w.x, -__fmul_rn(b.y, w.y)), im = fmaf(b.x, w.y, __fmul_rn(b.y, w.x));
        __syncthreads();
        s[at] = make_float2(a.x + re, a.y + im);
        s[at + half] = make_float2(a.x - re, a.y - im);
        __syncthreads();
    }
    out[64 * blockIdx.x + t] = s[t];
    out[64 * blockIdx.x + t + 32] = s[t + 32];
}

// Points of the plane that stay bounded, without fused operations.
KERNEL escape_times(u32* out, u32 width, u32 height, u32 limit)
{
    u32 x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float cx = fmaf(x, 0.05f, -2.0f), cy = fmaf(y, 0.05f, -1.0f), a = 0.0f, b = 0.0f;
    u32 k = 0;
    for (; k < limit; k++) {
        float aa = __fmul_rn(a, a), bb = __fmul_rn(b, b);
        if (aa + bb > 4.0f)
            break;
        b = fmaf(2.0f * a, b, cy);
        a = aa - bb + cx;
    }
    out[y * width + x] = k;
}

// One step of heat over a plate.
KERNEL heat_step(const float* in, float* out, u32 width, u32 height)
{
    u32 x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    u32 at = y * width + x;
    float centre = in[at], sum = 0.0f;
    if (x > 0 && y > 0 && x + 1 < width && y + 1 < height)
        sum = ((in[at - 1] + in[at + 1]) + in[at - width]) + in[at + width];
    else
        sum = 4.0f * centre;
    out[at] = fmaf(0.2f, fmaf(-4.0f, centre, sum), centre);
}

// A tiled product of matrices, with edges that fill no tile.
KERNEL gemm_f32(const float* A, const float* B, float* C, u32 m, u32 n, u32 k)
{
    __shared__ float a[8][9], b[8][9];
    u32 tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 8 + ty, column = blockIdx.x * 8 + tx;
    float sum = 0.0f;
    for (u32 tile = 0; tile < k; tile += 8) {
        a[ty][tx] = row < m && tile + tx < k ? A[row * k + tile + tx] : 0.0f;
        b[ty][tx] = column < n && tile + ty < k ? B[(tile + ty) * n + column] : 0.0f;
        __syncthreads();
        for (u32 i = 0; i < 8; i++)
            sum = fmaf(a[ty][i], b[i][tx], sum);
        __syncthreads();
    }
    if (row < m && column < n)
        C[row * n + column] = sum;
}

// A sparse matrix, row by row, times a vector.
KERNEL spmv_rows(const u32* starts, const u32* columns, const float* values, const float* x, float* y, u32 rows)
{
    u32 row = INDEX;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (u32 k = starts[row]; k < starts[row + 1]; k++)
        sum = fmaf(values[k], x[columns[k]], sum);
    y[row] = sum;
}

__device__ __forceinline__ float warp_sum(float v)
{
    for (u32 d = 16; d; d >>= 1)
        v += __shfl_xor_sync(~0u, v, d);
    return v;
}

// One warp per row.
KERNEL softmax_rows(const float* in, float* out, u32 columns)
{
    const float* row = in + blockIdx.x * columns;
    float largest = -1e30f, sum = 0.0f;
    for (u32 k = threadIdx.x; k < columns; k += 32)
        largest = fmaxf(largest, row[k]);
    for (u32 d = 16; d; d >>= 1)
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, d));
    for (u32 k = threadIdx.x; k < columns; k += 32)
        sum += __expf(row[k] - largest);
    sum = warp_sum(sum);
    for (u32 k = threadIdx.x; k < columns; k += 32)
        out[blockIdx.x * columns + k] = __fdividef(__expf(row[k] - largest), sum);
}

KERNEL layer_norm_rows(const float* in, const float* gain, float* out, u32 columns)
{
    const float* row = in + blockIdx.x * columns;
    float sum = 0.0f, square = 0.0f;
    for (u32 k = threadIdx.x; k < columns; k += 32)
        sum += row[k];
    float mean = warp_sum(sum) / columns;
    for (u32 k = threadIdx.x; k < columns; k += 32)
        square += (row[k] - mean) * (row[k] - mean);
    float scale = rsqrtf(warp_sum(square) / columns + 1e-5f);
    for (u32 k = threadIdx.x; k < columns; k += 32)
        out[blockIdx.x * columns + k] = (row[k] - mean) * scale * gain[k];
}

KERNEL gelu(const float* in, float* out, u32 n)
{
    u32 i = INDEX;
    if (i < n) {
        float x = in[i];
        out[i] = 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    }
}

// Distances from vertex 0 along the edges of a graph; one block, level by level.
KERNEL breadth_first(const u32* starts, const u32* edges, u32* distance, u32 vertices)
{
    __shared__ u32 changed;
    for (u32 v = threadIdx.x; v < vertices; v += blockDim.x)
        distance[v] = v == 0 ? 0 : ~0u;
    __syncthreads();
    for (u32 level = 0;; level++) {
        if (threadIdx.x == 0)
            changed = 0;
        __syncthreads();
        for (u32 v = threadIdx.x; v < vertices; v += blockDim.x)
            if (distance[v] == level)
                for (u32 e = starts[v]; e < starts[v + 1]; e++)
                    if (distance[edges[e]] == ~0u) {
                        distance[edges[e]] = level + 1;
                        changed = 1;
                    }
        __syncthreads();
        if (changed == 0)
            break;
        __syncthreads();
    }
}

// Pairs of bodies that pull at each other.
KERNEL gravity(const float4* bodies, float4* pull, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    float4 me = bodies[i];
    float x = 0.0f, y = 0.0f, z = 0.0f;
    for (u32 k = 0; k < n; k++) {
        float4 b = bodies[k];
        float dx = b.x - me.x, dy = b.y - me.y, dz = b.z - me.z;
        float r = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
        float f = b.w * r * r * r;
        x += f * dx;
        y += f * dy;
        z += f * dz;
    }
    pull[i] = make_float4(x, y, z, me.w);
}

// Random numbers by Philox's rounds, four words per thread.
KERNEL philox(u32* out, u32 n, u64 seed)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    u32 c0 = i, c1 = 0, c2 = i * 3, c3 = 1, k0 = seed, k1 = seed >> 32;
    for (u32 round = 0; round < 10; round++) {
        u32 h0 = __umulhi(0xd2511f53u, c0), l0 = 0xd2511f53u * c0;
        u32 h1 = __umulhi(0xcd9e8d57u, c2), l1 = 0xcd9e8d57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    ((uint4*)out)[i] = make_uint4(c0, c1, c2, c3);
}

// Weights of four bits with a scale per group of 32, times a vector of bytes.
KERNEL quantised_dot(const u32* weights, const u32* vector, const float* scales, float* out, u32 rows, u32 groups)
{
    u32 row = INDEX;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (u32 g = 0; g < groups; g++) {
        s32 dot = 0;
        for (u32 k = 0; k < 4; k++) {
            u32 w = weights[(row * groups + g) * 4 + k];
            u32 low = w & 0x0f0f0f0f, high = w >> 4 & 0x0f0f0f0f;
            PTX3("dp4a.s32.s32", dot, low, vector[g * 8 + 2 * k], dot);
            PTX3("dp4a.s32.s32", dot, high, vector[g * 8 + 2 * k + 1], dot);
        }
        sum = fmaf(dot, scales[row * groups + g], sum);
    }
    out[row] = sum;
}
