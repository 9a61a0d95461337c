/*
 * subsystem.h - which part of the tree a line of log or a block of memory belongs to.
 *
 * The build defines CH_SUBSYS for each folder, so that no call has to name its own.
 */
#ifndef CH_SUBSYSTEM_H
#define CH_SUBSYSTEM_H

#define CH_SUBSYSTEMS(X)                                                                           \
    X(BASE, "base")                                                                                \
    X(IO, "io")                                                                                    \
    X(KERNEL, "kernel")                                                                            \
    X(STORE, "store")                                                                              \
    X(SCHED, "sched")                                                                              \
    X(ALGO, "algo")                                                                                \
    X(TRACE, "trace")                                                                              \
    X(TRANSPORT, "transport")                                                                      \
    X(BACKEND, "backend")                                                                          \
    X(ENGINE, "engine")                                                                            \
    X(GROUP, "group")                                                                              \
    X(NCCL, "nccl")                                                                                \
    X(TEST, "test")

enum ch_subsystem {
#define CH_SUB_ENUM(NAME, name) CH_SUB_##NAME,
    CH_SUBSYSTEMS(CH_SUB_ENUM)
#undef CH_SUB_ENUM
        CH_NSUBSYSTEMS
};

const char *ch_subsystem_name(enum ch_subsystem sub);

#ifndef CH_SUBSYS
#define CH_SUBSYS CH_SUB_TEST
#endif

#endif
