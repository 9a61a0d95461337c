/*
 * interrupt.h - what wait.c asks of choir/interrupt.h.
 */
#ifndef CH_INTERRUPT_H
#define CH_INTERRUPT_H

#include <stdbool.h>

#include <choir/interrupt.h>

#include "base/clock.h"

/* How long a wait may last without asking. */
enum { CH_INTERRUPT_NS = 50 * CH_MS };

/* Whether this thread has a check. */
bool ch_interrupt_has_check(void);

/* Ask it: true to give up. False without one. */
bool ch_interrupt_asked(void);

#endif
