/* version.h - which Choir this header belongs to, and which one is loaded. */
#ifndef CHOIR_VERSION_H
#define CHOIR_VERSION_H

#include <choir/export.h>

#define CHOIR_VERSION_MAJOR  0
#define CHOIR_VERSION_MINOR  1
#define CHOIR_VERSION_PATCH  0
#define CHOIR_VERSION_STRING "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that is loaded, such as "0.1.0"; compare with CHOIR_VERSION_STRING. */
CHOIR_API const char *choir_version(void);

#ifdef __cplusplus
}
#endif
#endif
