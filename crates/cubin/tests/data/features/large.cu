// More than 4 KiB of parameters: the compiler moves them in constant bank 0 and describes them in another way.
struct Large { int values[1100]; };

extern "C" __global__ void large(int* out, const Large large, int n)
{
    out[threadIdx.x] = large.values[threadIdx.x] + n;
}
