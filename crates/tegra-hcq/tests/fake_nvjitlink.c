/* A fake nvJitLink that links nothing. Its cubin is text with the number of links of the process, the options, and
   kind, size and name of each input. Words in the inputs choose the errors, whose texts are those of nvJitLink 12.9. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char cubin[4096]; char error[512]; char info[64]; char missing, together; } link_state;

static int links;
/* Links that are inside of nvJitLinkComplete and wait for each other. */
static atomic_int inside;

#define EXPORT(name) __nvJitLink##name##_12_0

static void append(link_state *link, const char *text)
{
    strncat(link->cubin, text, sizeof link->cubin - strlen(link->cubin) - 1);
}

int EXPORT(Create)(void **out, uint32_t count, const char **options)
{
    link_state *link = calloc(1, sizeof *link);
    snprintf(link->cubin, sizeof link->cubin, "link %d:", ++links);
    for (uint32_t i = 0; i < count; ++i) {
        if (strcmp(options[i], "-unknown") == 0) {
            free(link);
            return 1;
        }
        if (strcmp(options[i], "-verbose") == 0)
            strcpy(link->info, "fake info: 8 registers\n");
        append(link, " ");
        append(link, options[i]);
    }
    *out = link;
    return 0;
}

int EXPORT(Destroy)(void **link) { free(*link); *link = NULL; return 0; }

int EXPORT(AddData)(void *handle, int kind, const void *data, size_t size, const char *name)
{
    link_state *link = handle;
    char text[256];
    snprintf(text, sizeof text, " | %d %zu %s", kind, size, name);
    append(link, text);
    if (kind != 2)
        return 0;
    if (((const char *)data)[size - 1] != 0) {
        strcpy(link->error, "fake: no zero byte behind PTX\n");
        return 3;
    }
    if (strstr(data, "invalid")) {
        strcpy(link->error, "ptxas application ptx input, line 1; error   : invalid\n");
        return 4;
    }
    if (strstr(data, ".version 9.9")) {
        strcpy(link->error, "ptxas fatal   : Unsupported .version 9.9; current version is '8.8'\n");
        return 4;
    }
    if (strstr(data, "together"))
        link->together = 1;
    if (strstr(data, ".extern"))
        link->missing = 1;
    if (strstr(data, ".func (f)"))
        link->missing = 0;
    return 0;
}

int EXPORT(Complete)(void *handle)
{
    link_state *link = handle;
    if (link->together) {
        atomic_fetch_add(&inside, 1);
        for (int waits = 0; atomic_load(&inside) < 2; ++waits) {
            if (waits == 10000) {
                strcpy(link->error, "fake: the other link did not come\n");
                return 6;
            }
            usleep(1000);
        }
    }
    if (!link->missing)
        return 0;
    strcpy(link->error, "error   : Undefined reference to 'f' in 'k.ptx'\nERROR 1: finish\n");
    return 6;
}

/* The functions that return the size of a text, and the text. */
#define TEXT(name, field) \
    int EXPORT(name##Size)(void *link, size_t *size) { *size = strlen(((link_state *)link)->field); return 0; } \
    int EXPORT(name)(void *link, char *out) \
    { \
        memcpy(out, ((link_state *)link)->field, strlen(((link_state *)link)->field)); \
        return 0; \
    }

TEXT(GetErrorLog, error)
TEXT(GetInfoLog, info)
TEXT(GetLinkedCubin, cubin)
