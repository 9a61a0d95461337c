/*
 * choir.c - the command `choir`: finds the sub-command and hands over. See commands.def.
 */
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <choir/version.h>

static const struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
#define CHOIR_COMMAND(name, summary) { #name, summary, choir_cmd_##name },
#include "commands.def"
#undef CHOIR_COMMAND
};

enum { NCOMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < NCOMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

int choir_cmd_usage(const char *command, const char *fmt, ...)
{
    va_list args;

    fprintf(stderr, "choir%s%s: ", command != NULL ? " " : "", command != NULL ? command : "");
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, " (choir %s%s--help says more)\n", command != NULL ? command : "",
            command != NULL ? " " : "");
    return EXIT_USAGE;
}

void choir_cmd_json(FILE *out, const char *text)
{
    if (text == NULL) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            fprintf(out, "\\u%04x", *p);
        else
            fputc(*p, out);
    }
    fputc('"', out);
}

static int help(void)
{
    printf("usage: choir COMMAND [options]\n\n");
    for (size_t i = 0; i < NCOMMANDS; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    printf("  %-10s %s\n", "help", "this text, or that of a command: choir help COMMAND");
    printf("\n  --version  print the version\n\nman choir says more.\n");
    return EXIT_SUCCESS;
}

static int help_on(const char *name)
{
    const struct command *command = find(name);
    char word[] = "--help";
    char *argv[] = { (char *)name, word, NULL };

    if (command == NULL)
        return choir_cmd_usage(NULL, "there is no command \"%s\"", name);
    return command->run(2, argv);
}

/* What was printed may still fail to arrive: a full disk must not look like success. */
static int finished(int code)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        /* The reason of a loss some time ago is gone. */
        fprintf(stderr, "choir: standard output: %s\n",
                errno != 0 ? strerror(errno) : "not all of it could be written");
        return EXIT_FAILURE;
    }
    return code;
}

/* Descriptors 0 to 2 exist, so that no file of ours gets their numbers and is written to in their place. To a standard output that is
 * not there writing fails, as it should; choir run, which daemons start, has its own way. */
static void hold_streams(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd == STDOUT_FILENO) {
            close(fd);
            fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        }
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

static int dispatch(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    const struct command *command;

    if (word == NULL)
        return choir_cmd_usage(NULL, "a command is missing");
    if (strcmp(word, "--version") == 0) {
        printf("choir %s\n", choir_version());
        return EXIT_SUCCESS;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return help();
    if (strcmp(word, "help") == 0)
        return argc > 2 ? help_on(argv[2]) : help();
    if (word[0] == '-')
        return choir_cmd_usage(NULL, "there is no option \"%s\"", word);
    command = find(word);
    if (command == NULL)
        return choir_cmd_usage(NULL, "there is no command \"%s\"", word);
    if (command->run != choir_cmd_run)
        hold_streams();
    return command->run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    return finished(dispatch(argc, argv));
}
