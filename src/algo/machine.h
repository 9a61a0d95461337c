/*
 * machine.h - machine descriptions as text (choir/simulate.h).
 */
#ifndef CH_MACHINE_H
#define CH_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include <choir/simulate.h>

/* *text_out ends with ch_free(). */
choir_status ch_machine_text(const choir_machine *machine, char **text_out);

/* The figures of this machine (choir_machine_path()); false if there are none. A file that cannot be understood is warned of. */
bool ch_machine_find(choir_machine *out);

/* The same for the same figures, never 0. */
uint64_t ch_machine_id(const choir_machine *machine);

/* CHOIR_ERR_INVALID if a figure makes no sense: none of them may be negative, and bytes take time. */
choir_status ch_machine_check(const choir_machine *machine);

#endif
