// What comes before a product of a matrix with one vector: norms, and the rounding of the vector. `product.cuh` includes
// it.
#pragma once
#include "formats.cuh"
#include "parameters.cuh"

// The sum of what each warp has in `scratch`.
static __device__ float sum_of_warps(const float* scratch)
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; ++i)
        sum += scratch[i];
    return sum;
}

// Sum over the block. `scratch` has WARPS elements that no thread uses for another purpose.
static __device__ float block_sum(float v, float* scratch)
{
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = v;
    __syncthreads();
    return sum_of_warps(scratch);
}

static __device__ float largest(float4 v)
{
    return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

// Rounds an element; splits it into numbers whose low bytes count.
static __device__ int split(float x, float inverse, u32& coarse, u32& fine)
{
    int v = __float2int_rn(x * inverse);
    int c = (v + 64) >> 7;
    coarse = (u32)c;
    fine = (u32)(v - c * 128);
    return v;
}

// The low bytes of four words.
static __device__ u32 low_bytes(const u32 (&w)[4])
{
    return __byte_perm(__byte_perm(w[0], w[1], 0x0040), __byte_perm(w[2], w[3], 0x0040), 0x5410);
}

// Four consecutive columns of the vector from each thread, `at` a multiple of 4. All lanes of a warp take part; those
// with `valid` write.
template <bool ROUNDS, u32 UNIT>
static __device__ void put(u8* memory, u32 at, float4 v, bool valid)
{
    if (!ROUNDS) {
        u32 quad = at / 4;
        if (valid)
            ((float4*)memory)[UNIT == 8 ? quad / 64 * 64 + quad % 2 * 32 + quad / 2 % 32 : quad] = v;
        return;
    }
    float most = largest(v);
    most = fmaxf(most, __shfl_xor_sync(ALL, most, 1));
    most = fmaxf(most, __shfl_xor_sync(ALL, most, 2));
    most = fmaxf(most, __shfl_xor_sync(ALL, most, 4));
    float inverse = most > 0.0f ? __fdividef(ROUNDED_MAX, most) : 0.0f;
    u32 c[4], f[4];
    int sum = split(v.x, inverse, c[0], f[0]);
    sum += split(v.y, inverse, c[1], f[1]);
    sum += split(v.z, inverse, c[2], f[2]);
    sum += split(v.w, inverse, c[3], f[3]);
    sum += __shfl_xor_sync(ALL, sum, 1);
    sum += __shfl_xor_sync(ALL, sum, 2);
    if (!valid)
        return;
    u8* chunk = memory + at / 256 * CHUNK_BYTES;
    u32 group = at / 32 % 8, word = at / 4 % 8, place = (word / 4 * 8 + group) * 4 + word % 4;
    ((u32*)chunk)[place] = low_bytes(c);
    ((u32*)(chunk + CHUNK_FINE))[place] = low_bytes(f);
    if (word % 4 == 0)
        ((int*)(chunk + CHUNK_SUMS))[2 * group + word / 4] = sum;
    if (word == 0)
        ((float*)(chunk + CHUNK_SCALES))[group] = most * (1.0f / ROUNDED_MAX);
}

// Four columns of a norm's weights. The compiler does not move the load behind others.
static __device__ float4 quad(const float* from, u32 at, u32 columns)
{
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (from && at < columns)
        asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from + at));
    return v;
}

// Four columns of a vector, once they are there.
template <class Link>
static __device__ float4 vector_quad(const float* vector, u32 at, u32 columns, const Link& link)
{
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (vector && at < columns) {
        const float4* from = (const float4*)(vector + at);
        v = link.load(from);
        link.complete(v, from);
    }
    return v;
}

// The sum of squares of differences to a mean.
static __device__ float squares(float4 v, float mean)
{
    v.x -= mean, v.y -= mean, v.z -= mean, v.w -= mean;
    return fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w);
}

// Adds a branch, whose norm multiplies with `factor`, to the vector.
static __device__ float4 joined(float4 x, float4 branch, float factor, float4 w)
{
    return make_float4(fmaf(branch.x * factor, w.x, x.x), fmaf(branch.y * factor, w.y, x.y),
                       fmaf(branch.z * factor, w.z, x.z), fmaf(branch.w * factor, w.w, x.w));
}

// Four columns of the vector before its norm.
template <class Link>
static __device__ float4 input_quad(const ProductParams& p, u32 at, float branch_factor, const Link& link)
{
    float4 x = vector_quad(p.input, at, p.columns, link);
    if (!p.branch)
        return x;
    float4 branch = vector_quad(p.branch, at, p.columns, link);
    return joined(x, branch, branch_factor, quad(p.branch_weight, at, p.columns));
}

// A thread's first quads of the vector, of the norm's weights and of its bias.
struct Quads {
    float4 x, w, b;

    __device__ void load_norm(const ProductParams& p)
    {
        bool norm = p.before == BEFORE_RMS_NORM || p.before == BEFORE_LAYER_NORM;
        w = quad(norm ? p.norm_weight : 0, threadIdx.x * 4, p.columns);
        b = quad(norm ? p.norm_bias : 0, threadIdx.x * 4, p.columns);
    }

    template <class Link>
    __device__ void load_vector(const ProductParams& p, const Link& link)
    {
        x = vector_quad(p.input, threadIdx.x * 4, p.columns, link);
    }
};

// Fills the shared memory with the product's input, unless it is rounded already. `keeps`: the block stores the sum of
// input and branch, which other blocks must not read or write during the launch.
template <class F, class Link>
static __device__ void before(const ProductParams& p, u8* memory, float* scratch, const Quads& quads, const Link& link,
                              bool keeps)
{
    u32 columns = p.columns, first = threadIdx.x * 4;
    // The first quad of a thread stays in registers; there are more in wide models.
    bool norm = p.before != BEFORE_NOTHING;
    float4 x = quads.x, w = quads.w, b = quads.b;
    float mean = 0.0f, factor = 1.0f, branch_factor = 0.0f;
    if (p.branch) {
        float4 own = vector_quad(p.branch, first, columns, link);
        float sum = squares(own, 0.0f);
#pragma unroll 1
        for (u32 at = first + THREADS * 4; at < columns; at += THREADS * 4)
            sum += squares(vector_quad(p.branch, at, columns, link), 0.0f);
        branch_factor = rsqrtf(__fdividef(block_sum(sum, scratch + WARPS), (float)columns) + p.epsilon);
        x = joined(x, own, branch_factor, quad(p.branch_weight, first, columns));
    }
    if (p.before == BEFORE_LAYER_NORM) {
        float sum = (x.x + x.y) + (x.z + x.w);
#pragma unroll 1
        for (u32 at = first + THREADS * 4; at < columns; at += THREADS * 4) {
            float4 v = input_quad(p, at, branch_factor, link);
            sum += (v.x + v.y) + (v.z + v.w);
        }
        mean = block_sum(sum, scratch + WARPS) / (float)columns;
    }
    if (norm) {
        float sum = 0.0f;
        float4 v = x;
#pragma unroll 1
        for (u32 at = first; at < columns; v = input_quad(p, at, branch_factor, link)) {
            sum += squares(v, mean);
            at += THREADS * 4;
        }
        factor = rsqrtf(__fdividef(block_sum(sum, scratch), (float)columns) + p.epsilon);
    }
    // All lanes of a warp together: `put` shuffles.
#pragma unroll 1
    for (u32 base = 0; base < columns; base += THREADS * 4) {
        u32 at = base + first;
        if (base > 0) {
            x = input_quad(p, at, branch_factor, link);
            w = quad(norm ? p.norm_weight : 0, at, columns), b = quad(norm ? p.norm_bias : 0, at, columns);
        }
        if (keeps && p.branch && at < columns)
            *(float4*)(p.joined + at) = x;
        float4 v = x;
        if (norm) {
            v.x = fmaf((x.x - mean) * factor, w.x, b.x), v.y = fmaf((x.y - mean) * factor, w.y, b.y);
            v.z = fmaf((x.z - mean) * factor, w.z, b.z), v.w = fmaf((x.w - mean) * factor, w.w, b.w);
        }
        put<F::ROUNDS, F::UNIT>(memory, at, v, at < columns);
    }
}
