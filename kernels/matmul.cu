// Matrix product through shared memory.

#define TILE 16

// c (m x n) = a (m x k) * b (k x n), row major. Blocks of 16 x 16 threads, grid
// (ceil(n / 16), ceil(m / 16)); the sizes need not be multiples of 16.
extern "C" __global__ void matmul_tiled(const float* a, const float* b, float* c, unsigned m,
                                        unsigned n, unsigned k)
{
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];

    unsigned row = blockIdx.y * TILE + threadIdx.y;
    unsigned column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;

    for (unsigned base = 0; base < k; base += TILE) {
        unsigned ka = base + threadIdx.x;
        unsigned kb = base + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] = kb < k && column < n ? b[kb * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (unsigned j = 0; j < TILE; ++j)
            sum += tile_a[threadIdx.y][j] * tile_b[j][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n)
        c[row * n + column] = sum;
}
