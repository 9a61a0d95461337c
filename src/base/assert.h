/*
 * assert.h - for bugs of ours, never for arguments, peers' bytes or networks.
 *
 * In debug and sanitizer builds a failed assertion stops the program where it stands. In release
 * builds it is not compiled: the library never aborts the user's process.
 */
#ifndef CH_ASSERT_H
#define CH_ASSERT_H

#ifndef CH_DEBUG
#define CH_DEBUG 0
#endif

#if CH_DEBUG
#define ch_assert(cond) ((cond) ? (void)0 : ch_assert_failed(#cond, __FILE__, __LINE__))
#else
#define ch_assert(cond) ((void)sizeof((cond) ? 1 : 0))
#endif

_Noreturn void ch_assert_failed(const char *cond, const char *file, int line);

#endif
