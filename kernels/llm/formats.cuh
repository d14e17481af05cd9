// Block formats, and the vector that they are multiplied with.
//
// A format has: UNIT, the columns of a lane in a tile; BYTES, the bytes of 8 units of one row; ROUNDS, whether the
// vector is rounded; Vector, a lane's part of the vector; `dot`, the product of a lane's unit of row `row` (0 or 1) of
// a tile that has `units` units per row. The parts of a tile follow each other: 16 bytes of integers of each unit of
// row 0, then of row 1; upper bits likewise; scales; factors.
//
// Quantised formats multiply integers: each 32 elements of the vector share a scale, and each element is rounded to 14
// bits, stored as a coarse and a fine byte (x = scale * (128 * coarse + fine)).
#pragma once
#include "common.cuh"

// Largest absolute value of a rounded element: sums of 16 products with weights and their scales fit 32 bits.
#define ROUNDED_MAX 8191.0f

// ---- The vector in shared memory: a lane reads 16 bytes at a time, at the same distances in each step of a row ----

// The rounded vector has chunks of 32 groups of 32 columns: coarse bytes 0-15 of each group, coarse bytes 16-31, fine
// bytes 0-15, fine bytes 16-31, two sums of 16 elements each, scales.
#define CHUNK_FINE 1024
#define CHUNK_SUMS 2048
#define CHUNK_SCALES 2304
#define CHUNK_BYTES 2432

static __device__ u32 rounded_bytes(u32 columns)
{
    return (columns + 1023) / 1024 * CHUNK_BYTES;
}

// One group of the rounded vector.
struct Group {
    int coarse[8], fine[8];
    int sum[2];
    float scale;

    __device__ void load(const u8* memory, u32 step, u32 lane)
    {
        const u8* chunk = memory + step * CHUNK_BYTES;
        const uint4* at = (const uint4*)chunk + lane;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            uint4 c = at[32 * half], f = at[CHUNK_FINE / 16 + 32 * half];
            coarse[4 * half] = c.x, coarse[4 * half + 1] = c.y, coarse[4 * half + 2] = c.z, coarse[4 * half + 3] = c.w;
            fine[4 * half] = f.x, fine[4 * half + 1] = f.y, fine[4 * half + 2] = f.z, fine[4 * half + 3] = f.w;
        }
        int2 sums = ((const int2*)(chunk + CHUNK_SUMS))[lane];
        sum[0] = sums.x, sum[1] = sums.y;
        scale = ((const float*)(chunk + CHUNK_SCALES))[lane];
    }
};

// Half a group of the rounded vector: lanes 2 g and 2 g + 1 share a group.
struct HalfGroup {
    uint4 coarse, fine;
    float scale;

    __device__ void load(const u8* memory, u32 step, u32 lane)
    {
        const u8* chunk = memory + step / 2 * CHUNK_BYTES;
        u32 group = step % 2 * 16 + lane / 2;
        const uint4* at = (const uint4*)chunk + lane % 2 * 32 + group;
        coarse = at[0];
        fine = at[CHUNK_FINE / 16];
        scale = ((const float*)(chunk + CHUNK_SCALES))[group];
    }
};

// Eight columns: the first four of 32 lanes are stored apart from the last four, to use all banks.
struct Eight {
    float4 first, last;

    __device__ void load(const u8* memory, u32 step, u32 lane)
    {
        const float4* at = (const float4*)memory + step * 64 + lane;
        first = at[0];
        last = at[32];
    }

    __device__ float dot(float2 a, float2 b, float2 c, float2 d) const
    {
        float sum = a.x * first.x;
        sum = fmaf(a.y, first.y, sum);
        sum = fmaf(b.x, first.z, sum);
        sum = fmaf(b.y, first.w, sum);
        sum = fmaf(c.x, last.x, sum);
        sum = fmaf(c.y, last.y, sum);
        sum = fmaf(d.x, last.z, sum);
        return fmaf(d.y, last.w, sum);
    }
};

// Four columns.
struct Four {
    float4 all;

    __device__ void load(const u8* memory, u32 step, u32 lane)
    {
        all = ((const float4*)memory)[step * 32 + lane];
    }
};

// Bytes of a vector.
template <class F>
static __device__ u32 vector_bytes(u32 columns)
{
    return F::ROUNDS ? rounded_bytes(columns) : (columns / F::UNIT + 31) / 32 * 32 * F::UNIT * 4;
}

// ---- Formats ----

static __device__ void words(u32 (&to)[4], uint4 from)
{
    to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
}

// The integers of a lane's unit.
static __device__ void lower(u32 (&to)[4], const u8* tile, u32 units, u32 row, u32 unit)
{
    words(to, ((const uint4*)tile)[row * units + unit]);
}

// Byte b of word j (0 to 5) of a unit has column 4 j + b in its lower six bits. The upper two bits of words 0 to 2 are
// bits 0-1, 2-3 and 4-5 of column 24 + b; those of words 3 to 5, of column 28 + b.
struct Q6K {
    static const u32 UNIT = 32, BYTES = 210;
    static const bool ROUNDS = true;
    typedef Group Vector;

    // The columns in the upper bits of three words.
    static __device__ u32 gather(u32 a, u32 b, u32 c)
    {
        u32 low = (a >> 6) & 0x03030303u;
        low |= (b >> 4) & 0x0c0c0c0cu;
        return low | ((c >> 2) & 0x30303030u);
    }

    static __device__ float dot(const u8* tile, u32 units, u32 row, u32 unit, const Group& v)
    {
        u32 low[4], at = row * units + unit;
        lower(low, tile, units, row, unit);
        uint2 more = ((const uint2*)(tile + 32 * units))[at];
        u32 scales = ((const u16*)(tile + 48 * units))[at];
        float factor = half_low(((const u16*)(tile + 52 * units))[at / 8]);
        u32 w[8] = {low[0], low[1], low[2], low[3], more.x, more.y};
        w[6] = gather(w[0], w[1], w[2]);
        w[7] = gather(w[3], w[4], w[5]);
        int sum[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int coarse = 0, fine = -32 * v.sum[half];
#pragma unroll
            for (int i = 4 * half; i < 4 * half + 4; ++i) {
                int q = (int)(i < 6 ? w[i] & 0x3f3f3f3fu : w[i]);
                coarse = __dp4a(q, v.coarse[i], coarse);
                fine = __dp4a(q, v.fine[i], fine);
            }
            sum[half] = coarse * 128 + fine;
        }
        int all = sum[0] * (signed char)scales + sum[1] * (signed char)(scales >> 8);
        return (float)all * (factor * v.scale);
    }
};

// A K format with minima. The 16 bytes of scales: two halves d and dmin; four bits of each of eight scales; four bits
// of each minimum; the two upper bits of the scales, then those of the minima.
static __device__ float with_minimum(uint4 header, u32 unit, int product, const Group& v)
{
    u32 at = unit % 8;
    u32 scale = ((header.y >> (4 * at)) & 15) | ((header.w >> (2 * at)) & 3) << 4;
    u32 minimum = ((header.z >> (4 * at)) & 15) | ((header.w >> (2 * at + 16)) & 3) << 4;
    float sum = half_low(header.x) * (float)((int)scale * product);
    return v.scale * (sum - half_high(header.x) * (float)((int)minimum * (v.sum[0] + v.sum[1])));
}

struct Q4K {
    static const u32 UNIT = 32, BYTES = 144;
    static const bool ROUNDS = true;
    typedef Group Vector;

    static __device__ float dot(const u8* tile, u32 units, u32 row, u32 unit, const Group& v)
    {
        u32 low[4];
        lower(low, tile, units, row, unit);
        uint4 header = ((const uint4*)(tile + 32 * units))[(row * units + unit) / 8];
        int coarse = 0, fine = 0;
#pragma unroll
        for (int word = 0; word < 4; ++word) {
            int a = (int)(low[word] & 0x0f0f0f0fu), b = (int)((low[word] >> 4) & 0x0f0f0f0fu);
            coarse = __dp4a(a, v.coarse[2 * word], coarse);
            fine = __dp4a(a, v.fine[2 * word], fine);
            coarse = __dp4a(b, v.coarse[2 * word + 1], coarse);
            fine = __dp4a(b, v.fine[2 * word + 1], fine);
        }
        return with_minimum(header, unit, coarse * 128 + fine, v);
    }
};

struct Q5K {
    static const u32 UNIT = 32, BYTES = 176;
    static const bool ROUNDS = true;
    typedef Group Vector;

    static __device__ float dot(const u8* tile, u32 units, u32 row, u32 unit, const Group& v)
    {
        u32 low[4];
        lower(low, tile, units, row, unit);
        u32 high = ((const u32*)(tile + 32 * units))[row * units + unit];
        uint4 header = ((const uint4*)(tile + 40 * units))[(row * units + unit) / 8];
        int coarse = 0, fine = 0;
#pragma unroll
        for (int word = 0; word < 4; ++word) {
            // Bit 2 * word of each byte of `high` belongs to the lower columns, bit 2 * word + 1 to the upper.
            u32 fifth_a = word < 2 ? high << (4 - 2 * word) : high >> (2 * word - 4);
            u32 fifth_b = word < 2 ? high << (3 - 2 * word) : high >> (2 * word - 3);
            int a = (int)((low[word] & 0x0f0f0f0fu) | (fifth_a & 0x10101010u));
            int b = (int)(((low[word] >> 4) & 0x0f0f0f0fu) | (fifth_b & 0x10101010u));
            coarse = __dp4a(a, v.coarse[2 * word], coarse);
            fine = __dp4a(a, v.fine[2 * word], fine);
            coarse = __dp4a(b, v.coarse[2 * word + 1], coarse);
            fine = __dp4a(b, v.fine[2 * word + 1], fine);
        }
        return with_minimum(header, unit, coarse * 128 + fine, v);
    }
};

// Word j of a unit: byte b has column 4 j + b in its lower and column 16 + 4 j + b in its upper four bits, as in the
// file.
struct Q4_0 {
    static const u32 UNIT = 32, BYTES = 144;
    static const bool ROUNDS = true;
    typedef Group Vector;

    static __device__ float dot(const u8* tile, u32 units, u32 row, u32 unit, const Group& v)
    {
        u32 low[4];
        lower(low, tile, units, row, unit);
        float factor = half_low(((const u16*)(tile + 32 * units))[row * units + unit]);
        int coarse = 0, fine = -8 * (v.sum[0] + v.sum[1]);
#pragma unroll
        for (int word = 0; word < 4; ++word) {
            int a = (int)(low[word] & 0x0f0f0f0fu), b = (int)((low[word] >> 4) & 0x0f0f0f0fu);
            coarse = __dp4a(a, v.coarse[word], coarse);
            fine = __dp4a(a, v.fine[word], fine);
            coarse = __dp4a(b, v.coarse[word + 4], coarse);
            fine = __dp4a(b, v.fine[word + 4], fine);
        }
        return (float)(coarse * 128 + fine) * (factor * v.scale);
    }
};

// Two units share a factor.
struct Q8_0 {
    static const u32 UNIT = 16, BYTES = 136;
    static const bool ROUNDS = true;
    typedef HalfGroup Vector;

    static __device__ float dot(const u8* tile, u32 units, u32 row, u32 unit, const HalfGroup& v)
    {
        u32 q[4], c[4], f[4];
        lower(q, tile, units, row, unit);
        words(c, v.coarse);
        words(f, v.fine);
        float factor = half_low(((const u16*)(tile + 32 * units))[(row * units + unit) / 2]);
        int coarse = 0, fine = 0;
#pragma unroll
        for (int word = 0; word < 4; ++word) {
            coarse = __dp4a((int)q[word], (int)c[word], coarse);
            fine = __dp4a((int)q[word], (int)f[word], fine);
        }
        return (float)(coarse * 128 + fine) * (factor * v.scale);
    }
};

struct F16 {
    static const u32 UNIT = 8, BYTES = 128;
    static const bool ROUNDS = false;
    typedef Eight Vector;

    static __device__ float2 pair(u32 word)
    {
        return make_float2(half_low(word), half_high(word));
    }

    static __device__ float dot(const u8* tile, u32 units, u32 row, u32 unit, const Eight& v)
    {
        u32 w[4];
        lower(w, tile, units, row, unit);
        return v.dot(pair(w[0]), pair(w[1]), pair(w[2]), pair(w[3]));
    }
};

struct BF16 {
    static const u32 UNIT = 8, BYTES = 128;
    static const bool ROUNDS = false;
    typedef Eight Vector;

    static __device__ float2 pair(u32 word)
    {
        return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
    }

    static __device__ float dot(const u8* tile, u32 units, u32 row, u32 unit, const Eight& v)
    {
        u32 w[4];
        lower(w, tile, units, row, unit);
        return v.dot(pair(w[0]), pair(w[1]), pair(w[2]), pair(w[3]));
    }
};

struct F32 {
    static const u32 UNIT = 4, BYTES = 128;
    static const bool ROUNDS = false;
    typedef Four Vector;

    static __device__ float dot(const u8* tile, u32 units, u32 row, u32 unit, const Four& v)
    {
        u32 w[4];
        lower(w, tile, units, row, unit);
        float sum = __uint_as_float(w[0]) * v.all.x;
        sum = fmaf(__uint_as_float(w[1]), v.all.y, sum);
        sum = fmaf(__uint_as_float(w[2]), v.all.z, sum);
        return fmaf(__uint_as_float(w[3]), v.all.w, sum);
    }
};
