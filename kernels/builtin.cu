// Copies and fills as kernels: a recorded graph chains them with its launches, without a detour over the
// copy engine. One thread moves one unit per step; the grid strides over the rest.
extern "C" {

// Units of 16 bytes: both addresses are multiples of 16.
__global__ void copy_16(uint4* target, const uint4* source, unsigned long long units)
{
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < units; i += stride)
        target[i] = source[i];
}

__global__ void copy_1(unsigned char* target, const unsigned char* source, unsigned long long units)
{
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < units; i += stride)
        target[i] = source[i];
}

__global__ void fill_1(unsigned char* target, unsigned char value, unsigned long long units)
{
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < units; i += stride)
        target[i] = value;
}

// Units of 2 bytes: the address is a multiple of 2.
__global__ void fill_2(unsigned short* target, unsigned short value, unsigned long long units)
{
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < units; i += stride)
        target[i] = value;
}

// Units of 4 bytes: the address is a multiple of 4.
__global__ void fill_4(unsigned int* target, unsigned int value, unsigned long long units)
{
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < units; i += stride)
        target[i] = value;
}

}
