/* SPDX-License-Identifier: MIT */
/*
 * What a session remembers of the tokens it reads, besides keys and values: their ids, and where policies ask
 * for it every query, and what every cached entry receives from all queries (columns.h). The latter lives in
 * the cache itself, with the entries.
 */
#ifndef WNW_TRACE_H
#define WNW_TRACE_H

#include "observe/columns.h"
#include "winnow_method.h"

/* Queries of one layer after RoPE, q[n][n_head][d], of positions end - n .. end - 1. */
struct wnw__queries {
    float *q;
    int32_t n, end, cap;
    size_t row; /* n_head * d */
};

struct wnw__trace {
    int32_t *tokens; /* ids of all tokens read, by position; -1 below n_mixed */
    int32_t cap_tokens;
    int32_t n_mixed; /* below this position heads have different tokens at the same one (renumber.c) */
    struct wnw__queries *queries;    /* [n_layer]; NULL = not kept */
    struct wnw__columns_op *columns; /* [n_layer]; NULL = no statistics */
    float *packed;                   /* of the column operations */
    /* What a task-aware second pass feeds: n_tasks runs of task_n[i] tokens, one behind the other. */
    int32_t *task_tokens, *task_n, n_tasks;
    int32_t *suffix, n_suffix; /* what ends the user's turn in the chat template; 0 = no template */
    /* Tokens are being read only to look at their attention: nothing is to be remembered of them. */
    bool aside;
};

void wnw__trace_free(struct wnw__trace *t, int32_t n_layer);
/* Frees the queries of layers from .. to - 1: entries have moved or gone. */
void wnw__trace_drop_queries(struct wnw__trace *t, int32_t from, int32_t to);

/* Hooks of the forward pass. Room for what is kept of the n tokens that layers from .. to - 1 read next. */
int wnw__trace_reserve(wnw_session *s, int32_t from, int32_t to, int32_t n);
/* While layer il is built: q [d, n_head, n_tok] after RoPE, out the attention. decode: queries are not kept. */
void wnw__trace_build(wnw_session *s, struct ggml_context *ctx, struct ggml_cgraph *gf, int32_t il,
                      struct ggml_tensor *q, struct ggml_tensor *out, bool decode);
/* After the layers have run, before s->n_past moves. */
struct wnw__span;
void wnw__trace_commit(wnw_session *s, const struct wnw__span *span);

/* From now on keeps what the needs ask for, and nothing else. What stays asked for is kept. Nothing
 * changes on failure. */
int wnw__trace_observe(wnw_session *s, const wnw_needs *needs);
/* Makes the column operations ready to use. wnw__trace_observe takes them away again if they are not needed. */
int wnw__trace_need_columns(wnw_session *s);
/* Back to what it was before. keep: they add to the entries' own numbers again. */
void wnw__trace_release_columns(wnw_session *s, bool keep);
int wnw__trace_set_tasks(struct wnw__trace *t, const int32_t *const *tokens, const int32_t *n_tokens,
                         int32_t n_tasks);
/* n = 0: none, cannot fail. */
int wnw__trace_set_suffix(struct wnw__trace *t, const int32_t *tokens, int32_t n);
int wnw__trace_copy(wnw_session *to, const wnw_session *from);

#endif
