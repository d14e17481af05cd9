/* Kernels of cubins: their code, and launches. */
#ifndef LAUNCH_H
#define LAUNCH_H

#include <elf.h>
#include "board.h"

/* Sets a field of a launch descriptor. */
static inline void set(uint32_t *qmd, unsigned low, unsigned bits, uint32_t value)
{
    uint32_t mask = bits == 32 ? UINT32_MAX : (1u << bits) - 1;
    if (value & ~mask)
        exit(3);
    qmd[low / 32] |= value << low % 32;
}

/* Sets two words to an address. */
static inline void set_address(uint32_t *words, uint64_t va)
{
    words[0] = (uint32_t)va;
    words[1] = (uint32_t)(va >> 32);
}

/* The content of a cubin. */
static char file[1 << 20];

/* Copies the code of a kernel into memory, at an offset in bytes. Returns its number of registers. */
static inline uint32_t load(const char *path, const char *kernel, struct memory *code, uint32_t offset)
{
    char section[256];
    snprintf(section, sizeof section, ".text.%s", kernel);
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
                code->words[offset / 4 + word] = value;
            }
            return current.sh_info >> 24;
        }
    }
    fprintf(stderr, "%s has no %s\n", path, section);
    exit(1);
}

struct grid { uint32_t blocks, threads, registers; };

/* Launches a kernel and waits for it. */
static inline void run(
    struct channel *channel, uint64_t code, struct grid grid, const uint32_t *parameters, unsigned count)
{
    /* The descriptor, constant bank 0 at 0x1000, a semaphore at 0x2000. */
    struct memory state = allocate(channel->nvmap, channel->space, 0x3000);
    volatile uint32_t *bank = state.words + 0x1000 / 4;
    for (unsigned i = 0; i < 3; i++) {
        bank[i] = i == 0 ? grid.threads : 1;
        bank[3 + i] = i == 0 ? grid.blocks : 1;
    }
    for (unsigned i = 0; i < count; i++)
        bank[0x160 / 4 + i] = parameters[i];
    uint32_t qmd[64] = { 0 };
    set(qmd, 128, 6, 0x3f);               /* QMD_GROUP_ID */
    set(qmd, 134, 1, 1);                  /* SM_GLOBAL_CACHING_ENABLE */
    set(qmd, 368, 2, 1);                  /* CWD_MEMBAR_TYPE = L1_SYSMEMBAR */
    set(qmd, 378, 1, 1);                  /* API_VISIBLE_CALL_LIMIT = NO_CHECK */
    set(qmd, 382, 1, 1);                  /* SAMPLER_INDEX = VIA_HEADER_INDEX */
    set(qmd, 384, 32, grid.blocks);
    set(qmd, 416, 16, 1);
    set(qmd, 448, 16, 1);
    set(qmd, 562, 6, 3);                  /* shared memory of the SM: 8 KiB, encoded / 4 KiB + 1 */
    set(qmd, 569, 6, 3);
    set(qmd, 657, 6, 3);
    set(qmd, 580, 4, 3);                  /* QMD_MAJOR_VERSION */
    set(qmd, 592, 16, grid.threads);
    set(qmd, 608, 16, 1);
    set(qmd, 624, 16, 1);
    set(qmd, 640, 1, 1);                  /* CONSTANT_BUFFER_VALID(0) */
    set(qmd, 648, 9, grid.registers < 16 ? 16 : grid.registers);
    set(qmd, 1024, 32, (uint32_t)(state.va + 0x1000));
    set(qmd, 1056, 17, (uint32_t)((state.va + 0x1000) >> 32));
    set(qmd, 1075, 13, (0x160 + 4 * count + 15) / 16);
    set(qmd, 1536, 32, (uint32_t)code);
    set(qmd, 1568, 17, (uint32_t)(code >> 32));
    set(qmd, 1656, 8, 0x86);              /* SASS_VERSION */
    for (unsigned i = 0; i < 64; i++)
        state.words[i] = qmd[i];
    uint32_t words[] = {
        0x20012000, COMPUTE_CLASS,                           /* SET_OBJECT on subchannel 1 */
        0x200220a8, 0xfe, 0,                                 /* SET_SHADER_SHARED_MEMORY_WINDOW */
        0x200221ec, 0xfd, 0,                                 /* SET_SHADER_LOCAL_MEMORY_WINDOW */
        0x200125a6, 0x1011,                                  /* INVALIDATE_SHADER_CACHES_NO_WFI */
        0x200120ad, (uint32_t)(state.va >> 8),               /* SEND_PCAS_A */
        0x200120b0, 3,                                       /* SEND_SIGNALING_PCAS2_B */
    };
    submit(channel, words, sizeof words / 4);
    release(channel, state.va + 0x2000, 0x77, 1);
    await(state.words + 0x2000 / 4, 0x77, "the launch");
}

#endif
