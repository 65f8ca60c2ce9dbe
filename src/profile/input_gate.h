/* SPDX-License-Identifier: MIT */
/*
 * Gates on hidden states: what the attention of a layer reads of a token, x[n_embd], gives the token's entry in every KV
 * head of the layer a score. G KV heads, H query heads, in float32. Layers without numbers have no gate.
 *
 *     linear     score = W x + b                              W [G][n_embd]: KVzap (arXiv 2601.07891)
 *     mlp        score = W2 gelu(W1 x + b1) + b2              W1 [n_hidden][n_embd]: KVzap
 *     attention  q_h = norm(Wq x + bq) of each query head, k = norm(Wk x) of the KV head, both of n_dim numbers with
 *                root mean square 1 times a weight; sinks B_s of the KV head, c = sqrt(n_dim):
 *                score = mean over the group of 1 / (1 + sum_s exp(B_s . q_h / c - (k . q_h / c + b_h)))
 *                                                             Fast KVzip (arXiv 2601.17668)
 */
#ifndef WNW_INPUT_GATE_H
#define WNW_INPUT_GATE_H

#include "base/shape.h"

enum wnw__input_form { WNW_INPUT_LINEAR, WNW_INPUT_MLP, WNW_INPUT_ATTENTION };
extern const char *const wnw__input_forms[]; /* ended by NULL */

/* Sizes of the gates of a model; those that a form does not have are 0. */
struct wnw__input_gate {
    enum wnw__input_form form;
    int32_t n_embd, n_hidden, n_dim, n_sink;
    int32_t n_piece; /* tokens of the pieces of text that it was learned from; 0 = not known */
    int32_t n_reach; /* tokens of the longest prompts that it is for; 0 = not stated */
    float *number;   /* [n_layer][n_number], each layer's as wnw__input_tables lists them; NULL = no gates */
    bool *there;     /* [n_layer] */
};

/* A table of a layer's numbers: rows of n_col each. */
struct wnw__input_table {
    const char *name; /* in files: "W", "b", "W1", ... */
    int32_t n_row, n_col;
};
enum { WNW_INPUT_TABLES = 7 };
/* Lists the tables of the form in order; returns how many. */
int32_t wnw__input_tables(const struct wnw__input_gate *g, const struct wnw__shape *shape,
                          struct wnw__input_table out[WNW_INPUT_TABLES]);
/* The numbers of a layer. */
int64_t wnw__input_numbers(const struct wnw__input_gate *g, const struct wnw__shape *shape);
/* Allocates numbers and `there` for all layers, zeros. E_RANGE where they are more than a model can have; E_NOMEM. */
int wnw__input_gate_new(struct wnw__input_gate *g, const struct wnw__shape *shape);
void wnw__input_gate_free(struct wnw__input_gate *g);

#endif
