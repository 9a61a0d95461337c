/*
 * interrupt.c - the calling thread's interrupt check. See choir/interrupt.h.
 */
#include "base/interrupt.h"

#include <stddef.h>

static _Thread_local struct {
    bool (*check)(void *arg);
    void *arg;
} this_threads;

void choir_set_interrupt_check(bool (*check)(void *arg), void *arg)
{
    this_threads.check = check;
    this_threads.arg = arg;
}

bool ch_interrupt_has_check(void)
{
    return this_threads.check != NULL;
}

bool ch_interrupt_asked(void)
{
    return this_threads.check != NULL && this_threads.check(this_threads.arg);
}
