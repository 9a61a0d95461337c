/*
 * commands.h - what the commands of `choir` have in common.
 *
 * Manners: data goes to standard output, talk to standard error. Bad usage is one line and exit code 2
 * (EXIT_USAGE), any other failure exit code 1. Only public headers of the library are used.
 */
#ifndef CHOIR_COMMANDS_H
#define CHOIR_COMMANDS_H

#include <stdio.h>

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

#endif
