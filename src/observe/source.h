/* SPDX-License-Identifier: MIT */
/*
 * The source of a plan's observations (plan/source.h), in float32: entries of any store, recorded numbers, and what else
 * the owner of the entries knows. Observations of one layer use the buffers of the layer before. A source belongs to one
 * thread at a time, as its sequence does.
 */
#ifndef WNW_SOURCE_H
#define WNW_SOURCE_H

#include "cache/cache.h"
#include "forward/recorder.h"
#include "plan/source.h"

struct wnw__proj; /* observe/projnorm.h */
struct wnw__proj_weight;

/* Where the entries of a sequence lie. */
struct wnw__entries {
    void *of;
    /* The entries of layer il. */
    struct wnw__plan_layer (*layer)(void *of, int32_t il);
    /* Converts entries first .. first+n-1 of KV head ih to float[n][d]. All of them must be there. */
    void (*read)(void *of, int32_t il, enum wnw__stored what, int32_t ih, int32_t first, int32_t n,
                 float *dst);
};
/* Those of a winnow cache, borrowed. */
struct wnw__entries wnw__source_entries(struct wnw__cache *cache);

/* What a source shows, borrowed. */
struct wnw__source_of {
    struct wnw__entries entries;
    const int32_t *n_past; /* tokens read; it may grow between observations, with the entries */
    int32_t n_question;
    float attn_scale;                       /* of every layer, unless `add` sets another */
    struct wnw__pool *pool;                 /* for loops; NULL = the caller's thread alone */
    const struct wnw__recorders *recorders; /* NULL = nothing was recorded by ours */
    struct wnw__proj **proj; /* [2] of KV heads, of query heads; the source makes, the sequence frees them */
    /* The following are NULL where a graph of somebody else read the tokens; RoPE is then not known. */
    const struct wnw_model *m;
    /* keeps numbers with its entries, projected norms too once a policy asks for them */
    struct wnw__cache *cache;
    /* There, the output projection of a layer. NULL = projected norms are not offered. */
    int (*projection)(void *owner, int32_t il, struct wnw__proj_weight *out);
    /* Adds to *obs what the owner of the entries observes. NULL = nothing. */
    int (*add)(void *owner, struct wnw__source *source, const struct wnw_needs *needs, const bool *heads,
               struct wnw_observation *obs);
    void (*free)(void *owner); /* called with the source's end; NULL = nothing to free */
    void *owner;
};

/* Sets the functions of *src, whose facts the caller sets, so that it shows what `of` says. The caller closes it. On
 * failure there is nothing to close, and `owner` is still the caller's. */
int wnw__source_open(struct wnw__plan_source *src, const struct wnw__source_of *of);
/* Does nothing to a source that is {0}. */
void wnw__source_close(struct wnw__plan_source *src);
/* The owner that a source was opened with. */
void *wnw__source_owner(const struct wnw__plan_source *src);

#endif
