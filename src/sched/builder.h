/*
 * builder.h - what the parser needs of the builder beyond sched.h: to look at a draft.
 */
#ifndef CH_BUILDER_H
#define CH_BUILDER_H

#include "sched/sched.h"

/* The numbers that ch_builder_end() will be given, if they are known before. */
void ch_builder_promise(struct ch_builder *b, uint32_t nflags, uint32_t stage_slots,
                        uint32_t line_slots);

/* Whether all went well so far, the last step included, as far as it is there. */
choir_status ch_builder_validate_last(const struct ch_builder *b);

/* Drop it; accepts NULL. */
void ch_builder_drop(struct ch_builder *b);

#endif
