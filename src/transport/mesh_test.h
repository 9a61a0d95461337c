/*
 * mesh_test.h - ranks for tests: each has a waiter and a p2p, joined by rings in plain memory.
 */
#ifndef CH_MESH_TEST_H
#define CH_MESH_TEST_H

#include "choir_test.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/wait.h"
#include "transport/p2p.h"

enum { MESH_MAX = 8 };

struct mesh {
    uint32_t nranks;
    size_t room;
    struct ch_bell_word *words; /* one for each rank */
    struct ch_waiter waiters[MESH_MAX];
    struct ch_byte_ring *rings[MESH_MAX][MESH_MAX]; /* [reader][writer] */
    struct ch_p2p *p2p[MESH_MAX];
};

/* What a test says goes wrong is only the library's: these fail the test or hand the failure up. */
static inline void mesh_close(struct mesh *mesh)
{
    for (uint32_t r = 0; r < mesh->nranks; r++)
        ch_p2p_destroy(mesh->p2p[r]);
    for (uint32_t r = 0; r < mesh->nranks; r++) {
        ch_waiter_fini(&mesh->waiters[r]);
        for (uint32_t w = 0; w < mesh->nranks; w++)
            ch_free(mesh->rings[r][w]);
    }
    ch_free(mesh->words);
}

static inline choir_status mesh_join(struct mesh *mesh, uint32_t rank, uint32_t peer)
{
    struct ch_stream *stream;
    choir_status rc;

    if (rank == peer)
        rc = ch_transport_self_open(rank, mesh->room, &stream);
    else
        rc = ch_transport_shm_open(peer, mesh->rings[rank][peer], mesh->rings[peer][rank],
                                   mesh->room, &mesh->waiters[peer].bell, &stream);
    if (rc == CHOIR_OK)
        ch_p2p_connect(mesh->p2p[rank], peer, stream);
    return rc;
}

static inline choir_status mesh_try(struct mesh *mesh, uint32_t nranks, size_t room)
{
    choir_status rc = CHOIR_OK;

    *mesh = (struct mesh){ .nranks = nranks, .room = room };
    mesh->words = ch_zalloc_aligned(CH_CACHE_UNIT, nranks * sizeof(struct ch_bell_word));
    if (mesh->words == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "mesh: words");
    for (uint32_t r = 0; r < nranks && rc == CHOIR_OK; r++) {
        rc = ch_waiter_init(&mesh->waiters[r], &mesh->words[r]);
        for (uint32_t w = 0; w < nranks && rc == CHOIR_OK; w++) {
            mesh->rings[r][w] = ch_zalloc_aligned(CH_CACHE_UNIT, ch_byte_ring_nbytes(room));
            if (mesh->rings[r][w] == NULL)
                rc = ch_fail(CHOIR_ERR_NOMEM, "mesh: a ring");
        }
    }
    for (uint32_t r = 0; r < nranks && rc == CHOIR_OK; r++) {
        rc = ch_p2p_create(nranks, &mesh->waiters[r].bell, &mesh->p2p[r]);
        for (uint32_t w = 0; w < nranks && rc == CHOIR_OK; w++)
            rc = mesh_join(mesh, r, w);
    }
    return rc;
}

static inline void mesh_open(struct mesh *mesh, uint32_t nranks, size_t room)
{
    CHOIR_CHECK_OK(mesh_try(mesh, nranks, room));
}

/* All ranks in turn, until nothing moves any more. */
static inline void mesh_settle(struct mesh *mesh)
{
    bool moved;

    do {
        moved = false;
        for (uint32_t r = 0; r < mesh->nranks; r++)
            moved |= ch_p2p_progress(mesh->p2p[r]);
    } while (moved);
}

static inline bool is_done(struct ch_transfer *t)
{
    return ch_flag_reached(&t->done, 1);
}

static inline void fill(unsigned char *data, size_t nbytes, uint64_t seed)
{
    for (size_t i = 0; i < nbytes; i++)
        data[i] = (unsigned char)(seed * 31 + i * 7 + (i >> 8));
}

static inline void check_filled(const unsigned char *data, size_t nbytes, uint64_t seed)
{
    for (size_t i = 0; i < nbytes; i++) {
        unsigned char want = (unsigned char)(seed * 31 + i * 7 + (i >> 8));

        if (data[i] != want)
            CHOIR_FAIL("byte %zu of %zu, seed %llu: %u instead of %u", i, nbytes,
                       (unsigned long long)seed, data[i], want);
    }
}

#endif
