// Values that are the same for all threads: loops over the launch's own numbers.
#include "corpus.cuh"

// Products, shifts, divisions and comparisons of loop counters and parameters.
KERNEL uniform_arithmetic(const u32* in, u32* out, s32 n, s32 m, u32 k)
{
    u32 sum = 0;
    for (s32 i = 0; i < n; i++) {
        s32 b = (i * m + (s32)(k >> 3)) ^ (m << (i & 7));
        sum = sum * 3 + in[b & 127];
        if ((i & m) == 3)
            sum += 2;
        sum += in[__popc(i * m)];
        sum += in[__brev(i + m) & 127];
        sum += in[31 - __clz(i | 1)];
        sum += in[min(i, m) & 127];
        sum += in[(u32)(i * m) / 9u & 63];
        u64 w = (u64)i * m;
        sum += in[(w >> 5) & 63];
        sum += in[abs(i - m) & 31];
        sum += in[__byte_perm(i, m, 0x3210 + i) & 31];
        sum += in[((i - m) >> 2) & 63];
        s64 wide = (s64)(i - m) * m;
        sum += in[(wide << 3) >> 35 & 63];
    }
    out[INDEX] = sum + threadIdx.x;
}

// Addresses that depend on the block alone.
KERNEL uniform_addresses(const u32* in, const u64* wide, u32* out, s32 rows, s32 columns)
{
    s32 row = (s32)blockIdx.x - 2;
    const u32* line = in + (s64)(row < 0 ? rows + row : row) * columns;
    u64 base = wide[blockIdx.x] + ((u64)blockIdx.x << 37) + (u64)columns * blockIdx.x;
    u32 sum = 0;
    for (s32 k = (s32)blockIdx.x; k < columns; k += 2)
        sum += line[k] ^ in[(k * 5 + row * 4) & 63];
    out[INDEX] = sum + (u32)(base >> 32) * threadIdx.x + (u32)base;
}

// Divisions and shifts of signed and wide numbers that only the block knows.
KERNEL uniform_halves(const u32* in, u32* out, s32 n, s32 m, u64 base)
{
    s32 half = n / 2, part = (s32)blockIdx.x * m / 7;
    u64 q = (base + blockIdx.x) << 3;
    u64 p = base + (u64)blockIdx.y * 32;
    if (part > half)
        q += 5;
    out[INDEX] = in[(q >> 32) & 63] + (u32)q + part + (u32)(p >> 7) + (u32)(p >> 32);
}

// Conversions of parts of a number that only the block knows.
KERNEL uniform_parts(const s32* in, float* out, s32 k)
{
    s32 u = k * (s32)gridDim.x + (s32)blockIdx.x * 196611, t = (s32)threadIdx.x;
    float* o = out + 160 * blockIdx.x;
    o[t] = (float)(s16)(u >> 16) + in[t];
    o[t + 32] = (float)(s16)u;
    o[t + 64] = (float)(u16)(u >> 16);
    o[t + 96] = (float)(s8)(u >> 8);
    o[t + 128] = (float)(u8)(u >> 24);
}
