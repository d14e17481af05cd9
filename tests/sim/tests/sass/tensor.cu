// One warp multiplies small matrices on the tensor cores. A is M x K row major, B is stored column by
// column (N columns of K elements), C and D are M x N row major. The threads load their fragments as
// the documentation of mma lays them out.

#define G (threadIdx.x >> 2)
#define T (threadIdx.x & 3)

// m16n8k16, binary16 into binary32. A through ldmatrix, B through ldmatrix too.
extern "C" __global__ void f16_f32(const unsigned* a, const unsigned* b, const float* c, float* d)
{
    __shared__ __align__(16) unsigned sa[16 * 8], sb[8 * 8];
    for (unsigned i = threadIdx.x; i < 128; i += 32)
        sa[i] = a[i];
    for (unsigned i = threadIdx.x; i < 64; i += 32)
        sb[i] = b[i];
    __syncthreads();
    unsigned lane = threadIdx.x;
    unsigned pa = (unsigned)__cvta_generic_to_shared(&sa[(lane & 15) * 8 + (lane >> 4) * 4]);
    unsigned pb = (unsigned)__cvta_generic_to_shared(&sb[(lane & 7) * 8 + (lane >> 3 & 1) * 4]);
    unsigned x[4], y[2];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(pa));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(pb));
    float z[4] = {c[G * 8 + 2 * T], c[G * 8 + 2 * T + 1], c[(G + 8) * 8 + 2 * T], c[(G + 8) * 8 + 2 * T + 1]};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    d[G * 8 + 2 * T] = z[0];
    d[G * 8 + 2 * T + 1] = z[1];
    d[(G + 8) * 8 + 2 * T] = z[2];
    d[(G + 8) * 8 + 2 * T + 1] = z[3];
}

// m16n8k32, signed bytes into words.
extern "C" __global__ void s8_s32(const unsigned* a, const unsigned* b, const int* c, int* d)
{
    unsigned x[4] = {a[G * 8 + T], a[(G + 8) * 8 + T], a[G * 8 + T + 4], a[(G + 8) * 8 + T + 4]};
    unsigned y[2] = {b[G * 8 + T], b[G * 8 + T + 4]};
    int z[4] = {c[G * 8 + 2 * T], c[G * 8 + 2 * T + 1], c[(G + 8) * 8 + 2 * T], c[(G + 8) * 8 + 2 * T + 1]};
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(z[0]), "+r"(z[1]), "+r"(z[2]), "+r"(z[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    d[G * 8 + 2 * T] = z[0];
    d[G * 8 + 2 * T + 1] = z[1];
    d[(G + 8) * 8 + 2 * T] = z[2];
    d[(G + 8) * 8 + 2 * T + 1] = z[3];
}

// m16n8k256, single bits, exclusive or and population count.
extern "C" __global__ void b1_s32(const unsigned* a, const unsigned* b, const int* c, int* d)
{
    unsigned x[4] = {a[G * 8 + T], a[(G + 8) * 8 + T], a[G * 8 + T + 4], a[(G + 8) * 8 + T + 4]};
    unsigned y[2] = {b[G * 8 + T], b[G * 8 + T + 4]};
    int z[4] = {c[G * 8 + 2 * T], c[G * 8 + 2 * T + 1], c[(G + 8) * 8 + 2 * T], c[(G + 8) * 8 + 2 * T + 1]};
    asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(z[0]), "+r"(z[1]), "+r"(z[2]), "+r"(z[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    d[G * 8 + 2 * T] = z[0];
    d[G * 8 + 2 * T + 1] = z[1];
    d[(G + 8) * 8 + 2 * T] = z[2];
    d[(G + 8) * 8 + 2 * T + 1] = z[3];
}

// m8n8k4, binary64.
extern "C" __global__ void f64_f64(const double* a, const double* b, const double* c, double* d)
{
    double z0 = c[G * 8 + 2 * T], z1 = c[G * 8 + 2 * T + 1];
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(z0), "+d"(z1) : "d"(a[G * 4 + T]), "d"(b[G * 4 + T]));
    d[G * 8 + 2 * T] = z0;
    d[G * 8 + 2 * T + 1] = z1;
}
