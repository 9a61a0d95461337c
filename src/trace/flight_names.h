/*
 * flight_names.h - what operations, types and states are called in a flight record: as PyTorch calls them.
 */
#ifndef CH_FLIGHT_NAMES_H
#define CH_FLIGHT_NAMES_H

#include <stdbool.h>

#include <choir/types.h>
#include <choir/work.h>

/* "all_reduce"; sends and receives have their ranks behind it. */
const char *ch_flight_op_name(choir_optype op);

/* The same, of those that PyTorch's analyser knows. */
const char *ch_flight_op_compatible_name(choir_optype op);

/* Whether its arguments are one buffer for each rank. */
bool ch_flight_has_lists(choir_optype op);

/* Whether the result is where the input was. */
bool ch_flight_is_in_place(choir_optype op);

/* "Float" */
const char *ch_flight_type_name(choir_type type);

/* Bytes that are not UTF-8 become question marks: neither JSON nor a pickle may hold them. */
void ch_flight_make_utf8(char *text);

#endif
