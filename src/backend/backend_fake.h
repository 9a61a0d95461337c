/*
 * backend_fake.h - what the fake backend knows of its group; in the group's own memory.
 */
#ifndef CH_BACKEND_FAKE_H
#define CH_BACKEND_FAKE_H

#include <stdbool.h>

struct ch_fake {
    int rank;
    bool error_on_collective;
};

#endif
