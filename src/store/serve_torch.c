/*
 * serve_torch.c - the server's side of PyTorch's TCPStore protocol: not served yet, and the server
 * says so to whoever asks for it.
 */
#include "store/server.h"

const struct ch_protocol ch_protocol_torch = { .name = "torch" };
