/* Brings up a channel with ioctls, releases a semaphore, waits for an event and launches vector_add of a cubin. */
#include <elf.h>
#include "board.h"

#define COUNT 1000u
#define THREADS 128u

/* Sets a field of a launch descriptor. */
static void set(uint32_t *qmd, unsigned low, unsigned bits, uint32_t value)
{
    uint32_t mask = bits == 32 ? UINT32_MAX : (1u << bits) - 1;
    if (value & ~mask)
        exit(3);
    qmd[low / 32] |= value << low % 32;
}

/* Copies the code of a kernel into memory. Returns its number of registers. */
static uint32_t load(const char *path, const char *section, struct memory *code)
{
    static char file[1 << 20];
    FILE *in = fopen(path, "rb");
    if (!in || fread(file, 1, sizeof file, in) == 0)
        fail(path);
    fclose(in);
    Elf64_Ehdr header;
    memcpy(&header, file, sizeof header);
    Elf64_Shdr names, current;
    memcpy(&names, file + header.e_shoff + (size_t)header.e_shstrndx * sizeof names, sizeof names);
    for (unsigned at = 0; at < header.e_shnum; at++) {
        memcpy(&current, file + header.e_shoff + at * sizeof current, sizeof current);
        if (strcmp(file + names.sh_offset + current.sh_name, section) == 0) {
            for (size_t word = 0; word < current.sh_size / 4; word++) {
                uint32_t value;
                memcpy(&value, file + current.sh_offset + 4 * word, 4);
                code->words[word] = value;
            }
            return current.sh_info >> 24;
        }
    }
    fprintf(stderr, "%s has no %s\n", path, section);
    exit(1);
}

static void launch(struct channel *channel, const char *cubin)
{
    struct memory code = allocate(channel->nvmap, channel->space, 1 << 16);
    struct memory data = allocate(channel->nvmap, channel->space, 1 << 16);
    uint32_t registers = load(cubin, ".text.vector_add", &code);
    /* Inputs, output, semaphore at 0xf000, constant bank 0 at 0xe000, descriptor at 0xd000. */
    volatile float *values = (volatile float *)data.words;
    for (unsigned i = 0; i < COUNT; i++) {
        values[i] = (float)i;
        values[0x1000 + i] = 0.5f;
    }
    uint64_t parameters[3] = { data.va, data.va + 0x4000, data.va + 0x8000 };
    for (unsigned i = 0; i < 6; i++) {
        uint32_t half = (uint32_t)(parameters[i / 2] >> 32 * (i % 2));
        data.words[(0xe000 + 0x160) / 4 + i] = half;
    }
    data.words[(0xe000 + 0x178) / 4] = COUNT;
    for (unsigned i = 0; i < 3; i++) {
        data.words[0xe000 / 4 + i] = i == 0 ? THREADS : 1;
        data.words[0xe00c / 4 + i] = i == 0 ? (COUNT + THREADS - 1) / THREADS : 1;
    }
    uint32_t qmd[64] = { 0 };
    uint64_t bank = data.va + 0xe000, descriptor = data.va + 0xd000;
    set(qmd, 128, 6, 0x3f);               /* QMD_GROUP_ID */
    set(qmd, 134, 1, 1);                  /* SM_GLOBAL_CACHING_ENABLE */
    set(qmd, 368, 2, 1);                  /* CWD_MEMBAR_TYPE = L1_SYSMEMBAR */
    set(qmd, 378, 1, 1);                  /* API_VISIBLE_CALL_LIMIT = NO_CHECK */
    set(qmd, 382, 1, 1);                  /* SAMPLER_INDEX = VIA_HEADER_INDEX */
    set(qmd, 384, 32, (COUNT + THREADS - 1) / THREADS);
    set(qmd, 416, 16, 1);
    set(qmd, 448, 16, 1);
    set(qmd, 562, 6, 3);                  /* shared memory of the SM: 8 KiB, encoded / 4 KiB + 1 */
    set(qmd, 569, 6, 3);
    set(qmd, 657, 6, 3);
    set(qmd, 580, 4, 3);                  /* QMD_MAJOR_VERSION */
    set(qmd, 592, 16, THREADS);
    set(qmd, 608, 16, 1);
    set(qmd, 624, 16, 1);
    set(qmd, 640, 1, 1);                  /* CONSTANT_BUFFER_VALID(0) */
    set(qmd, 648, 9, registers < 16 ? 16 : registers);
    set(qmd, 1024, 32, (uint32_t)bank);
    set(qmd, 1056, 17, (uint32_t)(bank >> 32));
    set(qmd, 1075, 13, 0x180 / 16);
    set(qmd, 1536, 32, (uint32_t)code.va);
    set(qmd, 1568, 17, (uint32_t)(code.va >> 32));
    set(qmd, 1656, 8, 0x86);              /* SASS_VERSION */
    for (unsigned i = 0; i < 64; i++)
        data.words[0xd000 / 4 + i] = qmd[i];
    uint32_t words[] = {
        0x20012000, COMPUTE_CLASS,                           /* SET_OBJECT on subchannel 1 */
        0x200220a8, 0xfe, 0,                                 /* SET_SHADER_SHARED_MEMORY_WINDOW */
        0x200221ec, 0xfd, 0,                                 /* SET_SHADER_LOCAL_MEMORY_WINDOW */
        0x200125a6, 0x1011,                                  /* INVALIDATE_SHADER_CACHES_NO_WFI */
        0x200120ad, (uint32_t)(descriptor >> 8),             /* SEND_PCAS_A */
        0x200120b0, 3,                                       /* SEND_SIGNALING_PCAS2_B */
    };
    submit(channel, words, sizeof words / 4);
    release(channel, data.va + 0xf000, 0x77, 1);
    await(data.words + 0xf000 / 4, 0x77, "the launch");
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
