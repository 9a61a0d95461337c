/*
 * fdmarks.h - one bit per descriptor number: is it ours?
 *
 * Lock-free and without allocation, because a forked child walks it before anything else works.
 */
#ifndef CH_FDMARKS_H
#define CH_FDMARKS_H

#include <stdbool.h>

enum { CH_FD_MAX = 1 << 20 }; /* the kernel's own ceiling by default (fs.nr_open) */

/* False if the number is above the ceiling. */
bool ch_fdmark_set(int fd);

/* True if it was marked. */
bool ch_fdmark_clear(int fd);

int ch_fdmark_count(void);

/* Close every marked descriptor and forget it: for the child after a fork. */
void ch_fdmark_close_all(void);

#endif
