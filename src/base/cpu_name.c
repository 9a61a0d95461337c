/*
 * cpu_name.c - see cpu_name.h.
 */
#include "base/cpu_name.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/arch.h"
#include "base/compiler.h"
#include "base/sys.h"

/* Without the blanks around it. */
static void keep(const char *text, char *out, size_t size)
{
    size_t length;

    text += strspn(text, " \t");
    length = strcspn(text, "\n");
    while (length > 0 && text[length - 1] == ' ')
        length--;
    if (length > 0)
        snprintf(out, size, "%.*s", (int)length, text);
}

void ch_cpu_name_from(const char *path, char *out, size_t size)
{
    /* Arm kernels give no model name; some name the board, all the part number. */
    static const char *const labels[] = { "model name", "Model", "CPU part" };
    char text[4096];
    int fd = ch_sys_open(path, O_RDONLY, 0);
    ssize_t n = fd >= 0 ? ch_sys_read(fd, text, sizeof(text) - 1) : -1;

    ch_sys_close(fd);
    snprintf(out, size, "unknown");
    text[n > 0 ? n : 0] = '\0';
    for (size_t i = 0; i < CH_ARRAY_LEN(labels); i++) {
        const char *line = strstr(text, labels[i]);
        const char *colon = line != NULL ? strchr(line, ':') : NULL;

        if (colon != NULL) {
            keep(colon + 1, out, size);
            return;
        }
    }
}

void ch_cpu_name(char *out, size_t size)
{
    char name[CH_ARCH_CPU_NAME_NBYTES];

    snprintf(out, size, "unknown");
    if (ch_arch_cpu_name(name))
        keep(name, out, size);
    else
        ch_cpu_name_from("/proc/cpuinfo", out, size);
}
