// Texture and surface references, which NVRTC compiles up to CUDA 11: with NVRTC 11.8 and kernels/compile.py for sm_87.

texture<float, 2, cudaReadModeElementType> picture;
texture<unsigned char, 1, cudaReadModeNormalizedFloat> line;
surface<void, 2> counts;

// out[y][x] = picture(x, y) + line[x], and counts(x, y) += 1, for a block of a width and as many blocks as rows.
extern "C" __global__ void look(float* out, int width)
{
    int x = threadIdx.x, y = blockIdx.x, count;
    out[y * width + x] = tex2D(picture, x + 0.5f, y + 0.5f) + tex1Dfetch(line, x);
    surf2Dread(&count, counts, x * 4, y);
    surf2Dwrite(count + 1, counts, x * 4, y);
}
