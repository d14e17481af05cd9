// Global, constant and local memory: sizes, caches, alignment, initial values, stacks.
#include "corpus.cuh"

struct Record {
    u32 id;
    double weight;
    s16 tag;
    u8 flag;
};

__constant__ u32 squares[16] = {0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, 144, 169, 196, 225};
__constant__ Record records[3] = {{7, 0.5, -3, 1}, {8, -1.25, 400, 0}, {9, 1e30, 0, 255}};
__device__ u32 primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ const u16 halfwords[5] = {1, 10, 100, 1000, 10000};
__device__ u32* pointer_to_primes = primes + 3;
__device__ float zeroed[64];

// Loads of every size, signed and not.
KERNEL load_sizes(const u8* bytes, s64* out)
{
    u32 i = threadIdx.x;
    const u8* p = bytes + 16 * i;
    s64* o = out + 10 * i;
    o[0] = p[0];
    o[1] = (s8)p[1];
    o[2] = *(const u16*)(p + 2);
    o[3] = *(const s16*)(p + 4);
    o[4] = *(const u32*)(p + 4);
    o[5] = *(const s32*)(p + 8);
    o[6] = *(const u64*)(p + 8);
    uint4 q = *(const uint4*)p;
    o[7] = q.x ^ q.w;
    uint2 h = *(const uint2*)(p + 8);
    o[8] = h.x + h.y;
    uchar4 c = *(const uchar4*)(p + 12);
    o[9] = c.x + c.y * 2 + c.z * 3 + c.w * 4;
}

// Stores of every size into one row of 32 bytes.
KERNEL store_sizes(const u64* in, u8* out)
{
    u32 i = threadIdx.x;
    u64 v = in[i];
    u8* p = out + 32 * i;
    p[0] = v;
    p[1] = v >> 56;
    *(u16*)(p + 2) = v >> 8;
    *(u32*)(p + 4) = v >> 16;
    *(u64*)(p + 8) = v * 3;
    *(uint4*)(p + 16) = make_uint4(v, v >> 32, ~v, v ^ 0x1234);
}

// Loads and stores with every hint about caches and order.
KERNEL cache_operators(const u32* in, u32* out, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    u32 sum = 0, r;
#define LOAD(text, at)                                                                                          \
    asm volatile("ld." text ".u32 %0, [%1];" : "=r"(r) : "l"(in + i + at * n) : "memory");                       \
    sum = sum * 3 + r;
    LOAD("global.ca", 0)
    LOAD("global.cg", 1)
    LOAD("global.cs", 2)
    LOAD("global.lu", 3)
    LOAD("global.cv", 4)
    LOAD("global.nc", 5)
    LOAD("global.nc.L1::no_allocate", 0)
    LOAD("relaxed.gpu.global", 1)
    LOAD("acquire.sys.global", 2)
    LOAD("volatile.global", 3)
    LOAD("acquire.cta.global", 4)
    LOAD("global.L1::evict_last", 5)
    LOAD("global.L2::128B", 0)
    LOAD("global.L1::evict_first.L2::64B", 1)
#define STORE(text, at) asm volatile("st." text ".u32 [%0], %1;" ::"l"(out + i + at * n), "r"(sum + at) : "memory");
    STORE("global.wb", 0)
    STORE("global.cg", 1)
    STORE("global.cs", 2)
    STORE("global.wt", 3)
    STORE("release.gpu.global", 4)
    STORE("relaxed.sys.global", 5)
    STORE("volatile.global", 6)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(in + i));
    asm volatile("prefetch.global.L1 [%0];" ::"l"(in + i));
    asm volatile("prefetchu.L1 [%0];" ::"l"(in + i));
    // Where these lines lie decides nothing about their content.
    asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"((u64)(in + i) & ~127ull));
}

// Fences between stores, for what they are worth in one thread.
KERNEL fences(volatile u32* words, u32* out)
{
    u32 i = threadIdx.x;
    words[i] = i;
    __threadfence_block();
    words[i + 32] = words[i] + 1;
    __threadfence();
    words[i + 64] = words[i + 32] * 2;
    __threadfence_system();
    asm volatile("fence.sc.gpu;" ::: "memory");
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    asm volatile("fence.acq_rel.cta;" ::: "memory");
    asm volatile("fence.sc.cta;" ::: "memory");
    out[i] = words[i + 64];
}

// Constants at fixed places and at places that differ from lane to lane.
KERNEL constants(const u32* in, u32* out, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    const Record& r = records[in[i] % 3];
    const u8* raw = (const u8*)squares;
    out[i] = squares[in[i] & 15] + squares[5] + r.id * 1000 + r.tag + r.flag + (r.weight > 0.0) + raw[(in[i] & 15) * 4];
}

// Variables of the module with initial values, one of which points into another.
KERNEL module_variables(const u32* in, u32* out, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    u32 v = in[i];
    out[i] = primes[v & 7] * 3 + halfwords[v % 5] + pointer_to_primes[v % 5] + (zeroed[v & 63] == 0.0f);
}

// Arrays with dynamic indices live in local memory.
KERNEL local_arrays(const u32* in, u32* out, u32 n, u32 rounds)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    u32 words[24];
    u8 bytes[24];
    s16 halves[24];
    u64 wide[6];
    for (u32 k = 0; k < 24; k++) {
        words[k] = in[(i + k) % n];
        bytes[k] = words[k] >> 9;
        halves[k] = words[k] >> 3;
        wide[k % 6] = (u64)words[k] << k;
    }
    u32 sum = 0;
    for (u32 k = 0; k < rounds; k++) {
        u32 at = words[(sum + k) % 24] % 24;
        words[at] += sum;
        bytes[(at + 1) % 24] += 3;
        sum += words[(at * 7) % 24] + bytes[at] + halves[23 - at] + (u32)(wide[at % 6] >> 17);
    }
    out[i] = sum;
}

struct Vector {
    float4 v;
};

// Vectors in local memory.
KERNEL local_vectors(const float4* in, float4* out, u32 n, u32 shift)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    Vector table[5];
    for (u32 k = 0; k < 5; k++)
        table[k].v = in[(i + k) % n];
    float4 a = table[(i + shift) % 5].v, b = table[(i * 3 + shift) % 5].v;
    out[i] = make_float4(a.x + b.w, a.y + b.z, a.z + b.y, a.w + b.x);
}

// Vectors of local memory, read for the last time and before.
KERNEL local_last_use(const uint4* in, uint4* out, u32 n, u32 turn)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    uint4 table[3];
    for (u32 k = 0; k < 3; k++)
        table[k] = in[(i + k) % n];
    u64 place = __cvta_generic_to_local(&table[(i + turn) % 3]);
    u32 a, b, c, d, e, f, g, h;
    asm volatile("ld.local.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(place) : "memory");
    asm volatile("ld.local.lu.v2.u32 {%0, %1}, [%2];" : "=r"(e), "=r"(f) : "l"(place + 8) : "memory");
    asm volatile("ld.local.lu.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(g), "=r"(h), "=r"(e), "=r"(f) : "l"(place) : "memory");
    out[i] = make_uint4(a + h, b ^ g, c + f, d ^ e);
}

// More values alive at once than 32 registers hold.
KERNEL __launch_bounds__(128, 12) spills(const float* in, float* out, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    float v[48];
#pragma unroll
    for (u32 k = 0; k < 48; k++)
        v[k] = in[(i + 7 * k) % n];
#pragma unroll
    for (u32 round = 0; round < 3; round++)
#pragma unroll
        for (u32 k = 0; k < 48; k++)
            v[k] = fmaf(v[k], 0.5f, v[(k * 5 + round + 1) % 48]);
    float sum = 0.0f;
#pragma unroll
    for (u32 k = 0; k < 48; k++)
        sum += v[k];
    out[i] = sum;
}

// A generic pointer that is local, shared or global, and the questions about it.
KERNEL generic_pointers(u32* global, u32* out)
{
    __shared__ u32 shared[96];
    u32 local[4], t = threadIdx.x;
    shared[t] = t * 3;
    local[t & 3] = t;
    local[(t + 1) & 3] = t + 1;
    local[(t + 2) & 3] = t + 2;
    local[(t + 3) & 3] = t + 3;
    __syncthreads();
    u32* p = t % 3 == 0 ? shared + t : t % 3 == 1 ? local + (t & 3) : global + t;
    u32 v = *p;
    *p = v + 1;
    ((u8*)p)[1] = 0x5a;
    out[4 * t] = v;
    out[4 * t + 1] = *p;
    u32 q = 0, r;
#define SPACE(name, bit)                                                                                        \
    asm volatile("{ .reg .pred a; isspacep." name " a, %1; selp.u32 %0, 1, 0, a; }" : "=r"(r) : "l"(p));         \
    q |= r << bit;
    SPACE("shared", 0)
    SPACE("local", 1)
    SPACE("global", 2)
    SPACE("const", 3)
    out[4 * t + 2] = q;
    u64 wide = *(volatile u64*)(global + 96 + 2 * t);
    u64* w = t & 1 ? (u64*)(global + 96 + 2 * t) : (u64*)(shared + (t & ~1u));
    __syncthreads();
    u64 x = *w;
    *w = x;
    out[4 * t + 3] = (u32)(t & 1 ? x ^ wide : x >> 63);
}

struct Parameters {
    s8 a;
    double b;
    u16 c[3];
    u32 d[4];
};

// A struct by value between scalars of all sizes.
KERNEL struct_parameter(u8 first, Parameters s, u16 second, u64 third, const u32* p, u32* out)
{
    u32 t = threadIdx.x;
    out[t] = first + s.a + (u32)s.b + s.c[t % 3] + s.d[t & 3] + p[t] + second + (u32)(third >> 32);
}

// Offsets beyond what an instruction holds, and below zero.
KERNEL far_offsets(const u32* in, u32* out, u32 n)
{
    u32 i = INDEX;
    if (i < n) {
        const u32* middle = in + n;
        out[i] = middle[i] + middle[(s32)i - (s32)n] + in[2 * n - 1 - i];
        (out + 3 * n)[-(s32)(n + i) - 1] = middle[-1 - (s32)i];
    }
}
