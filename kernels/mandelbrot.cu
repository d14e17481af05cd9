// Escape times of the Mandelbrot set: the loop ends at another turn in each lane of a warp.
// out is width x height, row major; pixel (px, py) is the point (x0 + px * step, y0 + py * step).
extern "C" __global__ void mandelbrot(unsigned* out, unsigned width, unsigned height, float x0,
                                      float y0, float step, unsigned limit)
{
    unsigned px = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height)
        return;
    // Rounded one by one: a host computes the same bits without fused operations.
    float cx = __fadd_rn(x0, __fmul_rn((float)px, step));
    float cy = __fadd_rn(y0, __fmul_rn((float)py, step));
    float x = 0.0f;
    float y = 0.0f;
    unsigned count = 0;
    while (count < limit) {
        float xx = __fmul_rn(x, x);
        float yy = __fmul_rn(y, y);
        if (__fadd_rn(xx, yy) > 4.0f)
            break;
        float xy = __fmul_rn(x, y);
        y = __fadd_rn(__fadd_rn(xy, xy), cy);
        x = __fadd_rn(__fsub_rn(xx, yy), cx);
        ++count;
    }
    out[py * width + px] = count;
}
