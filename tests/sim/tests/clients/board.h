/* The requests of a Jetson Orin's GPU (L4T r36.4), as a C program sends them: no library. */
#ifndef BOARD_H
#define BOARD_H

#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct nvmap_create { uint32_t size_or_fd, handle; };
struct nvmap_alloc { uint32_t handle, heap_mask, flags, align; int32_t numa_nid; };
struct characteristics { uint64_t size, address; };
struct alloc_as {
    uint32_t big_page_size; int32_t as_fd; uint32_t flags, reserved;
    uint64_t start, end, split; uint32_t padding[6];
};
struct open_tsg { uint32_t tsg_fd, flags; uint64_t source, token; };
struct map_buffer {
    uint32_t flags; int16_t compr_kind, incompr_kind; uint32_t dmabuf_fd, page_size;
    uint64_t buffer_offset, mapping_size, offset;
};
struct subcontext { uint32_t type; int32_t as_fd; uint32_t veid, reserved; };
struct bind_channel_ex { int32_t channel_fd; uint32_t subcontext_id; uint8_t reserved[16]; };
struct watchdog { uint32_t status, timeout_ms; };
struct setup_bind {
    uint32_t entries, jobs, flags; int32_t userd_fd, ring_fd; uint32_t token;
    uint64_t userd_offset, ring_offset, ring_va, userd_va, mmio_va; uint32_t reserved[10];
};
struct object { uint32_t class_num, flags; uint64_t id; };
struct event { uint32_t command, id; int32_t fd; uint32_t padding; };
struct wait { uint32_t type, timeout_ms, dmabuf_fd, offset, payload, padding; };

#define NVMAP_CREATE _IOWR('N', 0, struct nvmap_create)
#define NVMAP_ALLOC _IOW('N', 3, struct nvmap_alloc)
#define NVMAP_FREE _IO('N', 4)
#define NVMAP_GET_FD _IOWR('N', 15, struct nvmap_create)
#define GET_CHARACTERISTICS _IOWR('G', 5, struct characteristics)
#define ALLOC_AS _IOWR('G', 8, struct alloc_as)
#define OPEN_TSG _IOWR('G', 9, struct open_tsg)
#define OPEN_CHANNEL _IOWR('G', 11, int32_t)
#define AS_BIND_CHANNEL _IOWR('A', 1, uint32_t)
#define UNMAP_BUFFER _IOWR('A', 5, uint64_t)
#define MAP_BUFFER _IOWR('A', 7, struct map_buffer)
#define TSG_EVENT _IOWR('T', 7, struct event)
#define TSG_BIND_CHANNEL _IOWR('T', 11, struct bind_channel_ex)
#define CREATE_SUBCONTEXT _IOWR('T', 18, struct subcontext)
#define CHANNEL_WAIT _IOWR('H', 102, struct wait)
#define ALLOC_OBJ_CTX _IOWR('H', 108, struct object)
#define WATCHDOG _IOW('H', 119, struct watchdog)
#define SETUP_BIND _IOWR('H', 128, struct setup_bind)

#define COMPUTE_CLASS 0xc7c0
#define DOORBELL (0x90 / 4)
#define GP_PUT (0x8c / 4)
#define RING_ENTRIES 1024

static inline void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* Number of requests after which the program kills itself; negative if it does not. */
static long requests_left = -1;

static inline void send_request(int fd, unsigned long code, void *argument, const char *name)
{
    if (requests_left >= 0 && requests_left-- == 0)
        kill(getpid(), SIGKILL);
    if (ioctl(fd, code, argument) != 0)
        fail(name);
}

static inline int open_node(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        fail(path);
    return fd;
}

/* Memory with its dma-buf, its address on the CPU and, if it is mapped, its address on the GPU. */
struct memory { int fd; volatile uint32_t *words; uint64_t va; size_t bytes; };

static inline struct memory allocate(int nvmap, int space, uint32_t bytes)
{
    struct nvmap_create create = { .size_or_fd = bytes };
    send_request(nvmap, NVMAP_CREATE, &create, "NVMAP_IOC_CREATE");
    struct nvmap_alloc alloc = {
        .handle = create.handle, .heap_mask = 1u << 30, .flags = 1u | 0x900u << 16, .align = 4096, .numa_nid = -1,
    };
    send_request(nvmap, NVMAP_ALLOC, &alloc, "NVMAP_IOC_ALLOC");
    send_request(nvmap, NVMAP_GET_FD, &create, "NVMAP_IOC_GET_FD");
    struct memory memory = { .fd = (int)create.size_or_fd, .bytes = bytes };
    memory.words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
    if (memory.words == MAP_FAILED)
        fail("mmap of a dma-buf");
    if (ioctl(nvmap, NVMAP_FREE, (unsigned long)create.handle) != 0)
        fail("NVMAP_IOC_FREE");
    if (space >= 0) {
        struct map_buffer map = { .compr_kind = -1, .dmabuf_fd = (uint32_t)memory.fd, .page_size = 4096 };
        send_request(space, MAP_BUFFER, &map, "MAP_BUFFER_EX");
        memory.va = map.offset;
    }
    return memory;
}

/* A channel with everything that a submission needs. */
struct channel {
    int nvmap, ctrl, space, tsg, fd;
    struct memory ring, userd, commands;
    volatile uint32_t *doorbell;
    uint32_t token, put, word;
};

static inline struct channel bring_up(void)
{
    struct channel channel = { .nvmap = open_node("/dev/nvmap"), .ctrl = open_node("/dev/nvgpu/igpu0/ctrl") };
    struct alloc_as space = { .flags = 2, .start = 0x200000, .end = 0xfc00000000 };
    send_request(channel.ctrl, ALLOC_AS, &space, "ALLOC_AS");
    channel.space = space.as_fd;
    struct open_tsg tsg = { 0 };
    send_request(channel.ctrl, OPEN_TSG, &tsg, "OPEN_TSG");
    channel.tsg = (int)tsg.tsg_fd;
    struct subcontext context = { .type = 1, .as_fd = channel.space };
    send_request(channel.tsg, CREATE_SUBCONTEXT, &context, "CREATE_SUBCONTEXT");
    int32_t number = -1;
    send_request(channel.ctrl, OPEN_CHANNEL, &number, "OPEN_CHANNEL");
    channel.fd = number;
    uint32_t bound = (uint32_t)number;
    send_request(channel.space, AS_BIND_CHANNEL, &bound, "AS_BIND_CHANNEL");
    struct bind_channel_ex member = { .channel_fd = number, .subcontext_id = context.veid };
    send_request(channel.tsg, TSG_BIND_CHANNEL, &member, "TSG_BIND_CHANNEL_EX");
    struct watchdog watchdog = { .status = 1 };
    send_request(channel.fd, WATCHDOG, &watchdog, "CHANNEL_WDT");
    channel.ring = allocate(channel.nvmap, -1, 8 * RING_ENTRIES);
    channel.userd = allocate(channel.nvmap, -1, 4096);
    struct setup_bind setup = {
        .entries = RING_ENTRIES, .flags = 8 | 2, .userd_fd = channel.userd.fd, .ring_fd = channel.ring.fd,
    };
    send_request(channel.fd, SETUP_BIND, &setup, "CHANNEL_SETUP_BIND");
    channel.token = setup.token;
    struct object object = { .class_num = COMPUTE_CLASS };
    send_request(channel.fd, ALLOC_OBJ_CTX, &object, "ALLOC_OBJ_CTX");
    channel.doorbell = mmap(NULL, 0x10000, PROT_READ | PROT_WRITE, MAP_SHARED, channel.ctrl, 0);
    if (channel.doorbell == MAP_FAILED)
        fail("mmap of the doorbell page");
    channel.commands = allocate(channel.nvmap, channel.space, 1 << 16);
    return channel;
}

/* Sends words of the pushbuffer. */
static inline void submit(struct channel *channel, const uint32_t *words, uint32_t count)
{
    uint64_t va = channel->commands.va + 4 * channel->word;
    for (uint32_t at = 0; at < count; at++)
        channel->commands.words[channel->word++] = words[at];
    volatile uint32_t *entry = channel->ring.words + 2 * (channel->put % RING_ENTRIES);
    entry[0] = (uint32_t)va;
    entry[1] = (uint32_t)(va >> 32) | count << 10;
    __sync_synchronize();
    channel->userd.words[GP_PUT] = ++channel->put % RING_ENTRIES;
    __sync_synchronize();
    channel->doorbell[DOORBELL] = channel->token;
}

/* Sends a release of a semaphore by the host engine: after the work before it if `idle`. */
static inline void release(struct channel *channel, uint64_t va, uint32_t payload, int idle)
{
    uint32_t words[] = {
        0x20050017, (uint32_t)va, (uint32_t)(va >> 32), payload, 0, idle ? 1u | 1u << 20 : 1u, 0x20010008, 0,
    };
    submit(channel, words, 8);
}

/* Waits until a word has a value, at most 60 s. */
static inline void await(volatile uint32_t *word, uint32_t value, const char *what)
{
    time_t end = time(NULL) + 60;
    while (*word != value) {
        if (time(NULL) > end) {
            fprintf(stderr, "%s: %#x after 60 s, not %#x\n", what, *word, value);
            exit(1);
        }
        usleep(50);
    }
    __sync_synchronize();
}

#endif
