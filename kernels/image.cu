// Images: from camera frames in pitch-linear memory to planar floats, and between planar floats. One thread per pixel, in
// blocks of any shape; z counts channels where a kernel has them. The structs are those of crates/tegra-image/src/kernels.
//
// Without fused operations, so that the CPU computes the same bits:
// nvrtc: --fmad=false

typedef unsigned char u8;
typedef unsigned long long u64;

__device__ __forceinline__ float unit(float value)
{
    return fminf(fmaxf(value, 0.0f), 1.0f);
}

// Writes one pixel of three planes of `pixels` floats.
__device__ __forceinline__ void put(float* out, u64 pixels, u64 at, float red, float green, float blue)
{
    out[at] = unit(red);
    out[pixels + at] = unit(green);
    out[2 * pixels + at] = unit(blue);
}

struct Yuv {
    u64 luma, chroma; // offsets in bytes
    unsigned luma_pitch, chroma_pitch, width, height, shift_x, shift_y;
    float black, range, red_v, green_u, green_v, blue_u;
};

// NV12, NV16 and NV24 to planar RGB from 0 to 1. A pair of chroma counts for all of its pixels.
extern "C" __global__ void yuv_to_rgb(const u8* frame, float* out, Yuv p)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= p.width || y >= p.height)
        return;
    float luma = ((float)frame[p.luma + (u64)y * p.luma_pitch + x] - p.black) / p.range;
    const u8* pair = frame + p.chroma + (u64)(y >> p.shift_y) * p.chroma_pitch + 2 * (x >> p.shift_x);
    float u = (float)pair[0] - 128.0f, v = (float)pair[1] - 128.0f;
    put(out, (u64)p.width * p.height, (u64)y * p.width + x, luma + p.red_v * v, luma - p.green_u * u - p.green_v * v,
        luma + p.blue_u * u);
}

struct Packed {
    u64 offset;
    unsigned pitch, width, height, bytes, red, green, blue; // bytes of a pixel, and those of its colours
};

// Bytes to planar RGB from 0 to 1.
extern "C" __global__ void packed_to_rgb(const u8* frame, float* out, Packed p)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= p.width || y >= p.height)
        return;
    const u8* pixel = frame + p.offset + (u64)y * p.pitch + x * p.bytes;
    put(out, (u64)p.width * p.height, (u64)y * p.width + x, (float)pixel[p.red] / 255.0f,
        (float)pixel[p.green] / 255.0f, (float)pixel[p.blue] / 255.0f);
}

struct Raw {
    u64 offset;
    unsigned pitch, width, height, bits, mipi, shift, red_x, red_y;
    float black, range, red, green, blue, padding;
};

__device__ __forceinline__ unsigned sample(const u8* frame, const Raw& p, unsigned x, unsigned y)
{
    const u8* row = frame + p.offset + (u64)y * p.pitch;
    if (!p.mipi)
        return (row[2 * x] | row[2 * x + 1] << 8) >> p.shift & ((1u << p.bits) - 1);
    if (p.bits == 10) {
        const u8* group = row + x / 4 * 5;
        return group[x % 4] << 2 | (group[4] >> 2 * (x % 4) & 3);
    }
    const u8* group = row + x / 2 * 3;
    return group[x % 2] << 4 | (group[2] >> 4 * (x % 2) & 15);
}

// A raw frame to planar RGB from 0 to 1: a missing colour is the mean of the nearest samples that have it. Beyond the
// edges the image is mirrored at the last sample, which keeps the order of colours.
extern "C" __global__ void raw_to_rgb(const u8* frame, float* out, Raw p)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= p.width || y >= p.height)
        return;
    unsigned left = x ? x - 1 : 1, right = x + 1 < p.width ? x + 1 : x - 1;
    unsigned above = y ? y - 1 : 1, below = y + 1 < p.height ? y + 1 : y - 1;
    float here = (float)sample(frame, p, x, y);
    unsigned rows = sample(frame, p, left, y) + sample(frame, p, right, y);
    unsigned columns = sample(frame, p, x, above) + sample(frame, p, x, below);
    unsigned corners = sample(frame, p, left, above) + sample(frame, p, right, above) + sample(frame, p, left, below)
        + sample(frame, p, right, below);
    float cross = (float)(rows + columns) * 0.25f, corner = (float)corners * 0.25f;
    float row = (float)rows * 0.5f, column = (float)columns * 0.5f;
    bool red_column = (x & 1) == p.red_x, red_row = (y & 1) == p.red_y;
    float red = red_row ? (red_column ? here : row) : (red_column ? column : corner);
    float blue = red_row ? (red_column ? corner : column) : (red_column ? row : here);
    float green = red_row == red_column ? cross : here;
    put(out, (u64)p.width * p.height, (u64)y * p.width + x, (red - p.black) / p.range * p.red,
        (green - p.black) / p.range * p.green, (blue - p.black) / p.range * p.blue);
}

// The image at (x, y), between its four nearest pixels; 0 <= x < width, 0 <= y < height.
__device__ __forceinline__ float between(const float* image, unsigned width, unsigned height, float x, float y)
{
    unsigned left = (unsigned)x, top = (unsigned)y;
    unsigned right = min(left + 1, width - 1), bottom = min(top + 1, height - 1);
    float dx = x - (float)left, dy = y - (float)top;
    const float *upper = image + (u64)top * width, *lower = image + (u64)bottom * width;
    float above = upper[left] + (upper[right] - upper[left]) * dx;
    float below = lower[left] + (lower[right] - lower[left]) * dx;
    return above + (below - above) * dy;
}

struct Resize {
    unsigned from_width, from_height, to_width, to_height;
    unsigned left, top, width, height; // place of the image in the target
    float step_x, step_y, fill;
};

// A resized image, and `fill` around it.
extern "C" __global__ void resize(const float* source, float* target, Resize p)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= p.to_width || y >= p.to_height)
        return;
    float value = p.fill;
    if (x - p.left < p.width && y - p.top < p.height) {
        float from_x = ((float)(x - p.left) + 0.5f) * p.step_x - 0.5f;
        float from_y = ((float)(y - p.top) + 0.5f) * p.step_y - 0.5f;
        from_x = fminf(fmaxf(from_x, 0.0f), (float)(p.from_width - 1));
        from_y = fminf(fmaxf(from_y, 0.0f), (float)(p.from_height - 1));
        const float* image = source + (u64)blockIdx.z * p.from_width * p.from_height;
        value = between(image, p.from_width, p.from_height, from_x, from_y);
    }
    target[((u64)blockIdx.z * p.to_height + y) * p.to_width + x] = value;
}

struct Undistort {
    unsigned from_width, from_height, to_width, to_height;
    float fx, fy, cx, cy;                 // the camera
    float k1, k2, p1, p2, k3;             // its lens
    float to_fx, to_fy, to_cx, to_cy;     // the ideal camera of the target
    float fill;
};

// The image of an ideal camera from that of a camera with a lens. `fill` where the camera has seen nothing.
extern "C" __global__ void undistort(const float* source, float* target, Undistort p)
{
    unsigned column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= p.to_width || row >= p.to_height)
        return;
    float x = ((float)column - p.to_cx) / p.to_fx, y = ((float)row - p.to_cy) / p.to_fy;
    float xx = x * x, yy = y * y, xy = x * y;
    float rr = xx + yy;
    float radial = 1.0f + rr * (p.k1 + rr * (p.k2 + rr * p.k3));
    float seen_x = x * radial + 2.0f * p.p1 * xy + p.p2 * (rr + 2.0f * xx);
    float seen_y = y * radial + p.p1 * (rr + 2.0f * yy) + 2.0f * p.p2 * xy;
    float from_x = p.fx * seen_x + p.cx, from_y = p.fy * seen_y + p.cy;
    float value = p.fill;
    // False for a NaN.
    if (from_x >= 0.0f && from_x <= (float)(p.from_width - 1) && from_y >= 0.0f && from_y <= (float)(p.from_height - 1)) {
        const float* image = source + (u64)blockIdx.z * p.from_width * p.from_height;
        value = between(image, p.from_width, p.from_height, from_x, from_y);
    }
    target[((u64)blockIdx.z * p.to_height + row) * p.to_width + column] = value;
}

struct Normalise {
    unsigned pixels;
    float mean[4], scale[4];
};

// (value - mean) * scale of each channel, in place; y counts channels.
extern "C" __global__ void normalise(float* image, Normalise p)
{
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= p.pixels)
        return;
    float* value = image + (u64)blockIdx.y * p.pixels + at;
    *value = (*value - p.mean[blockIdx.y]) * p.scale[blockIdx.y];
}
