/*
 * interrupt.h - for programs that must hear of something while they wait: a signal whose handler only sets a flag,
 * as those of Python and other languages do, or a user who has seen enough.
 */
#ifndef CHOIR_INTERRUPT_H
#define CHOIR_INTERRUPT_H

#include <stdbool.h>

#include <choir/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Have `check(arg)` asked while a call of this thread waits: about every 50 ms, and when a signal has ended its
 * sleep. True ends the wait with CHOIR_ERR_INTERRUPTED: a call that is done on return is then given up, which for a
 * collective is a failure of its group, while a work that is waited for goes on. NULL takes it away.
 * Threads: each thread has its own; it runs on that thread, without a lock, but inside the call: it must not make
 *          another call of the same group that waits.
 */
CHOIR_API void choir_set_interrupt_check(bool (*check)(void *arg), void *arg);

#ifdef __cplusplus
}
#endif
#endif
