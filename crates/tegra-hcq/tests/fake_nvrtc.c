/* A fake NVRTC that compiles nothing. Its cubin is text with the request and the number of compilations of the process,
   so that a test can see whether a compilation took place; or the file that a macro CUBIN names. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char source[4096]; char log[256]; char cubin[8192]; size_t bytes; } program;

static int compilations;

int nvrtcVersion(int *major, int *minor) { *major = 12; *minor = 99; return 0; }

const char *nvrtcGetErrorString(int result)
{
    return result == 5 ? "NVRTC_ERROR_INVALID_OPTION" : "NVRTC_ERROR unknown";
}

int nvrtcCreateProgram(void **out, const char *source, const char *name, int headers,
                       const char *const *texts, const char *const *names)
{
    program *p = calloc(1, sizeof *p);
    snprintf(p->source, sizeof p->source, "%s", source);
    (void)name; (void)headers; (void)texts; (void)names;
    *out = p;
    return 0;
}

int nvrtcDestroyProgram(void **p) { free(*p); *p = NULL; return 0; }
int nvrtcAddNameExpression(void *p, const char *expression) { (void)p; (void)expression; return 0; }

int nvrtcCompileProgram(void *handle, int count, const char *const *options)
{
    program *p = handle;
    size_t at = (size_t)snprintf(p->cubin, sizeof p->cubin, "compilation %d:", ++compilations);
    for (int i = 0; i < count; ++i) {
        at += (size_t)snprintf(p->cubin + at, sizeof p->cubin - at, " %s", options[i]);
        if (strcmp(options[i], "--unknown") == 0) {
            strcpy(p->log, "fake: unknown option");
            return 5;
        }
    }
    p->bytes = strlen(p->cubin);
    if (strstr(p->source, "warn"))
        strcpy(p->log, "fake: a warning\n");
    const char *lacks = strstr(p->source, "lacks ");
    if (lacks) {
        snprintf(p->log, sizeof p->log, "fake: cannot open source file \"%s\"\n", lacks + 6);
        return 6;
    }
    if (strstr(p->source, "error")) {
        strcpy(p->log, "fake: an error\n");
        return 6;
    }
    if (strstr(p->source, "empty"))
        p->bytes = 0;
    for (int i = 0; i < count; ++i) {
        static const char macro[] = "--define-macro=CUBIN=";
        FILE *file = strncmp(options[i], macro, sizeof macro - 1) == 0 ? fopen(options[i] + sizeof macro - 1, "rb") : NULL;
        if (file) {
            p->bytes = fread(p->cubin, 1, sizeof p->cubin, file);
            fclose(file);
        }
    }
    return 0;
}

int nvrtcGetLoweredName(void *p, const char *expression, const char **name)
{
    (void)p;
    static char lowered[256];
    snprintf(lowered, sizeof lowered, "_Z%s", expression);
    *name = lowered;
    return 0;
}

int nvrtcGetProgramLogSize(void *p, size_t *size) { *size = strlen(((program *)p)->log) + 1; return 0; }
int nvrtcGetProgramLog(void *p, char *log) { strcpy(log, ((program *)p)->log); return 0; }
int nvrtcGetCUBINSize(void *p, size_t *size) { *size = ((program *)p)->bytes; return 0; }

int nvrtcGetCUBIN(void *p, char *cubin)
{
    memcpy(cubin, ((program *)p)->cubin, ((program *)p)->bytes);
    return 0;
}
