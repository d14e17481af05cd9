// Minimum and maximum with the signs of both sources: out holds min, max, NaN-propagating min, and max of
// bfloat16, for each pair of words.
extern "C" __global__ void xorsign(const unsigned* a, const unsigned* b, unsigned* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned least, largest, strict, brain;
    asm("min.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(least) : "r"(a[i]), "r"(b[i]));
    asm("max.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(largest) : "r"(a[i]), "r"(b[i]));
    asm("min.NaN.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(strict) : "r"(a[i]), "r"(b[i]));
    asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(brain) : "r"(a[i]), "r"(b[i]));
    out[4 * i] = least, out[4 * i + 1] = largest, out[4 * i + 2] = strict, out[4 * i + 3] = brain;
}
