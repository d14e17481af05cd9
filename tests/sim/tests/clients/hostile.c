/* Programs that do to the board what they must not, or end when they must not. The first argument selects one; each
 * ends with exit code 0 if the board has answered as a kernel does. */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "board.h"

/* Requests by the node that takes them: nvmap, ctrl, space, tsg, channel. */
static const unsigned long REQUESTS[][2] = {
    { 0, NVMAP_CREATE }, { 0, NVMAP_ALLOC }, { 0, NVMAP_GET_FD }, { 0, _IOW('N', 6, char[56]) },
    { 0, _IOW('N', 7, char[56]) }, { 0, _IOR('N', 25, uint64_t) }, { 1, GET_CHARACTERISTICS }, { 1, ALLOC_AS },
    { 1, OPEN_TSG }, { 1, OPEN_CHANNEL }, { 2, AS_BIND_CHANNEL }, { 2, UNMAP_BUFFER }, { 2, MAP_BUFFER },
    { 3, TSG_EVENT }, { 3, TSG_BIND_CHANNEL }, { 3, CREATE_SUBCONTEXT }, { 4, CHANNEL_WAIT }, { 4, ALLOC_OBJ_CTX },
    { 4, WATCHDOG }, { 4, SETUP_BIND },
};
/* Greatest number of processes that the tests allow. */
#define LIMIT 40
#define REQUEST_COUNT (sizeof REQUESTS / sizeof *REQUESTS)

/* A channel that is not set up, so that every request has something to refuse. */
static struct channel half(void)
{
    struct channel channel = { .nvmap = open_node("/dev/nvmap"), .ctrl = open_node("/dev/nvgpu/igpu0/ctrl") };
    struct alloc_as space = { .flags = 2, .start = 0x200000, .end = 0xfc00000000 };
    send_request(channel.ctrl, ALLOC_AS, &space, "ALLOC_AS");
    channel.space = space.as_fd;
    struct open_tsg tsg = { 0 };
    send_request(channel.ctrl, OPEN_TSG, &tsg, "OPEN_TSG");
    channel.tsg = (int)tsg.tsg_fd;
    int32_t number = -1;
    send_request(channel.ctrl, OPEN_CHANNEL, &number, "OPEN_CHANNEL");
    channel.fd = number;
    return channel;
}

/* Checks that the board still works. */
static void works(void)
{
    struct channel channel = bring_up();
    struct memory semaphore = allocate(channel.nvmap, channel.space, 4096);
    release(&channel, semaphore.va, 0x5a5a, 0);
    await(semaphore.words, 0x5a5a, "the semaphore");
    int fds[] = {
        channel.nvmap, channel.ctrl, channel.space, channel.tsg, channel.fd, channel.ring.fd, channel.userd.fd,
        channel.commands.fd, semaphore.fd,
    };
    for (unsigned at = 0; at < sizeof fds / sizeof *fds; at++)
        close(fds[at]);
    munmap((void *)channel.doorbell, 0x10000);
    munmap((void *)channel.ring.words, channel.ring.bytes);
    munmap((void *)channel.userd.words, channel.userd.bytes);
    munmap((void *)channel.commands.words, channel.commands.bytes);
    munmap((void *)semaphore.words, semaphore.bytes);
}

static void bad_pointers(void)
{
    struct channel channel = half();
    int fds[5] = { channel.nvmap, channel.ctrl, channel.space, channel.tsg, channel.fd };
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *constant = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    void *addresses[] = { NULL, (void *)8, (void *)-8l, (void *)(1l << 62), page + 4096, page + 4094, constant };
    for (unsigned request = 0; request < REQUEST_COUNT; request++) {
        for (unsigned at = 0; at < sizeof addresses / sizeof *addresses; at++) {
            int result = ioctl(fds[REQUESTS[request][0]], REQUESTS[request][1], addresses[at]);
            /* Requests that only read may succeed with zeros. */
            if (result == 0 && at < 5) {
                fprintf(stderr, "request %#lx succeeds at %p\n", REQUESTS[request][1], addresses[at]);
                exit(1);
            }
        }
    }
    /* Paths and the results of stat. */
    for (unsigned at = 0; at < 5; at++) {
        if (syscall(SYS_openat, AT_FDCWD, addresses[at], O_RDWR) >= 0 || errno != EFAULT)
            fail("open of a bad address");
        if (syscall(SYS_newfstatat, AT_FDCWD, "/dev/nvmap", addresses[at], 0) == 0 || errno != EFAULT)
            fail("stat into a bad address");
    }
    if (ioctl(channel.nvmap, NVMAP_FREE, 0xdeadul) != 0)
        fail("FREE of no handle");
    if (ioctl(-1, NVMAP_CREATE, page) == 0 || errno != EBADF)
        fail("a request on no descriptor");
    if (ioctl(0, NVMAP_CREATE, page) == 0 || errno != ENOTTY)
        fail("a request on another file");
    works();
}

static void *shared_page;
static volatile int racing = 1;

static void *remap(void *unused)
{
    while (racing) {
        munmap(shared_page, 4096);
        mmap(shared_page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    return unused;
}

/* The memory of the argument disappears and comes back during requests. */
static void race(void)
{
    struct channel channel = half();
    shared_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, remap, NULL);
    unsigned good = 0, bad = 0;
    for (unsigned at = 0; at < 3000; at++) {
        int result = ioctl(channel.nvmap, _IOR('N', 25, uint64_t), shared_page);
        good += result == 0;
        bad += result != 0;
        if (ioctl(channel.ctrl, _IOR('G', 1, uint32_t), shared_page) < 0 && errno != EFAULT)
            fail("ZCULL_GET_CTX_SIZE");
    }
    racing = 0;
    pthread_join(thread, NULL);
    printf("%u requests succeed, %u fail\n", good, bad);
    works();
}

/* A child dies with every number of requests behind it. */
static void killed(void)
{
    for (long limit = 0; limit < 32; limit++) {
        pid_t child = fork();
        if (child == 0) {
            requests_left = limit;
            for (;;)
                works();
        }
        int status;
        waitpid(child, &status, 0);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
            fail("a child survives");
    }
    /* And at any time, also during a request. */
    for (useconds_t after = 0; after < 40; after++) {
        pid_t child = fork();
        if (child == 0)
            for (;;)
                works();
        usleep(after * 300);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    works();
}

/* A close takes effect before the next request: more channels than there are, one after the other. */
static void reopened(void)
{
    int ctrl = open_node("/dev/nvgpu/igpu0/ctrl");
    for (unsigned at = 0; at < 1500; at++) {
        int32_t number = -1;
        send_request(ctrl, OPEN_CHANNEL, &number, "OPEN_CHANNEL");
        /* Not only by close. */
        if (at % 2 == 0 ? close(number) != 0 : dup2(0, number) < 0)
            fail("close");
        if (at % 2 != 0)
            close(number);
    }
}

/* Processes by the hundred, which release nothing. */
static void crowd(unsigned count)
{
    for (unsigned begun = 0; begun < count;) {
        for (unsigned batch = 0; batch < 50 && begun < count; batch++, begun++) {
            if (fork() == 0) {
                int nvmap = open_node("/dev/nvmap");
                open_node("/dev/nvgpu/igpu0/ctrl");
                struct memory memory = allocate(nvmap, -1, 4096);
                memory.words[0] = begun;
                _exit(memory.words[0] == begun ? 0 : 1);
            }
        }
        int status;
        while (wait(&status) > 0)
            if (status != 0)
                exit(1);
    }
    works();
}

/* Each process starts two others. */
static void bomb(unsigned depth)
{
    open_node("/dev/nvmap");
    if (depth == 0)
        return;
    for (unsigned at = 0; at < 2; at++) {
        if (fork() == 0) {
            bomb(depth - 1);
            _exit(0);
        }
    }
    while (wait(NULL) > 0) {}
}

/* Goes on as its own child all the time, so that its id is never known for long; for half a minute. */
static void flee(void)
{
    time_t end = time(NULL) + 30;
    while (time(NULL) < end)
        if (fork() != 0)
            _exit(0);
}

/* Processes so far, and creations that failed with another errno than EAGAIN; shared by all. */
static uint32_t *counts;

/* Each process creates others until it cannot. */
static void multiply(void)
{
    for (;;) {
        pid_t child = fork();
        if (child == 0)
            __atomic_add_fetch(&counts[0], 1, __ATOMIC_SEQ_CST);
        if (child < 0) {
            if (errno != EAGAIN)
                __atomic_add_fetch(&counts[1], 1, __ATOMIC_SEQ_CST);
            return;
        }
    }
}

static void *in_thread(void *argument)
{
    *(int *)argument = 1;
    return NULL;
}

static void check_refused(long result, int expected, const char *what)
{
    if (result >= 0 || errno != expected)
        fail(what);
}

/* Creates a process when there is room for one. */
static pid_t patient_fork(void)
{
    pid_t child;
    while ((child = fork()) < 0 && errno == EAGAIN)
        usleep(100);
    if (child < 0)
        fail("fork");
    return child;
}

/* Multiplies until there are `limit` processes; then none can be created by any call, but a thread can. */
static void explode(uint32_t limit)
{
    counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED || setpgid(0, 0) != 0)
        fail("setting up");
    counts[0] = 1;
    alarm(60);
    pid_t first = getpid();
    multiply();
    /* While others run, creations may fail early. */
    while (getpid() == first && __atomic_load_n(&counts[0], __ATOMIC_SEQ_CST) < limit) {
        multiply();
        if (getpid() == first)
            usleep(1000);
    }
    if (getpid() != first)
        for (;;)
            pause();
    for (unsigned at = 0; at < 20; at++)
        check_refused(fork(), EAGAIN, "fork beyond the limit");
#ifdef SYS_fork
    check_refused(syscall(SYS_fork), EAGAIN, "the call fork beyond the limit");
    check_refused(syscall(SYS_vfork), EAGAIN, "the call vfork beyond the limit");
#endif
    check_refused(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0), EAGAIN, "clone beyond the limit");
    uint64_t arguments[8] = { [4] = SIGCHLD };
    check_refused(syscall(SYS_clone3, arguments, sizeof arguments), ENOSYS, "clone3");
    pid_t spawned;
    char *line[] = { "true", NULL };
    if (posix_spawn(&spawned, "/bin/true", NULL, NULL, line, line + 1) != EAGAIN)
        fail("posix_spawn beyond the limit");
    pthread_t thread;
    int ran = 0;
    if (pthread_create(&thread, NULL, in_thread, &ran) != 0 || pthread_join(thread, NULL) != 0 || !ran)
        fail("a thread at the limit");
    if (counts[0] != limit || counts[1] != 0) {
        fprintf(stderr, "%u processes, %u other failures\n", counts[0], counts[1]);
        exit(1);
    }
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    while (wait(NULL) > 0) {}
    pid_t child = patient_fork();
    if (child == 0) {
        works();
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("a process after the others have ended");
}

/* Leaves processes behind that multiply, and go on when they cannot. */
static void explode_forever(void)
{
    if (fork() == 0)
        for (;;)
            fork();
    usleep(50000);
}

/* Each of `count` orphans ends at once. */
static void orphans(unsigned count)
{
    alarm(60);
    for (unsigned at = 0; at < count; at++) {
        pid_t child = patient_fork();
        if (child == 0) {
            patient_fork();
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
}

static void send_fd(int socket, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof fd)] = { 0 };
    struct iovec part = { &byte, 1 };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control,
    };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (sendmsg(socket, &message, 0) != 1)
        fail("sendmsg");
}

static int receive_fd(int socket)
{
    char byte, control[64];
    struct iovec part = { &byte, 1 };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control,
    };
    if (recvmsg(socket, &message, 0) != 1)
        fail("recvmsg");
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* One process sets a channel up and ends; another one works with it. Descriptors move by all means. */
static void passed(const char *self)
{
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
        fail("socketpair");
    pid_t child = fork();
    if (child == 0) {
        struct channel channel = bring_up();
        int fds[] = {
            channel.ring.fd, channel.userd.fd, channel.commands.fd, channel.space, channel.fd, channel.ctrl,
        };
        for (unsigned at = 0; at < 6; at++)
            send_fd(sockets[1], fds[at]);
        uint64_t numbers[] = { channel.commands.va, channel.token };
        if (write(sockets[1], numbers, sizeof numbers) != sizeof numbers)
            fail("write");
        _exit(0);
    }
    int fds[6];
    for (unsigned at = 0; at < 6; at++)
        fds[at] = receive_fd(sockets[0]);
    uint64_t numbers[2];
    if (read(sockets[0], numbers, sizeof numbers) != sizeof numbers)
        fail("read");
    waitpid(child, NULL, 0);
    struct channel channel = { .nvmap = open_node("/dev/nvmap"), .fd = fds[4], .ctrl = fds[5] };
    channel.space = dup2(fds[3], 200);
    close(fds[3]);
    channel.token = (uint32_t)numbers[1];
    int both = PROT_READ | PROT_WRITE;
    channel.commands = (struct memory){ .fd = fds[2], .va = numbers[0] };
    channel.commands.words = mmap(NULL, 1 << 16, both, MAP_SHARED, fds[2], 0);
    channel.ring.words = mmap(NULL, 8 * RING_ENTRIES, both, MAP_SHARED, fds[0], 0);
    channel.userd.words = mmap(NULL, 4096, both, MAP_SHARED, fds[1], 0);
    channel.doorbell = mmap(NULL, 0x10000, both, MAP_SHARED, channel.ctrl, 0);
    if (channel.doorbell == MAP_FAILED)
        fail("the doorbell of a node that a dead process has opened");
    struct memory semaphore = allocate(channel.nvmap, channel.space, 4096);
    release(&channel, semaphore.va, 0x1234, 0);
    await(semaphore.words, 0x1234, "the semaphore of a passed channel");
    /* Across exec: a duplicate has no close-on-exec flag. */
    char number[16];
    snprintf(number, sizeof number, "%d", dup(channel.space));
    execl(self, self, "inherited", number, NULL);
    fail("exec");
}

/* After exec. */
static void inherited(int space)
{
    uint32_t number = 0;
    if (ioctl(space, AS_BIND_CHANNEL, &number) == 0 || errno == ENOTTY || errno == EBADF)
        fail("the inherited address space");
    if (syscall(SYS_close_range, 3u, ~0u, 0u) != 0)
        fail("close_range");
    if (ioctl(space, AS_BIND_CHANNEL, &number) == 0 || errno != EBADF)
        fail("a closed descriptor");
    works();
}

/* A process has memory of its own, of a heap and as a udmabuf; the GPU of another process writes to it. */
static void frames(void)
{
    enum { COUNT = 3, BYTES = 8192, RELEASED = 4096 / 4 };
    int both = PROT_READ | PROT_WRITE, sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
        fail("socketpair");
    pid_t child = fork();
    if (child == 0) {
        struct { uint64_t len; uint32_t fd, fd_flags; uint64_t heap_flags; } heap = { BYTES, 0, O_RDWR | O_CLOEXEC, 0 };
        int files[2];
        for (unsigned at = 0; at < 2; at++) {
            files[at] = memfd_create("frame", MFD_CLOEXEC | MFD_ALLOW_SEALING);
            if (ftruncate(files[at], BYTES) != 0 || fcntl(files[at], F_ADD_SEALS, F_SEAL_SHRINK) != 0)
                fail("a sealed memfd");
        }
        struct { uint32_t memfd, flags; uint64_t offset, size; } part = { (uint32_t)files[1], 1, 0, BYTES };
        send_request(open_node("/dev/dma_heap/system"), _IOWR('H', 0, char[24]), &heap, "DMA_HEAP_IOCTL_ALLOC");
        int udmabuf = ioctl(open_node("/dev/udmabuf"), _IOW('u', 0x42, char[24]), &part);
        if (udmabuf < 0)
            fail("UDMABUF_CREATE");
        int frames[COUNT] = { files[0], udmabuf, (int)heap.fd };
        volatile uint32_t *words[COUNT];
        for (unsigned at = 0; at < COUNT; at++) {
            words[at] = mmap(NULL, BYTES, both, MAP_SHARED, frames[at], 0);
            words[at][0] = 0xf00d + at;
            send_fd(sockets[1], frames[at]);
        }
        char byte;
        if (read(sockets[1], &byte, 1) != 1)
            fail("read");
        for (unsigned at = 0; at < COUNT; at++)
            await(words[at] + RELEASED, 0x1234, "what the GPU of the other process has written");
        _exit(0);
    }
    struct channel channel = bring_up();
    for (unsigned at = 0; at < COUNT; at++) {
        int fd = receive_fd(sockets[0]);
        struct map_buffer map = { .compr_kind = -1, .dmabuf_fd = (uint32_t)fd, .page_size = 4096 }, again = map;
        send_request(channel.space, MAP_BUFFER, &map, "MAP_BUFFER_EX of a frame");
        send_request(channel.space, MAP_BUFFER, &again, "MAP_BUFFER_EX of the same frame");
        uint64_t begin = 1, end = 5, neither = 4;
        send_request(fd, _IOW('b', 0, uint64_t), &begin, "DMA_BUF_IOCTL_SYNC");
        volatile uint32_t *words = mmap(NULL, BYTES, both, MAP_SHARED, fd, 0);
        if (again.offset != map.offset || lseek(fd, 0, SEEK_END) != BYTES || words[0] != 0xf00d + at)
            fail("a frame");
        send_request(fd, _IOW('b', 0, uint64_t), &end, "DMA_BUF_IOCTL_SYNC");
        check_refused(ioctl(fd, _IOW('b', 0, uint64_t), &neither), EINVAL, "SYNC without a direction");
        release(&channel, map.offset + 4 * RELEASED, 0x1234, 0);
        await(words + RELEASED, 0x1234, "the semaphore in a frame");
        struct nvmap_create import = { .size_or_fd = (uint32_t)fd };
        send_request(channel.nvmap, _IOWR('N', 16, struct nvmap_create), &import, "NVMAP_IOC_FROM_FD");
        if (import.handle == (uint32_t)fd || close((int)import.handle) != 0)
            fail("the descriptor of FROM_FD");
    }
    int status = 1;
    if (write(sockets[0], "", 1) != 1 || waitpid(child, &status, 0) != child || status != 0)
        fail("the producer of frames");
}

static void nothing(int signal)
{
    (void)signal;
}

/* A request that waits stops no other process, ends with its process, and is interrupted by a signal. */
static void waits(void)
{
    struct channel channel = bring_up();
    struct memory semaphore = allocate(channel.nvmap, channel.space, 4096);
    struct wait wait = { .type = 1, .timeout_ms = 30000, .dmabuf_fd = (uint32_t)semaphore.fd, .payload = 1 };
    /* Ends the program if a request waits with the other one. */
    alarm(15);
    int ready[2];
    if (pipe(ready) != 0)
        fail("pipe");
    pid_t child = fork();
    if (child == 0) {
        if (write(ready[1], "", 1) == 1)
            ioctl(channel.fd, CHANNEL_WAIT, &wait);
        _exit(1);
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1)
        fail("read");
    usleep(100000);
    allocate(channel.nvmap, channel.space, 4096);
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status))
        fail("a wait for a value that never comes returns");
    struct sigaction action = { .sa_handler = nothing };
    sigaction(SIGUSR1, &action, NULL);
    pid_t self = getpid();
    child = fork();
    if (child == 0) {
        usleep(100000);
        kill(self, SIGUSR1);
        _exit(0);
    }
    if (ioctl(channel.fd, CHANNEL_WAIT, &wait) == 0 || errno != EINTR)
        fail("a wait of a process with a signal");
    waitpid(child, NULL, 0);
}

/* Opens, stats and accesses by the calls that the C library uses rarely, and reads of the kernel log. */
static void forms(void)
{
    struct { uint64_t flags, mode, resolve; } how = { .flags = O_RDWR | O_CLOEXEC };
    int nvmap = (int)syscall(437 /* openat2 */, AT_FDCWD, "/dev/nvmap", &how, sizeof how);
    if (nvmap < 0)
        fail("openat2");
    struct nvmap_create create = { .size_or_fd = 4096 };
    send_request(nvmap, NVMAP_CREATE, &create, "CREATE on a node that openat2 has opened");
    if (fcntl(nvmap, F_GETFD) != FD_CLOEXEC)
        fail("the close-on-exec flag of openat2");
    if (syscall(437, AT_FDCWD, "/dev/nvmap", (void *)8, sizeof how) >= 0 || errno != EFAULT)
        fail("openat2 with flags at a bad address");
    struct statx status;
    if (syscall(SYS_statx, AT_FDCWD, "/dev/nvmap", 0, STATX_BASIC_STATS, &status) != 0)
        fail("statx");
    if ((status.stx_mode & S_IFMT) != S_IFCHR || status.stx_rdev_minor == 0)
        fail("the type of a node");
    if (syscall(SYS_faccessat, AT_FDCWD, "/dev/nvmap", R_OK | W_OK) != 0)
        fail("faccessat");
    if (syscall(439 /* faccessat2 */, AT_FDCWD, "/dev/nvgpu/igpu1/ctrl", F_OK, 0) == 0 || errno != ENOENT)
        fail("faccessat2 of an absent node");
    int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (log < 0)
        fail("/dev/kmsg");
    char record[8192] = { 0 };
    struct pollfd ready = { .fd = log, .events = POLLIN };
    /* Each of these requests is a line of the log. Other programs may have written earlier ones. */
    for (int at = 0; at < 2; at++) {
        if (ioctl(nvmap, _IOWR('N', 99, uint64_t), record) == 0 || errno != ENOTTY)
            fail("an unknown request");
        do {
            if (poll(&ready, 1, 10000) != 1)
                fail("no line of the kernel log");
        } while (at == 0 && read(log, record, sizeof record) > 0 && strstr(record, "Unknown NVMAP_IOC") == NULL);
    }
    if (lseek(log, 0, SEEK_END) != 0 || read(log, record, sizeof record) != -1 || errno != EAGAIN)
        fail("a seek to the end of the kernel log");
}

/* Whether a call has failed with this error. */
static int fails(long result, int expected)
{
    return result == -1 && errno == expected;
}

/* A file of the board: it transfers no bytes, and has no size that a call may change. */
static void refuses_transfers(int fd)
{
    char bytes[8] = { 0 };
    struct iovec part = { bytes, sizeof bytes };
    alarm(20);
    if (!fails(read(fd, bytes, sizeof bytes), EINVAL) || !fails(readv(fd, &part, 1), EINVAL))
        fail("read of a file of the board");
    if (!fails(write(fd, bytes, sizeof bytes), EINVAL) || !fails(writev(fd, &part, 1), EINVAL))
        fail("write of a file of the board");
    alarm(0);
    if (posix_fallocate(fd, 0, 10) != ENODEV)
        fail("fallocate of a file of the board");
    if (!fails(fsync(fd), EINVAL) || !fails(fdatasync(fd), EINVAL) || !fails(ftruncate(fd, 0), EINVAL))
        fail("fsync or ftruncate of a file of the board");
}

/* Calls on open nodes, and forms of their paths. */
static void plain_files(void)
{
    const char *nodes[] = { "/dev/nvmap", "/dev//nvgpu/./igpu0/ctrl", "/dev/../dev/host1x-fence" };
    for (int at = 0; at < 3; at++) {
        int fd = open(nodes[at], O_RDWR);
        if (fd < 0)
            fail(nodes[at]);
        if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
            fail("the access mode of a node");
        /* As of every file whose driver has no poll. */
        struct pollfd ready = { .fd = fd, .events = POLLIN | POLLOUT };
        if (poll(&ready, 1, 0) != 1 || ready.revents != (POLLIN | POLLOUT))
            fail("poll of a node");
        refuses_transfers(fd);
        struct stat status, named;
        struct statx longer;
        if (fstat(fd, &status) != 0 || stat(nodes[at], &named) != 0)
            fail("fstat of a node");
        if (!S_ISCHR(status.st_mode) || status.st_rdev == 0 || memcmp(&status, &named, sizeof named) != 0)
            fail("the status of an open node");
        if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &longer) != 0)
            fail("statx of an open node");
        if (longer.stx_mode != status.st_mode || longer.stx_ino != status.st_ino)
            fail("both forms of fstat");
        if (!fails(lseek(fd, 0, SEEK_END), ESPIPE))
            fail("a seek to the end of a node");
        close(fd);
    }
    int fd = open("/dev/nvmap", O_RDONLY);
    if (!fails(write(fd, "", 1), EBADF) || posix_fallocate(fd, 0, 10) != EBADF)
        fail("write to a node that is open for reading");
    /* Files of the host. */
    struct stat status;
    int null = open("/dev/null", O_RDWR), file = open(".", O_TMPFILE | O_RDWR, 0600);
    if (null < 0 || write(null, "", 1) != 1 || fstat(null, &status) != 0 || !S_ISCHR(status.st_mode))
        fail("a device of the host");
    if (file >= 0 && (ftruncate(file, 5) != 0 || fsync(file) != 0 || fstat(file, &status) != 0 || status.st_size != 5))
        fail("a file of the host");
    if (!fails(fstat(-1, &status), EBADF) || !fails(fstat(fd, (struct stat *)8), EFAULT) || !fails(fsync(-1), EBADF))
        fail("fstat and fsync of a bad number");
    int buffer = allocate(fd, -1, 8192).fd;
    refuses_transfers(buffer);
    if (fstat(buffer, &status) != 0 || status.st_mode != 0600 || status.st_size != 8192)
        fail("the status of a dma-buf");
    if (lseek(buffer, 0, SEEK_END) != 8192)
        fail("the size of a dma-buf");
    refuses_transfers(buffer);
    close(buffer);
    close(fd);
    struct { const char *path; int flags, expected; } refused[] = {
        { "/dev/nvmap", O_RDWR | O_CREAT | O_EXCL, EEXIST },
        { "/dev/nvmap", O_RDWR | O_DIRECTORY, ENOTDIR },
        { "/dev/nvmap/", O_RDWR, ENOTDIR },
        { "/dev/nvmap/../nvmap2", O_RDWR, ENOENT },
    };
    for (int at = 0; at < 4; at++)
        if (open(refused[at].path, refused[at].flags, 0600) >= 0 || errno != refused[at].expected)
            fail(refused[at].path);
    if (access("/dev//nvmap", R_OK) != 0 || access("/dev/nvmap/", R_OK) == 0 || errno != ENOTDIR)
        fail("access to forms of a path");
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    if (strcmp(what, "bad-pointers") == 0)
        bad_pointers();
    else if (strcmp(what, "race") == 0)
        race();
    else if (strcmp(what, "killed") == 0)
        killed();
    else if (strcmp(what, "crowd") == 0)
        crowd(1000);
    else if (strcmp(what, "bomb") == 0)
        bomb(6);
    else if (strcmp(what, "reopened") == 0)
        reopened();
    else if (strcmp(what, "explode") == 0)
        explode(LIMIT);
    else if (strcmp(what, "explode-forever") == 0)
        explode_forever();
    else if (strcmp(what, "orphans") == 0)
        orphans(4 * LIMIT);
    else if (strcmp(what, "flee") == 0)
        flee();
    else if (strcmp(what, "waits") == 0)
        waits();
    else if (strcmp(what, "forms") == 0)
        forms();
    else if (strcmp(what, "plain-files") == 0)
        plain_files();
    else if (strcmp(what, "works") == 0)
        works();
    else if (strcmp(what, "frames") == 0)
        frames();
    else if (strcmp(what, "passed") == 0)
        passed(arguments[0]);
    else if (strcmp(what, "inherited") == 0 && count > 2)
        inherited(atoi(arguments[2]));
    else
        return 2;
    return 0;
}
