/*
 * cpu_name.h - what this host's processor calls itself: "AMD EPYC 7763 64-Core Processor".
 */
#ifndef CH_CPU_NAME_H
#define CH_CPU_NAME_H

#include <stddef.h>

/* "unknown" where nobody says. Asked of the processor itself where it answers: the kernel's text about all
 * processors takes it longer the more of them there are. */
void ch_cpu_name(char *out, size_t size);

/* The same from a file in the form of /proc/cpuinfo, a parameter so that tests can bring their own. */
void ch_cpu_name_from(const char *path, char *out, size_t size);

#endif
