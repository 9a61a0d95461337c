/*
 * commands.h - what the commands of `choir` have in common.
 *
 * Manners: data goes to standard output, talk to standard error. Bad usage is one line and exit code 2
 * (EXIT_USAGE), any other failure exit code 1. Only public headers of the library are used.
 */
#ifndef CHOIR_COMMANDS_H
#define CHOIR_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <choir/types.h>

enum { EXIT_USAGE = 2 };

/* argv[0] is the command's name; returns the exit code. */
#define CHOIR_COMMAND(name, summary) int choir_cmd_##name(int argc, char **argv);
#include "commands.def"
#undef CHOIR_COMMAND

/* Say in one line what is wrong with the command line; returns EXIT_USAGE. */
int choir_cmd_usage(const char *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* `text` as a JSON string, quotes included; NULL is null. */
void choir_cmd_json(FILE *out, const char *text);

/* Values of options (option_values.c): a whole number from `least` on; a size such as "64K"; a type and a
 * reduction by name. False, and nothing written, if it is none. */
bool choir_cmd_number(const char *text, int least, int *out);
bool choir_cmd_size(const char *text, size_t *out);
bool choir_cmd_type(const char *text, choir_type *out);
bool choir_cmd_redop(const char *text, choir_redop *out);

#endif
