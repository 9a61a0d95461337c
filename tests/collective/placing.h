/*
 * placing.h - where the buffers of a call lie.
 */
#ifndef PLACING_H
#define PLACING_H

#include "scenario.h"

/* What one rank does in one call. */
struct memory {
    unsigned char *block, *bytes; /* as allocated; from the canary in front */
    unsigned char *image;         /* what `bytes` must be in the end */
    size_t nbytes;
};

struct placed {
    int memory;
    size_t offset; /* bytes */
    size_t count;  /* elements */
    int ndim;
    int64_t sizes[2], strides[2];
};

struct act {
    const struct call *call;
    int rank; /* in the call's group */
    int nmemories;
    struct memory memories[2 * BUFS_MAX];
    int nins, nouts;
    struct placed ins[BUFS_MAX], outs[BUFS_MAX];
    choir_buf in_bufs[BUFS_MAX], out_bufs[BUFS_MAX];
    size_t in_splits[RANKS_MAX], out_splits[RANKS_MAX];
    bool in_place;
    /* under way */
    int nworks;
    choir_work *works[2 * RANKS_MAX];
    int sources[RANKS_MAX]; /* of receives from any */
};

/* Place, fill, and draw the image. */
void act_prepare(struct act *act, const struct call *call, int rank, struct dice *dice);

/* RECV_ANY: when the sources are known. */
void act_draw_received(struct act *act);

/* The first byte that differs from the image: said on stderr, false. */
bool act_check(const struct act *act, const struct scenario *s);

void act_free(struct act *act);

#endif
