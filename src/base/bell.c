/*
 * bell.c - ringing, and who makes the order of the doorbell's two words. See bell.h.
 */
#include "base/bell.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>

#include "base/sys.h"

/* Written once, under `once`. */
static struct {
    pthread_once_t once;
    bool registered; /* sleepers may order for this process, and its own sleepers for others */
} the_order = { .once = PTHREAD_ONCE_INIT };

static void register_process(void)
{
    the_order.registered = ch_sys_membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

bool ch_bell_owner_orders(void)
{
    pthread_once(&the_order.once, register_process);
    return the_order.registered;
}

void ch_bell_attach(struct ch_bell *bell, struct ch_bell_word *word, int fd)
{
    *bell = (struct ch_bell){ .word = word, .fd = fd };
    /* A sleeper's membarrier reaches only processes that registered: both of us must have. */
    bell->fence = !ch_bell_owner_orders() || word->needs_fence != 0;
}

void ch_bell_ring(const struct ch_bell *bell)
{
    enum { TRIES = 3 };
    const uint64_t one = 1;
    int keep = errno;

    /* A write that fails has no caller who could be told, and a ring not rung is a sleeper that
     * sleeps on. No kernel is known to fail it, but for EAGAIN: the counter is at its ceiling, rung
     * often enough. */
    for (int i = 0; i < TRIES; i++) {
        if (ch_sys_write(bell->fd, &one, sizeof(one)) >= 0 || errno == EAGAIN)
            break;
    }
    errno = keep;
}
