/* SPDX-License-Identifier: MIT */
/*
 * Recorders: what is noted of tokens while they are read, beside their keys and values. A sequence has a list
 * of them; the forward pass and the session run through the list at fixed occasions and know no recorder by
 * name. A type of recorder is one file in src/observe/ and one line in recorders.def.
 *
 * Recorders work while a graph runs, on plain arrays: at every point below the graph has as many nodes, one
 * behind the other, as any recorder of the pass wants stages. So a graph depends on points and stages alone,
 * sequences with different recorders share a pass, and a recorder can be tested on arrays.
 *
 * A recorder belongs to its sequence, and like that to one thread at a time; `take` alone is called by all
 * threads of a pass at once.
 */
#ifndef WNW_RECORDER_H
#define WNW_RECORDER_H

#include "attend/attend.h"
#include "base/parallel.h"
#include "winnow_method.h"

/* Where in a layer recorders look. */
enum wnw__point {
    WNW_POINT_QUERIES,   /* queries in front of RoPE and of the model's scale for queries */
    WNW_POINT_ATTENTION, /* behind the attention: queries as it got them, and its output */
    WNW_N_POINTS
};

/* Sizes of the model and of the sequence. Borrowed while the recorder lives. */
struct wnw__record_shape {
    int32_t n_layer, n_head, n_head_kv, d;
    int32_t n_ctx, n_ubatch, n_threads;
    struct wnw__pool *pool; /* for loops outside graphs; NULL = the caller's thread alone */
    float q_scale;          /* the model's scale for queries */
    const bool *sliding; /* [n_layer] layers with a sliding window, which policies leave alone; NULL = none */
};

/* What all declared policies ask for together. */
struct wnw__record_ask {
    wnw_needs needs;
    int32_t n_likelihood; /* last tokens whose likelihoods are wanted */
    bool generated;       /* the newest queries are wanted of generated tokens too */
};

/* What tells recorders of one type apart: their numbers, with a meaning of the type's own. Two with the same
 * argument record the same, so that one can go on for the other. */
struct wnw__record_arg {
    int32_t n;
    bool generated;
};

/* Tokens of one sequence on their way through layers from .. to - 1. */
struct wnw__record_pass {
    const struct wnw__cache *cache; /* of the sequence; entries of the tokens are stored, not yet counted */
    int32_t from, to;
    int32_t n_past, n;  /* positions n_past .. n_past + n - 1 */
    bool generated;     /* one token that continues the text, not part of a prompt */
    bool softmax_known; /* the attention leaves every row's softmax in wnw__attend_shared */
};

/* What passes a point. */
struct wnw__record_rows {
    const struct wnw__record_pass *pass;
    enum wnw__point point;
    int32_t il, stage;
    /* Head h of the sequence's token t is q + t * token_stride + h * head_stride, d floats. At
     * WNW_POINT_ATTENTION rows follow one another without gaps: [n][n_head][d]. */
    const float *q;
    size_t token_stride, head_stride;
    const float *out;                    /* WNW_POINT_ATTENTION: [n][n_head * d]; else NULL */
    const struct wnw__attend_op *attend; /* of the layer */
    int32_t i_slice;                     /* of attend->batch: the sequence's */
};

/* Logits of a pass through all layers. */
struct wnw__record_logits {
    const struct wnw__record_pass *pass;
    const int32_t *tokens; /* [pass->n] */
    const float *before;   /* [n_vocab] of the token before the first, or NULL */
    const float *rows;     /* [n_rows][n_vocab] of the last n_rows tokens */
    int32_t n_rows, n_vocab;
};

/* What happened to the entries that a recorder took notes of. */
enum wnw__moved {
    WNW_MOVED_DROPPED,    /* some were dropped */
    WNW_MOVED_RENUMBERED, /* the same, and the others have new positions */
    WNW_MOVED_ALL,        /* the sequence is empty */
    WNW_MOVED_FAILED      /* none; but what was taken of the last pass belongs to tokens that were not read */
};

struct wnw__look; /* observe/observe.h */

/* Functions that are NULL have nothing to do. `rec` is what open gave. */
struct wnw__recorder_type {
    const char *name;
    uint32_t needs;     /* WNW_NEED_*: asks of policies that it answers */
    bool reads_softmax; /* of the attention's rows, where that leaves it behind */

    /* The argument for what is asked; false where nothing is. */
    bool (*wanted)(const struct wnw__record_ask *ask, const struct wnw__record_shape *shape,
                   struct wnw__record_arg *arg);
    int (*open)(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg);
    void (*free)(void *rec);
    /* A recorder of the same argument for a copy of the sequence. */
    int (*copy)(void **rec, const void *from, const struct wnw__record_shape *shape);

    /* pass->n tokens of a prompt are going to be read from pass->n_past on, in any number of passes. */
    int (*begin)(void *rec, const struct wnw__record_pass *pass);
    /* Before a pass: room for what it takes. */
    int (*reserve)(void *rec, const struct wnw__record_pass *pass);
    /* How many stages it wants at a point of layer il. All threads have ended a stage before the next. */
    int (*stages)(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass);
    /* Thread ith of nth does its share of a stage; every thread is called once. */
    void (*take)(void *rec, const struct wnw__record_rows *rows, int ith, int nth);
    /* Of how many of the last tokens it wants logits, at least 1. */
    int32_t (*logit_rows)(const void *rec, const struct wnw__record_pass *pass);
    void (*logits)(void *rec, const struct wnw__record_logits *logits);
    /* After a pass that succeeded; the sequence counts its tokens next. */
    void (*commit)(void *rec, const struct wnw__record_pass *pass);
    /* Something happened to entries of layers from .. to - 1. */
    void (*moved)(void *rec, int32_t from, int32_t to, enum wnw__moved why);

    /* What scorers see of it, where look->needs asks for it. rec NULL: there is none; says so if that is an
     * error. */
    int (*fill)(void *rec, const struct wnw__look *look, wnw_observation *obs);
};

/* ---- The list of a sequence ---- */

struct wnw__recorder {
    const struct wnw__recorder_type *type;
    struct wnw__record_arg arg;
    void *rec;
    bool is_wanted; /* by the declaration at hand */
};

/* Starts as {0}. The owner frees it. */
struct wnw__recorders {
    struct wnw__recorder *list; /* [n] */
    int32_t n;
};

/* Opens a recorder behind the others. The list is as before on failure. */
int wnw__recorders_open(struct wnw__recorders *r, const struct wnw__recorder_type *type,
                        const struct wnw__record_arg *arg, const struct wnw__record_shape *shape);
/* Puts one that is open behind the others and owns it from then on, unless it fails. */
int wnw__recorders_add(struct wnw__recorders *r, const struct wnw__recorder *one);
/* Frees the recorders from number `keep` on, or those of a type, or all. */
void wnw__recorders_cut(struct wnw__recorders *r, int32_t keep);
void wnw__recorders_drop(struct wnw__recorders *r, const struct wnw__recorder_type *type);
void wnw__recorders_free(struct wnw__recorders *r);
/* to is {0} before; free it also after a failure. */
int wnw__recorders_copy(struct wnw__recorders *to, const struct wnw__recorders *from,
                        const struct wnw__record_shape *shape);
/* The first of a type, or NULL. */
void *wnw__recorders_find(const struct wnw__recorders *r, const struct wnw__recorder_type *type);

/* The same as the fields of a type, for all of the list. r may be NULL: no recorders. */
bool wnw__recorders_read_softmax(const struct wnw__recorders *r);
int wnw__recorders_begin(const struct wnw__recorders *r, const struct wnw__record_pass *pass);
int wnw__recorders_reserve(const struct wnw__recorders *r, const struct wnw__record_pass *pass);
int wnw__recorders_stages(const struct wnw__recorders *r, enum wnw__point point, int32_t il,
                          const struct wnw__record_pass *pass);
void wnw__recorders_take(const struct wnw__recorders *r, const struct wnw__record_rows *rows, int ith,
                         int nth);
int32_t wnw__recorders_logit_rows(const struct wnw__recorders *r, const struct wnw__record_pass *pass);
void wnw__recorders_logits(const struct wnw__recorders *r, const struct wnw__record_logits *logits);
void wnw__recorders_commit(const struct wnw__recorders *r, const struct wnw__record_pass *pass);
void wnw__recorders_moved(const struct wnw__recorders *r, int32_t from, int32_t to, enum wnw__moved why);

#endif
