// Texture queries: real instructions that the software Orin does not model.

// *out = width of the texture behind the handle.
extern "C" __global__ void texture_width(unsigned long long handle, int* out)
{
    int width;
    asm volatile("txq.width.b32 %0, [%1];" : "=r"(width) : "l"(handle));
    *out = width;
}
