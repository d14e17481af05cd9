// Everything that limits a launch: bounds, shared memory, barriers, local memory, parameter sizes.

struct Three {
    float x, y, z;
};

extern "C" __global__ void __launch_bounds__(96) bounded(unsigned char a, double b, Three c, short* d)
{
    __shared__ double tile[33];
    tile[threadIdx.x % 33] = b * 0.12345678901234;
    __syncthreads();
    asm volatile("bar.sync 4, 64;");
    d[a] = (short)(tile[threadIdx.x % 7] + c.z);
}

extern "C" __global__ void local(unsigned* data, unsigned n)
{
    unsigned v[100];
#pragma unroll 1
    for (unsigned i = 0; i < 100; ++i)
        v[i] = data[i];
#pragma unroll 1
    for (unsigned i = 0; i < n; ++i)
        v[v[i] % 100] += i;
    data[0] = v[n];
}

extern "C" __global__ void nothing()
{
}
