// Units of packed weights, from the words of a tile to bytes: see `infer`'s module `decode::pack`. Include
// <cuda_fp16.h> first.
//
// A unit of a row has 32 columns. q[k] gets columns 4 k to 4 k + 3, a byte each.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Formats of quantised weights: name in kernels, type, number in GGUF files.
#define QUANTISED(ROW)                                                                                                 \
    ROW(q4_0, Q4_0, 2)                                                                                                 \
    ROW(q4_1, Q4_1, 3)                                                                                                 \
    ROW(q5_0, Q5_0, 6)                                                                                                 \
    ROW(q5_1, Q5_1, 7)                                                                                                 \
    ROW(q8_0, Q8_0, 8)                                                                                                 \
    ROW(q2_k, Q2K, 10)                                                                                                 \
    ROW(q3_k, Q3K, 11)                                                                                                 \
    ROW(q4_k, Q4K, 12)                                                                                                 \
    ROW(q5_k, Q5K, 13)                                                                                                 \
    ROW(q6_k, Q6K, 14)                                                                                                 \
    ROW(iq4_nl, IQ4NL, 20)                                                                                             \
    ROW(iq4_xs, IQ4XS, 23)                                                                                             \
    ROW(mxfp4, MXFP4, 39)

// The number in the lower or upper half of a word.
static __device__ float half_low(u32 word)
{
    return __half2float(__ushort_as_half((u16)word));
}

static __device__ float half_high(u32 word)
{
    return __half2float(__ushort_as_half((u16)(word >> 16)));
}

static __device__ void words(u32 (&to)[4], uint4 from)
{
    to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
}

// ---- Integers ----

// Byte b of word j has column 4 j + b in its lower and column 16 + 4 j + b in its upper half.
static __device__ void nibbles_apart(u32 (&q)[8], const u32 (&w)[4])
{
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        q[j] = w[j] & 0x0f0f0f0fu;
        q[4 + j] = (w[j] >> 4) & 0x0f0f0f0fu;
    }
}

// Byte b of word j has column 8 j + b in its lower and column 8 j + 4 + b in its upper half.
static __device__ void nibbles_near(u32 (&q)[8], const u32 (&w)[4])
{
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        q[2 * j] = w[j] & 0x0f0f0f0fu;
        q[2 * j + 1] = (w[j] >> 4) & 0x0f0f0f0fu;
    }
}

// Bits 2 k and 2 k + 1 of byte b of a word have column 4 k + b, those of the second word column 16 + 4 k + b.
static __device__ void two_bits(u32 (&q)[8], u32 first, u32 second)
{
#pragma unroll
    for (int k = 0; k < 8; ++k)
        q[k] = ((k < 4 ? first : second) >> (2 * (k % 4))) & 0x03030303u;
}

// The two scales of a unit of Q3_K, as signed bytes, from the 12 bytes of a block as in the file.
static __device__ u32 signed_scales(const u32* from, u32 unit)
{
    unit %= 8;
    u32 low = __byte_perm(from[0], from[1], unit % 4 * 0x22 + 0x10) >> (unit / 4 * 4);
    u32 high = from[2] >> (unit % 2 * 16 + unit / 2 * 2);
    // Six bits without 32.
    return (((low & 0x0f0fu) | (high & 0x0303u) << 4 | 0x8080u) - 0x2020u) ^ 0x8080u;
}

// Adds bit k of byte b to column 4 k + b, as its bit TO.
template <int TO>
static __device__ void add_bits(u32 (&q)[8], u32 bits)
{
#pragma unroll
    for (int k = 0; k < 8; ++k)
        q[k] |= (k < TO ? bits << (TO - k) : bits >> (k - TO)) & (0x01010101u << TO);
}

// Byte b of word j (0 to 5) has column 4 j + b in its lower six bits. The upper two bits of words 0 to 2 are bits 0-1,
// 2-3 and 4-5 of column 24 + b; those of words 3 to 5, of column 28 + b.
static __device__ void six_bits(u32 (&q)[8], const u32 (&w)[4], u32 fourth, u32 fifth)
{
    auto gather = [](u32 a, u32 b, u32 c) {
        return ((a >> 6) & 0x03030303u) | ((b >> 4) & 0x0c0c0c0cu) | ((c >> 2) & 0x30303030u);
    };
    q[6] = gather(w[0], w[1], w[2]);
    q[7] = gather(w[3], fourth, fifth);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        q[i] = w[i] & 0x3f3f3f3fu;
    q[4] = fourth & 0x3f3f3f3fu;
    q[5] = fifth & 0x3f3f3f3fu;
}

// Tables of 16 signed bytes: 0 to 3, 4 to 7, and so on.
struct Iq4Values {
    static const u32 A = 0xbfad9881u, B = 0xf6eaddcfu, C = 0x26190d01u, D = 0x71594535u;
};

struct Fp4Values {
    static const u32 A = 0x03020100u, B = 0x0c080604u, C = 0xfdfeff00u, D = 0xf4f8fafcu;
};

// The values of a table; FLIPPED bits are inverted. Column i of each 8 has the i-th four bits of a word.
template <class Table, u32 FLIPPED>
static __device__ void from_table(u32 (&q)[8], const u32 (&w)[4])
{
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u32 index = w[j] & 0x77777777u, upper = ((w[j] >> 1) & 0x44444444u) | 0x32103210u;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            u32 low = __byte_perm(Table::A ^ FLIPPED, Table::B ^ FLIPPED, index >> (16 * half));
            u32 high = __byte_perm(Table::C ^ FLIPPED, Table::D ^ FLIPPED, index >> (16 * half));
            q[2 * j + half] = __byte_perm(low, high, upper >> (16 * half));
        }
    }
}

// ---- Factors of the values of a table: of unit `slot`, in the part of a tile that has them ----

struct HalfFactor {
    static const u32 BYTES = 16;
    typedef u32 Raw;

    static __device__ u32 load(const u8* part, u32 slot, u32 second)
    {
        return ((const u16*)part)[2 * slot + second];
    }

    static __device__ float value(u32 raw, u32)
    {
        return half_low(raw);
    }
};

// Half of a power of two, by its exponent.
struct PowerFactor {
    static const u32 BYTES = 8;
    typedef u32 Raw;

    static __device__ u32 load(const u8* part, u32 slot, u32 second)
    {
        return part[2 * slot + second];
    }

    static __device__ float value(u32 raw, u32)
    {
        return __uint_as_float(raw < 2 ? 0x00200000u << raw : (raw - 1) << 23);
    }
};

// Of eight units: a half, and six bits of each unit, upper two bits first; those are signed, with an offset.
struct GroupFactor {
    static const u32 BYTES = 8;
    typedef uint2 Raw;

    static __device__ uint2 load(const u8* part, u32 slot, u32 second)
    {
        return ((const uint2*)part)[slot / 8 * 2 + second];
    }

    static __device__ float value(uint2 raw, u32 slot)
    {
        u32 unit = slot % 8, scale = ((raw.y >> (4 * unit)) & 15) | ((raw.x >> (16 + 2 * unit)) & 3) << 4;
        return half_low(raw.x) * (float)((int)scale - 32);
    }
};
