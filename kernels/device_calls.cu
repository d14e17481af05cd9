// Calls of the functions that CUDA's driver provides to kernels: printf, assert, malloc and free.

extern "C" {

// One thread prints all types, flags, widths and precisions. out[i] is what call i returns.
__global__ void print_types(int* out)
{
    unsigned char byte = 200;
    short half = -7;
    const char* none = 0;
    char local[8] = {'l', 'o', 'c', 'a', 'l', 0};
    *out++ = printf("plain 100%%\n");
    *out++ = printf("%d %i %u %x %X %o %c|\n", -1, 2147483647, 4294967295u, 0xbeefu, 0xbeefu, 8u, 'z');
    *out++ = printf("%ld %lld %lu %llx %zu\n", -1l, -9223372036854775807ll, ~0ul, 0x123456789abcdefull, (size_t)5);
    *out++ = printf("%hd %hhu %hx\n", half, byte, half);
    *out++ = printf("%f %.2f %10.3e|%-10g|%G %a\n", 0.1, 3.14159, 31415.9, 0.0001, 1e-10, 1.0);
    *out++ = printf("%5d|%-5d|%05d|%+d|% d|%#x|%*d|%-*d|%.*f\n", 42, 42, 42, 42, 42, 255, 6, 7, 6, 7, 3, 2.0);
    *out++ = printf("%s|%8s|%-8s|%.3s|%s\n", "text", "right", "left", "precision", local);
    *out++ = printf("%d %s %lld %c %f\n", 1, "a string of more than eight bytes", 2ll, 'c', 3.5f);
    *out++ = printf("%p %s %p\n", (void*)0x1234abcd, none, none);
    *out++ = printf("%f %f %f\n", 1.0 / 0.0, -1.0 / 0.0, 0.0);
    *out++ = printf("%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d %d\n", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0,
                    1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2);
}

// Each thread prints `times` lines. results[thread] is the number of lines that were accepted.
__global__ void print_many(int times, int* results)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x, accepted = 0;
    for (int i = 0; i < times; i++)
        accepted += printf("%d %d %s\n", thread, i, i & 1 ? "odd" : "even") == 3;
    results[thread] = accepted;
}

// Prints a string in global memory.
__global__ void print_text(const char* text)
{
    printf("%s\n", text);
}

// Thread `wrong` of the grid fails its assertion.
__global__ void assert_all(int wrong, int* out)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    assert(thread != wrong);
    out[thread] = thread;
}

// Each thread allocates, fills, checks and frees `times` blocks of up to `most` bytes; two live at a time. errors[0]
// counts damaged blocks, errors[1] those that are not aligned to 16 bytes, errors[2] refused allocations.
__global__ void churn(int times, unsigned most, unsigned* errors)
{
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, random = thread * 2654435761u + 1;
    unsigned* kept = 0;
    unsigned kept_words = 0;
    for (int i = 0; i < times; i++) {
        random = random * 1664525u + 1013904223u;
        unsigned words = random / 65536 % (most / 4) + 1, value = thread * 65536 + i;
        unsigned* block = (unsigned*)malloc(words * 4);
        if (!block) {
            atomicAdd(&errors[2], 1);
            continue;
        }
        if ((unsigned long long)block % 16)
            atomicAdd(&errors[1], 1);
        block[0] = block[words - 1] = value;
        if (kept && (kept[0] != kept[kept_words - 1] || kept[0] / 65536 != thread))
            atomicAdd(&errors[0], 1);
        free(kept);
        kept = block;
        kept_words = words;
    }
    free(kept);
}

// Allocates blocks of `bytes` bytes until there are no more, and keeps them. count[0] is their number; blocks[0] is
// the last.
__global__ void exhaust(unsigned long long bytes, void** blocks, unsigned* count)
{
    unsigned found = 0;
    for (void* block = malloc(bytes); block; block = malloc(bytes), found++) {
        *(void**)block = blocks[0];
        blocks[0] = block;
    }
    *count = found;
}

// Frees the blocks of `exhaust`, each twice, and addresses that are no blocks.
__global__ void release(void** blocks)
{
    for (void *block = blocks[0], *next; block; block = next) {
        next = *(void**)block;
        free((char*)block + 4);
        free(block);
        free(block);
    }
    free(0);
    free(blocks);
    blocks[0] = 0;
}

}
