/* SPDX-License-Identifier: MIT */
/*
 * Where the driver gets its observations from: facts, and functions that show one layer at a time. It is the only way
 * from a sequence to a policy. observe/source.c implements it, over entries of any store; tests implement it over
 * plain arrays.
 */
#ifndef WNW_PLAN_SOURCE_H
#define WNW_PLAN_SOURCE_H

#include "base/err.h"
#include "base/shape.h"
#include "winnow_method.h"

struct wnw_needs; /* winnow_method.h */
struct wnw_observation;
struct wnw_protected;

/* Bytes of one key plus one value of one KV head. */
struct wnw__entry_bytes {
    size_t each;
    /* In a quantised cache with a tail, the most entries of a head that are stored in f16, and their bytes. */
    int32_t n_f16;
    size_t f16;
};

/* The entries of a layer. Arrays are borrowed until the same function is called again or the entries change. */
struct wnw__plan_layer {
    const int32_t *n_entry; /* [n_head_kv] */
    const int32_t *pos;     /* positions of all heads; those of head ih, ascending, begin at pos[off[ih]] */
    const int64_t *off;     /* [n_head_kv] */
    int32_t n_settled;      /* first entries of every head that earlier compressions settled */
    int32_t n_ambiguous;    /* at a position below it, heads of the layer may hold different tokens */
};

/* All functions get the source itself; the driver calls them on one thread. */
struct wnw__plan_source {
    struct wnw__shape shape;
    int32_t n_past;       /* tokens read */
    int32_t n_prefix;     /* number of first positions that the chat template wrote */
    int32_t n_judged;     /* number of first positions that a compression has judged; 0 = none */
    int32_t ratio_base;   /* entries per head that a ratio counts; 0 = the entries there */
    int32_t n_excluded;   /* those of ratio_base that a ratio removes nothing of, because they all stay */
    int32_t n_renumbered; /* positions below it were assigned by renumbering, not by reading */
    int32_t n_ambiguous;  /* at a position below it, layers may hold different tokens */
    struct wnw__entry_bytes entry_bytes;
    const wnw_profile *profile; /* NULL = none */
    /* The bytes that the kept keys and values are allocated in once the cache is compacted by a plan, without layers on which policies
     * do not act. NULL = the source does not know them. */
    int (*allocated)(const struct wnw__plan_source *src, const wnw_plan *plan, uint64_t *bytes);
    void *user;
    /* The entries of layer il, also of one on which policies do not act. The call is cheap. */
    struct wnw__plan_layer (*layer)(const struct wnw__plan_source *src, int32_t il);
    /* Fills *obs for layer il with what `needs` asks for; the driver fills n_prefix, budget, gathered, profile,
     * perplexity and n_settled. Rows of window attention may be 0 for query heads that are false in heads[n_head];
     * heads NULL = all are wanted. Arrays of *obs are borrowed until the next call. E_NOT_OBSERVED: something was not
     * recorded. */
    int (*observe)(const struct wnw__plan_source *src, int32_t il, const struct wnw_needs *needs,
                   const bool *heads, struct wnw_observation *obs);
    /* Gives the perplexity of the last `window` tokens. NULL = the source does not know it. */
    int (*perplexity)(const struct wnw__plan_source *src, int32_t window, double *out);
    /* Feeds the tokens of the second pass that is needed, once and before any layer is observed;
     * it may write a sentence to warning[256]. NULL = observe knows the results without this call. */
    int (*second_pass)(const struct wnw__plan_source *src, const struct wnw_needs *needs, char *warning);
    /* Generates up to n tokens after those read, with a copy of the cache that keeps `budget` entries per KV head on
     * average. Called before any layer is observed. Gives the number of tokens and their queries[n_layer][n][n_head][d].
     * NULL = the source cannot. */
    int (*look_ahead)(const struct wnw__plan_source *src, int32_t n, double budget, float *queries,
                      int32_t *made);
    /* Gets the scores of the n entries of a head, with its protected entries, after a layer was scored.
     * NULL = no callback. */
    int (*scored)(const struct wnw__plan_source *src, int32_t il, int32_t ih, const float *score, int32_t n,
                  struct wnw_protected prot);
    /* Called after layer il is done; it returns false to cancel. NULL = no callback. */
    bool (*progress)(const struct wnw__plan_source *src, int32_t il);
};

#endif
