/* SPDX-License-Identifier: MIT */
/*
 * Where the time of passes goes. Graphs of an engine that measures have marks: nodes of one operation each
 * that note the time when all threads have finished the nodes before them. Other graphs have none, so that an engine
 * that does not measure pays nothing.
 */
#ifndef WNW_FORWARD_TIMES_H
#define WNW_FORWARD_TIMES_H

#include "forward/batch.h"
#include "winnow_study.h"

#include <ggml.h>

/* The parts of a pass, in the order of the fields of wnw_engine_times. */
enum wnw__work_kind {
    WNW_WORK_WEIGHTS,
    WNW_WORK_ATTENTION,
    WNW_WORK_OBSERVATION,
    WNW_WORK_LOGITS,
    WNW_WORK_OTHER,
    WNW_N_WORK
};

struct wnw__times;
/* The userdata of marks of one kind. */
struct wnw__mark {
    struct wnw__times *times;
    enum wnw__work_kind kind;
};

/* What an engine has measured. Starts as {0}: it does not measure. It does not move while graphs have marks. */
struct wnw__times {
    bool on;
    double last_ms; /* the time of the latest mark, or of the beginning of the pass */
    int64_t n_pass, n_token;
    wnw_work part[WNW_N_WORK];
    struct wnw__mark mark[WNW_N_WORK];
};

/* Sets all numbers to 0 and begins to measure. */
void wnw__times_start(struct wnw__times *t);
/* A node after `after` that counts the time since the mark before it as time of this kind. */
struct ggml_tensor *wnw__mark_node(struct ggml_context *ctx, struct wnw__times *t, enum wnw__work_kind kind,
                                   struct ggml_tensor *after);

/* The beginning and the end of a pass: what no mark counts in between is WNW_WORK_OTHER. */
void wnw__times_begin(struct wnw__times *t);
void wnw__times_end(struct wnw__times *t);

struct wnw__times_shape {
    struct wnw__shape model;
    const struct wnw__attend_op *ops; /* [n_layer] */
};
/* Counts the pass of a batch that has been computed and not yet committed: `made` [WNW_N_WORK], the work of
 * its products with weights, and what the attention and recorders have done. passes [n_slice] */
void wnw__times_count(struct wnw__times *t, const struct wnw__batch *b, const struct wnw__record_pass *passes,
                      const struct wnw__times_shape *shape, const wnw_work *made);

/* Adds the work of one product of w with n_row rows. */
void wnw__times_product(wnw_work *work, const struct ggml_tensor *w, int64_t n_row);

#endif
