/*
 * choir.h - the whole public API of Choir; include this one.
 */
#ifndef CHOIR_CHOIR_H
#define CHOIR_CHOIR_H

#include <choir/coll.h>
#include <choir/comm.h>
#include <choir/ctl.h>
#include <choir/explain.h>
#include <choir/group.h>
#include <choir/info.h>
#include <choir/interrupt.h>
#include <choir/log.h>
#include <choir/opts.h>
#include <choir/reduce.h>
#include <choir/simulate.h>
#include <choir/status.h>
#include <choir/store.h>
#include <choir/trace.h>
#include <choir/types.h>
#include <choir/version.h>
#include <choir/work.h>

#endif
