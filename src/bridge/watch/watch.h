/* SPDX-License-Identifier: MIT */
/* The time when a policy acts on sequences of a context, and what programs ask of it. */
#ifndef WNW_BRIDGE_WATCH_H
#define WNW_BRIDGE_WATCH_H

#include "bridge/sequence/sequence.h"
#include "winnow_bridge.h"

/* ---- The policy, from a program or the environment, with its size and its profile (watch/policy.c) ---- */

/* Sets the policy. E_UNSUPPORTED: it needs what cannot be had here; E_MISMATCH: it needs a profile. The message says what. */
int wnw__bridge_watch_set(struct wnw__bridge_watch *w, const char *recipe, const wnw_size *size,
                          bool by_itself);
/* The same where no program feeds a sample of a prompt again: E_UNSUPPORTED for a policy that looks at one. */
int wnw__bridge_watch_set_alone(struct wnw__bridge_watch *w, const char *recipe, const wnw_size *size,
                                bool by_itself);
/* Takes the policy away again where the backend is of a wrapped device that cannot have it: E_UNSUPPORTED. */
int wnw__bridge_watch_check(struct wnw__bridge_backend *b);
/* Adds the results of each file of a list (wnw_profile_next) to the profile; NULL has none. E_IO, E_FORMAT, E_MISMATCH. */
int wnw__bridge_watch_profiles(struct wnw__bridge_watch *w, const char *list);
/* Sets up *next, which is freed by the caller in any case, as what the setting makes of the backend's watch; that stays as it is. */
int wnw__bridge_watch_prepare(struct wnw__bridge_watch *next, const struct wnw__bridge_backend *b,
                              const wnw_bridge_setting *setting);
/* Takes what was prepared in place of what was set, and leaves nothing in *next. */
void wnw__bridge_watch_take(struct wnw__bridge_watch *w, struct wnw__bridge_watch *next);
/* The same from WINNOW_PROFILE, WINNOW_POLICY, WINNOW_BUDGET, WINNOW_RATIO and WINNOW_KV_BYTES; without the second it does
 * nothing. */
int wnw__bridge_watch_set_from_environment(struct wnw__bridge_watch *w);
/* Adds what a policy needs to what is observed. E_UNSUPPORTED: the two do not go together. */
int wnw__bridge_add_needs(wnw_needs *to, const wnw_needs *more);
/* Takes the policy away, with what was noted for it. */
void wnw__bridge_watch_clear(struct wnw__bridge_watch *w);
void wnw__bridge_watch_free(struct wnw__bridge_watch *w);

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

/* ---- Compression, and reports to programs ---- */

/* Drops what the policy does not keep of a sequence (watch/plan.c). On failure nothing is dropped, unless memory runs out
 * while entries are. */
int wnw__bridge_compress(struct wnw__bridge_backend *b, struct wnw__bridge_sequence_cells *sequence_cells);
/* The same of the sequence of the last row, by the policy that was set, chosen now where it is "auto". */
int wnw__bridge_compress_last(struct wnw__bridge_backend *b);
/* For wnw_bridge_find: a program has libllama synchronise this backend (watch/access.c). */
void wnw__bridge_called(struct wnw__bridge_backend *b);
/* Tells the program where the rows of a graph go (watch/rows.c). */
void wnw__bridge_rows_tell(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);

#endif
