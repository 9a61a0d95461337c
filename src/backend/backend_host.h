/*
 * backend_host.h - the backend for ranks that share a host: its `self` is a channel (engine/channel.h).
 *
 * A send's bytes are block 0 of op->in, a receive's of op->out. ch_backend_host is in backend.h.
 */
#ifndef CH_BACKEND_HOST_H
#define CH_BACKEND_HOST_H

#include "backend/backend.h"
#include "engine/channel.h"

#endif
