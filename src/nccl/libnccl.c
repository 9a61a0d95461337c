/*
 * libnccl.c - NCCL itself, where it is installed: loaded, never linked, and never unloaded.
 */
#include <choir/comm.h>

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/params.h"
#include "base/sys.h"

struct libnccl {
    void *library;
    int (*get_version)(int *out);
    int (*get_unique_id)(choir_unique_id *out);
    const char *(*get_error_string)(int code);
};

static choir_status find_symbol(void *library, const char *name, void *out)
{
    void *symbol = ch_sys_dlsym(library, name);

    if (symbol == NULL)
        return ch_fail(CHOIR_ERR_UNSUPPORTED, "libnccl has no %s", name);
    memcpy(out, &symbol, sizeof(symbol)); /* C has no cast from an object to a function */
    return CHOIR_OK;
}

static void *load(void)
{
    static const char *const names[] = { "libnccl.so.2", "libnccl.so" };
    const char *given = ch_params()->libnccl;
    void *library = given[0] != '\0' ? ch_sys_dlopen(given) : NULL;

    for (size_t i = 0; i < 2 && library == NULL && given[0] == '\0'; i++)
        library = ch_sys_dlopen(names[i]);
    return library;
}

static choir_status find(struct libnccl *out)
{
    const char *given = ch_params()->libnccl, *why;
    choir_status rc = ch_forked();

    if (rc != CHOIR_OK)
        return rc;
    (void)dlerror();
    out->library = load();
    if (out->library == NULL) {
        why = dlerror();
        return ch_fail(CHOIR_ERR_UNSUPPORTED, "NCCL cannot be loaded from %s: %s",
                       given[0] != '\0' ? given : "libnccl.so.2 or libnccl.so",
                       why != NULL ? why : "no reason given");
    }
    rc = find_symbol(out->library, "ncclGetVersion", &out->get_version);
    if (rc == CHOIR_OK)
        rc = find_symbol(out->library, "ncclGetUniqueId", &out->get_unique_id);
    if (rc == CHOIR_OK)
        rc = find_symbol(out->library, "ncclGetErrorString", &out->get_error_string);
    return rc;
}

static choir_status refused(const struct libnccl *nccl, const char *call, int code)
{
    const char *text = nccl->get_error_string(code);

    return ch_fail(CHOIR_ERR_SYSTEM, "%s: NCCL Error %d: %s", call, code,
                   text != NULL ? text : "?");
}

choir_status choir_libnccl_path(const char **path_out)
{
    struct libnccl nccl;
    struct link_map *map = NULL;
    choir_status rc = path_out != NULL
                          ? find(&nccl)
                          : ch_fail(CHOIR_ERR_INVALID, "choir_libnccl_path: path_out: is NULL");

    if (rc != CHOIR_OK)
        return rc;
    if (dlinfo(nccl.library, RTLD_DI_LINKMAP, &map) != 0 || map == NULL)
        return ch_fail(CHOIR_ERR_SYSTEM, "NCCL is loaded, but from where is not known");
    *path_out = map->l_name; /* stays, as the library does */
    return CHOIR_OK;
}

choir_status choir_libnccl_version(int *code_out)
{
    struct libnccl nccl;
    int version, code;
    choir_status rc = code_out != NULL
                          ? find(&nccl)
                          : ch_fail(CHOIR_ERR_INVALID, "choir_libnccl_version: code_out: is NULL");

    if (rc != CHOIR_OK)
        return rc;
    code = nccl.get_version(&version);
    if (code != 0)
        return refused(&nccl, "ncclGetVersion", code);
    *code_out = version;
    return CHOIR_OK;
}

choir_status choir_libnccl_unique_id(choir_unique_id *id_out)
{
    choir_unique_id id = { { 0 } };
    struct libnccl nccl;
    int code;
    choir_status rc = id_out != NULL
                          ? find(&nccl)
                          : ch_fail(CHOIR_ERR_INVALID, "choir_libnccl_unique_id: id_out: is NULL");

    if (rc != CHOIR_OK)
        return rc;
    code = nccl.get_unique_id(&id);
    if (code != 0)
        return refused(&nccl, "ncclGetUniqueId", code);
    *id_out = id;
    return CHOIR_OK;
}
