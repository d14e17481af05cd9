// Block formats, and the vector that they are multiplied with.
//
// A format has: UNIT, the columns of a unit; PAIRS, the pairs of rows in a tile; BYTES, the bytes of 8 units of one
// row; ROUNDS, whether the vector is rounded; Tile, a lane's weights: a unit of both rows of a pair; Vector, a lane's
// part of the vector; `dot`, the lane's two sums; WHOLE, whether all tiles have all units. `infer`'s module
// `decode::pack` says what a tile has where.
//
// Floats have one pair in a tile and a unit for each lane. Quantised formats have four pairs, and 8 units in a row.
//
// Quantised formats multiply integers: each 32 elements of the vector share a scale, and each element is rounded to 14
// bits, stored as a coarse and a fine byte (x = scale * (128 * coarse + fine)).
#pragma once
#include "common.cuh"

// Largest absolute value of a rounded element: sums of 16 products with weights and their scales fit 32 bits.
#define ROUNDED_MAX 8191.0f

// ---- The vector in shared memory: a lane reads 16 bytes at a time, at the same distances in each step of a row ----

// The rounded vector has chunks of 8 groups of 32 columns: coarse bytes 0-15 of each group, coarse bytes 16-31, fine
// bytes 0-15, fine bytes 16-31, two sums of 16 elements each, scales.
#define CHUNK_FINE 256
#define CHUNK_SUMS 512
#define CHUNK_SCALES 576
#define CHUNK_BYTES 608

static __device__ u32 rounded_bytes(u32 columns)
{
    return (columns + 255) / 256 * CHUNK_BYTES;
}

// A lane's part of a chunk: lanes with the same lane % 8 have the same group.
struct Group {
    u32 coarse[8], fine[8];
    int sum[2];
    float scale;

    u32 lane;
    // Factor of all elements, beside their scales.
    float factor;

    __device__ Group(u32 lane, float factor = 1.0f) : lane(lane), factor(factor) {}

    __device__ void load(const u8* memory, u32 step)
    {
        const u8* chunk = memory + step * CHUNK_BYTES;
        const uint4* at = (const uint4*)chunk + lane % 8;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            uint4 c = at[8 * half], f = at[CHUNK_FINE / 16 + 8 * half];
            coarse[4 * half] = c.x, coarse[4 * half + 1] = c.y, coarse[4 * half + 2] = c.z, coarse[4 * half + 3] = c.w;
            fine[4 * half] = f.x, fine[4 * half + 1] = f.y, fine[4 * half + 2] = f.z, fine[4 * half + 3] = f.w;
        }
        int2 sums = ((const int2*)(chunk + CHUNK_SUMS))[lane % 8];
        sum[0] = sums.x, sum[1] = sums.y;
        scale = ((const float*)(chunk + CHUNK_SCALES))[lane % 8] * factor;
    }
};

// Sums of words FIRST to FIRST + COUNT of a lane's units of both rows. Dot products of four bytes, not the tensor
// cores: of what those multiply here, a sixteenth is wanted, and a Hopper GPU lowers its clock for them.
template <int FIRST, int COUNT>
static __device__ int2 products(const u32 (&q)[2][8], const Group& v)
{
    int coarse[2] = {0, 0}, fine[2] = {0, 0};
#pragma unroll
    for (int i = FIRST; i < FIRST + COUNT; ++i) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            coarse[row] = __dp4a((int)q[row][i], (int)v.coarse[i], coarse[row]);
            fine[row] = __dp4a((int)q[row][i], (int)v.fine[i], fine[row]);
        }
    }
    return make_int2(coarse[0] * 128 + fine[0], coarse[1] * 128 + fine[1]);
}

// Eight columns: the first four of 32 lanes are stored apart from the last four, to use all banks.
struct Eight {
    float4 first, last;
    u32 lane;

    __device__ Eight(u32 lane, float = 1.0f) : lane(lane) {}

    __device__ void load(const u8* memory, u32 step)
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
    u32 lane;

    __device__ Four(u32 lane, float = 1.0f) : lane(lane) {}

    __device__ void load(const u8* memory, u32 step)
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

// 16 bytes of integers of a unit of both rows. In `load` of a Tile, `slots` is the number of pairs of units of the tile,
// `at` the lane's.
static __device__ void integers(u32 (&to)[2][4], const u8* tile, u32 slots, u32 at)
{
    words(to[0], ((const uint4*)tile)[at]);
    words(to[1], ((const uint4*)tile)[slots + at]);
}

// Integers without their MIDDLE, and two scales of a unit, signed bytes.
template <int MIDDLE>
struct TwoScales {
    static const u32 UNIT = 32, PAIRS = 4;
    static const bool ROUNDS = true, WHOLE = true;
    typedef Group Vector;

    struct Integers {
        u32 q[2][8], scales;
        float factor[2];
    };

    static __device__ float2 dot(const Integers& t, const Group& v)
    {
        int2 first = products<0, 4>(t.q, v), second = products<4, 4>(t.q, v);
        int below[2] = {-MIDDLE * v.sum[0], -MIDDLE * v.sum[1]};
        int a = (first.x + below[0]) * (signed char)t.scales + (second.x + below[1]) * (signed char)(t.scales >> 8);
        int b = (first.y + below[0]) * (signed char)(t.scales >> 16) + (second.y + below[1]) * ((int)t.scales >> 24);
        return make_float2((float)a * (t.factor[0] * v.scale), (float)b * (t.factor[1] * v.scale));
    }
};

struct Q6K : TwoScales<32> {
    static const u32 BYTES = 210;

    struct Tile : Integers {
        __device__ void load(const u8* tile, u32 slots, u32 at)
        {
            u32 w[2][4], both[4];
            integers(w, tile, slots, at);
            words(both, ((const uint4*)(tile + 32 * slots))[at]);
            scales = ((const u32*)(tile + 48 * slots))[at];
            u32 factors = ((const u32*)(tile + 52 * slots))[at / 8];
            factor[0] = half_low(factors), factor[1] = half_high(factors);
            six_bits(q[0], w[0], both[0], both[1]);
            six_bits(q[1], w[1], both[2], both[3]);
        }
    };
};

struct Q3K : TwoScales<4> {
    static const u32 BYTES = 110;

    struct Tile : Integers {
        __device__ void load(const u8* tile, u32 slots, u32 at)
        {
            uint4 low = ((const uint4*)tile)[at];
            uint2 high = ((const uint2*)(tile + 16 * slots))[at];
            const u32* block = (const u32*)(tile + 24 * slots) + at / 8 * 3;
            scales = signed_scales(block, at) | signed_scales(block + slots / 8 * 3, at) << 16;
            u32 factors = ((const u32*)(tile + 27 * slots))[at / 8];
            factor[0] = half_low(factors), factor[1] = half_high(factors);
            two_bits(q[0], low.x, low.y);
            two_bits(q[1], low.z, low.w);
            add_bits<2>(q[0], high.x);
            add_bits<2>(q[1], high.y);
        }
    };
};

// A byte of each half of a unit has its scale and its minimum.
struct Q2K {
    static const u32 UNIT = 32, PAIRS = 4, BYTES = 84;
    static const bool ROUNDS = true, WHOLE = true;
    typedef Group Vector;

    struct Tile {
        u32 q[2][8], scales;
        uint2 factors;

        __device__ void load(const u8* tile, u32 slots, u32 at)
        {
            uint4 low = ((const uint4*)tile)[at];
            scales = ((const u32*)(tile + 16 * slots))[at];
            factors = ((const uint2*)(tile + 20 * slots))[at / 8];
            two_bits(q[0], low.x, low.y);
            two_bits(q[1], low.z, low.w);
        }
    };

    static __device__ float row(int first, int second, u32 scales, u32 factors, const Group& v)
    {
        int sum = first * (int)(scales & 15) + second * (int)(scales >> 8 & 15);
        int least = v.sum[0] * (int)(scales >> 4 & 15) + v.sum[1] * (int)(scales >> 12 & 15);
        return v.scale * fmaf(half_low(factors), (float)sum, -(half_high(factors) * (float)least));
    }

    static __device__ float2 dot(const Tile& t, const Group& v)
    {
        int2 first = products<0, 4>(t.q, v), second = products<4, 4>(t.q, v);
        return make_float2(row(first.x, second.x, t.scales, t.factors.x, v),
                           row(first.y, second.y, t.scales >> 16, t.factors.y, v));
    }
};

// A K format with minima. The 16 bytes of scales: two halves d and dmin; a byte of each of eight units, its scale and
// the upper two bits of its minimum; four bits of each minimum.
struct Minima {
    u32 scale[2], minimum[2];
    float d[2], dmin[2];

    __device__ void load(const u8* part, u32 slots, u32 at)
    {
        u32 unit = at % 8;
#pragma unroll
        for (int row = 0; row < 2; ++row, at += slots) {
            uint4 header = ((const uint4*)part)[at / 8];
            u32 own = __byte_perm(header.y, header.z, unit);
            scale[row] = own & 63;
            minimum[row] = ((header.w >> (4 * unit)) & 15) | ((own >> 2) & 0x30);
            d[row] = half_low(header.x);
            dmin[row] = half_high(header.x);
        }
    }

    __device__ float2 apply(int2 sums, const Group& v) const
    {
        int all = v.sum[0] + v.sum[1];
        float a = fmaf(d[0], (float)((int)scale[0] * sums.x), -(dmin[0] * (float)((int)minimum[0] * all)));
        float b = fmaf(d[1], (float)((int)scale[1] * sums.y), -(dmin[1] * (float)((int)minimum[1] * all)));
        return make_float2(v.scale * a, v.scale * b);
    }
};

struct Q4K {
    static const u32 UNIT = 32, PAIRS = 4, BYTES = 144;
    static const bool ROUNDS = true, WHOLE = true;
    typedef Group Vector;

    struct Tile {
        u32 q[2][8];
        Minima minima;

        __device__ void load(const u8* tile, u32 slots, u32 at)
        {
            u32 w[2][4];
            integers(w, tile, slots, at);
            minima.load(tile + 32 * slots, slots, at);
            nibbles_near(q[0], w[0]);
            nibbles_near(q[1], w[1]);
        }
    };

    static __device__ float2 dot(const Tile& t, const Group& v)
    {
        return t.minima.apply(products<0, 8>(t.q, v), v);
    }
};

struct Q5K {
    static const u32 UNIT = 32, PAIRS = 4, BYTES = 176;
    static const bool ROUNDS = true, WHOLE = true;
    typedef Group Vector;

    struct Tile {
        u32 q[2][8];
        Minima minima;

        __device__ void load(const u8* tile, u32 slots, u32 at)
        {
            u32 w[2][4];
            integers(w, tile, slots, at);
            uint2 high = ((const uint2*)(tile + 32 * slots))[at];
            minima.load(tile + 40 * slots, slots, at);
            nibbles_near(q[0], w[0]);
            nibbles_near(q[1], w[1]);
            add_bits<4>(q[0], high.x);
            add_bits<4>(q[1], high.y);
        }
    };

    static __device__ float2 dot(const Tile& t, const Group& v)
    {
        return t.minima.apply(products<0, 8>(t.q, v), v);
    }
};

// Integers of 4 bits, or 5 with FIFTH, without their middle, or with a minimum.
template <bool FIFTH, bool MINIMUM>
struct Linear {
    static const u32 UNIT = 32, PAIRS = 4, BYTES = 144 + 32 * FIFTH + 16 * MINIMUM;
    static const bool ROUNDS = true, WHOLE = false;
    typedef Group Vector;

    struct Tile {
        u32 q[2][8];
        float factor[2], minimum[2];

        __device__ void load(const u8* tile, u32 slots, u32 at)
        {
            u32 w[2][4];
            integers(w, tile, slots, at);
            nibbles_apart(q[0], w[0]);
            nibbles_apart(q[1], w[1]);
            const u8* rest = tile + 32 * slots;
            if (FIFTH) {
                uint2 high = ((const uint2*)rest)[at];
                add_bits<4>(q[0], high.x);
                add_bits<4>(q[1], high.y);
                rest += 8 * slots;
            }
            if (MINIMUM) {
                uint2 both = ((const uint2*)rest)[at];
                factor[0] = half_low(both.x), factor[1] = half_low(both.y);
                minimum[0] = half_high(both.x), minimum[1] = half_high(both.y);
            } else {
                u32 both = ((const u32*)rest)[at];
                factor[0] = half_low(both), factor[1] = half_high(both);
            }
        }
    };

    static __device__ float2 dot(const Tile& t, const Group& v)
    {
        int2 sums = products<0, 8>(t.q, v);
        int all = v.sum[0] + v.sum[1], below = FIFTH ? -16 * all : -8 * all;
        if (MINIMUM)
            return make_float2(v.scale * fmaf(t.factor[0], (float)sums.x, t.minimum[0] * (float)all),
                               v.scale * fmaf(t.factor[1], (float)sums.y, t.minimum[1] * (float)all));
        return make_float2((float)(sums.x + below) * (t.factor[0] * v.scale),
                           (float)(sums.y + below) * (t.factor[1] * v.scale));
    }
};

typedef Linear<false, false> Q4_0;
typedef Linear<false, true> Q4_1;
typedef Linear<true, false> Q5_0;
typedef Linear<true, true> Q5_1;

// Signed bytes with a factor.
struct Bytes {
    static const u32 UNIT = 32, PAIRS = 4;
    static const bool ROUNDS = true;
    typedef Group Vector;

    struct Integers {
        u32 q[2][8];
        float factor[2];
    };

    static __device__ float2 dot(const Integers& t, const Group& v)
    {
        int2 sums = products<0, 8>(t.q, v);
        return make_float2((float)sums.x * (t.factor[0] * v.scale), (float)sums.y * (t.factor[1] * v.scale));
    }
};

// Values of a table.
template <class Table, class Factor, bool OF_WHOLE>
struct Listed : Bytes {
    static const u32 BYTES = 128 + Factor::BYTES;
    static const bool WHOLE = OF_WHOLE;

    struct Tile : Integers {
        __device__ void load(const u8* tile, u32 slots, u32 at)
        {
            u32 w[2][4];
            integers(w, tile, slots, at);
#pragma unroll
            for (int row = 0; row < 2; ++row) {
                from_table<Table, 0>(q[row], w[row]);
                factor[row] = Factor::value(Factor::load(tile + 32 * slots, at, row), at);
            }
        }
    };
};

typedef Listed<Iq4Values, HalfFactor, false> IQ4NL;
typedef Listed<Fp4Values, PowerFactor, false> MXFP4;
typedef Listed<Iq4Values, GroupFactor, true> IQ4XS;

struct Q8_0 : Bytes {
    static const u32 BYTES = 272;
    static const bool WHOLE = false;

    struct Tile : Integers {
        __device__ void load(const u8* tile, u32 slots, u32 at)
        {
            u32 factors = ((const u32*)(tile + 64 * slots))[at];
            factor[0] = half_low(factors), factor[1] = half_high(factors);
#pragma unroll
            for (int i = 0; i < 8; i += 2) {
                // Two words of each row.
                uint4 two = ((const uint4*)tile)[i / 2 * slots + at];
                q[0][i] = two.x, q[1][i] = two.y, q[0][i + 1] = two.z, q[1][i + 1] = two.w;
            }
        }
    };
};

// Floats: 16 bytes of each row.
struct Plain {
    u32 w[2][4];

    __device__ void load(const u8* tile, u32 slots, u32 at)
    {
        integers(w, tile, slots, at);
    }
};

struct F16 {
    static const u32 UNIT = 8, PAIRS = 1, BYTES = 128;
    static const bool ROUNDS = false, WHOLE = false;
    typedef Eight Vector;
    typedef Plain Tile;

    static __device__ float2 pair(u32 word)
    {
        return make_float2(half_low(word), half_high(word));
    }

    static __device__ float row(const u32 (&w)[4], const Eight& v)
    {
        return v.dot(pair(w[0]), pair(w[1]), pair(w[2]), pair(w[3]));
    }

    static __device__ float2 dot(const Plain& t, const Eight& v)
    {
        return make_float2(row(t.w[0], v), row(t.w[1], v));
    }
};

struct BF16 {
    static const u32 UNIT = 8, PAIRS = 1, BYTES = 128;
    static const bool ROUNDS = false, WHOLE = false;
    typedef Eight Vector;
    typedef Plain Tile;

    static __device__ float2 pair(u32 word)
    {
        return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
    }

    static __device__ float row(const u32 (&w)[4], const Eight& v)
    {
        return v.dot(pair(w[0]), pair(w[1]), pair(w[2]), pair(w[3]));
    }

    static __device__ float2 dot(const Plain& t, const Eight& v)
    {
        return make_float2(row(t.w[0], v), row(t.w[1], v));
    }
};

struct F32 {
    static const u32 UNIT = 4, PAIRS = 1, BYTES = 128;
    static const bool ROUNDS = false, WHOLE = false;
    typedef Four Vector;
    typedef Plain Tile;

    static __device__ float row(const u32 (&w)[4], const Four& v)
    {
        float sum = __uint_as_float(w[0]) * v.all.x;
        sum = fmaf(__uint_as_float(w[1]), v.all.y, sum);
        sum = fmaf(__uint_as_float(w[2]), v.all.z, sum);
        return fmaf(__uint_as_float(w[3]), v.all.w, sum);
    }

    static __device__ float2 dot(const Plain& t, const Four& v)
    {
        return make_float2(row(t.w[0], v), row(t.w[1], v));
    }
};
