/*
 * arch.h - what differs between processors, each as a small function with one file per processor:
 *
 *   ch_arch_ticks()         read the CPU's counter; not before earlier loads, so that a time read
 *                           after seeing another thread's store is not older than that store
 *   ch_arch_ticks_rough()   the same, perhaps before earlier loads
 *   ch_arch_ticks_steady()  whether that counter runs at one rate on all processors, always; if not,
 *                           *why_out says why in a few words
 *   ch_arch_relax()         one turn of a spin loop
 *   ch_arch_copies_strings() whether the CPU has an instruction of its own for copying that is meant for long copies
 *   ch_arch_copy_string()   that instruction
 *   ch_arch_cpu_name()      what the processor calls itself; false if it does not say
 */
#ifndef CH_ARCH_H
#define CH_ARCH_H

enum { CH_ARCH_CPU_NAME_NBYTES = 49 };

#if defined(__x86_64__)
#include "base/arch_x86.h"
#elif defined(__aarch64__)
#include "base/arch_aarch64.h"
#else
#include "base/arch_other.h"
#endif

#endif
