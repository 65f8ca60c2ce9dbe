/* SPDX-License-Identifier: MIT */
/*
 * Recorders note, while tokens are read, what policies need in addition to keys and values. A sequence has a list of
 * recorders; the forward pass and the session call all of the list at fixed occasions and know no recorder by name. A
 * type of recorder is one file in src/observe/ and one line in recorders.def.
 *
 * Recorders work on plain arrays while a graph runs. At every point below, the graph has one node per stage,
 * one after the other; the recorder of the pass that wants the most stages sets their number. So a graph
 * depends on points and stages alone, sequences with different recorders share a pass, and a recorder can be
 * tested on arrays.
 *
 * A recorder belongs to its sequence and, like the sequence, to one thread at a time. Only `take` is called
 * by all threads of a pass at once.
 */
#ifndef WNW_RECORDER_H
#define WNW_RECORDER_H

#include "attend/attend.h"
#include "base/parallel.h"
#include "base/shape.h"
#include "winnow_method.h"

/* The places in a layer at which recorders are called. */
enum wnw__point {
    WNW_POINT_INPUT,     /* what the attention block reads: the layer's hidden states after its first norm */
    WNW_POINT_QUERIES,   /* queries before RoPE and before the model's scale for queries */
    WNW_POINT_ATTENTION, /* after the attention: the queries that it got, and its output */
    WNW_POINT_STATE,     /* after the layer, where all rows of the pass get there: the hidden states */
    WNW_N_POINTS
};

/* Sizes of the model and of the sequence. Borrowed while the recorder lives. */
struct wnw__record_shape {
    struct wnw__shape model;
    int32_t n_embd, n_ctx, n_ubatch, n_threads;
    struct wnw__pool *pool;     /* for loops outside graphs; NULL = the caller's thread alone */
    float q_scale;              /* the model's scale for queries */
    const wnw_profile *profile; /* of the session; NULL = none */
};

/* The argument that distinguishes recorders of one type. Each type gives the fields its own meaning. Two recorders of
 * one type with the same argument record the same, so one can take the place of the other. */
struct wnw__record_arg {
    int32_t n;
    bool generated;
};

/* The tokens of one sequence in a pass through layers from .. to - 1. */
struct wnw__record_pass {
    const struct wnw__cache *cache; /* of the sequence; the tokens' entries are stored but not yet counted */
    int32_t from, to;
    int32_t n_past, n;  /* positions n_past .. n_past + n - 1 */
    bool generated;     /* one token that continues the text, not part of a prompt */
    bool softmax_known; /* the attention leaves every row's softmax in wnw__attend_shared */
    unsigned columns;   /* WNW_COLUMN_*: statistics that it leaves there too (wnw__attend_leaves_columns) */
};

/* What a recorder gets to see at a point. Borrowed during the call. */
struct wnw__record_rows {
    const struct wnw__record_pass *pass;
    enum wnw__point point;
    int32_t il, stage;
    int32_t reader; /* which of the attentions that read the layer's entries; 0 = its own */
    /* The d floats of query head h of the pass' token t are at q + t * token_stride + h * head_stride. At
     * WNW_POINT_ATTENTION the rows are contiguous: [n][n_head][d]. At WNW_POINT_INPUT and WNW_POINT_STATE they are
     * hidden states, [n][n_embd]. */
    const float *q;
    size_t token_stride, head_stride;
    const float *out; /* WNW_POINT_ATTENTION: [n][n_head * d], all of it for types that read it; else NULL */
    const struct wnw__attend_op *attend; /* of the layer */
    int32_t i_slice;                     /* the sequence's slice of attend->batch */
};

/* Logits of a pass through all layers. */
struct wnw__record_logits {
    const struct wnw__record_pass *pass;
    const int32_t *tokens; /* [pass->n] */
    const float *before;   /* [n_vocab] logits of the token before the first, or NULL */
    const float *rows;     /* [n_rows][n_vocab] logits of the last n_rows tokens */
    int32_t n_rows, n_vocab;
};

/* What happened to the entries that a recorder took notes of. */
enum wnw__event {
    WNW_EVENT_DROPPED,    /* some entries were dropped */
    WNW_EVENT_RENUMBERED, /* some entries were dropped, and the others have new positions */
    WNW_EVENT_EMPTIED,    /* the sequence is empty now */
    WNW_EVENT_PASS_FAILED /* no entry changed, but notes of the last pass are of tokens that were not read */
};

struct wnw__source;       /* observe/source_impl.h */
struct wnw__record_needs; /* observe/recorders.h */
struct wnw_needs;         /* winnow_method.h */
struct wnw_observation;

/* A type of recorder. A function that has nothing to do may be NULL. `rec` is the object that open made. */
struct wnw__recorder_type {
    const char *name;
    uint32_t needs;     /* WNW_NEED_*: the needs of policies that it answers */
    bool reads_softmax; /* reads the softmax of the attention's rows, if the attention keeps it */
    bool reads_output;  /* reads the attention's output of rows that are not asked for */
    bool every_reader; /* takes rows of every attention that reads a layer's entries; else of its own alone */
    /* The statistics of columns that it reads in the pass, if the attention leaves them: WNW_COLUMN_*. */
    unsigned (*reads_columns)(const void *rec, const struct wnw__record_pass *pass);

    /* Sets *arg for what is needed. Returns false if nothing is needed of this type. */
    bool (*needed)(const struct wnw__record_needs *needs, const struct wnw__record_shape *shape,
                   struct wnw__record_arg *arg);
    int (*open)(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg);
    void (*free)(void *rec);
    /* Makes a recorder with the argument of `from`, for a copy of its sequence. */
    int (*copy)(void **rec, const void *from, const struct wnw__record_shape *shape);

    /* Is called before pass->n tokens of a prompt are read from pass->n_past on, in any number of passes. */
    int (*begin)(void *rec, const struct wnw__record_pass *pass);
    /* Is called before a pass and makes room for what the recorder takes in it. */
    int (*reserve)(void *rec, const struct wnw__record_pass *pass);
    /* The number of stages it wants at a point of layer il. All threads end a stage before the next
     * begins. */
    int (*stages)(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass);
    /* Does the share of thread ith of nth in a stage. Every thread calls it once per stage. */
    void (*take)(void *rec, const struct wnw__record_rows *rows, int ith, int nth);
    /* Operations of the products of `take` in layer il, over all points and stages, for wnw_engine_times. The
     * pass has been computed and not been committed. */
    double (*ops)(const void *rec, int32_t il, const struct wnw__record_pass *pass);
    /* The number of last tokens whose logits it wants, at least 1. */
    int32_t (*logit_rows)(const void *rec, const struct wnw__record_pass *pass);
    void (*logits)(void *rec, const struct wnw__record_logits *logits);
    /* Is called after a pass that succeeded, before the sequence counts its tokens. */
    void (*commit)(void *rec, const struct wnw__record_pass *pass);
    /* Is called when entries of layers from .. to - 1 have changed, or a pass has failed. */
    void (*told)(void *rec, int32_t from, int32_t to, enum wnw__event event);
    /* Whether its notes of the first n_past tokens are still whole without those of later tokens; NULL = they are. */
    bool (*can_rewind)(const void *rec, int32_t n_past);
    /* Is called when the tokens from n_past on have been taken back and can_rewind holds. NULL = `told` is called, for a
     * pass that failed. */
    void (*rewound)(void *rec, int32_t n_past);

    /* Fills in the part of *obs, whose layer is described already, that it answers, if needs asks for it. heads as in
     * the function `observe` of struct wnw__plan_source. rec is NULL if the sequence has no recorder of the type; the
     * function fails if that is an error. */
    int (*fill)(void *rec, struct wnw__source *source, const struct wnw_needs *needs, const bool *heads,
                struct wnw_observation *obs);
};

/* ---- The list of a sequence ---- */

struct wnw__recorder {
    const struct wnw__recorder_type *type;
    struct wnw__record_arg arg;
    void *rec;
    bool is_needed; /* by the present declaration of needs */
};

/* Starts as {0}. The owner frees it. */
struct wnw__recorders {
    struct wnw__recorder *list; /* [n] */
    int32_t n;
};

/* Opens a recorder and puts it at the end of the list. On failure the list is unchanged. */
int wnw__recorders_open(struct wnw__recorders *r, const struct wnw__recorder_type *type,
                        const struct wnw__record_arg *arg, const struct wnw__record_shape *shape);
/* Puts an open recorder at the end of the list, which then owns it. On failure the caller still owns it. */
int wnw__recorders_add(struct wnw__recorders *r, const struct wnw__recorder *one);
/* These free recorders: cut those from number `keep` on, drop those of a type, free all. */
void wnw__recorders_cut(struct wnw__recorders *r, int32_t keep);
void wnw__recorders_drop(struct wnw__recorders *r, const struct wnw__recorder_type *type);
void wnw__recorders_free(struct wnw__recorders *r);
/* `to` must be {0} before the call. The caller frees it, after a failure too. */
int wnw__recorders_copy(struct wnw__recorders *to, const struct wnw__recorders *from,
                        const struct wnw__record_shape *shape);
/* The object of the first recorder of a type, or NULL. Borrowed. */
void *wnw__recorders_find(const struct wnw__recorders *r, const struct wnw__recorder_type *type);

/* The first layer that policies act on whose cache other layers read too, -1 if there is none: queries are recorded of one of
 * its readers alone. */
int32_t wnw__shared_layer(const struct wnw__shape *shape);
/* E_UNSUPPORTED where attentions of other layers read a layer's entries, for recorders of `what` that policies would then
 * see of too few. */
int wnw__record_one_reader(const struct wnw__record_shape *shape, const char *what);

/* These do for all recorders of the list what the fields of struct wnw__recorder_type do for one. r may be NULL,
 * which is an empty list. */
bool wnw__recorders_read_softmax(const struct wnw__recorders *r);
bool wnw__recorders_read_output(const struct wnw__recorders *r);
unsigned wnw__recorders_read_columns(const struct wnw__recorders *r, const struct wnw__record_pass *pass);
int wnw__recorders_begin(const struct wnw__recorders *r, const struct wnw__record_pass *pass);
int wnw__recorders_reserve(const struct wnw__recorders *r, const struct wnw__record_pass *pass);
int wnw__recorders_stages(const struct wnw__recorders *r, enum wnw__point point, int32_t il,
                          const struct wnw__record_pass *pass);
void wnw__recorders_take(const struct wnw__recorders *r, const struct wnw__record_rows *rows, int ith,
                         int nth);
/* The sum over the recorders. */
double wnw__recorders_ops(const struct wnw__recorders *r, int32_t il, const struct wnw__record_pass *pass);
int32_t wnw__recorders_logit_rows(const struct wnw__recorders *r, const struct wnw__record_pass *pass);
void wnw__recorders_logits(const struct wnw__recorders *r, const struct wnw__record_logits *logits);
void wnw__recorders_commit(const struct wnw__recorders *r, const struct wnw__record_pass *pass);
void wnw__recorders_tell(const struct wnw__recorders *r, int32_t from, int32_t to, enum wnw__event event);
/* The name of the first type that cannot rewind; NULL if there is none. */
const char *wnw__recorders_cannot_rewind(const struct wnw__recorders *r, int32_t n_past);
void wnw__recorders_rewind(const struct wnw__recorders *r, int32_t n_past, int32_t n_layer);

#endif
