// Special registers: where a thread is, and when.
#include "corpus.cuh"

// The place of every thread in a grid and a block of three dimensions.
KERNEL places(u32* out)
{
    u32 block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    u32 thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    u32* o = out + 4 * (block * (blockDim.x * blockDim.y * blockDim.z) + thread);
    o[0] = blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16;
    o[1] = threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16;
    o[2] = gridDim.x | gridDim.y << 8 | gridDim.z << 16;
    o[3] = blockDim.x | blockDim.y << 8 | blockDim.z << 16;
}

// A volume in which every thread finds its own cell.
KERNEL volume(const float* in, float* out, u32 nx, u32 ny, u32 nz)
{
    u32 x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
        z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= nx || y >= ny || z >= nz)
        return;
    u32 at = (z * ny + y) * nx + x;
    float sum = in[at];
    if (x > 0)
        sum += in[at - 1];
    if (y > 0)
        sum += in[at - nx];
    if (z > 0)
        sum += in[at - nx * ny];
    out[at] = sum;
}

// Clocks never run backwards, and a timer that counts nanoseconds moves on.
KERNEL clocks(u32* out)
{
    u32 t = threadIdx.x;
    long long a = clock64();
    u64 before, after;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(before));
    u32 c;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(c));
    u32 spin = 0;
    for (u32 k = 0; k < 200; k++)
        spin = spin * 5 + (u32)c + k;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(after));
    long long b = clock64();
    u32 low, high;
    asm volatile("mov.u32 %0, %%clock_hi;" : "=r"(high));
    asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(low));
    out[t] = (b > a) | (after >= before) << 1 | (spin != 1) << 2 | (before != 0) << 3 | (high <= 0xffff) << 4 |
             (low != 0x12345678) << 5;
}

// Registers that describe the launch.
KERNEL launch_registers(u32* out)
{
    extern __shared__ u32 dynamic[];
    u32 t = threadIdx.x, warp, dynamic_bytes, total, sm, sms, warps;
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamic_bytes));
    asm volatile("mov.u32 %0, %%total_smem_size;" : "=r"(total));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(sms));
    asm volatile("mov.u32 %0, %%nwarpid;" : "=r"(warps));
    dynamic[t] = t;
    __syncthreads();
    out[3 * t] = dynamic_bytes;
    out[3 * t + 1] = total >= dynamic_bytes;
    out[3 * t + 2] = (sm < sms) + 2 * (warp < warps) + 4 * dynamic[blockDim.x - 1 - t];
}
