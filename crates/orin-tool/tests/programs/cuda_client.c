/* A program that uses CUDA's driver API, without its header: client CUBIN COUNT [missing]
   Adds two vectors of 1,000 floats with a kernel for COUNT elements. Exit code: 0 if the sum is right, 1 if not, 2 if a
   call fails. With `missing` it calls a function three times that the library does not support. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address;

extern int cuInit(unsigned flags);
extern int cuDeviceGet(int *device, int ordinal);
extern int cuDeviceGetName(char *name, int bytes, int device);
extern int cuCtxCreate_v2(void **context, unsigned flags, int device);
extern int cuModuleLoad(void **module, const char *path);
extern int cuModuleGetFunction(void **function, void *module, const char *name);
extern int cuMemAlloc_v2(address *memory, size_t bytes);
extern int cuMemcpyHtoD_v2(address target, const void *source, size_t bytes);
extern int cuMemcpyDtoH_v2(void *target, address source, size_t bytes);
extern int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
                          void **extra);
extern int cuCtxRecordEvent(void *context, void *event);

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        int result = (call);                                                                                           \
        if (result != 0) {                                                                                             \
            fprintf(stderr, "%s: %d\n", #call, result);                                                                \
            return 2;                                                                                                  \
        }                                                                                                              \
    } while (0)

enum { COUNT = 1000 };

int main(int arguments, char **argument)
{
    static float values[COUNT];
    char name[64];
    address a, b, sum;
    int device;
    void *context, *module, *add;

    if (arguments < 3)
        return 2;
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDeviceGetName(name, sizeof name, device));
    CHECK(cuCtxCreate_v2(&context, 0, device));
    CHECK(cuModuleLoad(&module, argument[1]));
    CHECK(cuModuleGetFunction(&add, module, "vector_add"));
    CHECK(cuMemAlloc_v2(&a, sizeof values));
    CHECK(cuMemAlloc_v2(&b, sizeof values));
    CHECK(cuMemAlloc_v2(&sum, sizeof values));
    CHECK(cuMemcpyHtoD_v2(a, values, sizeof values));
    CHECK(cuMemcpyHtoD_v2(b, values, sizeof values));
    int count = atoi(argument[2]);
    void *parameters[] = {&a, &b, &sum, &count};
    CHECK(cuLaunchKernel(add, 4, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
    CHECK(cuMemcpyDtoH_v2(values, sum, sizeof values));
    for (int i = 0; i < 3 && arguments > 3 && strcmp(argument[3], "missing") == 0; i++) {
        if (cuCtxRecordEvent(NULL, NULL) != 801)
            return 2;
    }
    for (int i = 0; i < COUNT; i++)
        if (values[i] != (float)(2 * i))
            return 1;
    printf("right on %s\n", name);
    return 0;
}
