/*
 * processors.h - how many processors this process may count on.
 */
#ifndef CH_PROCESSORS_H
#define CH_PROCESSORS_H

#include <stdbool.h>
#include <stdint.h>

/* As a bit each; no kernel has more. Processes of one host may compare and join theirs. */
enum { CH_PROCESSORS_MOST = 8192 };

struct ch_processor_set {
    uint64_t words[CH_PROCESSORS_MOST / 64];
};

/* The affinity mask of the calling thread; empty if it cannot be told. */
void ch_processor_set_get(struct ch_processor_set *out);

uint32_t ch_processor_set_count(const struct ch_processor_set *set);
void ch_processor_set_add(struct ch_processor_set *set, const struct ch_processor_set *more);
bool ch_processor_set_within(const struct ch_processor_set *inner,
                             const struct ch_processor_set *outer);

/* What choir_processors() answers, computed anew (but for the quota, read once): the smaller of the affinity mask and the cgroup
 * quota (rounded up), at least 1. A positive `knob` overrules both. */
int ch_count_processors(int knob);

/* CHOIR_PROCESSORS; 0 if it is not set. */
int ch_processors_knob(void);

/* The quota of this process, read once; 0 for none. */
int ch_processor_quota(void);

/* The quota part alone, in processors rounded up; 0 for none. `membership` is a file in the form of
 * /proc/self/cgroup, `mount` where the cgroup file systems hang (/sys/fs/cgroup): parameters so that
 * tests can bring their own. Every level up to the root may set a quota; the tightest counts. */
int ch_cgroup_quota(const char *membership, const char *mount);

#endif
