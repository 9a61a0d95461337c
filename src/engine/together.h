/*
 * together.h - how many processors the ranks of a host have together.
 *
 * A launcher may have bound each rank to a processor of its own, several to one, or some and not others: what
 * a rank may use itself says little. Each shows its mask, its quota and CHOIR_PROCESSORS in its page
 * (hostlink.h), and all count alike: algorithms follow from the number, and must be the same on all ranks.
 */
#ifndef CH_TOGETHER_H
#define CH_TOGETHER_H

#include <stdint.h>

struct ch_hostlink;

/*
 * Fewer than ranks if these have to take turns, at least 1. The least of
 *   - the processors in any mask;
 *   - where ranks are confined to fewer processors than they are, these and one for each of the others: two
 *     ranks on one processor take turns, however many a third may use;
 *   - every rank's quota: their cgroups are taken for one;
 *   - every rank's CHOIR_PROCESSORS. If all have set it, nothing else counts.
 */
uint32_t ch_processors_together(const struct ch_hostlink *link);

#endif
