// Lookups in textures and accesses of surfaces. Objects are passed as numbers.

// Width of a texture. One thread.
extern "C" __global__ void texture_width(cudaTextureObject_t object, int *out) {
    int width;
    asm("txq.width.b32 %0, [%1];" : "=r"(width) : "l"(object));
    *out = width;
}

// out[i] = the first component at (places[2 * i], places[2 * i + 1]), for i < n.
extern "C" __global__ void look_up(cudaTextureObject_t object, const float *places, float *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex2D<float>(object, places[2 * i], places[2 * i + 1]);
}

#define LOOKUP(NAME, VALUE) \
    extern "C" __global__ void NAME(cudaTextureObject_t t, const float4 *places, float4 *out, unsigned n) { \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x; \
        if (i >= n) return; \
        float4 p = places[i]; \
        out[i] = VALUE; \
    }

// Four components at places of one to three coordinates; the fourth is a layer or a level.
LOOKUP(look_up_1d, tex1D<float4>(t, p.x))
LOOKUP(look_up_2d, tex2D<float4>(t, p.x, p.y))
LOOKUP(look_up_3d, tex3D<float4>(t, p.x, p.y, p.z))
LOOKUP(look_up_layer, tex2DLayered<float4>(t, p.x, p.y, (int)p.w))
LOOKUP(look_up_cube, texCubemap<float4>(t, p.x, p.y, p.z))
LOOKUP(look_up_level, tex2DLod<float4>(t, p.x, p.y, p.w))
LOOKUP(look_up_derived, tex2DGrad<float4>(t, p.x, p.y, make_float2(p.z, 0), make_float2(0, p.w)))
LOOKUP(fetch, tex1Dfetch<float4>(t, (int)p.x))
LOOKUP(gather, tex2Dgather<float4>(t, p.x, p.y, 1))

// As look_up_2d, with the texture that each thread finds in a list of four.
extern "C" __global__ void look_up_listed(const cudaTextureObject_t *list, const float4 *places, float4 *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex2D<float4>(list[i % 4], places[i].x, places[i].y);
}

// Each thread moves the word at (x, y) to (x, y + 1) and adds it to the one at (x, 0): one block of `width` threads.
// Reads outside of the surface are 0, writes outside are dropped.
extern "C" __global__ void surface_step(cudaSurfaceObject_t object, int y) {
    int x = 4 * (int)threadIdx.x;
    unsigned value = surf2Dread<unsigned>(object, x, y, cudaBoundaryModeZero);
    surf2Dwrite(value, object, x, y + 1, cudaBoundaryModeZero);
    asm volatile("sured.b.2d.add.u32.zero [%0, {%1, %2}], %3;" ::"l"(object), "r"(x), "r"(0), "r"(value));
}

// Reads word x of row y, with a trap outside. One thread.
extern "C" __global__ void surface_read(cudaSurfaceObject_t object, int x, int y, unsigned *out) {
    *out = surf2Dread<unsigned>(object, 4 * x, y, cudaBoundaryModeTrap);
}
