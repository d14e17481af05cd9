// out (columns x rows) = transpose of in (rows x columns), through a shared tile whose rows are one
// word longer, so that a column does not fall into one bank. Blocks of 32 x 8 threads, grid
// (ceil(columns / 32), ceil(rows / 32)).
extern "C" __global__ void transpose(const float* in, float* out, unsigned rows, unsigned columns)
{
    __shared__ float tile[32][33];

    unsigned x = blockIdx.x * 32 + threadIdx.x;
    unsigned y = blockIdx.y * 32 + threadIdx.y;
    for (unsigned j = 0; j < 32; j += 8)
        if (x < columns && y + j < rows)
            tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * columns + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (unsigned j = 0; j < 32; j += 8)
        if (x < rows && y + j < columns)
            out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}
