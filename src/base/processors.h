/*
 * processors.h - how many processors this process may count on.
 */
#ifndef CH_PROCESSORS_H
#define CH_PROCESSORS_H

/* What choir_processors() answers, computed anew (but for the quota, read once): the smaller of the affinity mask and the cgroup
 * quota (rounded up), at least 1. A positive `knob` overrules both. */
int ch_count_processors(int knob);

/* The first processor that the calling thread may use; -1 if that cannot be told, or CHOIR_PROCESSORS says how many there are. */
int ch_first_processor(void);

/* The quota of this process, read once; 0 for none. */
int ch_processor_quota(void);

/* The quota part alone, in processors rounded up; 0 for none. `membership` is a file in the form of
 * /proc/self/cgroup, `mount` where the cgroup file systems hang (/sys/fs/cgroup): parameters so that
 * tests can bring their own. Every level up to the root may set a quota; the tightest counts. */
int ch_cgroup_quota(const char *membership, const char *mount);

#endif
