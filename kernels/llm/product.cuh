// The parts of a product of a matrix with one vector: what comes before, the tiles of a warp, what comes after.
//
// A matrix is stored as tiles: a unit of two neighbouring rows for each lane of a warp. The tiles of the same rows, a
// band, are neighbours in memory; see `infer`'s module `decode::pack`. Blocks take batches of bands. The warps of a
// block share the tiles of a batch equally, and each copies its tiles to shared memory several tiles ahead of their
// use. All sums have a fixed order.
#pragma once
#include "mixed.cuh"
#include "parameters.cuh"

#define WARPS 16
#define THREADS (WARPS * 32)
// Tiles of a warp that are on their way or in use, if nothing else is said. More fill the queues of the memory, and
// what the blocks wait for comes later; an SM of an Orin has no room for more.
#define STAGES 3
// Most pairs of rows in a batch, and threads that end it.
#define MAX_PAIRS 32
#define ENDING (2 * MAX_PAIRS)
// Batches of a round: their sums lie side by side, and different warps end them. A source may define another number.
#ifndef ROUND
#define ROUND 2
#endif

// Alignment of the places of tiles in shared memory. A source may define another number.
#ifndef PLACE_ALIGNMENT
#define PLACE_ALIGNMENT 16
#endif

#include "before.cuh"

// ---- After the product ----

static __device__ float activate(float x, u32 activation)
{
    // The tangent of GELU is one of exponentials, too.
    float steep = activation == ACTIVATION_SILU ? x : 1.5957691216057308f * (x + 0.044715f * x * x * x);
    return __fdividef(x, 1.0f + __expf(-steep));
}

// One warp rounds 32 outputs and stores them as group `group` of the next product's vector.
static __device__ void put_group(const ProductParams& p, u32 group, float v)
{
    u32 lane = threadIdx.x % 32;
    u8* chunk = (u8*)p.output + group / 8 * CHUNK_BYTES;
    // Bits of numbers that are not negative compare as the numbers.
    float most = __uint_as_float(__reduce_max_sync(ALL, __float_as_uint(fabsf(v))));
    u32 coarse, fine;
    int rounded = split(v, most > 0.0f ? __fdividef(ROUNDED_MAX, most) : 0.0f, coarse, fine);
    int first = __reduce_add_sync(ALL, lane < 16 ? rounded : 0);
    int second = __reduce_add_sync(ALL, lane < 16 ? 0 : rounded);
    // Words of four lanes: coarse bytes in the first, fine ones in the second.
    u32 two = (coarse & 255) | (fine & 255) << 16;
    two |= __shfl_down_sync(ALL, two, 1) << 8;
    u32 other = __shfl_down_sync(ALL, two, 2);
    group %= 8;
    u32 place = (lane / 16 * 8 + group) * 16 + lane % 16;
    if (lane % 4 == 0) {
        *(u32*)(chunk + place) = __byte_perm(two, other, 0x5410);
        *(u32*)(chunk + CHUNK_FINE + place) = __byte_perm(two, other, 0x7632);
    }
    if (lane % 16 == 0)
        ((int*)(chunk + CHUNK_SUMS))[2 * group + lane / 16] = lane < 16 ? first : second;
    if (lane == 0)
        ((float*)(chunk + CHUNK_SCALES))[group] = most * (1.0f / ROUNDED_MAX);
}

// ---- The kernel ----

// The tiles of a band and of a batch.
struct Bands {
    // Steps of a row, units of the last one, bytes of its tile and of all tiles.
    u32 steps, last_units, last_bytes, band_bytes;
    // Warps that have tiles, and tiles and bands of a batch.
    u32 active, tiles, bands;
    // The number of the format among several, and bytes of a whole tile.
    u32 format, tile_bytes;

    // The warp that has a tile of a batch.
    __device__ u32 owner(u32 tile) const
    {
        return divide((tile + 1) * active - 1, tiles);
    }
};

// The tiles of a warp in each batch.
struct Portion {
    // The first band and step in a batch, and number of tiles.
    u32 band, step, count;
    // The number of the warp's part of its first band; of the others, it has part 0.
    u32 part;
};

struct Layout : Bands, Portion {
    template <class F>
    static __device__ Layout of(const ProductParams& p, u32 warp, u32 format = 0)
    {
        Layout l;
        const u32 across = 32 / F::PAIRS, bytes = Formats<F>::bytes(format);
        u32 units = p.columns / F::UNIT;
        l.steps = (units + across - 1) / across;
        l.last_units = units - (l.steps - 1) * across;
        l.format = format;
        l.tile_bytes = 8 * bytes;
        l.last_bytes = (2 * F::PAIRS * l.last_units * bytes / 8 + 15) & ~15u;
        l.band_bytes = (l.steps - 1) * l.tile_bytes + l.last_bytes;
        l.bands = p.batch_pairs / F::PAIRS;
        l.tiles = l.bands * l.steps;
        l.active = l.tiles < WARPS ? l.tiles : WARPS;
        u32 start = warp < l.active ? divide(l.tiles * warp, l.active) : l.tiles;
        l.count = warp < l.active ? divide(l.tiles * (warp + 1), l.active) - start : 0;
        l.band = divide(start, l.steps);
        l.step = start - l.band * l.steps;
        l.part = warp - l.owner(l.band * l.steps);
        return l;
    }
};

#ifdef BULK
// Whether the lane is the one that the warp elects. All lanes take part.
static __device__ bool elected()
{
    u32 is;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(is));
    return is;
}
#endif

// Where in its place a tile begins that is at address `at`: as far from a multiple of the alignment as in memory.
template <u32 TILE_BYTES>
static __device__ u32 shift_of(u32 at)
{
    return PLACE_ALIGNMENT > 16 && TILE_BYTES % PLACE_ALIGNMENT ? at % PLACE_ALIGNMENT : 0;
}

// Bytes of a place for a tile.
static __device__ constexpr u32 place_bytes(u32 tile_bytes)
{
    // A tile that is no multiple begins at one of 16 bytes.
    u32 shift = tile_bytes % PLACE_ALIGNMENT ? PLACE_ALIGNMENT - 16 : 0;
    return (tile_bytes + shift + PLACE_ALIGNMENT - 1) / PLACE_ALIGNMENT * PLACE_ALIGNMENT;
}

// A warp's tiles in shared memory: PLACES of them, used in turn.
//
// One sequence uses weights once per token. On Hopper GPUs they leave the L2 cache first: what each layer reads again,
// positions, norms and caches of short contexts, stays in it. With BULK, a tile is one copy of the bulk copy engine,
// which ends at a barrier in shared memory; otherwise the lanes copy it.
template <u32 PLACES>
struct Ring {
    const u8* stages;
    // The first place, in the address space of shared memory.
    u32 places;
    // The place that is used next.
    u32 slot;
#if __CUDA_ARCH__ >= 900
    u64 policy;
#endif
#ifdef BULK
    // The places' barriers, and the parity of the next use.
    u32 barriers, parity;
#endif

    __device__ void place(u8* memory, u64* landed)
    {
        stages = memory;
        places = (u32)__cvta_generic_to_shared(memory);
#ifdef BULK
        barriers = (u32)__cvta_generic_to_shared(landed);
#endif
    }

    // `landed` has PLACES barriers, which only this warp uses, with BULK. `once`: no other block reads the weights.
    __device__ void init(u8* memory, u64* landed, bool once)
    {
#if __CUDA_ARCH__ >= 900
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        if (!once)
            asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
#endif
        place(memory, landed);
        slot = 0;
#ifdef BULK
        parity = 0;
        if (threadIdx.x % 32 == 0) {
#pragma unroll
            for (u32 i = 0; i < PLACES; ++i)
                asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barriers + 8 * i) : "memory");
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncwarp();
#endif
    }

    // Starts the copy of a tile, at most TILE_BYTES, to place `to`. Tiles that are not `valid` are not copied, but waited
    // for. Parameters are the same for all lanes but `lane`.
    template <u32 TILE_BYTES>
    __device__ void copy(u32 to, const u8* at, u32 bytes, bool valid, u32 lane) const
    {
        u32 place = places + to * place_bytes(TILE_BYTES) + shift_of<TILE_BYTES>((u32)(u64)at);
#ifdef BULK
        u32 barrier = barriers + 8 * to;
        // One lane, and the compiler knows it: with `lane == 0` it makes a loop over lanes.
        if (elected()) {
            if (valid) {
                asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                             "[%0], [%1], %2, [%3], %4;"
                             ::"r"(place), "l"(at), "r"(bytes), "r"(barrier), "l"(policy) : "memory");
            } else {
                asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
            }
        }
#else
        u32 offset = lane * 16;
        place += offset;
        at += offset;
#pragma unroll
        for (u32 i = 0; i < TILE_BYTES; i += 512) {
            if (!valid || offset + i >= bytes)
                continue;
#if __CUDA_ARCH__ >= 900
            asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
                         ::"r"(place + i), "l"(at + i), "l"(policy) : "memory");
#else
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place + i), "l"(at + i) : "memory");
#endif
        }
#endif
    }

    // Follows each copy, and takes the place of those that are left out at the end.
    __device__ void commit() const
    {
#ifndef BULK
        asm volatile("cp.async.commit_group;" ::: "memory");
#endif
    }

#ifdef BULK
    // Whether the tile has landed that place `at` has in the turn with parity `turn`.
    __device__ bool landed(u32 at, u32 turn) const
    {
        u32 done;
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(barriers + 8 * at), "r"(turn) : "memory");
        return done;
    }
#endif

    // Waits for the tile in the next place.
    __device__ void wait() const
    {
#ifdef BULK
        u32 done;
        do {
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(barriers + 8 * slot), "r"(parity) : "memory");
        } while (!done);
#else
        asm volatile("cp.async.wait_group %0;" ::"n"(PLACES - 1) : "memory");
        __syncwarp();
#endif
    }

    __device__ void advance()
    {
        if (++slot == PLACES) {
            slot = 0;
#ifdef BULK
            parity ^= 1;
#endif
        }
    }
};

// The tiles of a warp in a batch: neighbours in memory.
template <class F>
struct Range {
    // The next tile.
    const u8* at;
    u32 left;
    // Of formats whose last tiles of rows may be smaller: the step of the next tile, and their number and size.
    u32 step, steps, last_bytes;
    // Of mixed formats: the size of other tiles.
    u32 tile_bytes;

    __device__ void enter(const u8* tiles, const Bands& l, const Portion& own, u32 batch, bool exists)
    {
        left = exists ? own.count : 0;
        tile_bytes = Formats<F>::MIXED ? l.tile_bytes : 8 * F::BYTES;
        at = tiles + ((u64)batch * l.bands + own.band) * l.band_bytes + own.step * tile_bytes;
        step = own.step, steps = l.steps, last_bytes = l.last_bytes;
    }

    // Starts the copy of the next tile to place `to`. The last batch may go on after the last row.
    template <class R>
    __device__ void copy(const R& ring, u32 to, const u8* end, u32 lane)
    {
        u32 bytes = Formats<F>::MIXED ? tile_bytes : 8 * F::BYTES;
        if (!F::WHOLE) {
            bool last = ++step == steps;
            bytes = last ? last_bytes : bytes;
            step = last ? 0 : step;
        }
        ring.template copy<8 * F::BYTES>(to, at, bytes, at < end, lane);
        at += bytes;
        --left;
    }
};

// The tiles of a warp, in the order of their use: a range of each of the block's batches.
template <class F>
struct Stream {
    u32 batch, lane;
    Range<F> range;

    __device__ Stream(const ProductParams& p, const Layout& l, u32 lane) : batch(blockIdx.x), lane(lane)
    {
        range.enter(p.tiles, l, l, batch, batch < p.batches);
    }

    // Starts the copy of the next tile to place `to`.
    template <class R>
    __device__ void copy(const ProductParams& p, const Layout& l, const R& ring, u32 to)
    {
        if (range.left > 0) {
            range.copy(ring, to, p.tiles_end, lane);
            if (range.left == 0) {
                batch += gridDim.x;
                range.enter(p.tiles, l, l, batch, batch < p.batches);
            }
        }
        ring.commit();
    }
};

// Sums of parts of rows: a warp that computes the n-th part of a band's tiles stores those of a pair at [pair][n].
// Pairs are an odd number of elements apart, so that the threads that add them up use different banks.
#define PART_STRIDE (WARPS + 1)
typedef float2 Parts[MAX_PAIRS][PART_STRIDE];

// Stores the sums of a band: those of its pairs are `distance` elements apart.
template <u32 PAIRS>
static __device__ void flush(float a, float b, float2* to, u32 distance, u32 lane)
{
    const u32 lanes = 32 / PAIRS;
    u32 of = lane % lanes;
    float own = of < lanes / 2 ? a : b;
    own += __shfl_xor_sync(ALL, of < lanes / 2 ? b : a, lanes / 2);
#pragma unroll
    for (int offset = lanes / 4; offset > 0; offset >>= 1)
        own += __shfl_xor_sync(ALL, own, offset);
    if (of % (lanes / 2) == 0)
        ((float*)(to + lane / lanes * distance))[of / (lanes / 2)] = own;
}

// The last part of a pair of rows.
template <u32 PAIRS>
static __device__ u32 last_part(u32 pair, const Bands& l)
{
    u32 band = pair / PAIRS;
    return l.owner((band + 1) * l.steps - 1) - l.owner(band * l.steps);
}

// The sums of a pair of rows, over its parts.
static __device__ float2 sum_parts(const float2 (&parts)[PART_STRIDE], u32 last)
{
    // Parts that are read together.
    const u32 TOGETHER = 8;
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll 1
    for (u32 base = 0; base <= last; base += TOGETHER) {
        float2 v[TOGETHER];
#pragma unroll
        for (u32 i = 0; i < TOGETHER; ++i)
            v[i] = base + i <= last ? parts[base + i] : make_float2(0.0f, 0.0f);
#pragma unroll
        for (u32 i = 0; i < TOGETHER; ++i) {
            sum.x += v[i].x;
            sum.y += v[i].y;
        }
    }
    return sum;
}

// An output of a thread: its row (or pair of rows), and what is added to the sums or multiplied with them.
struct Output {
    u32 at;
    bool valid;
    float bias, other;

    // Of thread `thread` of those that end a batch. The loads take place while the sums are computed.
    template <class Link>
    __device__ Output(const ProductParams& p, u32 batch, const Link& link, u32 thread)
    {
        bool pairs = p.after == AFTER_PAIR;
        u32 outputs = pairs ? p.batch_pairs : 2 * p.batch_pairs;
        at = batch * outputs + thread;
        valid = thread < outputs && at < (pairs ? p.rows / 2 : p.rows);
        bias = valid && p.bias ? p.bias[at] : 0.0f;
        other = 0.0f;
        if (valid && (p.after == AFTER_ADD || p.after == AFTER_GATE))
            other = link.load(p.other + at);
    }

    // The value, from the sums of a pair of rows.
    __device__ float value(const ProductParams& p, float2 sums, u32 thread) const
    {
        bool first = p.after == AFTER_PAIR || thread % 2 == 0;
        float v = fmaf(first ? sums.x : sums.y, p.scale, bias);
        // `other` is 0 where it has no meaning.
        if (p.after < AFTER_PAIR || p.after > AFTER_GATE)
            return other + v;
        float gate = p.after == AFTER_GATE ? other : v;
        float factor = p.after == AFTER_ACTIVATE ? 1.0f : p.after == AFTER_PAIR ? sums.y : v;
        return activate(gate, p.activation) * factor;
    }
};

// A lane's weights of a tile.
template <class F>
struct Weights {
    typename F::Tile tile;
    // Whether the tile has the lane's units.
    bool inside;

    // `units`: those that a row has in the tile.
    __device__ void load(const u8* from, u32 lane, u32 units, u32 format = 0)
    {
        const u32 across = 32 / F::PAIRS;
        u32 unit = lane % across, slots = F::WHOLE ? 32 : F::PAIRS * units;
        inside = F::WHOLE || unit < units;
        Formats<F>::load(tile, from, slots, F::WHOLE ? lane : lane / across * units + unit, format);
    }

    // Adds to the sums of both rows. The vector has no elements outside. Additions that the compiler does not join with
    // the format's multiplications: the bits are the same in all kernels.
    __device__ void add(float& a, float& b, const typename F::Vector& v, u32 format = 0) const
    {
        float2 sums = Formats<F>::dot(tile, v, format);
        a = __fadd_rn(a, inside ? sums.x : 0.0f);
        b = __fadd_rn(b, inside ? sums.y : 0.0f);
    }
};

// What the threads of a block share during a product.
struct Bench {
    float scratch[2 * WARPS];
    // Those of a round, while warps end the round before.
    Parts parts[2][ROUND];
    u64 bests[2 * ROUND];
};

// All batches of a block, from batch `start` on; `parity` says which of the bench's sums are free. `fill` brings the
// vector to `memory`, for all warps, and returns its factor; what does not depend on the vector comes before it.
// `copy(to)` starts the copy of the warp's next tile to place `to`, or makes a note of it; `pump()` comes before the wait
// for a tile.
template <class F, class R, class Link, class Fill, class Copy, class Pump>
static __device__ void consume(const ProductParams& p, const Bands& l, const Portion& own_tiles, u32 start, u32& parity,
                               const u8* memory, Bench& bench, R& ring, u32 lane, const Link& link, Fill fill,
                               Copy copy, Pump pump)
{
    const u32 place = place_bytes(8 * F::BYTES), across = 32 / F::PAIRS;
    u32 warp = threadIdx.x / 32, thread = threadIdx.x % ENDING, number = threadIdx.x / ENDING;
    u32 pair = p.after == AFTER_PAIR ? thread : thread / 2;
    bool ends = number < ROUND;
    u32 last_of_pair = ends ? last_part<F::PAIRS>(pair, l) : 0;
    const u32 steps = l.steps, last_units = l.last_units, batches = p.batches, format = l.format;
    u64 best = 0;
    float factor = 1.0f;
#pragma unroll 1
    for (u32 first = start; first < batches; first += ROUND * gridDim.x) {
        u32 own = first + number * gridDim.x;
        Output output(p, own, link, ends ? thread : ENDING);
#pragma unroll 1
        for (u32 in_round = 0; in_round < ROUND && first + in_round * gridDim.x < batches; ++in_round) {
            Parts& parts = bench.parts[parity][in_round];
            u32 band = own_tiles.band, part = own_tiles.part, step = own_tiles.step, left = own_tiles.count;
            u32 bands_before = (first + in_round * gridDim.x) * l.bands + band;
            // The address of the tile, of which the low bits matter.
            u32 low = (u32)(u64)p.tiles + bands_before * l.band_bytes + step * l.tile_bytes;
            Weights<F> weights;
            auto read = [&] {
                pump();
                ring.wait();
                u32 units = step + 1 == steps ? last_units : across;
                u32 shift = shift_of<8 * F::BYTES>(low);
                low += step + 1 == steps ? l.last_bytes : l.tile_bytes;
                weights.load(ring.stages + ring.slot * place + shift, lane, units, format);
            };
            if (Link::WAITS && left > 0)
                read();
            if (first == start && in_round == 0)
                factor = fill();
            if (!Link::WAITS && left > 0)
                read();
            float a = 0.0f, b = 0.0f;
            typename F::Vector v(lane, factor);
#pragma unroll 1
            while (left > 0) {
                v.load(memory, step);
                weights.add(a, b, v, format);
                step = step + 1 == steps ? 0 : step + 1;
                --left;
                // What follows waits for sums, not for copies.
                if (step == 0 || left == 0) {
                    flush<F::PAIRS>(a, b, &parts[band * F::PAIRS][part], PART_STRIDE, lane);
                    a = b = 0.0f;
                    part = 0;
                    ++band;
                }
                // The tile is in registers: its place is free.
                __syncwarp();
                copy(ring.slot);
                ring.advance();
                if (left > 0)
                    read();
            }
        }
        __syncthreads();
        // Whole warps: `put_group` shuffles.
        if (ends && own < batches) {
            float *to = p.output + output.at, *second = p.copy ? p.copy + output.at : 0;
            long long next = p.next;
            u32 after = p.after, packed = p.packed_output;
            float value = 0.0f;
            link.complete(output.other, p.other + output.at);
            if (output.valid)
                value = output.value(p, sum_parts(bench.parts[parity][number][pair], last_of_pair), thread);
            if (!Link::WAITS && packed) {
                if (warp % 2 == 0)
                    put_group(p, own, value);
            } else if (output.valid) {
                link.store(to, value, next);
                if (second)
                    *second = value;
            }
            if (after == AFTER_LOGITS && output.valid) {
                u64 key = (u64)ordered(value) << 32 | ~output.at;
                best = key > best ? key : best;
            }
        }
        parity ^= 1;
    }
    if (p.after != AFTER_LOGITS)
        return;
    if (ends) {
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1) {
            u64 other = __shfl_xor_sync(ALL, best, offset);
            best = other > best ? other : best;
        }
        bench.bests[warp] = best;
    }
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (u32 i = 1; i < 2 * ROUND; ++i)
        best = bench.bests[i] > best ? bench.bests[i] : best;
    p.best[blockIdx.x] = best;
}
