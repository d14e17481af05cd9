// The feed-forward networks of models with experts: each vector uses some of them, those to which the router gives the
// largest numbers. Only their weights are read, and once for all vectors of a step that use the same.
//
// `first_*` chooses, and makes the hidden vectors: those of a vector's experts in the order of their numbers.
// `second_*` multiplies them and adds the results with their weights, in the same order. With several sequences,
// `seconds_*` stores the results, and `combine` adds them. Rows of a prompt are computed in the same way, up to
// MAX_SEQUENCES together, after `prepare_*`.
//
// A warp multiplies whole rows: a band of an expert at a time. So the bits of a row's sum depend neither on the other
// experts nor on the other vectors.
//
// Blocks of 512 threads, any grid. Dynamic shared memory: for `first_*` the vector (`vector_bytes`), then STAGES tiles
// per warp.
#include <cuda_fp16.h>

#include "product.cuh"

#define MAX_EXPERTS 256
// Most experts that a vector uses.
#define MAX_USED 16
#define MAX_SEQUENCES 32
// Most vectors that are multiplied with weights in registers.
#define GROUP 8
// Most entries of a plan: those of an expert have GROUP vectors but for the last.
#define MAX_ENTRIES ((MAX_SEQUENCES * MAX_USED + (GROUP - 1) * MAX_EXPERTS) / GROUP)

template <class T>
static __device__ T* at(u8* memory, T* place)
{
    return (T*)(memory + (u64)place);
}

// The address of `place` for vector `v`: in the memory of its sequence, or of rows of `bytes` bytes.
template <class T>
static __device__ T* of_vector(const ExpertsParams& e, u8* memory, u32 v, T* place, u64 bytes)
{
    return at(memory, place) + (e.sequences ? 0 : v * bytes / sizeof(T));
}

static __device__ u32 vectors_of(const ExpertsParams& e)
{
    return e.sequences ? e.sequences->count : e.vectors;
}

// ---- The choice ----

// The experts that a vector uses, the largest number first, of equal ones the first: lane n has the n-th and its
// number.
struct Chosen {
    u32 expert;
    float number;

    __device__ Chosen(const float* numbers, u32 experts, u32 used)
    {
        const int OWN = MAX_EXPERTS / 32;
        u32 lane = threadIdx.x % 32, keys[OWN];
#pragma unroll
        for (int i = 0; i < OWN; ++i)
            keys[i] = i * 32 + lane < experts ? max(ordered(numbers[i * 32 + lane]), 1u) : 0;
        expert = 0, number = 0.0f;
#pragma unroll 1
        for (u32 n = 0; n < used; ++n) {
            u32 most = 0, of = ~0u;
#pragma unroll
            for (int i = 0; i < OWN; ++i)
                most = max(most, keys[i]);
            most = __reduce_max_sync(ALL, most);
#pragma unroll
            for (int i = OWN - 1; i >= 0; --i)
                of = keys[i] == most ? i * 32 + lane : of;
            of = __reduce_min_sync(ALL, of);
#pragma unroll
            for (int i = 0; i < OWN; ++i)
                keys[i] = of == i * 32 + lane ? 0 : keys[i];
            if (lane == n)
                expert = of, number = from_ordered(most);
        }
    }

    // The softmax of the chosen numbers.
    __device__ float weight(u32 used) const
    {
        float most = __shfl_sync(ALL, number, 0);
        float e = threadIdx.x % 32 < used ? expf(number - most) : 0.0f;
        return e / warp_sum(e);
    }

    __device__ void store(Choice* to, u32 used) const
    {
        float own = weight(used);
        u32 lane = threadIdx.x % 32;
        if (lane < used)
            to[lane].expert = expert, to[lane].weight = own;
    }
};

// ---- Who multiplies what ----

// The experts of one vector: lane n has the n-th.
struct One {
    static const int VECTORS = 1;
    u32 own, used;

    __device__ u32 entries() const { return used; }
    __device__ u32 expert(u32 entry) const { return __shfl_sync(ALL, own, entry); }
};

// The experts of all sequences' vectors, in ascending order.
struct Plan {
    struct Entry {
        u32 expert, vectors;
    };
    Entry list[MAX_ENTRIES];
    u32 count;
    // Vectors that use each expert, a bit each.
    u32 masks[MAX_EXPERTS];
    u32 chosen[MAX_SEQUENCES][MAX_USED];
    u8* memory[MAX_SEQUENCES];
};

struct Many {
    static const int VECTORS = GROUP;
    const Plan& plan;

    __device__ u32 entries() const { return plan.count; }
    __device__ u32 expert(u32 entry) const { return plan.list[entry].expert; }
};

// `choose(vector)` gives lane n the n-th expert of a vector. All threads take part.
template <class Choose>
static __device__ void make_plan(const ExpertsParams& e, Plan& plan, Choose choose)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, vectors = vectors_of(e);
    for (u32 i = threadIdx.x; i < MAX_EXPERTS; i += THREADS)
        plan.masks[i] = 0;
    if (threadIdx.x < vectors)
        plan.memory[threadIdx.x] = e.sequences ? e.sequences->list[threadIdx.x].vectors : 0;
    __syncthreads();
#pragma unroll 1
    for (u32 v = warp; v < vectors; v += WARPS) {
        u32 expert = choose(v);
        if (lane < e.used) {
            plan.chosen[v][lane] = expert;
            atomicOr(&plan.masks[expert], 1u << v);
        }
    }
    __syncthreads();
    if (warp == 0) {
        u32 count = 0;
#pragma unroll 1
        for (u32 base = 0; base < e.experts; base += 32) {
            u32 mask = plan.masks[base + lane], own = (__popc(mask) + GROUP - 1) / GROUP, end = own;
#pragma unroll
            for (int offset = 1; offset < 32; offset <<= 1) {
                u32 other = __shfl_up_sync(ALL, end, offset);
                end += lane >= offset ? other : 0;
            }
            for (u32 to = count + end - own; mask; ++to) {
                u32 part = 0;
                for (u32 n = 0; n < GROUP && mask; ++n) {
                    part |= mask & (0u - mask);
                    mask &= mask - 1;
                }
                plan.list[to].expert = base + lane;
                plan.list[to].vectors = part;
            }
            count += __shfl_sync(ALL, end, 31);
        }
        if (lane == 0)
            plan.count = count;
    }
    __syncthreads();
}

// The place of an expert among those that a vector uses. All lanes take part.
static __device__ u32 slot_of(const ExpertsParams& e, const Plan& plan, u32 vector, u32 expert)
{
    u32 lane = threadIdx.x % 32;
    return __ffs(__ballot_sync(ALL, lane < e.used && plan.chosen[vector][lane % MAX_USED] == expert)) - 1;
}

// The vectors of an entry, and the place of its expert among those that each vector uses. The same for all lanes.
struct Users {
    u32 count, vector[GROUP], slot[GROUP];

    __device__ Users(const ExpertsParams& e, const Plan& plan, u32 entry)
    {
        u32 mask = plan.list[entry].vectors, expert = plan.list[entry].expert;
        count = __popc(mask);
#pragma unroll
        for (int n = 0; n < GROUP; ++n) {
            vector[n] = mask ? __ffs(mask) - 1 : vector[0];
            mask &= mask - 1;
            slot[n] = slot_of(e, plan, vector[n], expert);
        }
    }
};

// The tiles of a warp, round after round, in the order of their use. `Places` says which bands the rounds have.
template <class F, class Places>
struct Walk {
    const ExpertsParams& e;
    const Layout& l;
    const Places& places;
    u32 lane, round, number, step;
    const u8* from;

    __device__ Walk(const ExpertsParams& e, const Layout& l, const Places& places, u32 lane)
        : e(e), l(l), places(places), lane(lane), round(blockIdx.x), number(0), step(0)
    {
        enter();
    }

    // Finds the next band from `number` of `round` on.
    __device__ void enter()
    {
        for (; round < places.rounds; round += gridDim.x, number = 0) {
            u32 entry, band;
            if (number < Places::BANDS && places.find(round, number, entry, band)) {
                from = e.product.tiles + places.work.expert(entry) * e.expert_bytes + (u64)band * l.band_bytes;
                return;
            }
        }
    }

    // Starts the copy of the next tile to place `to`.
    __device__ void copy(const Ring<STAGES>& ring, u32 to)
    {
        if (round < places.rounds) {
            bool last = step + 1 == l.steps;
            u32 bytes = F::WHOLE || !last ? 8 * F::BYTES : l.last_bytes;
            ring.template copy<8 * F::BYTES>(to, from, bytes, true, lane);
            from += bytes;
            step = last ? 0 : step + 1;
            if (last) {
                ++number;
                enter();
            }
        }
        ring.commit();
    }
};

// The sums of a band with `count` vectors: those of a pair of rows at `sums`, of the next vector `distance` elements
// on.
template <class F, int VECTORS, class W>
static __device__ void multiply(const Layout& l, Ring<STAGES>& ring, W& walk, const u8* const (&vectors)[VECTORS],
                                u32 count, float2* sums, u32 distance)
{
    const u32 tile_bytes = 8 * F::BYTES, across = 32 / F::PAIRS;
    typename F::Vector v(walk.lane);
    float a[VECTORS], b[VECTORS];
#pragma unroll
    for (int n = 0; n < VECTORS; ++n)
        a[n] = b[n] = 0.0f;
#pragma unroll 1
    for (u32 step = 0; step < l.steps; ++step) {
        ring.wait();
        Weights<F> weights;
        weights.load(ring.stages + ring.slot * tile_bytes, walk.lane, step + 1 == l.steps ? l.last_units : across);
        // The tile is in registers: its place is free.
        __syncwarp();
        walk.copy(ring, ring.slot);
        ring.advance();
#pragma unroll
        for (int n = 0; n < VECTORS; ++n) {
            if (n == 0 || n < count) {
                v.load(vectors[n], step);
                weights.add(a[n], b[n], v);
            }
        }
    }
#pragma unroll
    for (int n = 0; n < VECTORS; ++n)
        if (n == 0 || n < count)
            flush<F::PAIRS>(a[n], b[n], sums + n * distance, 1, walk.lane);
}

// ---- The first products ----

// A round has WARPS * BANDS bands of an expert: rows of gate and up in turns.
template <class F, class Work>
struct FirstPlaces {
    // A multiple of 32 pairs of rows in a round.
    static const u32 BANDS = F::PAIRS == 1 ? 2 : 1, PAIRS = WARPS * BANDS * F::PAIRS;
    const Work& work;
    u32 rounds, per_expert, bands;

    __device__ FirstPlaces(const Work& work, u32 rows)
        : work(work), per_expert((rows / 2 + PAIRS - 1) / PAIRS), bands(rows / 2 / F::PAIRS)
    {
        rounds = work.entries() * per_expert;
    }

    __device__ bool find(u32 round, u32 number, u32& entry, u32& band) const
    {
        entry = divide(round, per_expert);
        band = ((round - entry * per_expert) * WARPS + threadIdx.x / 32) * BANDS + number;
        return band < bands;
    }
};

// An element of a hidden vector.
static __device__ float gated(float gate, float up, u32 activation)
{
    if (activation != ACTIVATION_CLAMPED_SILU)
        return activate(gate, activation) * up;
    gate = fminf(gate, 7.0f), up = fminf(fmaxf(up, -7.0f), 7.0f);
    return gate / (1.0f + expf(-1.702f * gate)) * (up + 1.0f);
}

// Stores 32 elements of a hidden vector, from element 32 * `group` on.
static __device__ void store_hidden(const ExpertsParams& e, u8* hidden, u32 group, float v, bool valid)
{
    u32 at = group * 32 + threadIdx.x % 32;
    if (e.form == HIDDEN_ROUNDED) {
        ProductParams to = {};
        to.output = (float*)hidden;
        put_group(to, group, v);
        return;
    }
    // As `put` does.
    u32 quad = at / 4;
    if (e.form == HIDDEN_UNITS)
        quad = quad / 64 * 64 + quad % 2 * 32 + quad / 2 % 32;
    if (valid)
        ((float*)hidden)[quad * 4 + at % 4] = v;
}

// All rounds of a block. `enter(entry, vectors)` finds the vectors of an entry and returns their number, `hidden(n)`
// says where the n-th has its hidden vector.
template <class F, class Work, class Ready, class Enter, class Hidden>
static __device__ void first_rounds(const ExpertsParams& e, const Work& work, u8* tiles, u32 lane, Ready ready,
                                    Enter enter, Hidden hidden)
{
    const int VECTORS = Work::VECTORS;
    typedef FirstPlaces<F, Work> Places;
    __shared__ float2 sums[2][VECTORS][Places::PAIRS];
    const ProductParams& p = e.product;
    u32 warp = threadIdx.x / 32;
    Layout l = Layout::of<F>(p, warp);
    Places places(work, p.rows);
    Ring<STAGES> ring;
    ring.init(tiles + warp * STAGES * 8 * F::BYTES, 0, VECTORS == 1);
    Walk<F, Places> walk(e, l, places, lane);
#pragma unroll 1
    for (u32 s = 0; s < STAGES; ++s)
        walk.copy(ring, s);
    ready();
    u32 parity = 0;
#pragma unroll 1
    for (u32 round = blockIdx.x; round < places.rounds; round += gridDim.x, parity ^= 1) {
        const u8* vectors[VECTORS];
        u32 entry = divide(round, places.per_expert), count = enter(entry, vectors);
#pragma unroll 1
        for (u32 number = 0; number < Places::BANDS; ++number) {
            u32 same, band;
            if (places.find(round, number, same, band))
                multiply<F, VECTORS>(l, ring, walk, vectors, count,
                                     &sums[parity][0][(warp * Places::BANDS + number) * F::PAIRS], Places::PAIRS);
        }
        __syncthreads();
        const u32 groups = Places::PAIRS / 32;
        u32 first = (round - entry * places.per_expert) * groups;
        const float* bias = p.bias ? p.bias + (u64)work.expert(entry) * p.rows : 0;
        // Whole warps: `put_group` shuffles.
#pragma unroll 1
        for (u32 task = warp; task < count * groups; task += WARPS) {
            u32 n = task / groups, group = first + task % groups, pair = group * 32 + threadIdx.x % 32;
            if (group * 32 >= p.rows / 2)
                continue;
            bool valid = pair < p.rows / 2;
            float2 both = sums[parity][n][task % groups * 32 + threadIdx.x % 32];
            float v = 0.0f;
            if (valid) {
                float gate = both.x + (bias ? bias[2 * pair] : 0.0f), up = both.y + (bias ? bias[2 * pair + 1] : 0.0f);
                v = gated(gate, up, p.activation);
            }
            store_hidden(e, hidden(n), group, v, valid);
        }
    }
}

template <class F>
static __device__ void first(const ExpertsParams& e)
{
    extern __shared__ uint4 dynamic[];
    __shared__ float scratch[2 * WARPS];
    const ProductParams& p = e.product;
    u8* memory = (u8*)dynamic;
    Quads quads;
    quads.load_norm(p);
    let_next_begin();
    wait_for_previous();
    quads.load_vector(p, Settled());
    Chosen chosen(e.logits, e.experts, e.used);
    if (blockIdx.x == 0 && threadIdx.x < 32)
        chosen.store(e.choices, e.used);
    One work = {chosen.expert, e.used};
    u32 entry_of_round = 0;
    first_rounds<F>(
        e, work, memory + vector_bytes<F>(p.columns), fixed_lane(),
        [&] {
            before<F>(p, memory, scratch, quads, Settled(), false);
            __syncthreads();
        },
        [&](u32 entry, const u8* (&vectors)[1]) {
            vectors[0] = memory;
            entry_of_round = entry;
            return 1u;
        },
        [&](u32) { return (u8*)p.output + (u64)entry_of_round * e.hidden_bytes; });
}

template <class F>
static __device__ void firsts(const ExpertsParams& e)
{
    extern __shared__ uint4 dynamic[];
    __shared__ Plan plan;
    const ProductParams& p = e.product;
    let_next_begin();
    wait_for_previous();
    make_plan(e, plan, [&](u32 v) {
        Chosen chosen(of_vector(e, plan.memory[v], v, e.logits, e.experts * 4), e.experts, e.used);
        if (blockIdx.x == 0)
            chosen.store(of_vector(e, plan.memory[v], v, e.choices, e.used * sizeof(Choice)), e.used);
        return chosen.expert;
    });
    Many work = {plan};
    // Of the entry of a round.
    u32 mask = 0, expert = 0;
    first_rounds<F>(
        e, work, (u8*)dynamic, fixed_lane(), [] {},
        [&](u32 entry, const u8* (&vectors)[GROUP]) {
            Users users(e, plan, entry);
            mask = plan.list[entry].vectors, expert = plan.list[entry].expert;
#pragma unroll
            for (int n = 0; n < GROUP; ++n)
                vectors[n] = (const u8*)of_vector(e, plan.memory[users.vector[n]], users.vector[n], p.input,
                                                  e.input_bytes);
            return users.count;
        },
        [&](u32 n) {
            u32 rest = mask;
#pragma unroll 1
            for (; n > 0; --n)
                rest &= rest - 1;
            u32 vector = __ffs(rest) - 1;
            u32 slot = slot_of(e, plan, vector, expert);
            float* first = of_vector(e, plan.memory[vector], vector, p.output, e.used * e.hidden_bytes);
            return (u8*)first + (u64)slot * e.hidden_bytes;
        });
}

// ---- The second products ----

// A round has SUBS bands of each expert of a vector, as many as the warps can take.
template <class F>
struct OnePlaces {
    static const u32 BANDS = 1;
    const One& work;
    u32 rounds, subs, slot, sub, bands;

    __device__ OnePlaces(const One& work, u32 rows) : work(work), subs(WARPS / work.used), bands(rows / 2 / F::PAIRS)
    {
        sub = threadIdx.x / 32 / work.used;
        slot = threadIdx.x / 32 - sub * work.used;
        rounds = (bands + subs - 1) / subs;
    }

    __device__ bool find(u32 round, u32, u32& entry, u32& band) const
    {
        entry = slot, band = round * subs + sub;
        return sub < subs && band < bands;
    }
};

template <class F>
static __device__ void second(const ExpertsParams& e)
{
    extern __shared__ uint4 dynamic[];
    __shared__ float2 sums[2][WARPS][F::PAIRS];
    __shared__ Choice choices[MAX_USED];
    const ProductParams& p = e.product;
    u32 warp = threadIdx.x / 32, lane = fixed_lane();
    Layout l = Layout::of<F>(p, warp);
    Ring<STAGES> ring;
    ring.init((u8*)dynamic + warp * STAGES * 8 * F::BYTES, 0, true);
    let_next_begin();
    wait_for_previous();
    One work = {lane < e.used ? e.choices[lane].expert : 0, e.used};
    OnePlaces<F> places(work, p.rows);
    Walk<F, OnePlaces<F>> walk(e, l, places, lane);
#pragma unroll 1
    for (u32 s = 0; s < STAGES; ++s)
        walk.copy(ring, s);
    if (threadIdx.x < e.used)
        choices[threadIdx.x] = e.choices[threadIdx.x];
    const u8* vectors[1] = {(const u8*)p.input + (u64)places.slot * e.hidden_bytes};
    const u32 rows = places.subs * F::PAIRS * 2;
    u32 parity = 0;
#pragma unroll 1
    for (u32 round = blockIdx.x; round < places.rounds; round += gridDim.x, parity ^= 1) {
        u32 row = round * rows + threadIdx.x, entry, band;
        bool ends = threadIdx.x < rows && row < p.rows;
        float value = ends ? p.other[row] : 0.0f;
        if (places.find(round, 0, entry, band))
            multiply<F, 1>(l, ring, walk, vectors, 1, sums[parity][warp], 0);
        __syncthreads();
        if (!ends)
            continue;
        u32 of = threadIdx.x / (2 * F::PAIRS) * e.used, within = threadIdx.x % (2 * F::PAIRS);
#pragma unroll 1
        for (u32 n = 0; n < e.used; ++n) {
            float sum = ((const float*)sums[parity][of + n])[within];
            sum += p.bias ? p.bias[(u64)choices[n].expert * p.rows + row] : 0.0f;
            value = fmaf(choices[n].weight, sum, value);
        }
        p.output[row] = value;
    }
}

// A round has a band of an expert for each warp.
template <class F>
struct ManyPlaces {
    static const u32 BANDS = 1;
    const Many& work;
    u32 rounds, per_expert, bands;

    __device__ ManyPlaces(const Many& work, u32 rows) : work(work), bands(rows / 2 / F::PAIRS)
    {
        per_expert = (bands + WARPS - 1) / WARPS;
        rounds = work.entries() * per_expert;
    }

    __device__ bool find(u32 round, u32, u32& entry, u32& band) const
    {
        entry = divide(round, per_expert);
        band = (round - entry * per_expert) * WARPS + threadIdx.x / 32;
        return band < bands;
    }
};

template <class F>
static __device__ void seconds(const ExpertsParams& e)
{
    extern __shared__ uint4 dynamic[];
    __shared__ Plan plan;
    __shared__ float2 sums[WARPS][GROUP][F::PAIRS];
    __shared__ float* targets[WARPS][GROUP];
    const ProductParams& p = e.product;
    u32 warp = threadIdx.x / 32, lane = fixed_lane();
    Layout l = Layout::of<F>(p, warp);
    Ring<STAGES> ring;
    ring.init((u8*)dynamic + warp * STAGES * 8 * F::BYTES, 0, false);
    let_next_begin();
    wait_for_previous();
    make_plan(e, plan, [&](u32 v) {
        return of_vector(e, plan.memory[v], v, e.choices, e.used * sizeof(Choice))[lane < e.used ? lane : 0].expert;
    });
    Many work = {plan};
    ManyPlaces<F> places(work, p.rows);
    Walk<F, ManyPlaces<F>> walk(e, l, places, lane);
#pragma unroll 1
    for (u32 s = 0; s < STAGES; ++s)
        walk.copy(ring, s);
#pragma unroll 1
    for (u32 round = blockIdx.x; round < places.rounds; round += gridDim.x) {
        u32 entry, band;
        if (!places.find(round, 0, entry, band))
            continue;
        Users users(e, plan, entry);
        const u8* vectors[GROUP];
#pragma unroll
        for (int n = 0; n < GROUP; ++n) {
            u32 vector = users.vector[n], slot = users.slot[n];
            const float* input = of_vector(e, plan.memory[vector], vector, p.input, e.used * e.hidden_bytes);
            float* output = of_vector(e, plan.memory[vector], vector, p.output, (u64)e.used * p.rows * 4);
            vectors[n] = (const u8*)input + (u64)slot * e.hidden_bytes;
            if (lane == n)
                targets[warp][n] = output + (u64)slot * p.rows;
        }
        multiply<F, GROUP>(l, ring, walk, vectors, users.count, sums[warp][0], F::PAIRS);
        __syncwarp();
        const u32 rows = 2 * F::PAIRS;
        const float* bias = p.bias ? p.bias + (u64)work.expert(entry) * p.rows : 0;
#pragma unroll 1
        for (u32 i = lane; i < users.count * rows; i += 32) {
            u32 n = i / rows, row = band * rows + i % rows;
            float sum = ((const float*)sums[warp][n])[i % rows];
            targets[warp][n][row] = sum + (bias ? bias[row] : 0.0f);
        }
        __syncwarp();
    }
}

// Adds the results of the experts that a vector uses. Grid (parts of a vector, vectors).
extern "C" __global__ void __launch_bounds__(THREADS) combine(const __grid_constant__ ExpertsParams e)
{
    const ProductParams& p = e.product;
    let_next_begin();
    wait_for_previous();
    u32 row = blockIdx.x * THREADS + threadIdx.x, v = blockIdx.y;
    if (v >= vectors_of(e) || row >= p.rows)
        return;
    u8* memory = e.sequences ? e.sequences->list[v].vectors : 0;
    const Choice* choices = of_vector(e, memory, v, e.choices, e.used * sizeof(Choice));
    const float* from = of_vector(e, memory, v, p.input, (u64)e.used * p.rows * 4);
    float value = of_vector(e, memory, v, p.other, p.rows * 4)[row];
#pragma unroll 1
    for (u32 n = 0; n < e.used; ++n)
        value = fmaf(choices[n].weight, from[(u64)n * p.rows + row], value);
    of_vector(e, memory, v, p.output, p.rows * 4)[row] = value;
}

// Brings rows into the form of a product's vector. Grid (rows).
template <class F>
static __device__ void prepare(const ExpertsParams& e)
{
    __shared__ float scratch[2 * WARPS];
    ProductParams p = e.product;
    p.input += (u64)blockIdx.x * p.columns;
    Quads quads;
    quads.load_norm(p);
    quads.load_vector(p, Settled());
    before<F>(p, (u8*)p.output + (u64)blockIdx.x * e.input_bytes, scratch, quads, Settled(), false);
}

#define KERNEL(name, format, work)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ ExpertsParams e)            \
    {                                                                                                                 \
        work<format>(e);                                                                                              \
    }

#define FORMAT(name, format, number)                                                                                  \
    KERNEL(first_##name, format, first)                                                                               \
    KERNEL(firsts_##name, format, firsts)                                                                             \
    KERNEL(second_##name, format, second)                                                                             \
    KERNEL(seconds_##name, format, seconds)

KERNEL(prepare_rounded, Q6K, prepare)
KERNEL(prepare_units, F16, prepare)
KERNEL(prepare_plain, F32, prepare)
FORMAT(f32, F32, 0)
FORMAT(f16, F16, 1)
FORMAT(bf16, BF16, 30)
QUANTISED(FORMAT)
