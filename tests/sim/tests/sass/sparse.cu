// Products with a sparse A; each thread gives the registers of its lane.
extern "C" __global__ void f16_k32(const unsigned* a, const unsigned* b, const float* c, const unsigned* e,
                                   float* d)
{
    unsigned lane = threadIdx.x;
    float x0 = c[4 * lane], x1 = c[4 * lane + 1], x2 = c[4 * lane + 2], x3 = c[4 * lane + 3];
    asm volatile("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, 0x1;"
                 : "+f"(x0), "+f"(x1), "+f"(x2), "+f"(x3)
                 : "r"(a[4 * lane]), "r"(a[4 * lane + 1]), "r"(a[4 * lane + 2]), "r"(a[4 * lane + 3]),
                   "r"(b[4 * lane]), "r"(b[4 * lane + 1]), "r"(b[4 * lane + 2]), "r"(b[4 * lane + 3]),
                   "r"(e[lane]));
    d[4 * lane] = x0, d[4 * lane + 1] = x1, d[4 * lane + 2] = x2, d[4 * lane + 3] = x3;
}

extern "C" __global__ void s8_k32(const unsigned* a, const unsigned* b, const int* c, const unsigned* e, int* d)
{
    unsigned lane = threadIdx.x;
    int x0 = c[4 * lane], x1 = c[4 * lane + 1], x2 = c[4 * lane + 2], x3 = c[4 * lane + 3];
    asm volatile("mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6,%7}, "
                 "{%0,%1,%2,%3}, %8, 0x0;"
                 : "+r"(x0), "+r"(x1), "+r"(x2), "+r"(x3)
                 : "r"(a[4 * lane]), "r"(a[4 * lane + 1]), "r"(b[4 * lane]), "r"(b[4 * lane + 1]), "r"(e[lane]));
    d[4 * lane] = x0, d[4 * lane + 1] = x1, d[4 * lane + 2] = x2, d[4 * lane + 3] = x3;
}
