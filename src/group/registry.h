/*
 * registry.h - the groups of this process by name.
 */
#ifndef CH_REGISTRY_H
#define CH_REGISTRY_H

#include <choir/group.h>

/* A name is taken once among the groups of one rank. CHOIR_ERR_INVALID if it is. */
choir_status ch_registry_add(choir_group *group);

/* Ignores a group that is not there. */
void ch_registry_remove(choir_group *group);

/* Whether the rank of `group` has a group of that name. */
bool ch_registry_has(const choir_group *group, const char *name);

/* A group whose rank is the calling thread, which ends (threadend.h): each once, NULL if there is none left. It comes
 * with a reference, and counts as pending until ch_group_settle(), so that nobody destroys it meanwhile. */
choir_group *ch_registry_take_orphan(void);

#endif
