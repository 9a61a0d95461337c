/*
 * info.c - `choir info`: what this build is and what it chose on this machine.
 *
 * First thing to ask for in a bug report, so it asks little of the machine: /proc/cpuinfo, and
 * which files exist.
 */
#include "commands.h"
#include "info_engines.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include <choir/choir.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* What is told, gathered first and printed once, as text or as JSON. */
struct facts {
    char cpu[128];
    struct utsname system;
};

static void read_cpu_model(char *out, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[512];

    snprintf(out, size, "unknown");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strchr(line, ':');

        /* Arm kernels give no model name; the part number is the next best. */
        if (colon == NULL ||
            (strncmp(line, "model name", 10) != 0 && strncmp(line, "CPU part", 8) != 0))
            continue;
        snprintf(out, size, "%s", colon + 1 + strspn(colon + 1, " \t"));
        out[strcspn(out, "\n")] = '\0';
        break;
    }
    if (file != NULL)
        fclose(file);
}

static struct facts gather(void)
{
    struct facts facts;

    read_cpu_model(facts.cpu, sizeof(facts.cpu));
    if (uname(&facts.system) != 0)
        memset(&facts.system, 0, sizeof(facts.system));
    return facts;
}

static void print_text(const struct facts *facts)
{
    printf("version     %s\n", choir_version());
    printf("build       %s, %s%s%s%s\n", COMPILER, CHOIR_BUILD_TYPE,
           CHOIR_BUILD_DEBUG ? ", debug" : "",
           CHOIR_BUILD_SANITIZE[0] != '\0' ? ", sanitizers " : "", CHOIR_BUILD_SANITIZE);
    printf("system      %s %s %s\n", facts->system.sysname, facts->system.release,
           facts->system.machine);
    printf("cpu         %s\n", facts->cpu);
    printf("processors  %d\n", choir_processors());
    printf("kernels     %s (%s)\n", choir_kernel_name(), choir_kernel_reason());
    printf("clock       %s (%s)\n", choir_clock_name(), choir_clock_reason());
    choir_info_engines_text();
}

static void print_member(const char *name, const char *value)
{
    choir_cmd_json(stdout, name);
    printf(": ");
    choir_cmd_json(stdout, value);
    printf(", ");
}

static void print_params_text(void)
{
    choir_param p;

    for (size_t i = 0; choir_param_get(i, &p) == CHOIR_OK; i++) {
        if (p.value != NULL)
            printf("\n%s = %s  (default %s)\n", p.name, p.value, p.fallback);
        else
            printf("\n%s = %s\n", p.name, p.fallback);
        printf("    %s\n    %s: %s\n", p.help, p.type, p.unit);
    }
}

static void print_params_json(void)
{
    choir_param p;

    printf(", \"params\": [");
    for (size_t i = 0; choir_param_get(i, &p) == CHOIR_OK; i++) {
        printf("%s{", i > 0 ? ", " : "");
        print_member("name", p.name);
        print_member("type", p.type);
        print_member("unit", p.unit);
        print_member("default", p.fallback);
        print_member("value", p.value);
        printf("\"help\": ");
        choir_cmd_json(stdout, p.help);
        printf("}");
    }
    printf("]");
}

static void print_json(const struct facts *facts, bool params)
{
    printf("{");
    print_member("version", choir_version());
    print_member("compiler", COMPILER);
    print_member("build_type", CHOIR_BUILD_TYPE);
    print_member("sanitizers", CHOIR_BUILD_SANITIZE);
    print_member("system", facts->system.sysname);
    print_member("release", facts->system.release);
    print_member("machine", facts->system.machine);
    print_member("cpu", facts->cpu);
    print_member("kernels", choir_kernel_name());
    print_member("kernels_reason", choir_kernel_reason());
    print_member("clock", choir_clock_name());
    print_member("clock_reason", choir_clock_reason());
    printf("\"debug\": %s, \"processors\": %d", CHOIR_BUILD_DEBUG ? "true" : "false",
           choir_processors());
    choir_info_engines_json();
    if (params)
        print_params_json();
    printf("}\n");
}

int choir_cmd_info(int argc, char **argv)
{
    bool params = false, json = false;
    struct facts facts;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--params") == 0) {
            params = true;
        } else if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf(
                "usage: choir info [--params] [--json]\n\n"
                "  --params   also the environment variables the library reads, and their values\n"
                "  --json     one JSON object instead of text\n");
            return EXIT_SUCCESS;
        } else {
            return choir_cmd_usage("info", "\"%s\" is not an option", argv[i]);
        }
    }
    facts = gather();
    if (json) {
        print_json(&facts, params);
    } else {
        print_text(&facts);
        if (params)
            print_params_text();
    }
    return EXIT_SUCCESS;
}
