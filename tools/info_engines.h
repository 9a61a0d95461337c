/*
 * info_engines.h - which engines `choir info` tells of.
 */
#ifndef CHOIR_INFO_ENGINES_H
#define CHOIR_INFO_ENGINES_H

void choir_info_engines_text(void);
void choir_info_engines_json(void);

#endif
