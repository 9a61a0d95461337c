/*
 * kernel.c - choose a variant once, then hand every call to it.
 */
#include "kernel/kernel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include <choir/info.h>

#include "base/arch.h"
#include "base/assert.h"
#include "base/compiler.h"
#include "base/log.h"
#include "base/params.h"

/* cmake/kernels.cmake says which variants this build has. */
const struct ch_kernels *const ch_kernels_list[] = {
    &ch_kernels_scalar,
#if CH_HAVE_AVX2
    &ch_kernels_avx2,
#endif
#if CH_HAVE_AVX512
    &ch_kernels_avx512,
#endif
#if CH_HAVE_NEON
    &ch_kernels_neon,
#endif
};
const size_t ch_kernels_count = CH_ARRAY_LEN(ch_kernels_list);

static const struct ch_kernels *best(void)
{
    size_t i = ch_kernels_count - 1;

    while (!ch_kernels_list[i]->usable())
        i--;
    return ch_kernels_list[i];
}

const struct ch_kernels *ch_kernels_choose(const char *wanted, const char **reason_out,
                                           bool *denied_out)
{
    *denied_out = false;
    *reason_out = "the best this CPU has";
    if (strcmp(wanted, "auto") == 0)
        return best();
    for (size_t i = 0; i < ch_kernels_count; i++) {
        if (strcmp(wanted, ch_kernels_list[i]->name) != 0)
            continue;
        if (ch_kernels_list[i]->usable()) {
            *reason_out = "asked for by CHOIR_KERNEL";
            return ch_kernels_list[i];
        }
        *denied_out = true;
        *reason_out = "the best this CPU has; it lacks what CHOIR_KERNEL asks for";
        return best();
    }
    *denied_out = true;
    *reason_out = "the best this CPU has; CHOIR_KERNEL asks for what this build has not";
    return best();
}

/* Written once, under `once`; `kernels` is the last to be written, so that the hot path can do
 * without pthread_once(). */
static struct {
    pthread_once_t once;
    const char *reason;
    bool copies_strings;
    _Atomic(const struct ch_kernels *) kernels;
} chosen = { .once = PTHREAD_ONCE_INIT };

static void choose(void)
{
    const char *wanted = ch_params()->kernel;
    const struct ch_kernels *k;
    bool denied;

    k = ch_kernels_choose(wanted, &chosen.reason, &denied);
    chosen.copies_strings = k != &ch_kernels_scalar && ch_arch_copies_strings();
    if (denied)
        ch_log_warn("CHOIR_KERNEL=%s cannot be had; using %s: %s", wanted, k->name, chosen.reason);
    /* Release, pairs with the acquire in ch_kernels(): who sees the table may read the rest. */
    atomic_store_explicit(&chosen.kernels, k, memory_order_release);
}

const struct ch_kernels *ch_kernels(void)
{
    /* Acquire, pairs with the release in choose(). */
    const struct ch_kernels *k = atomic_load_explicit(&chosen.kernels, memory_order_acquire);

    if (CH_LIKELY(k != NULL))
        return k;
    pthread_once(&chosen.once, choose);
    return atomic_load_explicit(&chosen.kernels, memory_order_acquire);
}

const char *choir_kernel_name(void)
{
    return ch_kernels()->name;
}

const char *choir_kernel_reason(void)
{
    ch_kernels();
    return chosen.reason;
}

void ch_reduce(const struct ch_reduction *r, void *const *dsts, size_t ndsts,
               const void *const *srcs, size_t nsrcs, size_t count)
{
    ch_assert(ndsts > 0 && nsrcs > 0);
    ch_assert(r->op != CHOIR_AVG || r->divisor > 0);
    ch_assert(r->op != CHOIR_PREMUL_SUM || r->factors != NULL);
    ch_kernels()->reduce[r->type][r->op](r, dsts, ndsts, srcs, nsrcs, count);
}

void ch_copy(void *dst, const void *src, size_t nbytes)
{
    ch_kernels()->copy(dst, src, nbytes);
}

void ch_copy_nt(void *dst, const void *src, size_t nbytes)
{
    ch_kernels()->copy_nt(dst, src, nbytes);
}

/* Zen 3's instruction takes 5 to 19 times as long where the destination lies 1 to 63 bytes further into its page than the
 * source. */
static bool is_unfit_for_string(const void *dst, const void *src)
{
    enum { PAGE = 4096, NEAR = 64 };

    return ((uintptr_t)dst - (uintptr_t)src - 1) % PAGE < NEAR - 1;
}

static bool copies_strings(void)
{
    ch_kernels(); /* chooses, if need be */
    return chosen.copies_strings;
}

void ch_copy_by(enum ch_copy_how how, void *dst, const void *src, size_t nbytes)
{
    switch (how) {
    case CH_COPY_STRING:
        if (CH_UNLIKELY(!copies_strings() || is_unfit_for_string(dst, src)))
            break;
        ch_arch_copy_string(dst, src, nbytes);
        return;
    case CH_COPY_PAST:
        ch_copy_nt(dst, src, nbytes);
        return;
    case CH_COPY_STORES:
    case CH_COPY_HOWS:
        break;
    }
    ch_copy(dst, src, nbytes);
}

unsigned ch_copy_there(void)
{
    return 1u << CH_COPY_STORES | (unsigned)copies_strings() << CH_COPY_STRING |
           (unsigned)ch_kernels()->goes_past_caches << CH_COPY_PAST;
}

void ch_fill(void *dst, const void *element, size_t size, size_t count)
{
    ch_kernels()->fill(dst, element, size, count);
}
