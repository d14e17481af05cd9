/* Launches a kernel of kernels/check/mem.cu that exceeds its buffers of 256 elements. With a fourth argument it has
 * forgotten the cubin by then. */
#include "launch.h"

int main(int count, char **arguments)
{
    if (count < 4)
        exit(2);
    struct channel channel = bring_up();
    struct memory code = allocate(channel.nvmap, channel.space, 1 << 16);
    struct memory out = allocate(channel.nvmap, channel.space, 256 * 4);
    struct memory in = allocate(channel.nvmap, channel.space, 256 * 4);
    for (uint32_t i = 0; i < 256; i++)
        in.words[i] = i;
    /* Not at the start of the memory: kernels are found by their code. */
    uint32_t registers = load(arguments[1], arguments[2], &code, 0x400);
    if (count > 4)
        memset(file, 0, sizeof file);
    uint32_t parameters[9] = { 0 };
    set_address(parameters, out.va);
    set_address(parameters + 2, in.va);
    parameters[8] = 256;
    struct grid grid = { .blocks = (uint32_t)atoi(arguments[3]), .threads = 64, .registers = registers };
    run(&channel, code.va + 0x400, grid, parameters, 9);
    return 0;
}
