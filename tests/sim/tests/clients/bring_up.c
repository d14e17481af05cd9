/* Brings up a channel with ioctls, releases a semaphore, waits for an event and launches vector_add of a cubin. */
#include "launch.h"

#define COUNT 1000u
#define THREADS 128u

static void launch(struct channel *channel, const char *cubin)
{
    struct memory code = allocate(channel->nvmap, channel->space, 1 << 16);
    struct memory data = allocate(channel->nvmap, channel->space, 1 << 16);
    uint32_t registers = load(cubin, "vector_add", &code, 0);
    /* Inputs and output. */
    volatile float *values = (volatile float *)data.words;
    for (unsigned i = 0; i < COUNT; i++) {
        values[i] = (float)i;
        values[0x1000 + i] = 0.5f;
    }
    uint32_t parameters[7] = { 0 };
    for (unsigned i = 0; i < 3; i++)
        set_address(parameters + 2 * i, data.va + 0x4000 * i);
    parameters[6] = COUNT;
    struct grid grid = { .blocks = (COUNT + THREADS - 1) / THREADS, .threads = THREADS, .registers = registers };
    run(channel, code.va, grid, parameters, 7);
    for (unsigned i = 0; i < COUNT; i++) {
        if (values[0x2000 + i] != (float)i + 0.5f) {
            fprintf(stderr, "c[%u] = %f\n", i, (double)values[0x2000 + i]);
            exit(1);
        }
    }
    printf("launch    %u sums are right\n", COUNT);
}

int main(int count, char **arguments)
{
    struct channel channel = bring_up();
    uint8_t raw[512] = { 0 };
    struct characteristics query = { .size = sizeof raw, .address = (uint64_t)(uintptr_t)raw };
    send_request(channel.ctrl, GET_CHARACTERISTICS, &query, "GET_CHARACTERISTICS");
    uint32_t arch;
    memcpy(&arch, raw, 4);
    printf("chip      arch %#x, channel %u\n", arch, channel.token & 0xfff);

    struct event event = { .command = 1, .id = 2 };
    send_request(channel.tsg, TSG_EVENT, &event, "EVENT_ID_CTRL");
    struct pollfd ready = { .fd = event.fd, .events = POLLIN };
    if (poll(&ready, 1, 0) != 0)
        fail("an event before any work");
    struct memory semaphore = allocate(channel.nvmap, channel.space, 4096);
    release(&channel, semaphore.va + 0x10, 0xabcd, 0);
    await(semaphore.words + 4, 0xabcd, "the semaphore");
    if (poll(&ready, 1, 60000) != 1)
        fail("no event after the release");
    struct wait wait = { .type = 1, .timeout_ms = 100, .dmabuf_fd = (uint32_t)semaphore.fd, .payload = 1 };
    if (ioctl(channel.fd, CHANNEL_WAIT, &wait) == 0 || errno != ETIMEDOUT)
        fail("CHANNEL_WAIT for a value that never comes");
    printf("semaphore released, event seen\n");
    if (count > 1)
        launch(&channel, arguments[1]);
    return 0;
}
