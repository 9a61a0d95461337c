/*
 * bell.h - the doorbell: how a rank that may be asleep is told that something changed.
 *
 * Who waits publishes "asleep" in a word that posters can see, looks once more, and sleeps on an
 * eventfd. Who posts stores its flag, looks at "asleep", and only if it is set makes the system call
 * that rings. So a post to somebody awake is a store and a load.
 *
 * The pair is Dekker's. Each side stores its own word and then loads the other's, and at least one
 * must see the other's store:
 *
 *      poster:   flag = value;  [order]  if (nasleep != 0) ring;
 *      sleeper:  nasleep += 1;  [order]  if (!ready()) sleep until rung;
 *
 * Processors let a store be overtaken by a later load, so each [order] must be a full one. A fence
 * in every post would hold the poster up until the flag's cache line has come over from the core
 * that watches it. Instead the sleeper makes the kernel run the fence on every processor that runs
 * a registered process (membarrier, GLOBAL_EXPEDITED), and the poster needs none. Where a kernel or
 * a container does not permit that, posters fence: `needs_fence` tells those of other processes.
 *
 * Modelled in tests/model/doorbell.pml (rings of bytes: full_ring.pml); the alternatives that lost:
 * docs/design/waiting.md.
 */
#ifndef CH_BELL_H
#define CH_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

/* In memory that posters share with the owner.
 *
 *   offset  bytes  field        writer                     readers
 *        0      4  nasleep      owner, under waiter's lock  every poster
 *        4      4  needs_fence  owner, once, before sharing every poster, once
 *        8    120  (unused: the line is read by every post and written by every sleep)
 */
struct ch_bell_word {
    _Alignas(CH_CACHE_UNIT) _Atomic uint32_t nasleep;
    uint32_t needs_fence;
    char unused[CH_CACHE_UNIT - 8];
};
_Static_assert(sizeof(struct ch_bell_word) == CH_CACHE_UNIT, "one writer per cache unit");

/* A poster's end of somebody's bell. Owns nothing: word and descriptor must outlive it. */
struct ch_bell {
    struct ch_bell_word *word;
    int fd;
    bool fence;
};

/* `fd` is the owner's eventfd or a copy received from it. */
void ch_bell_attach(struct ch_bell *bell, struct ch_bell_word *word, int fd);

/* Wake the owner, who seems to be asleep. Async-signal-safe. */
void ch_bell_ring(const struct ch_bell *bell);

/* Owner's side: whether this process's sleepers can order for everybody (asked once per process). */
bool ch_bell_owner_orders(void);

/* CH_BREAK_POST_RELEASE builds the post without its release: ThreadSanitizer must then complain
 * (tests/model/release_test.py), or our tests would prove nothing. */
#ifdef CH_BREAK_POST_RELEASE
#define CH_POST_ORDER memory_order_relaxed
#else
#define CH_POST_ORDER memory_order_release
#endif

/* What follows a store: whether the bell's owner may sleep without having seen it. Whatever else the
 * owner stored before it looked for the last time is then visible too. */
static inline bool ch_bell_may_sleep(const struct ch_bell *bell)
{
    if (bell->fence)
        CH_FULL_FENCE();
    else
        atomic_signal_fence(memory_order_seq_cst); /* the compiler must not swap them either */
    /* Relaxed: the order comes from the fence, ours or the one membarrier runs for us. */
    return CH_UNLIKELY(atomic_load_explicit(&bell->word->nasleep, memory_order_relaxed) != 0);
}

/* What follows a store of a flag: ring the owner if it sleeps. */
static inline void ch_bell_after_store(const struct ch_bell *bell)
{
    if (ch_bell_may_sleep(bell))
        ch_bell_ring(bell);
}

/* Publish `value` in `flag`, and all that was written before, to the bell's owner.
 * Release: pairs with the acquire in ch_flag_reached(), which the owner's condition calls. */
static inline void ch_post(const struct ch_bell *bell, _Atomic uint64_t *flag, uint64_t value)
{
    atomic_store_explicit(flag, value, CH_POST_ORDER);
    ch_bell_after_store(bell);
}

/* Acquire, pairs with ch_post(). Flags only grow. */
static inline bool ch_flag_reached(_Atomic uint64_t *flag, uint64_t value)
{
    return atomic_load_explicit(flag, memory_order_acquire) >= value;
}

#endif
