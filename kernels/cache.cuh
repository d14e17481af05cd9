// Keys and values in a cache of 8-bit integers, of which 32 neighbouring columns share a scale, a half: the precision
// of Q8_0. Integers and scales are apart, so both are read aligned; the scales of a key and of the value of the same
// position are neighbours. Include after the integer types.
#pragma once

// Columns that share a scale.
#define SCALE_COLUMNS 32

// Rounds a row of floats in shared memory, by one warp. `integer` gets each column's, `scale` that of each group.
template <class Integer, class Scale>
static __device__ void round_row(const float* row, u32 columns, Integer integer, Scale scale)
{
    u32 lane = threadIdx.x % 32;
    for (u32 first = 0; first < columns; first += SCALE_COLUMNS) {
        u32 column = first + lane;
        float x = column < columns ? row[column] : 0.0f, most = fabsf(x);
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1)
            most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, offset));
        __half stored = __float2half_rn(most / 127.0f);
        // Rounding makes the scale of tiny numbers smaller, or 0.
        float exact = __half2float(stored), q = exact > 0.0f ? rintf(x / exact) : 0.0f;
        if (column < columns)
            integer(column, (signed char)fminf(fmaxf(q, -127.0f), 127.0f));
        if (lane == 0)
            scale(first / SCALE_COLUMNS, stored);
    }
}

// Four integers as floats.
static __device__ void integers(u32 word, float* to)
{
    word ^= 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        // The lowest byte of 2^23.
        to[i] = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440 | i)) - 8388736.0f;
}
