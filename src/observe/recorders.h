/* SPDX-License-Identifier: MIT */
/* All types of recorders, and those that policies ask for. */
#ifndef WNW_RECORDERS_H
#define WNW_RECORDERS_H

#include "forward/recorder.h"

#define WNW_RECORDER(name) extern const struct wnw__recorder_type wnw__##name##_recorder;
#include "observe/recorders.def"
#undef WNW_RECORDER

/* Types in the order of recorders.def; NULL past the end. Static. */
const struct wnw__recorder_type *wnw__recorder_type_at(int32_t i);
/* NULL where no type is called that. Static. */
const struct wnw__recorder_type *wnw__recorder_type_find(const char *name);

/* Replaces what was asked for before: of what is asked for again the recorder goes on, others are opened or
 * freed. Recorders whose type answers no need of policies stay. Numbers of attention that the cache keeps
 * with its entries come and go likewise. Nothing changes on failure. */
int wnw__recorders_declare(struct wnw__recorders *r, struct wnw__cache *cache,
                           const struct wnw__record_ask *ask, const struct wnw__record_shape *shape);

#endif
