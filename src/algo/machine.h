/*
 * machine.h - machine descriptions as text (choir/simulate.h).
 */
#ifndef CH_MACHINE_H
#define CH_MACHINE_H

#include <choir/simulate.h>

/* *text_out ends with ch_free(). */
choir_status ch_machine_text(const choir_machine *machine, char **text_out);

/* CHOIR_ERR_INVALID if a figure makes no sense: none of them may be negative, and bytes take time. */
choir_status ch_machine_check(const choir_machine *machine);

#endif
