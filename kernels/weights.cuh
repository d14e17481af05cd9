// Packed weights as floats: see `infer`'s module `decode::pack` for the tiles. Include <cuda_fp16.h> first.
//
// A format has: UNIT, the columns of a unit; PAIRS, the pairs of rows of a tile; BYTES, the bytes of 8 units of one row;
// COLUMNS, the columns that a thread takes at a time, 64 bytes of a row as the tensor cores read it; Raw, their bits;
// `expand`, the weights. Formats of quantised weights are whole groups of 32 columns; of the others, columns after the
// last one are 0.
#pragma once
#include "unpack.cuh"

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

// The integers of a unit times scales.
template <int OFFSET>
static __device__ void unit_of(float (&to)[32], const u32 (&q)[8], float first, float second)
{
#pragma unroll
    for (int i = 0; i < 8; ++i)
        four<OFFSET>(&to[4 * i], q[i], i < 4 ? first : second);
}

static __device__ void unit_with(float (&to)[32], const u32 (&q)[8], float scale, float minimum)
{
#pragma unroll
    for (int i = 0; i < 8; ++i)
        four_with(&to[4 * i], q[i], scale, minimum);
}

// Integers of 4 bits, or 5 with FIFTH, without their middle, or with a minimum.
template <bool FIFTH, bool MINIMUM>
struct Linear {
    static const u32 UNIT = 32, PAIRS = 4, BYTES = 144 + 32 * FIFTH + 16 * MINIMUM, COLUMNS = 32;

    struct Raw {
        uint4 q;
        u32 high, factor;
    };

    static __device__ void load(Raw& raw, const Segment& s)
    {
        const u8* rest = s.tile + 32 * s.slots;
        raw.q = ((const uint4*)s.tile)[s.at];
        if (FIFTH) {
            raw.high = ((const u32*)rest)[s.both];
            rest += 8 * s.slots;
        }
        raw.factor = MINIMUM ? ((const u32*)rest)[s.both] : ((const u16*)rest)[s.both];
    }

    static __device__ void expand(const Raw& raw, float (&to)[COLUMNS])
    {
        u32 w[4], q[8];
        words(w, raw.q);
        nibbles_apart(q, w);
        if (FIFTH)
            add_bits<4>(q, raw.high);
        float factor = half_low(raw.factor);
        if (MINIMUM)
            unit_with(to, q, factor, -half_high(raw.factor));
        else
            unit_of<FIFTH ? 16 : 8>(to, q, factor, factor);
    }
};

typedef Linear<false, false> Q4_0;
typedef Linear<false, true> Q4_1;
typedef Linear<true, false> Q5_0;
typedef Linear<true, true> Q5_1;

// Values of a table.
template <class Table, class Factor>
struct Listed {
    static const u32 UNIT = 32, PAIRS = 4, BYTES = 128 + Factor::BYTES, COLUMNS = 32;

    struct Raw {
        uint4 q;
        typename Factor::Raw factor;
        u32 slot;
    };

    static __device__ void load(Raw& raw, const Segment& s)
    {
        raw.q = ((const uint4*)s.tile)[s.at];
        raw.factor = Factor::load(s.tile + 32 * s.slots, s.slot, s.both % 2);
        raw.slot = s.slot;
    }

    static __device__ void expand(const Raw& raw, float (&to)[COLUMNS])
    {
        u32 w[4], q[8];
        words(w, raw.q);
        from_table<Table, 0x80808080u>(q, w);
        float factor = Factor::value(raw.factor, raw.slot);
        unit_of<128>(to, q, factor, factor);
    }
};

typedef Listed<Iq4Values, HalfFactor> IQ4NL;
typedef Listed<Fp4Values, PowerFactor> MXFP4;
typedef Listed<Iq4Values, GroupFactor> IQ4XS;

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
        float factor = half_low(raw.factor);
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
    scale = half_low(header.x) * (float)s;
    minimum = half_high(header.x) * (float)m;
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
        u32 w[4], q[8];
        float scale, minimum;
        words(w, raw.q);
        nibbles_near(q, w);
        scales_of(raw.header, raw.unit, scale, minimum);
        unit_with(to, q, scale, minimum);
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
        u32 w[4], q[8];
        float scale, minimum;
        words(w, raw.q);
        nibbles_near(q, w);
        add_bits<4>(q, raw.high);
        scales_of(raw.header, raw.unit, scale, minimum);
        unit_with(to, q, scale, minimum);
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

    static __device__ void expand(const Raw& raw, float (&to)[COLUMNS])
    {
        u32 w[4], q[8];
        words(w, raw.q);
        six_bits(q, w, raw.more.x, raw.more.y);
        float factor = half_low(raw.factor);
        unit_of<32>(to, q, factor * (float)(signed char)raw.scales, factor * (float)(signed char)(raw.scales >> 8));
    }
};

struct Q3K {
    static const u32 UNIT = 32, PAIRS = 4, BYTES = 110, COLUMNS = 32;

    struct Raw {
        uint2 q;
        u32 high, scales[3], factor, unit;
    };

    static __device__ void load(Raw& raw, const Segment& s)
    {
        raw.q = ((const uint2*)s.tile)[s.both];
        raw.high = ((const u32*)(s.tile + 16 * s.slots))[s.both];
        const u32* scales = (const u32*)(s.tile + 24 * s.slots) + s.at / 8 * 3;
        raw.scales[0] = scales[0], raw.scales[1] = scales[1], raw.scales[2] = scales[2];
        raw.factor = ((const u16*)(s.tile + 27 * s.slots))[s.slot / 8 * 2 + s.both % 2];
        raw.unit = s.slot;
    }

    static __device__ void expand(const Raw& raw, float (&to)[COLUMNS])
    {
        u32 q[8], scales = signed_scales(raw.scales, raw.unit);
        two_bits(q, raw.q.x, raw.q.y);
        add_bits<2>(q, raw.high);
        float factor = half_low(raw.factor);
        unit_of<4>(to, q, factor * (float)(signed char)scales, factor * (float)(signed char)(scales >> 8));
    }
};

struct Q2K {
    static const u32 UNIT = 32, PAIRS = 4, BYTES = 84, COLUMNS = 32;

    struct Raw {
        uint2 q;
        u32 scales, factors;
    };

    static __device__ void load(Raw& raw, const Segment& s)
    {
        raw.q = ((const uint2*)s.tile)[s.both];
        raw.scales = ((const u16*)(s.tile + 16 * s.slots))[s.both];
        raw.factors = ((const u32*)(s.tile + 20 * s.slots))[s.slot / 8 * 2 + s.both % 2];
    }

    static __device__ void expand(const Raw& raw, float (&to)[COLUMNS])
    {
        u32 q[8];
        two_bits(q, raw.q.x, raw.q.y);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            u32 own = raw.scales >> (i / 4 * 8);
            float scale = half_low(raw.factors) * (float)(own & 15);
            four_with(&to[4 * i], q[i], scale, half_high(raw.factors) * (float)(own >> 4 & 15));
        }
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
                to[8 * i + 2 * j] = half_low(q[j]), to[8 * i + 2 * j + 1] = half_low(q[j] >> 16);
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

// ---- Embeddings ----

// Row `row` of a matrix, times `factor`, to `x`; plus `other` unless it is null. By all threads of a block.
template <class F>
static __device__ void copy_row(const u8* tiles, u32 columns, u32 row, float factor, const float* other, float* x)
{
    Rows<F> rows(tiles, columns);
    for (u32 column = threadIdx.x * F::COLUMNS; column < columns; column += blockDim.x * F::COLUMNS) {
        Segment s = rows.segment(row, column);
        typename F::Raw raw;
        float v[F::COLUMNS];
        F::load(raw, s);
        F::expand(raw, v);
#pragma unroll
        for (u32 i = 0; i < F::COLUMNS; i += 4)
            if (i < s.columns) {
                float4 sum = make_float4(v[i] * factor, v[i + 1] * factor, v[i + 2] * factor, v[i + 3] * factor);
                if (other) {
                    float4 o = *(const float4*)(other + column + i);
                    sum.x += o.x, sum.y += o.y, sum.z += o.z, sum.w += o.w;
                }
                *(float4*)(x + column + i) = sum;
            }
    }
}

// The same for a format by its number in GGUF files.
static __device__ void copy_row_of(u32 block_type, const u8* tiles, u32 columns, u32 row, float factor,
                                   const float* other, float* x)
{
#define CASE(name, format, number)                                                                                     \
    case number:                                                                                                       \
        return copy_row<format>(tiles, columns, row, factor, other, x);
    switch (block_type) {
        CASE(f32, WeightsF32, 0)
        CASE(f16, WeightsF16, 1)
        CASE(bf16, WeightsBF16, 30)
        QUANTISED(CASE)
    }
#undef CASE
}
