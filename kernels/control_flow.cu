// Branches: nested, many-way, indirect.

// A dense switch: an indirect branch through a table in constant bank 2.
extern "C" __global__ void switch_table(const unsigned* op, const unsigned* in, unsigned* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned x = in[i];
    volatile unsigned* o = out;
    switch (op[i]) {
    case 0: o[i] = x + 1; break;
    case 1: o[i] = x * 3; o[i] += i; break;
    case 2: o[i] = x / 5; break;
    case 3: o[i] = x % 9; o[i] ^= 1; break;
    case 4: o[i] = __popc(x); break;
    case 5: o[i] = x << 4; o[i] |= 2; break;
    case 6: o[i] = __brev(x); break;
    case 7: o[i] = x * x; o[i] -= i; break;
    case 8: o[i] = ~x; break;
    case 9: o[i] = x >> 3; o[i] += x; break;
    case 10: o[i] = x - 100; break;
    case 11: o[i] = x | 0x8000; break;
    default: o[i] = 0xdead; break;
    }
}

// Length of the Collatz sequence of in[i], at most `limit` steps: loops with a branch inside.
extern "C" __global__ void collatz(const unsigned* in, unsigned* out, unsigned limit, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long x = in[i];
    unsigned steps = 0;
    while (x > 1 && steps < limit) {
        if (x & 1)
            x = 3 * x + 1;
        else
            x >>= 1;
        ++steps;
    }
    out[i] = steps;
}

// Nested branches with a return in the middle, continue and break.
extern "C" __global__ void nested_branches(const int* in, int* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int x = in[i];
    if (x < 0) {
        if (x < -100) {
            out[i] = -1;
            return;
        }
        x = -x;
    }
    int sum = 0;
    for (int j = 0; j < 64; ++j) {
        if (j % 3 == x % 3)
            continue;
        if (j > x)
            break;
        sum += j;
        if (sum > 500) {
            out[i] = sum;
            return;
        }
    }
    out[i] = sum + 1000;
}

// The lanes of a warp part and meet again. in[i] & 3 chooses the branch: inside[i] = the number of lanes
// of the warp with the same choice, times 1, 2 or 3 (choices 0, 1, others); after[i] = the number of lanes
// that are active after the branches. Full warps only.
extern "C" __global__ void reconverge(const unsigned* in, unsigned* inside, unsigned* after)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned k = in[i] & 3;
    unsigned together = __match_any_sync(0xffffffffu, k);
    unsigned total = 0;
    if (k == 0)
        total = __reduce_add_sync(together, 1u);
    else if (k == 1)
        total = __reduce_add_sync(together, 2u);
    else
        total = __reduce_add_sync(together, 3u);
    __syncwarp();
    inside[i] = total;
    after[i] = __popc(__activemask());
}
