/* SPDX-License-Identifier: MIT */
/*
 * Policies in the backend, step by step: what a graph shows of the layers that they act on, what is noted while it runs, and
 * which sequence it belongs to. Then comes the plan for that sequence, from what the policy sees to the entries that are
 * dropped.
 */
#ifndef WNW_BRIDGE_IMPL_H
#define WNW_BRIDGE_IMPL_H

#include "bridge/sequence/sequence.h"
#include "plan/source.h"

/* ---- The policy, from a program or the environment, with its size and its profile (watch/policy.c) ---- */

/* Sets the policy. E_UNSUPPORTED: it needs what cannot be had here; E_MISMATCH: it needs a profile. The message says what. */
int wnw__bridge_watch_set(struct wnw__bridge_watch *w, const char *recipe, const wnw_size *size,
                          bool by_itself);
/* The same where no program feeds a sample of a prompt again: E_UNSUPPORTED for a policy that looks at one. */
int wnw__bridge_watch_set_alone(struct wnw__bridge_watch *w, const char *recipe, const wnw_size *size,
                                bool by_itself);
/* Takes the policy away again where the backend is of a wrapped device that cannot have it: E_UNSUPPORTED. */
int wnw__bridge_watch_check(struct wnw__bridge_backend *b);
/* Adds a part that recipes may name from then on; NULL takes all away. E_ARG, E_NOMEM. */
int wnw__bridge_watch_part(struct wnw__bridge_watch *w, const wnw_part *part);
/* Adds the results of a file to the profile; NULL takes the profile away. E_IO, E_FORMAT, E_MISMATCH. */
int wnw__bridge_watch_profile(struct wnw__bridge_watch *w, const char *path);
/* The same from WINNOW_PROFILE, WINNOW_POLICY, WINNOW_BUDGET, WINNOW_RATIO and WINNOW_KV_BYTES; without the second it does
 * nothing. */
int wnw__bridge_watch_set_from_environment(struct wnw__bridge_watch *w);
/* Adds what a policy needs to what is observed. E_UNSUPPORTED: the two do not go together. */
int wnw__bridge_add_needs(wnw_needs *to, const wnw_needs *more);
/* Takes the policy away, with what was noted for it. */
void wnw__bridge_watch_clear(struct wnw__bridge_watch *w);
void wnw__bridge_watch_free(struct wnw__bridge_watch *w);

/* ---- What a graph shows of the attentions over layers that policies act on (graph/layer_info.c) ---- */

/* Lists the attentions of a graph over layers that policies act on, and learns of each such layer what the graph shows.
 * E_NOMEM. */
int wnw__bridge_sites_find(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* Whether a layer has a sliding window, as far as it can be told: policies leave it alone. */
bool wnw__bridge_is_sliding(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l);
/* The site of an attention's node; NULL if policies do not act on its layer. */
const struct wnw__bridge_site *wnw__bridge_site_of(const struct wnw__bridge_backend *b,
                                                   const struct ggml_tensor *node);
/* The rotation's mode for a text. Where a token has several positions, for images, those of a text are equal, and pairs are
 * turned as with one. */
int32_t wnw__bridge_rope_mode(const struct ggml_tensor *rope);
/* Whether the rotation is that of ggml_rope_ext with one frequency per pair and no mixing of scales. */
bool wnw__bridge_is_plain_rope(const struct ggml_tensor *rope);
/* Writes the angle of each pair in radians per position to theta[n_rot / 2]; the layer's queries turn by plain RoPE. */
void wnw__bridge_theta(const struct wnw__bridge_layer_info *f, float *theta);

/* The product of a weight with hidden states that makes the keys which a store writes; the states, [n_embd, n_row] without
 * gaps, are its second source until it has run: what the layer's attention reads. NULL: the graph does not show it, as where
 * keys are made of a latent (MLA) (graph/input.c). */
const struct ggml_tensor *wnw__bridge_keys_product(const struct ggml_tensor *store);

/* ---- What is noted of queries and attention while a graph runs (sequence/record.c) ---- */

/* Has the layers of the current graph keep with their entries the numbers that the policy wants. E_NOMEM. */
int wnw__bridge_record_begin(struct wnw__bridge_backend *b);
/* Keeps queries of an attention, whose node is about to run. One thread calls it. */
void wnw__bridge_record_queries(struct wnw__bridge_backend *b, const struct ggml_tensor *node,
                                const struct wnw__cells_op *op);
/* The query [n_head][d_k] of a cell that a reader of a layer has kept, in the type of the layer's queries. Cells count over all
 * streams. NULL: none. */
const void *wnw__bridge_query(const struct wnw__bridge_layer *l, int32_t cell, int32_t reader);
/* Bytes that the queries of one token take where those of all cells are kept; else 0. */
size_t wnw__bridge_query_bytes(const struct wnw__bridge_layer *l);
/* Has the query of row i of the graph that is about to run not kept where those of all cells are. */
void wnw__bridge_record_skip(struct wnw__bridge_backend *b, int32_t i);
/* Notes that the query of a cell of the first stream will not be asked for: it is not one that was lost. */
void wnw__bridge_record_unasked(const struct wnw__bridge_layer *l, int32_t cell);
/* Gives back what was kept of these cells of a stream where queries of all cells are: a policy has seen it, or none will. */
void wnw__bridge_record_seen(struct wnw__bridge_layer *l, int32_t stream, const int32_t *cell, int32_t n);
void wnw__bridge_queries_free(struct wnw__bridge_queries *q);

/* The most tensors that are added to a graph; and those that are added before a node, and after it. */
int wnw__bridge_record_tensors(const struct wnw__bridge_backend *b);
void wnw__bridge_record_before(struct wnw__bridge_backend *b, struct ggml_context *ctx,
                               struct ggml_cgraph *graph, struct ggml_tensor *node);
void wnw__bridge_record_after(struct wnw__bridge_backend *b, struct ggml_context *ctx,
                              struct ggml_cgraph *graph, struct ggml_tensor *node);

/* ---- Gates on hidden states (profile/input_gate.h), whose scores entries keep (sequence/gates.c) ---- */

/* Whether the gates of the backend's profile are wanted and have numbers for the layer. */
bool wnw__bridge_gates_suit(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l);
/* Makes scratch for the current graph. E_NOMEM. */
int wnw__bridge_gates_reserve(struct wnw__bridge_backend *b);
/* The work of a node whose source is what the attention of the site `user` reads. */
void wnw__bridge_gates_take(struct ggml_tensor *node, int ith, int nth, void *user);
/* Why a layer's entries have no scores: returns the error, with its message. */
int wnw__bridge_gates_missing(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l);

/* ---- Which sequences a batch belongs to, by the mask of each row, and when their prompts have ended (watch/watch.c) ---- */

/* The attention over a layer that a graph has; NULL: there is none. */
const struct ggml_tensor *wnw__bridge_attention_of(const struct wnw__bridge_backend *b,
                                                   struct ggml_cgraph *graph,
                                                   const struct wnw__bridge_layer *l);
/* The mask of an attention as libllama wrote it; NULL: there is none. */
const struct ggml_tensor *wnw__bridge_input_of(const struct ggml_tensor *mask);
/* Looks at the rows of a graph that is about to run, and compresses sequences that it is time for. */
void wnw__bridge_watch_graph(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* The first store of keys to a layer without a sliding window: the rows of the others are the same. NULL: there is none. */
const struct ggml_tensor *wnw__bridge_first_store(const struct wnw__bridge_backend *b,
                                                  struct ggml_cgraph *graph);
/* After a graph that was looked at and has failed. */
void wnw__bridge_watch_fail(struct wnw__bridge_backend *b);

/* ---- A sample of a sequence that was fed a second time (winnow_bridge.h, sequence/sample.c) ---- */

struct wnw__source;
struct wnw_bridge_sample_of;
/* Takes the sample of a sequence. *sequence_cells has the cells of the sequence and of what was fed after it.
 * E_ARG, E_NOT_OBSERVED, E_NOMEM: *out = NULL (sequence/sample_new.c). */
int wnw__bridge_sample_new(struct wnw_bridge_sample **out, struct wnw__bridge_backend *b,
                           const struct wnw__bridge_sequence_cells *sequence_cells,
                           const struct wnw_bridge_sample_of *of);
/* Takes it in the layer of *obs, whose entries are there. */
int wnw__bridge_sample_take(struct wnw__bridge_sequence *s, struct wnw__source *source,
                            struct wnw_observation *obs);
/* Shows what the sequence has of it. E_NOT_OBSERVED: it has none, or one of other tokens. */
int wnw__bridge_sample_show(struct wnw__bridge_sequence *s, struct wnw_observation *obs);

/* ---- From what a policy sees of a sequence to fewer entries ---- */

/* What is noted of token i of a sequence; NULL where nothing is, because the cache is gone. */
static inline struct wnw__bridge_note *
wnw__bridge_note_of(const struct wnw__bridge_sequence_cells *sequence_cells, int32_t i)
{
    const struct wnw__bridge_cache *c = sequence_cells->cache;
    return c->note ? &c->note[(int64_t)sequence_cells->stream * c->n_cell + sequence_cells->cell[i]] : NULL;
}
/* Drops what the policy does not keep of a sequence (watch/plan.c). On failure nothing is dropped, unless memory runs out
 * while entries are. */
int wnw__bridge_compress(struct wnw__bridge_backend *b,
                         const struct wnw__bridge_sequence_cells *sequence_cells);
/* The same of the sequence of the last row, by the policy that was set, chosen now where it is "auto". */
int wnw__bridge_compress_last(struct wnw__bridge_backend *b);
/* The threads of the context, for loops over layers and entries; NULL where there is one, or where they cannot be started
 * (sequence/sequence.c). */
struct wnw__pool *wnw__bridge_pool(struct wnw__bridge_backend *b);
/* Room for n numbers, until it is asked for again; NULL: no memory (sequence/sequence.c). */
float *wnw__bridge_room(struct wnw__bridge_sequence *s, enum wnw__bridge_room which, size_t n);
/* Makes a source of observations of the sequence, which is borrowed; the caller closes it (sequence/observe.c). E_NOMEM. */
int wnw__bridge_source(struct wnw__plan_source *src, struct wnw__bridge_sequence *s);
/* Checks that a plan can be applied (dry), or applies it, on all threads (sequence/apply.c). E_MISMATCH, E_UNSUPPORTED; where memory
 * runs out, some layers are left as they are. */
int wnw__bridge_apply(struct wnw__bridge_sequence *s, const wnw_plan *plan, bool dry);

#endif
