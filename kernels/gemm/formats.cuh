// Packed weights: see `infer`'s module `decode::pack` for the tiles.
//
// A format has: UNIT, the columns of a unit; PAIRS, the pairs of rows of a tile; BYTES, the bytes of 8 units of one row; COLUMNS, the columns that a thread
// takes at a time, 64 bytes of a row in shared memory; Raw, their bits; `expand`, the weights. Formats of quantised
// weights are whole groups of 32 columns; of the others, columns after the last one are 0.
#pragma once
#include "mma.cuh"

// A row: the tiles of its band, its pair, and whether it is the second of the pair.
struct Line {
    const u8* band;
    u32 pair, second;
};

// A segment of a row: its tile, the number of pairs of units of the tile, the segment's pair, its place among the units of
// the first rows and then of the second rows, that among the rows of each unit, and how many of its columns exist.
struct Segment {
    const u8* tile;
    u32 slots, slot, at, both, columns;
};

// The packed rows of a matrix.
template <class F>
struct Rows {
    const u8* tiles;
    u32 columns, steps, last_units;
    u64 band_bytes;

    __device__ Rows(const u8* tiles, u32 columns) : tiles(tiles), columns(columns)
    {
        const u32 across = 32 / F::PAIRS;
        u32 units = columns / F::UNIT;
        steps = (units + across - 1) / across;
        last_units = units - (steps - 1) * across;
        band_bytes = (u64)(steps - 1) * 8 * F::BYTES + ((2 * F::PAIRS * last_units * F::BYTES / 8 + 15) & ~15u);
    }

    __device__ Line line(u32 row) const
    {
        Line l;
        l.band = tiles + row / (2 * F::PAIRS) * band_bytes;
        l.pair = row / 2 % F::PAIRS;
        l.second = row % 2;
        return l;
    }

    // The segment from column `column` on, a multiple of F::COLUMNS.
    __device__ Segment segment(const Line& l, u32 column) const
    {
        const u32 across = 32 / F::PAIRS;
        Segment s;
        u32 unit = column / F::UNIT, step = unit / across, units = step + 1 == steps ? last_units : across;
        s.slots = F::PAIRS * units;
        s.tile = l.band + step * 8 * F::BYTES;
        s.slot = l.pair * units + unit % across;
        s.at = l.second * s.slots + s.slot;
        s.both = 2 * s.slot + l.second;
        s.columns = column >= columns ? 0 : columns - column < F::COLUMNS ? columns - column : F::COLUMNS;
        return s;
    }

    __device__ Segment segment(u32 row, u32 column) const
    {
        return segment(line(row), column);
    }
};

static __device__ float low_half(u32 word)
{
    return __half2float(__ushort_as_half((u16)word));
}

// Byte `byte` of a word as a number, without OFFSET: 2^23 + byte is a float whose lowest bits are the byte.
template <int OFFSET>
static __device__ float number(u32 word, int byte)
{
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440 + byte)) - (8388608.0f + OFFSET);
}

// Four weights q * scale.
template <int OFFSET>
static __device__ void four(float* to, u32 word, float scale)
{
#pragma unroll
    for (int i = 0; i < 4; ++i)
        to[i] = number<OFFSET>(word, i) * scale;
}

// Four weights q * scale - minimum.
static __device__ void four_with(float* to, u32 word, float scale, float minimum)
{
#pragma unroll
    for (int i = 0; i < 4; ++i)
        to[i] = fmaf(number<0>(word, i), scale, -minimum);
}

struct Q4_0 {
    static const u32 UNIT = 32, PAIRS = 4, BYTES = 144, COLUMNS = 32;

    struct Raw {
        uint4 q;
        u32 factor;
    };

    static __device__ void load(Raw& raw, const Segment& s)
    {
        raw.q = ((const uint4*)s.tile)[s.at];
        raw.factor = ((const u16*)(s.tile + 32 * s.slots))[s.both];
    }

    static __device__ void expand(const Raw& raw, float (&to)[COLUMNS])
    {
        u32 q[4] = {raw.q.x, raw.q.y, raw.q.z, raw.q.w};
        float factor = low_half(raw.factor);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            four<8>(&to[4 * i], q[i] & 0x0f0f0f0fu, factor);
            four<8>(&to[16 + 4 * i], (q[i] >> 4) & 0x0f0f0f0fu, factor);
        }
    }
};

struct Q8_0 {
    static const u32 UNIT = 32, PAIRS = 4, BYTES = 272, COLUMNS = 32;

    struct Raw {
        u32 q[8], factor;
    };

    static __device__ void load(Raw& raw, const Segment& s)
    {
        // Words of both rows follow each other.
        const u32* words = (const u32*)s.tile + 4 * s.slot + s.both % 2;
#pragma unroll
        for (int i = 0; i < 8; ++i)
            raw.q[i] = words[i / 2 * 4 * s.slots + i % 2 * 2];
        raw.factor = ((const u16*)(s.tile + 64 * s.slots))[s.both];
    }

    static __device__ void expand(const Raw& raw, float (&to)[COLUMNS])
    {
        float factor = low_half(raw.factor);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            four<128>(&to[4 * i], raw.q[i] ^ 0x80808080u, factor);
    }
};

// Scale and minimum of unit `unit`, from the 16 bytes of scales of eight units.
static __device__ void scales_of(uint4 header, u32 unit, float& scale, float& minimum)
{
    u32 own = __byte_perm(header.y, header.z, unit % 8);
    u32 s = own & 63, m = ((header.w >> (4 * (unit % 8))) & 15) | ((own >> 2) & 0x30);
    scale = low_half(header.x) * (float)s;
    minimum = low_half(header.x >> 16) * (float)m;
}

struct Q4K {
    static const u32 UNIT = 32, PAIRS = 4, BYTES = 144, COLUMNS = 32;

    struct Raw {
        uint4 q, header;
        u32 unit;
    };

    static __device__ void load(Raw& raw, const Segment& s)
    {
        raw.q = ((const uint4*)s.tile)[s.at];
        raw.header = ((const uint4*)(s.tile + 32 * s.slots))[s.at / 8];
        raw.unit = s.at;
    }

    static __device__ void expand(const Raw& raw, float (&to)[COLUMNS])
    {
        u32 q[4] = {raw.q.x, raw.q.y, raw.q.z, raw.q.w};
        float scale, minimum;
        scales_of(raw.header, raw.unit, scale, minimum);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            four_with(&to[8 * i], q[i] & 0x0f0f0f0fu, scale, minimum);
            four_with(&to[8 * i + 4], (q[i] >> 4) & 0x0f0f0f0fu, scale, minimum);
        }
    }
};

struct Q5K {
    static const u32 UNIT = 32, PAIRS = 4, BYTES = 176, COLUMNS = 32;

    struct Raw {
        uint4 q, header;
        u32 high, unit;
    };

    static __device__ void load(Raw& raw, const Segment& s)
    {
        raw.q = ((const uint4*)s.tile)[s.at];
        raw.high = ((const u32*)(s.tile + 32 * s.slots))[s.both];
        raw.header = ((const uint4*)(s.tile + 40 * s.slots))[s.at / 8];
        raw.unit = s.at;
    }

    static __device__ void expand(const Raw& raw, float (&to)[COLUMNS])
    {
        u32 q[4] = {raw.q.x, raw.q.y, raw.q.z, raw.q.w};
        float scale, minimum;
        scales_of(raw.header, raw.unit, scale, minimum);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            // Bits 2 * i of each byte belong to the lower columns, bits 2 * i + 1 to the upper.
            u32 a = ((raw.high >> (2 * i)) & 0x01010101u) << 4, b = ((raw.high >> (2 * i + 1)) & 0x01010101u) << 4;
            four_with(&to[8 * i], (q[i] & 0x0f0f0f0fu) | a, scale, minimum);
            four_with(&to[8 * i + 4], ((q[i] >> 4) & 0x0f0f0f0fu) | b, scale, minimum);
        }
    }
};

struct Q6K {
    static const u32 UNIT = 32, PAIRS = 4, BYTES = 210, COLUMNS = 32;

    struct Raw {
        uint4 q;
        uint2 more;
        u32 scales, factor;
    };

    static __device__ void load(Raw& raw, const Segment& s)
    {
        raw.q = ((const uint4*)s.tile)[s.at];
        raw.more = ((const uint2*)(s.tile + 32 * s.slots))[s.both];
        raw.scales = ((const u16*)(s.tile + 48 * s.slots))[s.both];
        raw.factor = ((const u16*)(s.tile + 52 * s.slots))[s.slot / 8 * 2 + s.both % 2];
    }

    // The columns in the upper bits of three words.
    static __device__ u32 gather(u32 a, u32 b, u32 c)
    {
        return ((a >> 6) & 0x03030303u) | ((b >> 4) & 0x0c0c0c0cu) | ((c >> 2) & 0x30303030u);
    }

    static __device__ void expand(const Raw& raw, float (&to)[COLUMNS])
    {
        u32 q[8] = {raw.q.x, raw.q.y, raw.q.z, raw.q.w, raw.more.x, raw.more.y};
        q[6] = gather(q[0], q[1], q[2]);
        q[7] = gather(q[3], q[4], q[5]);
        float factor = low_half(raw.factor);
        float scale[2] = {factor * (float)(signed char)raw.scales, factor * (float)(signed char)(raw.scales >> 8)};
#pragma unroll
        for (int i = 0; i < 8; ++i)
            four<32>(&to[4 * i], i < 6 ? q[i] & 0x3f3f3f3fu : q[i], scale[i / 4]);
    }
};

// Formats that are not quantised: pieces of 16 bytes.
template <int PIECES, u32 OF_UNIT, u32 OF_SEGMENT>
struct Plain {
    static const u32 UNIT = OF_UNIT, PAIRS = 1, BYTES = 128, COLUMNS = OF_SEGMENT;

    struct Raw {
        uint4 q[PIECES];
    };

    static __device__ void load(Raw& raw, const Segment& s)
    {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            raw.q[i] = make_uint4(0, 0, 0, 0);
            if (i * UNIT < s.columns)
                raw.q[i] = ((const uint4*)s.tile)[s.at + i];
        }
    }
};

struct WeightsF16 : Plain<4, 8, 32> {
    static __device__ void expand(const Raw& raw, float (&to)[COLUMNS])
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            u32 q[4] = {raw.q[i].x, raw.q[i].y, raw.q[i].z, raw.q[i].w};
#pragma unroll
            for (int j = 0; j < 4; ++j)
                to[8 * i + 2 * j] = low_half(q[j]), to[8 * i + 2 * j + 1] = low_half(q[j] >> 16);
        }
    }
};

struct WeightsBF16 : Plain<2, 8, 16> {
    static __device__ void expand(const Raw& raw, float (&to)[COLUMNS])
    {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            u32 q[4] = {raw.q[i].x, raw.q[i].y, raw.q[i].z, raw.q[i].w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                to[8 * i + 2 * j] = __uint_as_float(q[j] << 16);
                to[8 * i + 2 * j + 1] = __uint_as_float(q[j] & 0xffff0000u);
            }
        }
    }
};

struct WeightsF32 : Plain<4, 4, 16> {
    static __device__ void expand(const Raw& raw, float (&to)[COLUMNS])
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            to[4 * i] = __uint_as_float(raw.q[i].x), to[4 * i + 1] = __uint_as_float(raw.q[i].y);
            to[4 * i + 2] = __uint_as_float(raw.q[i].z), to[4 * i + 3] = __uint_as_float(raw.q[i].w);
        }
    }
};

// What the tensor cores multiply weights as: halves, or floats where halves have too few exponents. `pieces` has a
// segment's, 16 bytes each.
template <class F>
struct Elements {
    typedef F16 Type;

    static __device__ void pieces(const typename F::Raw& raw, uint4 (&to)[4])
    {
        float v[F::COLUMNS];
        F::expand(raw, v);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            u32 w[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                __half2 pair = __floats2half2_rn(v[8 * i + 2 * j], v[8 * i + 2 * j + 1]);
                w[j] = *(u32*)&pair;
            }
            to[i] = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
};

template <>
struct Elements<WeightsF16> {
    typedef F16 Type;

    static __device__ void pieces(const WeightsF16::Raw& raw, uint4 (&to)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            to[i] = raw.q[i];
    }
};

template <class F, class E>
struct FloatElements {
    typedef E Type;

    static __device__ void pieces(const typename F::Raw& raw, uint4 (&to)[4])
    {
        float v[F::COLUMNS];
        F::expand(raw, v);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            to[i] = make_uint4(__float_as_uint(v[4 * i]), __float_as_uint(v[4 * i + 1]),
                               __float_as_uint(v[4 * i + 2]), __float_as_uint(v[4 * i + 3]));
    }
};

template <>
struct Elements<WeightsBF16> : FloatElements<WeightsBF16, F32OnTF32> {};
template <>
struct Elements<WeightsF32> : FloatElements<WeightsF32, F32> {};
