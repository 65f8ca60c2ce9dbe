/* SPDX-License-Identifier: MIT */
/* The table of all types of recorders, and the choice of those that policies ask for. */
#ifndef WNW_RECORDERS_H
#define WNW_RECORDERS_H

#include "forward/recorder.h"
#include "winnow_method.h"

#define WNW_RECORDER(name) extern const struct wnw__recorder_type wnw__##name##_recorder;
#include "observe/recorders.def"
#undef WNW_RECORDER

/* What all declared policies need together. */
struct wnw__record_needs {
    wnw_needs merged;
    int32_t n_likelihood; /* last tokens whose likelihoods are needed */
    bool generated;       /* the newest queries are needed of generated tokens too */
};

/* The i-th type in the order of recorders.def; NULL past the end. Static. */
const struct wnw__recorder_type *wnw__recorder_type_at(int32_t i);
/* The type of that name, or NULL. Static. */
const struct wnw__recorder_type *wnw__recorder_type_find(const char *name);

/* Replaces the previous declaration of needs. A recorder that is asked for again stays with its notes; others
 * are opened or freed. Recorders whose type answers no need of policies stay. The cache begins or ceases in
 * the same way to keep numbers of attention with its entries. Nothing changes on failure. */
int wnw__recorders_declare(struct wnw__recorders *r, struct wnw__cache *cache,
                           const struct wnw__record_needs *needs, const struct wnw__record_shape *shape);

#endif
