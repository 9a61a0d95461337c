/*
 * flight_names.c - see flight_names.h.
 */
#include "trace/flight_names.h"

#include <stddef.h>

#include "base/compiler.h"

/* The second name where PyTorch's analyser would stop at the first. */
static const struct {
    const char *name, *compatible;
    bool has_lists, is_in_place;
} ops[] = {
    [CHOIR_OP_BROADCAST] = { "broadcast", NULL, false, true },
    [CHOIR_OP_ALLREDUCE] = { "all_reduce", NULL, false, true },
    [CHOIR_OP_ALLREDUCE_COALESCED] = { "allreduce_coalesced", NULL, false, true },
    [CHOIR_OP_REDUCE] = { "reduce", NULL, false, true },
    [CHOIR_OP_ALLGATHER] = { "all_gather", NULL, true, false },
    [CHOIR_OP_ALLGATHER_INTO] = { "_all_gather_base", NULL, false, false },
    [CHOIR_OP_ALLGATHER_COALESCED] = { "ALLGATHER_coalesced", NULL, false, false },
    [CHOIR_OP_GATHER] = { "gather", NULL, true, false },
    [CHOIR_OP_SCATTER] = { "scatter", NULL, true, false },
    [CHOIR_OP_REDUCE_SCATTER] = { "reduce_scatter", NULL, true, false },
    [CHOIR_OP_ALLTOALL_BASE] = { "all_to_all", NULL, false, false },
    [CHOIR_OP_ALLTOALL] = { "all_to_all", NULL, true, false },
    [CHOIR_OP_SEND] = { "send", NULL, false, false },
    [CHOIR_OP_RECV] = { "recv", NULL, false, false },
    [CHOIR_OP_RECV_ANY] = { "recvAnySource", "recv", false, false },
    [CHOIR_OP_BARRIER] = { "barrier", NULL, false, false },
    [CHOIR_OP_REDUCE_SCATTER_FROM] = { "_reduce_scatter_base", NULL, false, false },
    [CHOIR_OP_COALESCED] = { "coalesced", NULL, false, false },
    [CHOIR_OP_ALLREDUCE_SPARSE] = { "sparse_all_reduce", "all_reduce", false, true },
    [CHOIR_OP_REDUCE_SCATTER_COALESCED] = { "reduce_scatter_tensor_coalesced", NULL, false, false },
    [CHOIR_OP_SPLIT] = { "split", NULL, false, false },
};

static bool is_listed(choir_optype op)
{
    return (size_t)op < CH_ARRAY_LEN(ops) && ops[op].name != NULL;
}

const char *ch_flight_op_name(choir_optype op)
{
    return is_listed(op) ? ops[op].name : "unknown";
}

const char *ch_flight_op_compatible_name(choir_optype op)
{
    if (is_listed(op) && ops[op].compatible != NULL)
        return ops[op].compatible;
    return is_listed(op) ? ops[op].name : "coalesced";
}

bool ch_flight_has_lists(choir_optype op)
{
    return is_listed(op) && ops[op].has_lists;
}

bool ch_flight_is_in_place(choir_optype op)
{
    return is_listed(op) && ops[op].is_in_place;
}

const char *ch_flight_type_name(choir_type type)
{
    static const char *const names[CHOIR_NTYPES] = {
        [CHOIR_U8] = "Byte",
        [CHOIR_I8] = "Char",
        [CHOIR_U16] = "UInt16",
        [CHOIR_I16] = "Short",
        [CHOIR_U32] = "UInt32",
        [CHOIR_I32] = "Int",
        [CHOIR_U64] = "UInt64",
        [CHOIR_I64] = "Long",
        [CHOIR_F16] = "Half",
        [CHOIR_BF16] = "BFloat16",
        [CHOIR_F32] = "Float",
        [CHOIR_F64] = "Double",
        [CHOIR_F8E4M3] = "Float8_e4m3fn",
        [CHOIR_F8E5M2] = "Float8_e5m2",
        [CHOIR_BOOL] = "Bool",
        [CHOIR_COMPLEX64] = "ComplexFloat",
        [CHOIR_COMPLEX128] = "ComplexDouble",
    };

    return (size_t)type < CH_ARRAY_LEN(names) && names[type] != NULL ? names[type] : "Undefined";
}

/* How many bytes the character at `p` has; 0 if it is none. */
static size_t character_length(const unsigned char *p)
{
    static const struct {
        unsigned char mask, lead;
    } forms[] = { { 0x80, 0x00 }, { 0xe0, 0xc0 }, { 0xf0, 0xe0 }, { 0xf8, 0xf0 } };
    size_t length = 0;

    for (size_t i = 0; i < CH_ARRAY_LEN(forms) && length == 0; i++) {
        if ((p[0] & forms[i].mask) == forms[i].lead)
            length = i + 1;
    }
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0; /* the end of the text as well */
    }
    if ((length == 2 && p[0] < 0xc2) || (length == 3 && p[0] == 0xe0 && p[1] < 0xa0) ||
        (length == 4 && p[0] == 0xf0 && p[1] < 0x90))
        return 0; /* longer than it need be */
    if ((length == 3 && p[0] == 0xed && p[1] > 0x9f) ||
        (length == 4 && (p[0] > 0xf4 || (p[0] == 0xf4 && p[1] > 0x8f))))
        return 0; /* a surrogate; past the last character */
    return length;
}

void ch_flight_make_utf8(char *text)
{
    unsigned char *p = (unsigned char *)text;

    while (*p != '\0') {
        size_t length = character_length(p);

        if (length == 0) {
            *p = '?';
            length = 1;
        }
        p += length;
    }
}
