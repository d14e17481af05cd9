// Predicates, selection, divergence, loops, switches, calls, recursion, function pointers.
#include "corpus.cuh"

MAP3(select, s32, s32, 4, o[0] = a > b ? c : b; o[1] = a & 1 ? a : -c; o[2] = (a > 0) - (a < 0);
     o[3] = a > b && b > c || c == a ? 1 : 2;)
MAP3(predicate_logic, u32, u32, 2, bool p = a > 100; bool q = b > a; bool r = (c & 3) == 1; bool s = a == b;
     bool t = c > b; u32 mask = 0; if ((p && q) || (r && !s) ^ (t || p)) mask |= 1; if (p ? q : r) mask |= 2;
     if (!(p ^ q ^ r)) mask |= 4; if ((s | t) & (p | r)) mask |= 8; o[0] = mask;
     o[1] = (p + q + r + s + t) * (q != r);)

// Branches in branches, each lane its own way.
KERNEL nested_branches(const s32* in, s32* out, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    s32 v = in[i], r;
    if (v > 0) {
        if (v & 1) {
            r = v * 3;
            for (s32 k = 0; k < (v & 15); k++)
                r += in[(i + k) % n] ^ k;
        } else if (v > 1000) {
            r = v / 7;
        } else {
            r = v - 1000;
        }
    } else if (v < -500) {
        r = __popc(v);
        if (r > 16)
            r = -r;
    } else {
        r = 77;
    }
    out[i] = r + v;
}

// Loops of different length with break, continue and return.
KERNEL ragged_loops(const u32* in, u32* out, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    u32 v = in[i] % 5000 + 1, steps = 0, odd = 0;
    while (v != 1) {
        steps++;
        if (steps > 150) {
            steps = 9999;
            break;
        }
        if (v & 1) {
            v = 3 * v + 1;
            odd++;
            continue;
        }
        v >>= 1;
        if (v == 8 && (odd & 3) == 2) {
            out[i] = 0x80000000 | steps;
            return;
        }
    }
    out[i] = steps << 8 | odd;
}

// Out of two loops at once.
KERNEL two_level_exit(const u32* in, u32* out, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    u32 sum = 0;
    for (u32 x = 0; x < 12; x++) {
        for (u32 y = x; y < 12; y++) {
            u32 v = in[(i + x * 12 + y) % n];
            sum += v & 1023;
            if (sum > 20000)
                goto done;
            if ((v & 7) == 3)
                break;
        }
        if (sum % 5 == 4)
            sum += 100;
    }
done:
    out[i] = sum;
}

// A dense switch whose cases differ too much for a table of values.
KERNEL jump_table(const u32* in, u32* out, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    u32 v = in[i], r;
    switch (v % 13) {
    case 0: r = in[(i + 1) % n] * 3; break;
    case 1: r = in[(i + 2) % n] / 7; break;
    case 2: r = __brev(v); break;
    case 3: r = in[(i + 9) % n] ^ 0x55; break;
    case 4: r = __popc(v) + in[4]; break;
    case 5: r = in[v % n]; break;
    case 6: r = v * v * v; break;
    case 7: out[n + i] = 1; r = 2; break;
    case 8: r = in[(v >> 3) % n] - 1; break;
    case 9: r = __clz(in[3] ^ v); break;
    case 10: r = (v << 7) | (v >> 25); break;
    default: r = ~v;
    }
    out[i] = r;
}

__device__ __noinline__ u32 mix(u32 x, u32 y)
{
    x ^= y * 0x9e3779b9u;
    x ^= x >> 15;
    return x * 0x85ebca6bu + 1;
}

__device__ __noinline__ float horner(const float* p, u32 n, float x)
{
    float sum = 0.0f;
    for (u32 k = 0; k < n; k++)
        sum = fmaf(sum, x, p[k]);
    return sum;
}

// Calls in straight and in divergent code.
KERNEL calls(const u32* in, const float* coefficients, u32* out, float* values, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    u32 v = mix(in[i], i);
    if (v & 4)
        v = mix(v, 99);
    else if (v & 8)
        v = mix(mix(v, 3), v);
    out[i] = v;
    values[i] = horner(coefficients, 1 + (v & 7), (float)(s32)(v >> 20) * 0.001f);
}

__device__ __noinline__ u32 fibonacci(u32 n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__device__ __noinline__ u32 ackermann(u32 m, u32 n)
{
    if (m == 0)
        return n + 1;
    if (n == 0)
        return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

// Every lane recurses to its own depth.
KERNEL recursion(u32* out)
{
    u32 i = threadIdx.x;
    out[i] = fibonacci(3 + i % 7);
    out[blockDim.x + i] = ackermann(i % 3, i % 4);
}

typedef u32 (*Operation)(u32, u32);
__device__ __noinline__ u32 plus_twice(u32 a, u32 b) { return a + 2 * b; }
__device__ __noinline__ u32 product_less_one(u32 a, u32 b) { return a * b - 1; }
__device__ __noinline__ u32 crossed(u32 a, u32 b) { return a ^ (b << 2); }
__device__ __noinline__ u32 mixed(u32 a, u32 b) { return mix(a, b) + mix(b, a); }
__device__ Operation operations[4] = {plus_twice, product_less_one, crossed, mixed};

// Each lane calls the function that its own value chooses.
KERNEL function_pointers(const u32* in, u32* out, u32 n)
{
    u32 i = INDEX;
    if (i < n)
        out[i] = operations[in[i] % 4](in[i], i);
}

struct Shape {
    __device__ virtual float area(float k) const { return k; }
    float size;
};
struct Square : Shape {
    __device__ float area(float k) const override { return size * size * k; }
};
struct Disc : Shape {
    __device__ float area(float k) const override { return fmaf(3.0f, size * size, k); }
};

// The same by tables of virtual functions.
KERNEL virtual_functions(const float* in, float* out, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    Square square;
    Disc disc;
    square.size = in[i];
    disc.size = in[i] + 1.0f;
    Shape* shape = &square;
    if (in[i] > 0.25f)
        shape = &disc;
    out[i] = shape->area(1.5f);
}

// Threads that end early, some of them in the middle of a loop.
KERNEL early_exit(const u32* in, u32* out, u32 n)
{
    u32 i = INDEX;
    if (i >= n || in[i] % 11 == 0)
        return;
    u32 sum = 0;
    for (u32 k = 0; k < in[i] % 37; k++) {
        if (in[k] % 97 == 5)
            return;
        sum += in[k] & 0xff;
    }
    out[i] = sum;
}

// An indirect branch written by hand.
KERNEL branch_targets(const u32* in, u32* out, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    u32 v = in[i], r;
    asm volatile("{ .reg .u32 t;\n"
                 "targets: .branchtargets L0, L1, L2, L3;\n"
                 "and.b32 t, %1, 3;\n"
                 "brx.idx t, targets;\n"
                 "L0: add.s32 %0, %1, 1; bra.uni E;\n"
                 "L1: mul.lo.s32 %0, %1, 5; bra.uni E;\n"
                 "L2: xor.b32 %0, %1, 9; bra.uni E;\n"
                 "L3: sub.s32 %0, %1, 4;\n"
                 "E: }"
                 : "=r"(r)
                 : "r"(v));
    out[i] = r;
}

// More conditions alive at once than there are predicate registers.
KERNEL many_predicates(const s32* in, s32* out, u32 n, s32 rounds)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    s32 v = in[i];
    bool p0 = v > 0, p1 = v > 10, p2 = v & 1, p3 = v & 2, p4 = v & 4, p5 = v < -7, p6 = v & 16, p7 = v % 3 == 0,
         p8 = v % 5 == 0, p9 = v & 64;
    s32 r = 0;
    for (s32 k = 0; k < rounds; k++) {
        if (p0) r += 1 + k;
        if (p1) r ^= 0x22;
        if (p2) r *= 3;
        if (p3) r -= v;
        if (p4) r += in[(i + k) % n];
        if (p5) r ^= k << 4;
        if (p6) r += 6;
        if (p7) r = -r;
        if (p8) r += 8 * k;
        if (p9) r ^= 0x999;
        __syncwarp(__activemask());
    }
    out[i] = r;
}
