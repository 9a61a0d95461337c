/*
 * store_command.c - `choir store`: look into a store and change it, for people who debug.
 *
 * One verb, one call of choir/store.h. Values are bytes: they are printed as they are, and "-" reads
 * one from standard input.
 */
#include "commands.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

enum { EXIT_TIMEOUT = 124, OPERANDS_MAX = 1024 };

struct request {
    const struct verb *verb;
    const char *url;
    char **operands; /* behind the URL */
    int noperands;
    int64_t timeout_ms; /* 0: the default */
    const char *token_file, *prefix;
    bool json;
    char *input; /* what "-" stands for, once read */
    choir_store *store;
};

struct verb {
    const char *name, *operands, *help;
    int least, most; /* operands behind the URL */
    int (*run)(struct request *request);
};

/* --- output -------------------------------------------------------------------------------------- */

/* What the exit code says of a call that failed, and standard error in words. */
static int failed(void)
{
    fprintf(stderr, "choir store: %s\n", choir_last_error());
    return choir_last_error_record()->code == CHOIR_ERR_TIMEOUT ? EXIT_TIMEOUT : EXIT_FAILURE;
}

/* Bytes as a JSON string: each the character of its number, so that nothing is lost. */
static void print_json(const choir_blob *blob)
{
    putchar('"');
    for (size_t i = 0; i < blob->nbytes; i++) {
        unsigned char c = (unsigned char)blob->data[i];

        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static int print_value(const struct request *request, choir_status rc, choir_blob *value)
{
    if (rc != CHOIR_OK)
        return failed();
    if (request->json) {
        print_json(value);
        putchar('\n');
    } else {
        fwrite(value->data, 1, value->nbytes, stdout);
    }
    choir_blob_free(value);
    return EXIT_SUCCESS;
}

static int print_number(choir_status rc, int64_t number)
{
    if (rc != CHOIR_OK)
        return failed();
    printf("%lld\n", (long long)number);
    return EXIT_SUCCESS;
}

/* Yes and no are exit codes; and words only if asked for. */
static int print_truth(const struct request *request, choir_status rc, bool truth)
{
    if (rc != CHOIR_OK)
        return failed();
    if (request->json)
        puts(truth ? "true" : "false");
    return truth ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int done(choir_status rc)
{
    return rc == CHOIR_OK ? EXIT_SUCCESS : failed();
}

/* --- operands ------------------------------------------------------------------------------------ */

static bool read_number(const char *text, int64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0;
}

/* All of standard input. */
static bool read_input(struct request *request, choir_bytes *out)
{
    size_t room = 0, used = 0;

    do {
        char *more;

        if (used == room) {
            room = room == 0 ? 65536 : 2 * room;
            more = realloc(request->input, room);
            if (more == NULL) {
                fprintf(stderr, "choir store: standard input does not fit into memory\n");
                return false;
            }
            request->input = more;
        }
        used += fread(request->input + used, 1, room - used, stdin);
    } while (!feof(stdin) && !ferror(stdin));
    if (ferror(stdin)) {
        perror("choir store: standard input");
        return false;
    }
    *out = (choir_bytes){ request->input, used };
    return true;
}

static bool value_of(struct request *request, const char *operand, choir_bytes *out)
{
    if (strcmp(operand, "-") == 0 && request->input == NULL)
        return read_input(request, out);
    *out = choir_str(operand);
    return true;
}

static choir_bytes key_of(const struct request *request)
{
    return choir_str(request->operands[0]);
}

/* --- verbs --------------------------------------------------------------------------------------- */

static int run_get(struct request *request)
{
    choir_blob value;
    choir_status rc = choir_store_get(request->store, key_of(request), 0, &value);

    return print_value(request, rc, &value);
}

/* A server does not answer what only writes; that it has done it is known when it answers what comes
 * behind. */
static int settled(const struct request *request, choir_status rc)
{
    choir_bytes key = key_of(request);
    bool there;

    if (rc == CHOIR_OK)
        rc = choir_store_check(request->store, &key, 1, &there);
    return done(rc);
}

static int run_set(struct request *request)
{
    choir_bytes value;

    if (!value_of(request, request->operands[1], &value))
        return EXIT_FAILURE;
    return settled(request, choir_store_set(request->store, key_of(request), value));
}

static int run_append(struct request *request)
{
    choir_bytes value;

    if (!value_of(request, request->operands[1], &value))
        return EXIT_FAILURE;
    return settled(request, choir_store_append(request->store, key_of(request), value));
}

static int run_add(struct request *request)
{
    int64_t delta, sum = 0;
    choir_status rc;

    if (!read_number(request->operands[1], &delta))
        return choir_cmd_usage("store", "\"%s\" is not a number", request->operands[1]);
    rc = choir_store_add(request->store, key_of(request), delta, &sum);
    return print_number(rc, sum);
}

static int run_compare_set(struct request *request)
{
    choir_bytes expected, desired;
    choir_blob value;
    choir_status rc;

    if (!value_of(request, request->operands[1], &expected) ||
        !value_of(request, request->operands[2], &desired))
        return EXIT_FAILURE;
    rc = choir_store_compare_set(request->store, key_of(request), expected, desired, &value);
    return print_value(request, rc, &value);
}

static int run_delete(struct request *request)
{
    bool removed = false;
    choir_status rc = choir_store_delete(request->store, key_of(request), &removed);

    return print_truth(request, rc, removed);
}

/* The operands as keys, for free(). */
static choir_bytes *all_keys(const struct request *request)
{
    choir_bytes *keys = calloc((size_t)request->noperands, sizeof(*keys));

    for (int i = 0; keys != NULL && i < request->noperands; i++)
        keys[i] = choir_str(request->operands[i]);
    if (keys == NULL)
        perror("choir store");
    return keys;
}

static int run_check(struct request *request)
{
    choir_bytes *keys = all_keys(request);
    bool all = false;
    choir_status rc;

    if (keys == NULL)
        return EXIT_FAILURE;
    rc = choir_store_check(request->store, keys, (size_t)request->noperands, &all);
    free(keys);
    return print_truth(request, rc, all);
}

static int run_wait(struct request *request)
{
    choir_bytes *keys = all_keys(request);
    int code = EXIT_FAILURE;

    if (keys != NULL)
        code = done(choir_store_wait(request->store, keys, (size_t)request->noperands, 0));
    free(keys);
    return code;
}

static int run_count(struct request *request)
{
    int64_t count = 0;
    choir_status rc = choir_store_count(request->store, &count);

    return print_number(rc, count);
}

static int compare_keys(const void *a, const void *b)
{
    const choir_blob *left = a, *right = b;
    size_t least = left->nbytes < right->nbytes ? left->nbytes : right->nbytes;
    int order = memcmp(left->data, right->data, least);

    return order != 0 ? order : (left->nbytes > right->nbytes) - (left->nbytes < right->nbytes);
}

static int run_list(struct request *request)
{
    choir_blob *keys;
    size_t count;

    if (choir_store_list(request->store, &keys, &count) != CHOIR_OK)
        return failed();
    qsort(keys, count, sizeof(*keys), compare_keys);
    if (request->json)
        putchar('[');
    for (size_t i = 0; i < count; i++) {
        if (request->json) {
            printf("%s", i > 0 ? ", " : "");
            print_json(&keys[i]);
        } else {
            fwrite(keys[i].data, 1, keys[i].nbytes, stdout);
            putchar('\n');
        }
    }
    if (request->json)
        puts("]");
    choir_blob_free_list(keys, count);
    return EXIT_SUCCESS;
}

static int run_push(struct request *request)
{
    choir_bytes value;

    if (!value_of(request, request->operands[1], &value))
        return EXIT_FAILURE;
    return settled(request, choir_store_queue_push(request->store, key_of(request), value));
}

static int run_pop(struct request *request)
{
    choir_blob value;
    choir_status rc = choir_store_queue_pop(request->store, key_of(request), 0, &value);

    return print_value(request, rc, &value);
}

static int run_try_pop(struct request *request)
{
    choir_blob value;
    choir_status rc = choir_store_queue_try_pop(request->store, key_of(request), &value);

    return print_value(request, rc, &value);
}

static int run_length(struct request *request)
{
    int64_t length = 0;
    choir_status rc = choir_store_queue_length(request->store, key_of(request), &length);

    return print_number(rc, length);
}

static int run_barrier(struct request *request)
{
    int64_t nranks;

    if (!read_number(request->operands[1], &nranks) || nranks < 1)
        return choir_cmd_usage("store", "\"%s\" is not a number of ranks", request->operands[1]);
    return done(choir_store_barrier(request->store, key_of(request), nranks, 0));
}

static const struct verb verbs[] = {
    { "get", "KEY", "wait for a key and print its value", 1, 1, run_get },
    { "set", "KEY VALUE", "create or overwrite", 2, 2, run_set },
    { "append", "KEY VALUE", "put behind what is there", 2, 2, run_append },
    { "add", "KEY NUMBER", "add to a number and print the sum", 2, 2, run_add },
    { "compare-set", "KEY OLD NEW", "set if it is OLD, print what is there then", 3, 3,
      run_compare_set },
    { "delete", "KEY", "remove; 1 if it was not there", 1, 1, run_delete },
    { "check", "KEY...", "whether all exist: 0 or 1", 1, OPERANDS_MAX, run_check },
    { "wait", "KEY...", "until all exist", 1, OPERANDS_MAX, run_wait },
    { "count", "", "print how many values there are", 0, 0, run_count },
    { "list", "", "print the keys, sorted, one on a line", 0, 0, run_list },
    { "push", "KEY VALUE", "put into a queue", 2, 2, run_push },
    { "pop", "KEY", "wait for an element of a queue and print it", 1, 1, run_pop },
    { "try-pop", "KEY", "the same without waiting; 1 if there is none", 1, 1, run_try_pop },
    { "length", "KEY", "print how many elements a queue has", 1, 1, run_length },
    { "barrier", "KEY NRANKS", "wait until so many have called it", 2, 2, run_barrier },
};

enum { NVERBS = sizeof(verbs) / sizeof(verbs[0]) };

/* --- command line -------------------------------------------------------------------------------- */

static int help(void)
{
    printf("usage: choir store VERB URL [OPERANDS] [options]\n\n");
    for (int i = 0; i < NVERBS; i++)
        printf("  %-11s %-12s %s\n", verbs[i].name, verbs[i].operands, verbs[i].help);
    printf(
        "\n  --timeout S        wait for at most S seconds (300); then exit with 124\n"
        "  --token-file FILE  the job's token, for tcp://\n"
        "  --prefix P         put P and \"/\" in front of every key\n"
        "  --json             print values, keys and answers as JSON\n"
        "\nURL is file:///path, tcp://host:port, tcp://host:port?protocol=torch, or env://, the\n"
        "store of the run this is a rank of. VALUE - reads standard input.\n"
        "man choir-store says more.\n");
    return EXIT_SUCCESS;
}

static bool read_seconds(const char *text, int64_t *ms_out)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end != '\0' || !(seconds > 0) || seconds > 1e9)
        return false;
    *ms_out = seconds < 0.001 ? 1 : (int64_t)(seconds * 1000 + 0.999); /* 0 means the default */
    return true;
}

/* The value of the option at argv[*i], "--name=value" or the next word; NULL if it is not there. */
static const char *option_value(int argc, char **argv, int *i)
{
    const char *equals = strchr(argv[*i], '=');

    if (equals != NULL)
        return equals + 1;
    return *i + 1 < argc ? argv[++*i] : NULL;
}

static bool is_option(const char *word, const char *name)
{
    size_t nbytes = strlen(name);

    return strncmp(word, name, nbytes) == 0 && (word[nbytes] == '\0' || word[nbytes] == '=');
}

static int parse_option(int argc, char **argv, int *i, struct request *request)
{
    const char *word = argv[*i], *value;

    if (strcmp(word, "--json") == 0) {
        request->json = true;
        return 0;
    }
    if (!is_option(word, "--timeout") && !is_option(word, "--token-file") &&
        !is_option(word, "--prefix"))
        return choir_cmd_usage("store", "there is no option \"%s\"", word);
    value = option_value(argc, argv, i);
    if (value == NULL)
        return choir_cmd_usage("store", "%s needs a value", word);
    if (is_option(word, "--token-file"))
        request->token_file = value;
    else if (is_option(word, "--prefix"))
        request->prefix = value;
    else if (!read_seconds(value, &request->timeout_ms))
        return choir_cmd_usage("store", "--timeout: \"%s\" is not a number of seconds", value);
    return 0;
}

static int find_verb(const char *name, struct request *request)
{
    for (int i = 0; i < NVERBS; i++) {
        if (strcmp(verbs[i].name, name) == 0)
            request->verb = &verbs[i];
    }
    return request->verb != NULL ? 0 : choir_cmd_usage("store", "there is no verb \"%s\"", name);
}

/* Options may stand anywhere before "--"; what begins with one "-" is an operand: a number, or "-". */
static int parse(int argc, char **argv, struct request *request)
{
    bool options = true;
    int code, nwords = 0;

    for (int i = 1; i < argc; i++) {
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
        } else if (options && strncmp(argv[i], "--", 2) == 0) {
            code = parse_option(argc, argv, &i, request);
            if (code != 0)
                return code;
        } else {
            argv[nwords++] = argv[i]; /* never in front of where we read */
        }
    }
    if (nwords == 0)
        return choir_cmd_usage("store", "a verb is missing");
    code = find_verb(argv[0], request);
    if (code != 0)
        return code;
    if (nwords == 1)
        return choir_cmd_usage("store", "the URL of a store is missing");
    request->url = argv[1];
    request->operands = argv + 2;
    request->noperands = nwords - 2;
    if (request->noperands < request->verb->least || request->noperands > request->verb->most)
        return choir_cmd_usage("store", "%s takes URL%s%s, not %d operands behind the URL",
                               request->verb->name, request->verb->operands[0] ? " " : "",
                               request->verb->operands, request->noperands);
    return 0;
}

/* --- the store ----------------------------------------------------------------------------------- */

/* What opening a store takes. */
struct opening {
    const char *url;
    choir_token token;
    bool has_token;
};

/* env://: what `choir run` has told its ranks. */
static int from_environment(const struct request *request, struct opening *opening)
{
    const char *fd = getenv("CHOIR_TOKEN_FD");
    int64_t number;

    opening->url = getenv("CHOIR_STORE");
    if (opening->url == NULL) {
        fprintf(stderr, "choir store: env://: CHOIR_STORE is not set; is this a rank of a run?\n");
        return EXIT_FAILURE;
    }
    if (fd == NULL || request->token_file != NULL)
        return EXIT_SUCCESS;
    if (!read_number(fd, &number) || number < 0 || number > INT_MAX) {
        fprintf(stderr, "choir store: CHOIR_TOKEN_FD=%s is not a descriptor\n", fd);
        return EXIT_FAILURE;
    }
    opening->has_token = true;
    return done(choir_token_read_fd((int)number, &opening->token));
}

static int prepare(const struct request *request, struct opening *opening)
{
    opening->url = request->url;
    if (strcmp(request->url, "env://") == 0) {
        int code = from_environment(request, opening);

        if (code != EXIT_SUCCESS)
            return code;
    }
    if (request->token_file == NULL)
        return EXIT_SUCCESS;
    opening->has_token = true;
    return done(choir_token_read(request->token_file, &opening->token));
}

static choir_status open_store(struct request *request, const struct opening *opening)
{
    choir_store *store;
    choir_status rc = choir_store_open(
        opening->url,
        CHOIR_OPTS(store_open, .timeout_ms = request->timeout_ms,
                   .token = opening->has_token ? &opening->token : NULL),
        &store);

    if (rc != CHOIR_OK || request->prefix == NULL) {
        request->store = rc == CHOIR_OK ? store : NULL;
        return rc;
    }
    rc = choir_store_prefix(store, choir_str(request->prefix), &request->store);
    choir_store_close(store);
    return rc;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0)
            return true;
    }
    return false;
}

int choir_cmd_store(int argc, char **argv)
{
    struct request request = { .verb = NULL };
    struct opening opening = { .url = NULL };
    int code;

    if (wants_help(argc, argv))
        return help();
    code = parse(argc, argv, &request);
    if (code == 0)
        code = prepare(&request, &opening);
    if (code != 0)
        return code;
    code = open_store(&request, &opening) == CHOIR_OK ? request.verb->run(&request) : failed();
    choir_store_close(request.store);
    free(request.input);
    return code;
}
