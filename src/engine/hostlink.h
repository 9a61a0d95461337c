/*
 * hostlink.h - what the ranks of one host share: each rank's segment, doorbell and pidfd.
 *
 * A rank opens its link before it meets the others, so that it can announce its socket's name and
 * its id; when all know each other, the ranks of one host exchange descriptors. The lowest rank is the
 * hub: everybody brings it three descriptors and takes home those of all. So N ranks make N - 1
 * connections, not N squared, and all are gone when the exchange is over.
 *
 * Who brings descriptors must know the id that its record announced through the store, and the segment
 * must carry that id too: a memfd that was passed and read back is the proof that memory is shared.
 *
 *   member                               hub (lowest rank)
 *   connect to its socket          -->   accept, once for each member
 *   rank, id + 3 descriptors       -->   check against the records, map the segment
 *                                  <--   after all have come: the others', up to 16 ranks a message
 *   map them                       -->   an acknowledgement now and then: the kernel limits how many
 *                                        descriptors may be under way at once
 *
 * The head of a rank's segment:
 *
 *   offset  bytes  field    writer                 readers
 *        0      8  magic    its rank, before sharing  neighbours, when they map it
 *        8      4  version  the same
 *       12      4  rank     the same
 *       16     16  id       the same
 *       32      4  has_pidfd  the same; 0: the kernel gave none, and a stand-in is passed in its place
 *       36      4  nlocal   the same: the ranks of the host, from which all layout follows (layout.h)
 *       40      8  nbytes   the same: of the segment
 *       48      8  pid      the same; in its own pid namespace
 *       56      4  processors  the same: how many its user says there are; 0: does not say
 *       60      4  quota  the same: of processors, its cgroup's; 0: none
 *       64      8  machine  the same: which measured figures it has; 0: none
 *       72      8  overrules  the same: which algorithms its user asks for (rank.c)
 *       80      8  id_at    the same: where its process has the id, for who reads its memory to know that it is this process's
 *       88     40  zero
 *      128    128  bell     see base/bell.h
 *      256   1024  mask     its rank, before sharing: which processors it may use
 */
#ifndef CH_HOSTLINK_H
#define CH_HOSTLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

#include "base/processors.h"
#include "base/wait.h"
#include "engine/layout.h"
#include "io/fdpass.h"
#include "io/patience.h"
#include "io/segment.h"

#define CH_RANK_PAGE_MAGIC UINT64_C(0x6567617072696f68) /* "hoirpage" */

enum { CH_RANK_PAGE_VERSION = 7, CH_RANK_ID_NBYTES = 16 };

struct ch_rank_page {
    uint64_t magic;
    uint32_t version;
    uint32_t rank;
    uint8_t id[CH_RANK_ID_NBYTES];
    uint32_t has_pidfd;
    uint32_t nlocal;
    uint64_t nbytes;
    uint64_t pid;
    uint32_t processors;
    uint32_t quota;
    uint64_t machine;
    uint64_t overrules;
    uint64_t id_at;
    uint8_t zeros[40];
    struct ch_bell_word bell;
    struct ch_processor_set mask;
};
_Static_assert(offsetof(struct ch_rank_page, bell) == 128, "as in the table above");
_Static_assert(sizeof(struct ch_rank_page) == 1280, "as in the table above");

/* A rank of this host, as this rank sees it. */
struct ch_neighbour {
    int rank;
    struct ch_seg *seg;
    struct ch_rank_page *page; /* in seg */
    struct ch_bell bell;       /* ring it with ch_post() */
    int bell_fd;
    int pidfd; /* -1: its kernel gave it none */
    bool dead; /* its process was seen to end; under the rank's lock (rank.h) */
};

struct ch_hostlink {
    int rank;
    uint8_t id[CH_RANK_ID_NBYTES];
    struct ch_waiter waiter; /* what this rank sleeps on */
    struct ch_fdpass_listener listener;
    struct ch_neighbour self;
    struct ch_neighbour *neighbours; /* by rising rank, ourselves among them */
    size_t count;
    struct ch_layout layout; /* of everybody's segment; since the exchange */
    uint32_t processors;     /* see together.h; since the exchange */
};

/* What a member's record says of it; a list of them is by rising rank, the same on every rank. */
struct ch_hostlink_member {
    int rank;
    const uint8_t *id;
    const char *socket;
};

/* Make our own segment, doorbell, pidfd, id and socket. The segment is a page as long as nobody knows how
 * many ranks share the host. `link` is zeroed; close also after a failure. */
choir_status ch_hostlink_open(struct ch_hostlink *link, int rank);

/* Give our segment its size and exchange descriptors with the members, of which we are one. Collective over
 * them.
 * Errors: name the rank with which it failed. */
choir_status ch_hostlink_exchange(struct ch_hostlink *link,
                                  const struct ch_hostlink_member *members, size_t count,
                                  const struct ch_patience *patience);

void ch_hostlink_close(struct ch_hostlink *link);

/* NULL if that rank is not of this host. */
struct ch_neighbour *ch_hostlink_find(const struct ch_hostlink *link, int rank);

/* Whether its process still runs. CHOIR_ERR_UNSUPPORTED if it has no pidfd. */
choir_status ch_neighbour_alive(const struct ch_neighbour *neighbour, bool *alive_out);

#endif
