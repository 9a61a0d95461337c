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

/* The option at argv[i]: its name, and what would be its value, which may be NULL. True if both are one word, "--type=f32". */
bool choir_cmd_option(char **argv, int i, char *name_out, size_t size, const char **value_out);

/* --- commands about one operation (operation_line.c) ----------------------------------------------- */

/* COMMAND OPERATION [options] */
struct choir_cmd_line {
    const char *command;
    void *request; /* what the two below fill in */
    /* False if it is none. */
    bool (*take_switch)(const char *name, void *request);
    /* False with *known_out if the value, which may be NULL, makes no sense; else if it is none. */
    bool (*take_value)(const char *name, const char *value, void *request, bool *known_out);
    const char *operation; /* what it was */
    bool helped;           /* --help was there, and nothing else was looked at */
};

/* 0, or EXIT_USAGE after one line. Strings stay where they are in argv. */
int choir_cmd_parse(struct choir_cmd_line *line, int argc, char **argv);

/* Say in one line what the library said last; returns the exit code. */
int choir_cmd_failed(const char *command);

/* A file to write; "-" is standard output. NULL after a line if it cannot be opened. */
FILE *choir_cmd_create(const char *command, const char *path);
/* 0, or EXIT_FAILURE after a line if not all was written. */
int choir_cmd_close(const char *command, const char *path, FILE *file);

#endif
