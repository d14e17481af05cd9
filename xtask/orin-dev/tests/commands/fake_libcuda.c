/* A library with the functions of libcuda that the benchmarks call, on the CPU. Everything that is sent to a
   stream is done at once. It knows some of the kernels in kernels/ by their names; the others do nothing.
   What is left over when the context is released, or freed twice, ends the process with exit code 97. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INVALID = 1, NOT_SUPPORTED = 801, MAX_LIVE = 4096, MAX_STEPS = 2000 };

typedef struct { char name[64]; unsigned bytes[8]; } function;
typedef struct { function *f; uint64_t values[8]; unsigned grid[3], block[3]; } launch;
typedef struct { launch *steps; size_t count; size_t copies; } graph;
typedef struct { graph *capturing; } stream;
typedef struct {
    function *f;
    unsigned grid[3], block[3], shared;
    void **arguments, **extra;
} kernel_node;

static void *live[MAX_LIVE];
static int retained, current, flags_set;

static void die(const char *why) { fprintf(stderr, "fake libcuda: %s\n", why); _exit(97); }

static void *make(size_t bytes)
{
    void *made = calloc(1, bytes);
    for (int i = 0; i < MAX_LIVE; ++i)
        if (!live[i]) { live[i] = made; return made; }
    die("too many objects");
    return NULL;
}

static int alive(void *object)
{
    for (int i = 0; i < MAX_LIVE; ++i)
        if (object && live[i] == object) return 1;
    return 0;
}

static int drop(void *object)
{
    for (int i = 0; i < MAX_LIVE; ++i)
        if (object && live[i] == object) { live[i] = NULL; free(object); return 0; }
    die("something is freed that does not exist");
    return INVALID;
}

int cuInit(unsigned flags) { return flags; }
int cuGetErrorName(int error, const char **name)
{
    if (error == NOT_SUPPORTED) { *name = "CUDA_ERROR_NOT_SUPPORTED"; return 0; }
    return INVALID;
}
int cuDriverGetVersion(int *version) { *version = 12060; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 5; return ordinal; }
int cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, bytes, "a stub");
    return device != 5;
}
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == 75 ? 8 : attribute == 76 ? 7 : -1;
    return device != 5;
}
int cuCtxEnablePeerAccess(void *context, unsigned flags) { return context ? NOT_SUPPORTED : (int)flags; }
int cuMemcpyPeerAsync(uint64_t to, void *there, uint64_t from, void *here, size_t bytes, void *s)
{
    (void)to; (void)there; (void)from; (void)here; (void)bytes; (void)s;
    return NOT_SUPPORTED;
}
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { flags_set = flags == 1; return device != 5; }
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    retained++;
    *context = &retained;
    return device != 5 || !flags_set;
}
int cuDevicePrimaryCtxRelease_v2(int device)
{
    if (--retained) die("the context is released more than once");
    for (int i = 0; i < MAX_LIVE; ++i)
        if (live[i]) die("something is left over");
    return device != 5;
}
int cuCtxSetCurrent(void *context) { current = context == &retained; return !current; }
int cuCtxSynchronize(void) { return !current; }

int cuModuleLoadData(void **module, const void *image)
{
    if (memcmp(image, "\177ELF", 4)) return INVALID;
    *module = make(sizeof(function));
    return 0;
}
int cuModuleUnload(void *module) { return drop(module); }
int cuModuleGetFunction(function **found, void *module, const char *name)
{
    static const struct { const char *name; unsigned bytes[8]; } known[] = {
        {"empty", {0}},
        {"fill_u32", {8, 4, 4}},
        {"increment", {8, 4}},
        {"vector_add", {8, 8, 8, 4}},
        {"matmul_tiled", {8, 8, 8, 4, 4, 4}},
        {"linear_f16", {8, 8, 8, 8, 4, 4, 4, 4}},
    };
    if (!alive(module)) return INVALID;
    function *f = module; /* One kernel per module is all that the benchmarks take. */
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
        if (!strcmp(known[i].name, name)) {
            snprintf(f->name, sizeof f->name, "%s", name);
            memcpy(f->bytes, known[i].bytes, sizeof f->bytes);
            *found = f;
            return 0;
        }
    return INVALID;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) { *address = (uintptr_t)make(bytes); return !current; }
int cuMemFree_v2(uint64_t address) { return drop((void *)(uintptr_t)address); }
int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) { if (flags & ~2u) return INVALID; *pointer = make(bytes); return 0; }
int cuMemFreeHost(void *pointer) { return drop(pointer); }
int cuMemHostGetDevicePointer_v2(uint64_t *address, void *pointer, unsigned flags)
{
    *address = (uintptr_t)pointer;
    return flags || !alive(pointer);
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    if (!alive((void *)(uintptr_t)to)) return INVALID;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    if (!alive((void *)(uintptr_t)from)) return INVALID;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

int cuStreamCreate(stream **made, unsigned flags) { *made = make(sizeof **made); return flags != 1; }
int cuStreamDestroy_v2(stream *s) { return drop(s); }
int cuStreamSynchronize(stream *s) { return !alive(s) || s->capturing; }
int cuMemAllocAsync(uint64_t *address, size_t bytes, stream *s) { *address = (uintptr_t)make(bytes); return !alive(s); }
int cuMemFreeAsync(uint64_t address, stream *s) { return !alive(s) || drop((void *)(uintptr_t)address); }
int cuStreamWaitValue64_v2(stream *s, uint64_t address, uint64_t value, unsigned flags)
{
    (void)s; (void)address; (void)value; (void)flags;
    return NOT_SUPPORTED;
}
int cuStreamWriteValue64_v2(stream *s, uint64_t address, uint64_t value, unsigned flags)
{
    (void)s; (void)address; (void)value; (void)flags;
    return NOT_SUPPORTED;
}
int cuEventCreate(void **event, unsigned flags) { *event = make(1); return flags != 3 && flags != 0; }
int cuEventDestroy_v2(void *event) { return drop(event); }
int cuEventRecord(void *event, stream *s) { return !alive(event) || !alive(s); }
int cuEventQuery(void *event) { return !alive(event); }
int cuEventSynchronize(void *event) { return !alive(event); }

static int run(const launch *l)
{
    const uint64_t *v = l->values;
    if (!alive(l->f)) return INVALID;
    for (int i = 0; i < 8; ++i)
        if (l->f->bytes[i] == 8 && !alive((void *)(uintptr_t)v[i])) return INVALID;
    uint32_t *words = (uint32_t *)(uintptr_t)v[0];
    if (!strcmp(l->f->name, "fill_u32")) {
        for (uint64_t i = 0; i < v[2]; ++i) ((volatile uint32_t *)words)[i] = v[1];
    } else if (!strcmp(l->f->name, "increment")) {
        for (uint64_t i = 0; i < v[1]; ++i) words[i]++;
    } else if (!strcmp(l->f->name, "vector_add")) {
        float *a = (float *)words, *b = (float *)(uintptr_t)v[1], *c = (float *)(uintptr_t)v[2];
        for (uint64_t i = 0; i < v[3]; ++i) c[i] = a[i] + b[i];
    }
    return 0;
}

static void fetch(launch *l, void **arguments)
{
    memset(l->values, 0, sizeof l->values);
    for (int i = 0; i < 8 && l->f->bytes[i]; ++i) memcpy(&l->values[i], arguments[i], l->f->bytes[i]);
}

int cuLaunchKernel(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, stream *s, void **arguments, void **extra)
{
    if (!alive(f) || !alive(s) || shared || extra || !(gx && gy && gz && bx && by && bz)) return INVALID;
    launch l = {f, {0}, {gx, gy, gz}, {bx, by, bz}};
    fetch(&l, arguments);
    if (!s->capturing) return run(&l);
    if (s->capturing->count == MAX_STEPS) return INVALID;
    s->capturing->steps[s->capturing->count++] = l;
    return 0;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, stream *s)
{
    if (!alive(s) || s->capturing || !alive((void *)(uintptr_t)to)) return INVALID;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, stream *s)
{
    if (!alive(s) || s->capturing || !alive((void *)(uintptr_t)from)) return INVALID;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, stream *s)
{
    if (!alive(s) || !alive((void *)(uintptr_t)to) || !alive((void *)(uintptr_t)from)) return INVALID;
    if (s->capturing) s->capturing->copies++;
    else memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    return 0;
}

int cuStreamBeginCapture_v2(stream *s, int mode)
{
    if (!alive(s) || mode != 1 || s->capturing) return INVALID;
    s->capturing = make(sizeof(graph));
    s->capturing->steps = make(MAX_STEPS * sizeof(launch));
    return 0;
}
int cuStreamEndCapture(stream *s, graph **captured)
{
    *captured = s->capturing;
    s->capturing = NULL;
    return !*captured;
}
int cuGraphGetNodes(graph *g, void **nodes, size_t *count)
{
    if (!alive(g) || *count < 1 || !g->count) return INVALID;
    nodes[0] = &g->steps[0];
    *count = g->count;
    return 0;
}
int cuGraphInstantiateWithFlags(graph **exec, graph *g, uint64_t flags)
{
    if (!alive(g) || flags || g->count + g->copies == 0) return INVALID;
    *exec = make(sizeof **exec);
    **exec = *g;
    return 0;
}
int cuGraphLaunch(graph *exec, stream *s)
{
    if (!alive(exec) || !alive(s)) return INVALID;
    for (size_t i = 0; i < exec->count; ++i)
        if (run(&exec->steps[i])) return INVALID;
    return 0;
}
int cuGraphExecKernelNodeSetParams(graph *exec, launch *node, const kernel_node *p)
{
    if (!alive(exec) || node != exec->steps || p->f != node->f || p->shared || p->extra) return INVALID;
    if (memcmp(p->grid, node->grid, sizeof p->grid) || memcmp(p->block, node->block, sizeof p->block)) return INVALID;
    fetch(node, p->arguments);
    return 0;
}
int cuGraphDestroy(graph *g)
{
    if (alive(g)) drop(g->steps);
    return drop(g);
}
int cuGraphExecDestroy(graph *exec) { return drop(exec); }
