/*
 * token.h - who may do it now: one thread at a time, and nobody waits for it.
 *
 * Who does not get the token has asked for it: the holder learns that when it lets go, and rings those who
 * may have gone to sleep meanwhile, or hands over what is left to do.
 */
#ifndef CH_TOKEN_H
#define CH_TOKEN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { CH_TOKEN_FREE, CH_TOKEN_TAKEN, CH_TOKEN_ASKED };

struct ch_token {
    _Atomic uint32_t state; /* written by holder and askers */
};

/* Acquire, pairs with the release in ch_token_release(): what the last holder did is seen. */
static inline bool ch_token_try(struct ch_token *token)
{
    uint32_t is = CH_TOKEN_FREE;

    for (;;) {
        if (is == CH_TOKEN_FREE) {
            if (atomic_compare_exchange_weak_explicit(&token->state, &is, CH_TOKEN_TAKEN,
                                                      memory_order_acquire, memory_order_relaxed))
                return true;
        } else if (atomic_compare_exchange_weak_explicit(&token->state, &is, CH_TOKEN_ASKED,
                                                         memory_order_acq_rel,
                                                         memory_order_relaxed)) {
            return false;
        }
    }
}

/* Acquire, pairs with the release in ch_token_release(). */
static inline bool ch_token_is_free(const struct ch_token *token)
{
    return atomic_load_explicit(&token->state, memory_order_acquire) == CH_TOKEN_FREE;
}

/* True if somebody asked meanwhile. Acquire and release: also pairs with the asking, so that the holder sees
 * what an asker did before it asked (queued something, counted itself asleep). */
static inline bool ch_token_release(struct ch_token *token)
{
    return atomic_exchange_explicit(&token->state, CH_TOKEN_FREE, memory_order_acq_rel) ==
           CH_TOKEN_ASKED;
}

#endif
