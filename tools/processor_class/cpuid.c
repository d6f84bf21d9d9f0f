/* Preloaded into programs whose libraries have a trap in place of each cpuid instruction: answers
 * as a processor without some features would, and shows its own /proc/cpuinfo.
 *
 * EDGEDEC_CPUID_HIDDEN: "leaf,subleaf,eax,ebx,ecx,edx;...", in hexadecimal: bits to clear.
 * EDGEDEC_CPUINFO: the file that is opened for /proc/cpuinfo. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define MOST 8
static struct { unsigned leaf, subleaf, bits[4]; } hidden[MOST];
static int count;

/* After the trap, which is as long as cpuid less one byte, comes a nop. */
static void answer(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    unsigned leaf = (unsigned)registers[REG_RAX], subleaf = (unsigned)registers[REG_RCX], found[4];
    __cpuid_count(leaf, subleaf, found[0], found[1], found[2], found[3]);
    for (int i = 0; i < count; i++)
        if (hidden[i].leaf == leaf && hidden[i].subleaf == subleaf)
            for (int j = 0; j < 4; j++) found[j] &= ~hidden[i].bits[j];
    registers[REG_RAX] = found[0], registers[REG_RBX] = found[1];
    registers[REG_RCX] = found[2], registers[REG_RDX] = found[3];
}

/* Before the constructors of the libraries, which ask the processor as they are loaded. Not on an
 * alternate stack: programs set ones that are too small for wide registers. */
__attribute__((constructor(101))) static void begin(void) {
    const char *rest = getenv("EDGEDEC_CPUID_HIDDEN");
    for (; rest && *rest && count < MOST; count++) {
        unsigned *bits = hidden[count].bits;
        if (sscanf(rest, "%x,%x,%x,%x,%x,%x", &hidden[count].leaf, &hidden[count].subleaf, bits,
                   bits + 1, bits + 2, bits + 3) != 6) break;
        rest = strchr(rest, ';');
        rest = rest ? rest + 1 : "";
    }
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = answer;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
    sigaction(SIGTRAP, &action, NULL);
}

typedef int (*opener)(const char *, int, ...);

static int redirected(const char *name, const char *path, int flags, unsigned mode) {
    const char *instead = getenv("EDGEDEC_CPUINFO");
    opener next = (opener)dlsym(RTLD_NEXT, name);
    return next(instead && !strcmp(path, "/proc/cpuinfo") ? instead : path, flags, mode);
}

#define OPENS(name)                                                                               \
    int name(const char *path, int flags, ...) {                                                  \
        va_list more;                                                                             \
        va_start(more, flags);                                                                    \
        unsigned mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, unsigned) : 0;               \
        va_end(more);                                                                             \
        return redirected(#name, path, flags, mode);                                              \
    }
OPENS(open)
OPENS(open64)
