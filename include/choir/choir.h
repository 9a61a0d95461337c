/*
 * choir.h - the whole public API of Choir; include this one.
 */
#ifndef CHOIR_CHOIR_H
#define CHOIR_CHOIR_H

#include <choir/ctl.h>
#include <choir/group.h>
#include <choir/info.h>
#include <choir/log.h>
#include <choir/opts.h>
#include <choir/reduce.h>
#include <choir/status.h>
#include <choir/store.h>
#include <choir/types.h>
#include <choir/version.h>

#endif
