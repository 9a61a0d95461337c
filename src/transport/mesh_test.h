/*
 * mesh_test.h - ranks for tests: each has a waiter and a p2p, joined by rings in plain memory.
 */
#ifndef CH_MESH_TEST_H
#define CH_MESH_TEST_H

#include "choir_test.h"

#include <string.h>
#include <unistd.h>

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
    /* By which ranks that read each other's memory know it. */
    uint8_t ids[MESH_MAX][CH_REMOTE_ID_NBYTES];
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
    if (rc == CHOIR_OK && rank != peer) {
        mesh->ids[peer][0] = (uint8_t)(peer + 1);
        ch_transport_shm_reads(stream, getpid(), (uint64_t)(uintptr_t)mesh->ids[peer],
                               mesh->ids[peer]);
    }
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

/* Byte i of a message is seed * 31 + i * 7 + (i >> 8). 256 of them are a piece of the multiples of 7, from the
 * multiple on that the first one is: they are copied and compared as such, which sanitizers do quickly. */
enum { FILL_BLOCK = 256, FILL_SEVENTH = 183 /* of 1, modulo 256 */ };

static inline void multiples_of_seven(unsigned char table[2 * FILL_BLOCK])
{
    for (size_t i = 0; i < (size_t)2 * FILL_BLOCK; i++)
        table[i] = (unsigned char)(i * 7);
}

static inline size_t first_multiple(uint64_t seed, size_t block)
{
    return (size_t)((seed * 31 + block) * FILL_SEVENTH % FILL_BLOCK);
}

static inline void fill(unsigned char *data, size_t nbytes, uint64_t seed)
{
    unsigned char table[2 * FILL_BLOCK];

    multiples_of_seven(table);
    for (size_t at = 0; at < nbytes; at += FILL_BLOCK)
        memcpy(data + at, table + first_multiple(seed, at / FILL_BLOCK),
               nbytes - at < FILL_BLOCK ? nbytes - at : FILL_BLOCK);
}

static inline void check_filled(const unsigned char *data, size_t nbytes, uint64_t seed)
{
    unsigned char table[2 * FILL_BLOCK];

    multiples_of_seven(table);
    for (size_t at = 0; at < nbytes; at += FILL_BLOCK) {
        const unsigned char *want = table + first_multiple(seed, at / FILL_BLOCK);
        size_t n = nbytes - at < FILL_BLOCK ? nbytes - at : FILL_BLOCK;

        for (size_t i = 0; memcmp(data + at, want, n) != 0 && i < n; i++) {
            if (data[at + i] != want[i])
                CHOIR_FAIL("byte %zu of %zu, seed %llu: %u instead of %u", at + i, nbytes,
                           (unsigned long long)seed, data[at + i], want[i]);
        }
    }
}

#endif
