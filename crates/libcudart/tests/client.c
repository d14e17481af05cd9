/* A program of CUDA's run-time library, without its headers, as nvcc compiles it: client CUBIN VERSION MANAGED
   Registers fat binaries with the cubins of kernels/globals.cu and kernels/managed.cu, and calls the library. VERSION is 12 or 13. Prints
   "right", or the line of the first wrong result. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct { unsigned x, y, z; } dim3;
typedef struct { void *pointer; size_t pitch, width, rows; } pitched;
typedef struct { size_t width, height, depth; } extent;
typedef struct { void *array; size_t x, y, z; pitched memory; } side;
typedef struct { side from, to; extent size; int kind; } region;
typedef struct { void *function; dim3 grid, block; unsigned shared; void **parameters, **extra; } kernel_node;
typedef struct { uint64_t words[8]; } ipc;
typedef void *handle;

void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, dim3 *, dim3 *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
void __cudaRegisterManagedVar(void **, void **, char *, const char *, int, size_t, int, int);
char __cudaInitModule(void **);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, handle);
int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
int __cudaGetKernel(handle *, const void *);
int __cudaLaunchKernel(handle, dim3, dim3, void **, size_t, handle);
const char *cudaGetErrorName(int);
const char *cudaGetErrorString(int);
int cudaGetLastError(void), cudaPeekAtLastError(void), cudaDeviceSynchronize(void), cudaDeviceReset(void);
int cudaRuntimeGetVersion(int *), cudaDriverGetVersion(int *), cudaGetDeviceCount(int *), cudaGetDevice(int *);
int cudaSetDevice(int), cudaGetDeviceProperties(void *, int), cudaGetDeviceProperties_v2(void *, int);
int cudaDeviceGetAttribute(int *, int, int), cudaGetDeviceFlags(unsigned *);
int cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocHost(void **, size_t), cudaFreeHost(void *);
int cudaMallocManaged(void **, size_t, unsigned), cudaMallocPitch(void **, size_t *, size_t, size_t);
int cudaMalloc3D(pitched *, extent), cudaMemset3D(pitched, int, extent), cudaMemcpy3D(const region *);
int cudaMallocAsync(void **, size_t, handle), cudaFreeAsync(void *, handle);
int cudaMemset(void *, int, size_t), cudaMemset_ptds(void *, int, size_t);
int cudaMemcpy(void *, const void *, size_t, int), cudaMemcpy_ptds(void *, const void *, size_t, int);
int cudaMemcpyAsync(void *, const void *, size_t, int, handle);
int cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
int cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, int);
int cudaGetSymbolAddress(void **, const void *), cudaGetSymbolSize(size_t *, const void *);
int cudaPointerGetAttributes(void *, const void *);
int cudaStreamCreate(handle *), cudaStreamDestroy(handle), cudaStreamSynchronize(handle), cudaStreamQuery(handle);
int cudaStreamQuery_ptsz(handle);
int cudaStreamBeginCapture(handle, int), cudaStreamEndCapture(handle, handle *);
int cudaStreamWaitEvent(handle, handle, unsigned), cudaLaunchHostFunc(handle, void (*)(void *), void *);
int cudaEventCreate(handle *), cudaEventRecord(handle, handle), cudaEventSynchronize(handle), cudaEventDestroy(handle);
int cudaEventElapsedTime(float *, handle, handle), cudaEventCreateWithFlags(handle *, unsigned);
int cudaIpcGetMemHandle(ipc *, void *), cudaIpcOpenMemHandle(void **, ipc, unsigned), cudaIpcCloseMemHandle(void *);
int cudaIpcGetEventHandle(ipc *, handle), cudaIpcOpenEventHandle(handle *, ipc);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, handle);
int cudaLaunchCooperativeKernel(const void *, dim3, dim3, void **, size_t, handle);
int cudaFuncGetAttributes(void *, const void *), cudaFuncSetAttribute(const void *, int, int);
int cudaFuncGetName(const char **, const void *), cudaGetKernel(handle *, const void *);
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);
int cudaGraphCreate(handle *, unsigned), cudaGraphDestroy(handle), cudaGraphLaunch(handle, handle);
int cudaGraphAddKernelNode(handle *, handle, const handle *, size_t, const kernel_node *);
int cudaGraphAddMemcpyNode1D(handle *, handle, const handle *, size_t, void *, const void *, size_t, int);
int cudaGraphAddMemcpyNodeFromSymbol(handle *, handle, const handle *, size_t, void *, const void *, size_t, size_t, int);
int cudaGraphInstantiate(handle *, handle, unsigned long long), cudaGraphExecDestroy(handle);
int cudaGraphExecKernelNodeSetParams(handle, handle, const kernel_node *);
int cudaGraphGetEdges(handle, handle *, handle *, void *, void *);
int cudaGraphKernelNodeGetParams(handle, kernel_node *), cudaGraphMemcpyNodeGetParams(handle, region *);
int cudaGetDriverEntryPoint(const char *, void **, unsigned long long, int *);
int cudaLogsCurrent(void **, unsigned);

#define IS(wanted, call)                                                                                               \
    do {                                                                                                               \
        long result = (long)(call);                                                                                     \
        if (result != (long)(wanted)) {                                                                                 \
            printf("line %d: %s is %ld, not %ld\n", __LINE__, #call, result, (long)(wanted));                           \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call) IS(0, call)

/* Stubs of kernels and shadows of variables, whose addresses are registered. */
static void filter5(void) {}
static void remember(void) {}
static void unregistered(void) {}
static float taps[5];
static unsigned launches;

static char *image(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        exit(2);
    uint64_t bytes = (uint64_t)ftell(file), padded = (bytes + 7) / 8 * 8;
    char *fat = calloc(1, 80 + padded);
    uint32_t magic = 0xba55ed50, entry = 64, sm = 87;
    uint16_t one = 1, header = 16, elf = 2, version = 0x101, minor = 7, major = 1;
    uint64_t rest = 64 + padded;
    rewind(file);
    if (!fat || fread(fat + 80, 1, bytes, file) != bytes)
        exit(2);
    fclose(file);
    memcpy(fat, &magic, 4), memcpy(fat + 4, &one, 2), memcpy(fat + 6, &header, 2), memcpy(fat + 8, &rest, 8);
    memcpy(fat + 16, &elf, 2), memcpy(fat + 18, &version, 2), memcpy(fat + 20, &entry, 4), memcpy(fat + 24, &padded, 8);
    memcpy(fat + 40, &minor, 2), memcpy(fat + 42, &major, 2), memcpy(fat + 44, &sm, 4);
    return fat;
}

static void **registered(void *wrapper)
{
    void **fat = __cudaRegisterFatBinary(wrapper);
    __cudaRegisterFunction(fat, (char *)filter5, "filter5", "filter5", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(fat, (char *)remember, "remember", "remember", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(fat, (char *)taps, "taps", "taps", 0, sizeof taps, 1, 0);
    __cudaRegisterVar(fat, (char *)&launches, "launches", "launches", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(fat);
    return fat;
}

/* What nvcc makes of filter<<<grid, block, 0, stream>>>(in, out, n). */
static int launch(float *in, float *out, int n, handle stream)
{
    dim3 grid = {(unsigned)n / 64 + 1, 1, 1}, block = {64, 1, 1};
    size_t shared;
    handle kernel;
    void *parameters[] = {&in, &out, &n};
    if (__cudaPushCallConfiguration(grid, block, 0, stream))
        return -1;
    IS(0, __cudaGetKernel(&kernel, (void *)filter5));
    IS(0, __cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    return __cudaLaunchKernel(kernel, grid, block, parameters, shared, stream);
}

static void *other_thread(void *unused)
{
    IS(0, cudaGetLastError());
    IS(101, cudaSetDevice(99));
    IS(101, cudaPeekAtLastError());
    return unused;
}

static void devices(int version)
{
    struct { char bytes[2048]; } properties;
    int value, sms, *words = (int *)&properties;
    unsigned flags;

    OK(cudaGetDeviceCount(&value));
    IS(1, value);
    OK(cudaRuntimeGetVersion(&value));
    IS(version == 13 ? 13000 : 12060, value);
    OK(cudaDriverGetVersion(&value));
    IS(1, value >= 12060);
    OK(cudaGetDevice(&value));
    IS(0, value);
    IS(101, cudaSetDevice(-1));
    IS(101, cudaGetLastError());
    IS(0, cudaGetLastError());
    OK(cudaGetDeviceFlags(&flags));
    IS(8, flags & 8);
    OK(cudaDeviceGetAttribute(&sms, 16, 0));
    memset(&properties, 0x55, sizeof properties);
    OK((version == 13 ? cudaGetDeviceProperties : cudaGetDeviceProperties_v2)(&properties, 0));
    OK(strcmp(properties.bytes, "Orin (software)"));
    /* Offsets of major, multiProcessorCount, sharedMemPerMultiprocessor, and of what follows the structure. */
    IS(8, words[360 / 4]);
    IS(sms, words[(version == 13 ? 384 : 388) / 4]);
    IS(164 * 1024, words[(version == 13 ? 624 : 640) / 4]);
    IS(0x55, properties.bytes[version == 13 ? 1008 : 1032]);
    IS(version == 13 ? 0 : 801, cudaGetDeviceProperties(&properties, 0));
    IS(101, cudaGetDeviceProperties_v2(&properties, 1));
    IS(1, cudaGetDeviceProperties_v2(NULL, 0));
}

static void memory(int version)
{
    unsigned char host[4][64], *device, *pinned, *managed;
    struct { int kind, device; void *on_device, *on_host; long rest[9]; } attributes;
    size_t pitch;
    pitched block;

    OK(cudaMalloc((void **)&device, 0));
    IS(0, device);
    IS(1, cudaMalloc(NULL, 16));
    OK(cudaFree(NULL));
    IS(1, cudaFree(host));
    OK(cudaMalloc((void **)&device, sizeof host));
    OK(cudaMallocHost((void **)&pinned, 64));
    OK(cudaMallocManaged((void **)&managed, 64, 1));
    memset(host, 7, sizeof host);
    IS(21, cudaMemcpy(device, host, 64, 5));
    IS(1, cudaMemcpy(device, host, 4096, 1));
    IS(1, cudaMemcpy(NULL, host, 64, 1));
    OK(cudaMemcpy(device, host, sizeof host, 1));
    OK(cudaMemset(device + 64, 0x123, 64));
    OK(cudaMemset_ptds(device + 128, 9, 64));
    OK(cudaMemcpy(pinned, device + 64, 64, 2));
    IS(0x23, pinned[63]);
    OK(cudaMemcpy(managed, device + 128, 64, 4));
    IS(9, managed[0]);
    OK(cudaMemcpy_ptds(device, pinned, 64, 4));
    IS(12, cudaMemcpy2D(host, 8, device, 64, 16, 4, 2));
    OK(cudaMemcpy2D(host, 16, device, 64, 16, 4, 2));
    IS(0x23, host[0][0]);
    IS(7, host[0][48]);
    IS(9, host[0][32]);

    memset(&attributes, 0x55, sizeof attributes);
    OK(cudaPointerGetAttributes(&attributes, device + 1));
    IS(2, attributes.kind);
    IS(device + 1, attributes.on_device);
    IS(version == 13 ? -1 : 0x5555555555555555, attributes.rest[0]);
    IS(0x5555555555555555, attributes.rest[8]);
    OK(cudaPointerGetAttributes(&attributes, managed));
    IS(3, attributes.kind);
    OK(cudaPointerGetAttributes(&attributes, pinned));
    IS(1, attributes.kind);
    IS(pinned, attributes.on_host);
    OK(cudaPointerGetAttributes(&attributes, host));
    IS(0, attributes.kind);

    OK(cudaMalloc3D(&block, (extent){40, 3, 2}));
    OK(cudaMemset3D(block, 5, (extent){40, 3, 2}));
    OK(cudaMemset3D(block, 6, (extent){40, 1, 2}));
    region copy = {.from = {.memory = block}, .to = {.memory = {host, 40, 40, 3}}, .size = {40, 3, 2}, .kind = 2};
    OK(cudaMemcpy3D(&copy));
    IS(6, host[0][0]);
    IS(5, ((unsigned char *)host)[40]);
    IS(6, ((unsigned char *)host)[120]);
    IS(5, ((unsigned char *)host)[239]);
    OK(cudaFree(block.pointer));
    OK(cudaMallocPitch(&block.pointer, &pitch, 100, 3));
    IS(0, pitch % 256);
    OK(cudaFree(block.pointer));
    OK(cudaFree(device));
    OK(cudaFree(managed));
    OK(cudaFreeHost(pinned));
}

static void count(void *number)
{
    ++*(int *)number;
}

static void launches_and_streams(void)
{
    enum { COUNT = 1000 };
    static float in[COUNT], out[COUNT];
    struct { size_t sizes[3]; int values[30]; } attributes;
    float *from, *to, ms, half[5] = {0, 0, 0.5f, 0, 0}, read[5];
    handle stream, second, start, end, kernel;
    size_t bytes;
    const char *name;
    void *address;
    int calls = 0, blocks;

    for (int i = 0; i < COUNT; i++)
        in[i] = (float)i;
    OK(cudaMalloc((void **)&from, sizeof in));
    OK(cudaMalloc((void **)&to, sizeof in));
    OK(cudaMemcpy(from, in, sizeof in, 1));
    OK(launch(from, to, COUNT, NULL));
    OK(cudaMemcpy(out, to, sizeof out, 2));
    IS(500, out[500]);

    OK(cudaGetSymbolSize(&bytes, taps));
    IS(20, bytes);
    OK(cudaGetSymbolAddress(&address, taps));
    IS(13, cudaGetSymbolAddress(&address, half));
    OK(cudaMemcpyToSymbol(taps, half, sizeof half, 0, 1));
    OK(cudaMemcpyFromSymbol(read, taps, 8, 8, 2));
    IS(5, read[0] * 10);
    IS(1, cudaMemcpyToSymbol(taps, half, sizeof half, 4, 1));
    IS(21, cudaMemcpyToSymbol(taps, half, sizeof half, 0, 2));

    OK(cudaStreamCreate(&stream));
    OK(cudaStreamCreate(&second));
    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&end));
    OK(cudaEventRecord(start, stream));
    OK(launch(from, to, COUNT, stream));
    OK(cudaEventRecord(end, stream));
    OK(cudaStreamWaitEvent(second, end, 0));
    OK(cudaMemcpyAsync(out, to, sizeof out, 2, second));
    OK(cudaLaunchHostFunc(second, count, &calls));
    OK(cudaStreamSynchronize(second));
    IS(1, calls);
    IS(250, out[500]);
    OK(cudaEventElapsedTime(&ms, start, end));
    OK(cudaStreamQuery(stream));
    OK(cudaStreamQuery_ptsz(NULL));
    IS(400, cudaStreamQuery((handle)12345));
    IS(400, cudaGetLastError());

    dim3 one = {1, 1, 1}, large = {2048, 1, 1};
    void *none[] = {NULL};
    IS(98, cudaLaunchKernel((void *)unregistered, one, one, none, 0, NULL));
    IS(9, cudaLaunchKernel((void *)filter5, one, large, (void *[]){&from, &to, &calls}, 0, NULL));
    IS(52, __cudaPopCallConfiguration(&one, &one, &bytes, &stream));
    IS(720, cudaLaunchCooperativeKernel((void *)filter5, (dim3){1 << 20, 1, 1}, one, (void *[]){&from, &to, &calls}, 0,
                                        NULL));
    OK(cudaFuncGetAttributes(&attributes, (void *)filter5));
    IS(1024, attributes.values[0]);
    IS(87, attributes.values[3]);
    OK(cudaFuncSetAttribute((void *)filter5, 8, 32768));
    IS(98, cudaFuncSetAttribute((void *)unregistered, 8, 32768));
    OK(cudaFuncGetName(&name, (void *)filter5));
    OK(strcmp(name, "filter5"));
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (void *)filter5, 256, 0));
    IS(6, blocks);
    OK(cudaGetKernel(&kernel, (void *)filter5));
    calls = COUNT;
    OK(cudaLaunchKernel(kernel, one, (dim3){64, 1, 1}, (void *[]){&from, &to, &calls}, 0, NULL));
    OK(cudaDeviceSynchronize());

    void *pooled;
    OK(cudaMallocAsync(&pooled, 4096, stream));
    OK(cudaFreeAsync(pooled, stream));
    OK(cudaFree(from));
    OK(cudaFree(to));
    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(end));
    OK(cudaStreamDestroy(second));
    OK(cudaStreamDestroy(stream));
    IS(400, cudaStreamDestroy(stream));
}

static void graphs(int version)
{
    float in[64], out[64], first, *from, *to;
    int n = 64;
    handle stream, graph, executable, nodes[3], edges[2][4];
    size_t found = 4;

    for (int i = 0; i < 64; i++)
        in[i] = 2;
    OK(cudaStreamCreate(&stream));
    OK(cudaMalloc((void **)&from, sizeof in));
    OK(cudaMalloc((void **)&to, sizeof in));
    OK(cudaGraphCreate(&graph, 0));
    kernel_node node = {(void *)filter5, {1, 1, 1}, {64, 1, 1}, 0, (void *[]){&from, &to, &n}, NULL};
    OK(cudaGraphAddMemcpyNode1D(&nodes[0], graph, NULL, 0, from, in, sizeof in, 1));
    OK(cudaGraphAddKernelNode(&nodes[1], graph, nodes, 1, &node));
    OK(cudaGraphAddMemcpyNode1D(&nodes[2], graph, nodes + 1, 1, out, to, sizeof out, 2));
    OK(cudaGraphAddMemcpyNodeFromSymbol(&nodes[2], graph, nodes + 1, 1, &first, taps, 4, 8, 2));
    if (version == 13)
        OK(cudaGraphGetEdges(graph, edges[0], edges[1], NULL, &found));
    else
        OK(cudaGraphGetEdges(graph, edges[0], edges[1], &found, NULL));
    IS(3, found);
    OK(cudaGraphInstantiate(&executable, graph, 0));
    OK(cudaGraphLaunch(executable, stream));
    OK(cudaStreamSynchronize(stream));
    IS(1, out[32]);
    IS(5, first * 10);
    region copy;
    kernel_node same;
    OK(cudaGraphMemcpyNodeGetParams(nodes[0], &copy));
    IS(from, copy.to.memory.pointer);
    IS(in, copy.from.memory.pointer);
    IS(sizeof in, copy.size.width);
    IS(1, copy.kind);
    OK(cudaGraphKernelNodeGetParams(nodes[1], &same));
    IS(filter5, same.function);
    IS(64, *(int *)same.parameters[2]);
    n = 0;
    OK(cudaGraphExecKernelNodeSetParams(executable, nodes[1], &node));
    node.function = (void *)unregistered;
    IS(98, cudaGraphExecKernelNodeSetParams(executable, nodes[1], &node));
    OK(cudaMemset(to, 0, sizeof out));
    OK(cudaGraphLaunch(executable, stream));
    OK(cudaStreamSynchronize(stream));
    IS(0, out[32]);
    OK(cudaGraphExecDestroy(executable));
    OK(cudaGraphDestroy(graph));

    OK(cudaStreamBeginCapture(stream, 0));
    OK(launch(from, to, 64, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&executable, graph, 0));
    OK(cudaGraphLaunch(executable, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(out, to, sizeof out, 2));
    IS(1, out[32]);
    OK(cudaGraphExecDestroy(executable));
    OK(cudaGraphDestroy(graph));
}

/* A variable that the host uses by a pointer. */
static void managed(const char *path)
{
    struct { int magic, version; void *data, *name; } wrapper = {0x466243b1, 1, image(path), NULL};
    void **fat = __cudaRegisterFatBinary(&wrapper);
    int *counter = NULL;

    __cudaRegisterFunction(fat, (char *)unregistered, "count", "count", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterManagedVar(fat, (void **)&counter, NULL, "counter", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(fat);
    IS(1, __cudaInitModule(fat));
    IS(5, *counter);
    *counter = 1;
    OK(cudaLaunchKernel((void *)unregistered, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL));
    OK(cudaDeviceSynchronize());
    IS(1 + 32 * 3, *counter);
    __cudaUnregisterFatBinary(fat);
}

/* The other process of processes(). */
static int other_process(const char *text)
{
    uint64_t words[16];
    char *rest = (char *)text;
    ipc handles[2];
    void *memory;
    handle event;

    for (int at = 0; at < 16; at++)
        words[at] = strtoull(rest, &rest, 16);
    memcpy(handles, words, sizeof handles);
    IS(1, cudaIpcOpenMemHandle(&memory, handles[0], 0));
    OK(cudaIpcOpenMemHandle(&memory, handles[0], 1));
    OK(cudaIpcOpenEventHandle(&event, handles[1]));
    OK(cudaMemset(memory, 7, 64));
    OK(cudaEventRecord(event, NULL));
    OK(cudaDeviceSynchronize());
    OK(cudaIpcCloseMemHandle(memory));
    OK(cudaEventDestroy(event));
    return 0;
}

/* Another process fills memory of this one, and records an event. */
static void processes(const char *program)
{
    char text[16 * 17 + 1], *end = text;
    unsigned char bytes[64];
    ipc handles[2];
    void *memory;
    handle event;
    int status;

    OK(cudaMalloc(&memory, 64));
    OK(cudaEventCreateWithFlags(&event, 6));
    OK(cudaIpcGetMemHandle(&handles[0], memory));
    OK(cudaIpcGetEventHandle(&handles[1], event));
    for (int at = 0; at < 16; at++)
        end += sprintf(end, "%llx ", (unsigned long long)handles[at / 8].words[at % 8]);
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, "-", text, NULL);
        _exit(127);
    }
    IS(1, waitpid(child, &status, 0) == child);
    OK(status);
    OK(cudaEventSynchronize(event));
    OK(cudaMemcpy(bytes, memory, 64, 2));
    for (int at = 0; at < 64; at++)
        IS(7, bytes[at]);
    IS(201, cudaIpcOpenMemHandle(&memory, handles[0], 1));
    OK(cudaEventDestroy(event));
    OK(cudaFree(memory));
}

int main(int arguments, char **argument)
{
    struct { int magic, version; void *data, *name; } wrapper = {0x466243b1, 1, NULL, NULL};
    int version, status, (*get_count)(int *);
    unsigned *counter;
    pthread_t thread;

    if (arguments == 3 && !strcmp(argument[1], "-"))
        return other_process(argument[2]);
    if (arguments < 4)
        return 2;
    wrapper.data = image(argument[1]);
    version = atoi(argument[2]);
    void **fat = registered(&wrapper);
    OK(strcmp("cudaErrorInvalidValue", cudaGetErrorName(1)));
    OK(strcmp("invalid argument", cudaGetErrorString(1)));
    OK(strcmp("invalid device function", cudaGetErrorString(98)));
    OK(strcmp("unrecognized error code", cudaGetErrorName(12345)));
    devices(version);
    IS(1, cudaMalloc(NULL, 16));
    OK(pthread_create(&thread, NULL, other_thread, NULL));
    OK(pthread_join(thread, NULL));
    IS(1, cudaGetLastError());
    memory(version);
    launches_and_streams();
    graphs(version);
    processes(argument[0]);
    managed(argument[3]);
    IS(801, cudaLogsCurrent((void **)&counter, 0));
    OK(cudaGetDriverEntryPoint("cuDeviceGetCount", (void **)&get_count, 0, &status));
    OK(get_count(&status));
    IS(1, status);

    /* After a reset the modules are as at first. */
    unsigned value;
    OK(cudaMalloc((void **)&counter, 65 * 4));
    void *parameters[] = {&counter};
    for (int i = 0; i < 2; i++) {
        OK(cudaLaunchKernel((void *)remember, (dim3){1, 1, 1}, (dim3){64, 1, 1}, parameters, 0, NULL));
        OK(cudaMemcpy(&value, counter, 4, 2));
        IS(42, value);
        OK(cudaMemcpyFromSymbol(&value, &launches, 4, 0, 2));
        IS(42, value);
        OK(cudaDeviceReset());
        OK(cudaMalloc((void **)&counter, 65 * 4));
    }
    /* A fault stays. */
    counter = (unsigned *)16;
    OK(cudaLaunchKernel((void *)remember, (dim3){1, 1, 1}, (dim3){64, 1, 1}, parameters, 0, NULL));
    IS(700, cudaDeviceSynchronize());
    IS(700, cudaGetLastError());
    IS(700, cudaMalloc((void **)&counter, 4));
    __cudaUnregisterFatBinary(fat);
    IS(98, cudaLaunchKernel((void *)remember, (dim3){1, 1, 1}, (dim3){64, 1, 1}, parameters, 0, NULL));
    puts("right");
    return 0;
}
