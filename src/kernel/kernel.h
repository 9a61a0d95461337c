/*
 * kernel.h - copy and reduce: where bytes become sums.
 *
 * The rules of arithmetic are in choir/types.h. reduce_scalar.c is those rules written down, one
 * element at a time; the other variants (reduce_avx2.c, ...) must give the same bits, only faster, a
 * NaN's payload and sign excepted. Sources are always taken in the order given, so that every rank
 * that reduces the same sources gets the same bits.
 *
 * Nothing here asks for alignment, allocates, or can fail: arguments are checked by the callers.
 */
#ifndef CH_KERNEL_H
#define CH_KERNEL_H

#include <stdbool.h>
#include <stddef.h>

#include <choir/types.h>

/* What is to be done with each element. `op` must be defined on `type` (choir_redop_check()). */
struct ch_reduction {
    choir_type type;
    choir_redop op;
    size_t divisor;        /* avg only: what the sum is divided by, at least 1 */
    const double *factors; /* premul-sum only: one for each source, since each rank has its own */
};

/*
 * Combine `nsrcs` sources into `ndsts` equal results, both at least 1, in one pass over memory.
 * A destination may be one of the sources; no two buffers may overlap partly. A source may be read
 * twice and a destination written twice (with the same bits).
 * Threads: any number at once, on different destinations.
 */
void ch_reduce(const struct ch_reduction *r, void *const *dsts, size_t ndsts,
               const void *const *srcs, size_t nsrcs, size_t count);

/* Copy between buffers that do not overlap. The first leaves the copy in cache: it is for data that
 * is read soon, here or on another core. The second goes past the caches, for copies larger than this
 * core's share of them; the bytes are visible to other cores as soon as it returns and a flag is set. */
void ch_copy(void *dst, const void *src, size_t nbytes);
void ch_copy_nt(void *dst, const void *src, size_t nbytes);

/* The ways to copy, where it is known which is the fastest (copy_over.h); and which of them this CPU has, as bits 1 << how.
 * What it has not is done by ordinary stores. From the nearest to the farthest: of several readers' ways the last is taken (move.c). */
enum ch_copy_how {
    CH_COPY_STORES, /* ch_copy() */
    CH_COPY_STRING, /* the CPU's own instruction for it: it may own lines without fetching what is in them */
    CH_COPY_PAST, /* ch_copy_nt() */
    CH_COPY_HOWS
};
void ch_copy_by(enum ch_copy_how how, void *dst, const void *src, size_t nbytes);
unsigned ch_copy_there(void);

/* Set `count` elements to the one at `element`, whose size is 1, 2, 4, 8 or 16 bytes. */
void ch_fill(void *dst, const void *element, size_t size, size_t count);

/* Accumulators: f16, bf16 and the 8-bit floats are summed in f32, so that partial sums that travel are not
 * rounded on the way; all other types are their own accumulators. */
static inline choir_type ch_accumulator(choir_type type)
{
    return type == CHOIR_F16 || type == CHOIR_BF16 || type == CHOIR_F8E4M3 || type == CHOIR_F8E5M2
               ? CHOIR_F32
               : type;
}

/* From such a type to f32 and, rounded once, back. The f32 side is aligned. */
void ch_widen(choir_type type, float *dst, const void *src, size_t count);
void ch_narrow(choir_type type, void *dst, const float *src, size_t count);

/* --- variants: one table for each instruction set ---------------------------------------------- */

typedef void (*ch_reduce_fn)(const struct ch_reduction *r, void *const *dsts, size_t ndsts,
                             const void *const *srcs, size_t nsrcs, size_t count);

struct ch_kernels {
    const char *name;     /* "avx2": what CHOIR_KERNEL and `choir info` call it */
    const char *needs;    /* what the CPU must have for it, in words */
    bool (*usable)(void); /* does this CPU, under this operating system, have it? */
    ch_reduce_fn reduce[CHOIR_NTYPES][CHOIR_NREDOPS]; /* NULL where the pair is refused */
    void (*copy)(void *dst, const void *src, size_t nbytes);
    void (*copy_nt)(void *dst, const void *src, size_t nbytes);
    bool goes_past_caches; /* copy_nt() does; else it is another copy() */
    void (*fill)(void *dst, const void *element, size_t size, size_t count);
};

/* What is compiled into this library, slowest first; the first one, the reference, runs anywhere. */
extern const struct ch_kernels *const ch_kernels_list[];
extern const size_t ch_kernels_count;

extern const struct ch_kernels ch_kernels_scalar, ch_kernels_avx2, ch_kernels_avx512,
    ch_kernels_neon;

/* The variant this process uses: chosen at the first call, by CPU and CHOIR_KERNEL. */
const struct ch_kernels *ch_kernels(void);

/* The choice itself. `wanted` is a name or "auto"; what cannot be had gives the best there is.
 * *reason_out says why in a few words; *denied_out, if that is so, that the wish was not granted. */
const struct ch_kernels *ch_kernels_choose(const char *wanted, const char **reason_out,
                                           bool *denied_out);

/* Bytes of one element, without the check of choir_type_size(). */
extern const unsigned char ch_type_bytes[CHOIR_NTYPES];

#endif
