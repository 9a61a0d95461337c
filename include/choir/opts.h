/*
 * opts.h - options of a call: CHOIR_OPTS(reduce_local, .op = CHOIR_AVG).
 *
 * An option struct starts with its own size and is otherwise zero for the defaults, so that it can
 * grow without breaking programs compiled before. In C++ (before C++20) fill one in by hand.
 */
#ifndef CHOIR_OPTS_H
#define CHOIR_OPTS_H

#ifndef __cplusplus
#define CHOIR_OPTS(call, ...)                                                                      \
    (&(choir_##call##_opts){ .size = sizeof(choir_##call##_opts), __VA_ARGS__ })
#endif

#endif
