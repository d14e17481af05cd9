// Matrices in several formats, of which a number says which one a tile has.
#pragma once
#include "formats.cuh"

// All of them round the vector, and have the same units and pairs. The switch is inside the loop over tiles: all formats
// share the other instructions.
template <class First, class... Rest>
struct Mixed {
    typedef Mixed<Rest...> Others;
    static const u32 UNIT = First::UNIT, PAIRS = First::PAIRS;
    // Of the largest, for places of tiles.
    static const u32 BYTES = First::BYTES > Others::BYTES ? First::BYTES : Others::BYTES;
    static const bool ROUNDS = First::ROUNDS, WHOLE = First::WHOLE && Others::WHOLE;
    static_assert(UNIT == Others::UNIT && PAIRS == Others::PAIRS && ROUNDS && Others::ROUNDS, "one form of vectors");
    typedef typename First::Vector Vector;

    union Tile {
        typename First::Tile first;
        typename Others::Tile others;
    };

    static __device__ u32 bytes(u32 format) { return format == 0 ? First::BYTES : Others::bytes(format - 1); }

    static __device__ void load(Tile& to, const u8* tile, u32 slots, u32 at, u32 format)
    {
        if (format == 0)
            to.first.load(tile, slots, at);
        else
            Others::load(to.others, tile, slots, at, format - 1);
    }

    static __device__ float2 dot(const Tile& t, const Vector& v, u32 format)
    {
        return format == 0 ? First::dot(t.first, v) : Others::dot(t.others, v, format - 1);
    }
};

template <class Only>
struct Mixed<Only> : Only {
    static __device__ u32 bytes(u32) { return Only::BYTES; }

    static __device__ void load(typename Only::Tile& to, const u8* tile, u32 slots, u32 at, u32)
    {
        to.load(tile, slots, at);
    }

    static __device__ float2 dot(const typename Only::Tile& t, const typename Only::Vector& v, u32)
    {
        return Only::dot(t, v);
    }
};

// One format, or several, with the same functions.
template <class F>
struct Formats : Mixed<F> {
    static const bool MIXED = false;
};

template <class First, class Second, class... Rest>
struct Formats<Mixed<First, Second, Rest...>> : Mixed<First, Second, Rest...> {
    static const bool MIXED = true;
};
