// One kernel for several architectures, and as an object file.
extern "C" __global__ void tiny(unsigned* out, unsigned value)
{
    out[threadIdx.x] = value;
}
