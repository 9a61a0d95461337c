/*
 * hostlink.c - see hostlink.h.
 */
#include "engine/hostlink.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/processors.h"
#include "base/sys.h"
#include "engine/together.h"

enum {
    FDS = 3,              /* of each rank: segment, doorbell, pidfd */
    RANKS_A_MESSAGE = 16, /* of the hub's */
    /* Unprivileged users may have as many descriptors under way as they may have open, 1024 by
     * default, whoever is the receiver: the hub waits for an acknowledgement after this many. */
    RANKS_UNDER_WAY = 64,
    INTRODUCTION_MS = 2000, /* a member that connected has this long to say who it is */
    LOOK_MS = 50,           /* how long to wait for members before looking whether they are there */
};
_Static_assert((int)FDS *RANKS_A_MESSAGE <= CH_FDPASS_FDS_MAX, "one message holds them");

/* What a member says first. Never leaves the host: its byte order. */
struct introduction {
    uint32_t rank;
    uint8_t id[CH_RANK_ID_NBYTES];
};

/* The head of each message of the hub's: whose descriptors follow, as places in the list. */
struct parcel_label {
    uint32_t first, count;
};

/* --- our own ------------------------------------------------------------------------------------ */

static choir_status make_page(struct ch_hostlink *link)
{
    struct ch_neighbour *self = &link->self;
    choir_status rc = ch_seg_create_growing("choir-rank", sizeof(*self->page), CH_LAYOUT_MOST,
                                            &self->seg);

    if (rc != CHOIR_OK)
        return rc;
    self->page = ch_seg_base(self->seg);
    self->page->magic = CH_RANK_PAGE_MAGIC;
    self->page->version = CH_RANK_PAGE_VERSION;
    self->page->rank = (uint32_t)link->rank;
    self->page->pid = (uint64_t)getpid();
    memcpy(self->page->id, link->id, sizeof(link->id));
    self->page->id_at = (uint64_t)(uintptr_t)link->id;
    self->page->processors = (uint32_t)ch_processors_knob();
    self->page->quota = (uint32_t)ch_processor_quota();
    ch_processor_set_get(&self->page->mask);
    return CHOIR_OK;
}

/* What neighbours write must be there before they know of it; nobody writes to our own place among them. */
static choir_status fill_rings(struct ch_hostlink *link)
{
    const struct ch_layout *layout = &link->layout;
    uint32_t me = 0;
    size_t own, behind;
    choir_status rc;

    while (link->neighbours[me].rank != link->rank)
        me++;
    own = ch_layout_ring(layout, me);
    behind = me + 1 < link->count ? ch_layout_ring(layout, me + 1) : layout->stage_at;
    rc = ch_seg_fill(link->self.seg, layout->rings_at, own - layout->rings_at);
    return rc == CHOIR_OK ? ch_seg_fill(link->self.seg, behind, layout->stage_at - behind) : rc;
}

/* Now that the number of ranks is known. The stage comes with channels. */
static choir_status grow_segment(struct ch_hostlink *link)
{
    choir_status rc = ch_seg_grow(link->self.seg, link->layout.nbytes);

    if (rc == CHOIR_OK)
        rc = fill_rings(link);
    if (rc != CHOIR_OK)
        return rc;
    link->self.page->nlocal = link->layout.nranks;
    link->self.page->nbytes = link->layout.nbytes;
    return CHOIR_OK;
}

/* Kernels before 5.3 have none, nor has valgrind. Death of this rank is then not seen by its
 * neighbours; everything else works. */
static choir_status open_pidfd(struct ch_neighbour *self)
{
    self->pidfd = ch_sys_pidfd_open(getpid());
    self->page->has_pidfd = self->pidfd >= 0;
    if (self->pidfd >= 0)
        return CHOIR_OK;
    if (errno != ENOSYS && errno != EPERM)
        return ch_fail_errno("rank %d: a pidfd of its own process", self->rank);
    ch_log_info("rank %d: this kernel gives no pidfd: the others will not see this process die",
                self->rank);
    return CHOIR_OK;
}

choir_status ch_hostlink_open(struct ch_hostlink *link, int rank)
{
    struct ch_neighbour *self = &link->self;
    choir_status rc;

    link->rank = self->rank = rank;
    link->listener.fd = self->pidfd = self->bell_fd = -1;
    if (ch_sys_random(link->id, sizeof(link->id)) != 0)
        return ch_fail_errno("rank %d: random bits for its id", rank);
    rc = make_page(link);
    if (rc == CHOIR_OK)
        rc = ch_waiter_init(&link->waiter, &self->page->bell);
    if (rc != CHOIR_OK)
        return rc;
    self->bell = link->waiter.bell;
    self->bell_fd = link->waiter.bell.fd;
    rc = open_pidfd(self);
    return rc == CHOIR_OK ? ch_fdpass_listen(&link->listener) : rc;
}

/* --- taking a neighbour's in ---------------------------------------------------------------------- */

static void close_fds(int fds[FDS])
{
    for (int i = 0; i < FDS; i++)
        ch_sys_close(fds[i]);
}

static choir_status check_page(const struct ch_rank_page *page, const struct ch_layout *layout,
                               const struct ch_hostlink_member *member)
{
    if (page->magic != CH_RANK_PAGE_MAGIC || page->version != CH_RANK_PAGE_VERSION)
        return ch_fail(CHOIR_ERR_PROTO, "its segment is not one of ours: magic 0x%llx version %u",
                       (unsigned long long)page->magic, page->version);
    if (page->rank != (uint32_t)member->rank ||
        memcmp(page->id, member->id, CH_RANK_ID_NBYTES) != 0)
        return ch_fail(CHOIR_ERR_PROTO, "its segment belongs to rank %u, or to another run",
                       page->rank);
    if (page->nlocal != layout->nranks || page->nbytes != layout->nbytes)
        return ch_fail(CHOIR_ERR_PROTO,
                       "its segment is laid out for %u ranks in %llu bytes, expected %u in %zu",
                       page->nlocal, (unsigned long long)page->nbytes, layout->nranks,
                       layout->nbytes);
    return CHOIR_OK;
}

/* Takes the descriptors over, also on failure. */
static choir_status take_in(struct ch_hostlink *link, size_t place,
                            const struct ch_hostlink_member *member, int fds[FDS])
{
    struct ch_neighbour *neighbour = &link->neighbours[place];
    choir_status rc;

    neighbour->rank = member->rank;
    neighbour->bell_fd = fds[1];
    neighbour->pidfd = fds[2];
    rc = ch_seg_attach(fds[0], link->layout.nbytes, &neighbour->seg);
    if (rc == CHOIR_OK) {
        neighbour->page = ch_seg_base(neighbour->seg);
        rc = check_page(neighbour->page, &link->layout, member);
    }
    if (rc != CHOIR_OK) {
        ch_error_prefix("rank %d: ", member->rank);
        return rc;
    }
    if (!neighbour->page->has_pidfd) {
        ch_sys_close(neighbour->pidfd);
        neighbour->pidfd = -1;
    }
    ch_bell_attach(&neighbour->bell, &neighbour->page->bell, neighbour->bell_fd);
    return CHOIR_OK;
}

/* What to pass on: of a rank that has no pidfd its doorbell once more, so that all have three. */
static void fds_of(const struct ch_neighbour *neighbour, int fds_out[FDS])
{
    fds_out[0] = ch_seg_fd(neighbour->seg);
    fds_out[1] = neighbour->bell_fd;
    fds_out[2] = neighbour->pidfd >= 0 ? neighbour->pidfd : neighbour->bell_fd;
}

static void let_go(struct ch_neighbour *neighbour)
{
    ch_sys_close(neighbour->bell_fd);
    ch_sys_close(neighbour->pidfd);
    ch_seg_detach(neighbour->seg);
}

/* --- the hub ------------------------------------------------------------------------------------ */

/* Whose introduction this is: a place in the list, or -1 for nobody whom we expect. */
static ptrdiff_t recognise(const struct ch_hostlink *link, const struct ch_hostlink_member *members,
                           const struct introduction *intro)
{
    for (size_t i = 0; i < link->count; i++) {
        if ((uint32_t)members[i].rank == intro->rank && link->neighbours[i].seg == NULL &&
            memcmp(members[i].id, intro->id, sizeof(intro->id)) == 0)
            return (ptrdiff_t)i;
    }
    return -1;
}

/* One connection: whose it is, and what it brings. A stranger costs a line in the log. */
static choir_status welcome(struct ch_hostlink *link, const struct ch_hostlink_member *members,
                            int sock, const struct ch_patience *patience, ptrdiff_t *who_out)
{
    struct ch_patience short_one = *patience;
    struct introduction intro = { .rank = 0 };
    ch_deadline soon = ch_deadline_ms(INTRODUCTION_MS);
    int fds[FDS];
    size_t nbytes;
    choir_status rc;

    if (soon < short_one.until)
        short_one.until = soon;
    *who_out = -1;
    rc = ch_fdpass_recv(sock, &intro, sizeof(intro), &nbytes, fds, FDS, &short_one);
    if (rc == CHOIR_ERR_INTERRUPTED || rc == CHOIR_ERR_REMOTE || rc == CHOIR_ERR_FORKED)
        return rc;
    if (rc != CHOIR_OK) {
        ch_log_warn("rank %d: a visitor at its socket was turned away: %s", link->rank,
                    choir_last_error());
        return CHOIR_OK;
    }
    *who_out = nbytes == sizeof(intro) ? recognise(link, members, &intro) : -1;
    if (*who_out >= 0)
        return take_in(link, (size_t)*who_out, &members[*who_out], fds);
    ch_log_warn("rank %d: a visitor at its socket says rank %u, which is not expected here",
                link->rank, intro.rank);
    close_fds(fds);
    return CHOIR_OK;
}

/* The deadline passed: name those who have not come. */
static choir_status name_missing(const struct ch_hostlink *link,
                                 const struct ch_hostlink_member *members)
{
    char list[200] = "";
    size_t used = 0, missing = 0;
    int culprit = -1;

    for (size_t i = 0; i < link->count; i++) {
        if (link->neighbours[i].rank >= 0)
            continue;
        if (missing++ == 0)
            culprit = members[i].rank;
        if (used + 16 < sizeof(list))
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d", used > 0 ? ", " : "",
                                     members[i].rank);
    }
    return ch_fail_rank(CHOIR_ERR_TIMEOUT, culprit, "choir_init",
                        "all have joined, but %zu of %zu ranks of this host did not bring their "
                        "descriptors before the deadline (they died or are stuck): %s",
                        missing, link->count, list);
}

/* Who has not come for a while may never come. */
static choir_status look_for_the_gone(const struct ch_hostlink *link,
                                      const struct ch_hostlink_member *members)
{
    for (size_t i = 0; i < link->count; i++) {
        if (link->neighbours[i].rank < 0 && ch_fdpass_is_gone(members[i].socket))
            return ch_fail_rank(
                CHOIR_ERR_DEAD, members[i].rank, "choir_init",
                "rank %d has joined, but was gone before it brought its descriptors",
                members[i].rank);
    }
    return CHOIR_OK;
}

/* The next who comes. CHOIR_ERR_TIMEOUT: nobody did, and it is too late. */
static choir_status await_visitor(struct ch_hostlink *link,
                                  const struct ch_hostlink_member *members,
                                  const struct ch_patience *patience, int *sock_out)
{
    struct ch_patience slice = *patience;
    choir_status rc;

    do {
        slice.until = ch_deadline_ms(LOOK_MS);
        if (slice.until > patience->until)
            slice.until = patience->until;
        rc = ch_fdpass_accept(&link->listener, &slice, sock_out);
        if (rc != CHOIR_ERR_TIMEOUT || ch_deadline_passed(patience->until))
            return rc;
        rc = look_for_the_gone(link, members);
    } while (rc == CHOIR_OK);
    return rc;
}

/* Everybody's descriptors; socks[i] is the connection of members[i]. */
static choir_status collect(struct ch_hostlink *link, const struct ch_hostlink_member *members,
                            int *socks, const struct ch_patience *patience)
{
    size_t arrived = 1; /* ourselves */

    while (arrived < link->count) {
        ptrdiff_t who = -1;
        int sock;
        choir_status rc = await_visitor(link, members, patience, &sock);

        if (rc == CHOIR_ERR_PERMISSION)
            continue; /* another user's, turned away */
        if (rc == CHOIR_ERR_TIMEOUT)
            return name_missing(link, members);
        if (rc != CHOIR_OK)
            return rc;
        rc = welcome(link, members, sock, patience, &who);
        if (who >= 0)
            socks[who] = sock;
        else
            ch_sys_close(sock);
        if (rc != CHOIR_OK)
            return rc;
        arrived += who >= 0;
    }
    return CHOIR_OK;
}

static choir_status send_parcel(const struct ch_hostlink *link, int sock, size_t first,
                                size_t count, const struct ch_patience *patience)
{
    struct parcel_label label = { (uint32_t)first, (uint32_t)count };
    int fds[FDS * RANKS_A_MESSAGE];

    for (size_t i = 0; i < count; i++)
        fds_of(&link->neighbours[first + i], &fds[FDS * i]);
    return ch_fdpass_send(sock, &label, sizeof(label), fds, (int)(FDS * count), patience);
}

static size_t parcel_size(size_t first, size_t count)
{
    return count - first < RANKS_A_MESSAGE ? count - first : (size_t)RANKS_A_MESSAGE;
}

/* After the parcel that starts at `first` the receiver acknowledges: all under way have come. */
static bool acknowledged_after(size_t first, size_t count)
{
    size_t end = first + parcel_size(first, count);

    return end == count || end % RANKS_UNDER_WAY == 0;
}

static choir_status serve_member(const struct ch_hostlink *link, int sock,
                                 const struct ch_patience *patience)
{
    choir_status rc = CHOIR_OK;

    for (size_t first = 0; first < link->count && rc == CHOIR_OK; first += RANKS_A_MESSAGE) {
        size_t nbytes;

        rc = send_parcel(link, sock, first, parcel_size(first, link->count), patience);
        if (rc == CHOIR_OK && acknowledged_after(first, link->count))
            rc = ch_fdpass_recv(sock, NULL, 0, &nbytes, NULL, 0, patience);
    }
    return rc;
}

/* The last error is this member's doing. */
static choir_status blame(int rank)
{
    choir_error why;

    ch_error_save(&why);
    return ch_fail_rank(why.code, rank, "choir_init", "to rank %d: %s", rank, why.text);
}

static choir_status be_hub(struct ch_hostlink *link, const struct ch_hostlink_member *members,
                           const struct ch_patience *patience)
{
    int *socks = ch_alloc_array(link->count, sizeof(*socks));
    choir_status rc;

    if (socks == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for the connections of %zu ranks", link->count);
    for (size_t i = 0; i < link->count; i++)
        socks[i] = -1;
    rc = collect(link, members, socks, patience);
    for (size_t i = 1; i < link->count && rc == CHOIR_OK; i++) {
        rc = serve_member(link, socks[i], patience);
        if (rc != CHOIR_OK)
            rc = blame(members[i].rank);
    }
    for (size_t i = 0; i < link->count; i++)
        ch_sys_close(socks[i]);
    ch_free(socks);
    return rc;
}

/* --- a member ----------------------------------------------------------------------------------- */

static choir_status introduce(const struct ch_hostlink *link, int sock,
                              const struct ch_patience *patience)
{
    struct introduction intro = { .rank = (uint32_t)link->rank };
    int fds[FDS];

    fds_of(&link->self, fds);
    memcpy(intro.id, link->id, sizeof(intro.id));
    return ch_fdpass_send(sock, &intro, sizeof(intro), fds, FDS, patience);
}

/* Our own come back as well, with all the others: those are closed. */
static choir_status unpack(struct ch_hostlink *link, const struct ch_hostlink_member *members,
                           size_t first, size_t count, int *fds)
{
    choir_status rc = CHOIR_OK;

    for (size_t i = 0; i < count; i++) {
        if (rc != CHOIR_OK || members[first + i].rank == link->rank)
            close_fds(&fds[FDS * i]);
        else
            rc = take_in(link, first + i, &members[first + i], &fds[FDS * i]);
    }
    return rc;
}

static choir_status receive_parcel(struct ch_hostlink *link,
                                   const struct ch_hostlink_member *members, int sock, size_t first,
                                   const struct ch_patience *patience)
{
    struct parcel_label label = { 0, 0 };
    size_t count = parcel_size(first, link->count), nbytes;
    int fds[FDS * RANKS_A_MESSAGE];
    choir_status rc = ch_fdpass_recv(sock, &label, sizeof(label), &nbytes, fds, (int)(FDS * count),
                                     patience);

    if (rc != CHOIR_OK)
        return rc;
    if (nbytes == sizeof(label) && label.first == first && label.count == count)
        return unpack(link, members, first, count, fds);
    for (size_t i = 0; i < count; i++)
        close_fds(&fds[FDS * i]);
    return ch_fail(CHOIR_ERR_PROTO, "descriptors of places %u to %u came, expected %zu to %zu",
                   label.first, label.first + label.count, first, first + count);
}

static choir_status be_member(struct ch_hostlink *link, const struct ch_hostlink_member *members,
                              const struct ch_patience *patience)
{
    int sock;
    choir_status rc = ch_fdpass_connect(members[0].socket, patience, &sock);

    if (rc != CHOIR_OK) {
        ch_error_prefix("to rank %d: ", members[0].rank);
        return rc;
    }
    rc = introduce(link, sock, patience);
    for (size_t first = 0; first < link->count && rc == CHOIR_OK; first += RANKS_A_MESSAGE) {
        rc = receive_parcel(link, members, sock, first, patience);
        if (rc == CHOIR_OK && acknowledged_after(first, link->count))
            rc = ch_fdpass_send(sock, NULL, 0, NULL, 0, patience);
    }
    if (rc != CHOIR_OK)
        ch_error_prefix("from rank %d: ", members[0].rank);
    ch_sys_close(sock);
    return rc;
}

/* --- together ----------------------------------------------------------------------------------- */

static choir_status make_room(struct ch_hostlink *link, const struct ch_hostlink_member *members,
                              size_t count)
{
    link->neighbours = ch_zalloc_array(count, sizeof(*link->neighbours));
    if (link->neighbours == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for %zu ranks of one host", count);
    link->count = count;
    link->layout = ch_layout_of((uint32_t)count);
    for (size_t i = 0; i < count; i++) {
        if (members[i].rank == link->rank)
            link->neighbours[i] = link->self;
        else
            link->neighbours[i] = (struct ch_neighbour){ .rank = -1, .bell_fd = -1, .pidfd = -1 };
    }
    return CHOIR_OK;
}

choir_status ch_hostlink_exchange(struct ch_hostlink *link,
                                  const struct ch_hostlink_member *members, size_t count,
                                  const struct ch_patience *patience)
{
    choir_status rc = make_room(link, members, count);

    if (rc == CHOIR_OK)
        rc = grow_segment(link);
    if (rc == CHOIR_OK)
        rc = members[0].rank == link->rank ? be_hub(link, members, patience)
                                           : be_member(link, members, patience);
    if (rc != CHOIR_OK)
        ch_error_prefix("rank %d: exchange of descriptors on its host: ", link->rank);
    ch_fdpass_unlisten(&link->listener);
    if (rc == CHOIR_OK) {
        link->processors = ch_processors_together(link);
        ch_log_debug("rank %d: %zu ranks of this host have %u processors together", link->rank,
                     count, link->processors);
        link->waiter.processors = (int)link->processors;
        ch_waiter_set_crowd(&link->waiter, (int)count);
    }
    return rc;
}

void ch_hostlink_close(struct ch_hostlink *link)
{
    for (size_t i = 0; i < link->count; i++) {
        if (link->neighbours[i].rank != link->rank)
            let_go(&link->neighbours[i]);
    }
    ch_free(link->neighbours);
    ch_fdpass_unlisten(&link->listener);
    ch_sys_close(link->self.pidfd);
    ch_waiter_fini(&link->waiter);
    ch_seg_detach(link->self.seg);
    memset(link, 0, sizeof(*link));
    link->listener.fd = link->self.pidfd = -1;
}

struct ch_neighbour *ch_hostlink_find(const struct ch_hostlink *link, int rank)
{
    for (size_t i = 0; i < link->count; i++) {
        if (link->neighbours[i].rank == rank)
            return &link->neighbours[i];
    }
    return NULL;
}

choir_status ch_neighbour_alive(const struct ch_neighbour *neighbour, bool *alive_out)
{
    struct pollfd pfd = { .fd = neighbour->pidfd, .events = POLLIN };

    if (neighbour->pidfd < 0)
        return ch_fail(CHOIR_ERR_UNSUPPORTED, "whether rank %d runs: its kernel gave it no pidfd",
                       neighbour->rank);
    if (ch_sys_poll(&pfd, 1, 0) < 0)
        return ch_fail_errno("ask the kernel whether rank %d runs", neighbour->rank);
    *alive_out = pfd.revents == 0;
    return CHOIR_OK;
}
