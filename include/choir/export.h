/* export.h - CHOIR_API marks what the shared library exports; everything else is hidden. */
#ifndef CHOIR_EXPORT_H
#define CHOIR_EXPORT_H

#if defined(__GNUC__)
#define CHOIR_API __attribute__((visibility("default")))
#else
#define CHOIR_API
#endif

#endif
