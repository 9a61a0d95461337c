/* cpu_name_test.c - the processor's name, from itself and from the kernel's text. */
#include "base/cpu_name.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "choir_test.h"

static const char *name_in(const char *cpuinfo)
{
    static char name[64];
    char path[] = "/tmp/choir-cpu-name-XXXXXX";
    int fd = mkstemp(path);

    CHOIR_CHECK_EQ(write(fd, cpuinfo, strlen(cpuinfo)), (ssize_t)strlen(cpuinfo));
    close(fd);
    ch_cpu_name_from(path, name, sizeof(name));
    unlink(path);
    return name;
}

CHOIR_TEST(the_kernels_text_is_read_for_each_architecture)
{
    CHOIR_CHECK_STR(
        name_in("processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7763  \nflags : a"),
        "AMD EPYC 7763");
    CHOIR_CHECK_STR(name_in("CPU part\t: 0xd0c\nModel\t\t: Raspberry Pi 5\n"), "Raspberry Pi 5");
    CHOIR_CHECK_STR(name_in("processor : 0\nCPU part\t: 0xd0c\n"), "0xd0c");
    CHOIR_CHECK_STR(name_in("processor : 0\nmodel name :   \n"), "unknown");
    CHOIR_CHECK_STR(name_in(""), "unknown");
}

/* Who tuned a machine under the kernel's name for it must find its file again. */
CHOIR_TEST(the_processor_and_the_kernel_say_the_same)
{
    char itself[64], kernels[64];

    if (choir_test_valgrind())
        CHOIR_SKIP("valgrind's processor calls itself otherwise");
    ch_cpu_name(itself, sizeof(itself));
    ch_cpu_name_from("/proc/cpuinfo", kernels, sizeof(kernels));
    CHOIR_CHECK_STR(itself, kernels);
}

CHOIR_TEST(a_short_place_gets_the_beginning)
{
    char name[64], little[3];

    ch_cpu_name(name, sizeof(name));
    ch_cpu_name(little, sizeof(little));
    CHOIR_CHECK_EQ(strlen(little), 2);
    CHOIR_CHECK_EQ(memcmp(name, little, 2), 0);
}
