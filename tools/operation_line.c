/*
 * operation_line.c - what commands about one operation have in common: their command line, files, and the library's errors.
 */
#include "commands.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

bool choir_cmd_option(char **argv, int i, char *name_out, size_t size, const char **value_out)
{
    const char *equals = strchr(argv[i], '=');
    size_t n = equals != NULL ? (size_t)(equals - argv[i]) : strlen(argv[i]);

    snprintf(name_out, size, "%.*s", (int)n, argv[i]);
    *value_out = equals != NULL ? equals + 1 : argv[i + 1];
    return equals != NULL;
}

/* An option with its value, if it takes one, at argv[*i]. */
static int take_option(struct choir_cmd_line *line, char **argv, int *i)
{
    char name[32];
    const char *value;
    bool known = false, one = choir_cmd_option(argv, *i, name, sizeof(name), &value);

    if (!one && line->take_switch(name, line->request))
        return 0;
    if (line->take_value(name, value, line->request, &known)) {
        *i += one ? 0 : 1;
        return 0;
    }
    if (!known)
        return choir_cmd_usage(line->command, "there is no option \"%s\"", argv[*i]);
    if (value == NULL)
        return choir_cmd_usage(line->command, "%s needs a value", name);
    return choir_cmd_usage(line->command, "%s cannot be \"%s\"", name, value);
}

int choir_cmd_parse(struct choir_cmd_line *line, int argc, char **argv)
{
    int code = 0;

    for (int i = 1; i < argc; i++) {
        line->helped = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
        if (line->helped)
            return 0;
    }
    for (int i = 1; i < argc && code == 0; i++) {
        if (argv[i][0] == '-')
            code = take_option(line, argv, &i);
        else if (line->operation == NULL)
            line->operation = argv[i];
        else
            code = choir_cmd_usage(line->command, "one operation, not also \"%s\"", argv[i]);
    }
    if (code == 0 && line->operation == NULL)
        code = choir_cmd_usage(line->command, "an operation is missing");
    return code;
}

int choir_cmd_failed(const char *command)
{
    const char *text = choir_last_error();
    size_t n = strlen(command);

    /* Some calls are named as the commands that make them. */
    if (strncmp(text, command, n) == 0 && strncmp(text + n, ": ", 2) == 0)
        text += n + 2;
    fprintf(stderr, "choir %s: %s\n", command, text);
    return choir_last_error_record()->code == CHOIR_ERR_INVALID ? EXIT_USAGE : EXIT_FAILURE;
}

FILE *choir_cmd_create(const char *command, const char *path)
{
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");

    if (file == NULL)
        fprintf(stderr, "choir %s: %s: %s\n", command, path, strerror(errno));
    return file;
}

int choir_cmd_close(const char *command, const char *path, FILE *file)
{
    bool good = ferror(file) == 0;

    if (file == stdout)
        return EXIT_SUCCESS; /* main() looks at it, and speaks */
    good = fclose(file) == 0 && good;
    if (!good)
        fprintf(stderr, "choir %s: %s: %s\n", command, path, strerror(errno));
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
