/* SPDX-License-Identifier: MIT */
/* Several sessions at once, on one engine. Conventions are those of winnow.h. */
#ifndef WINNOW_BATCH_H
#define WINNOW_BATCH_H

#include "winnow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An engine computes for sessions: it owns graphs, activations, scratch memory and threads. A session needs none
 * between its calls. Sessions that share an engine can decode together, in one pass over the weights
 * (wnw_decode_batch). An engine and all sessions on it belong to one thread at a time. */
typedef struct wnw_engine wnw_engine;

/* Zeros are the defaults. */
typedef struct wnw_engine_params {
    uint32_t struct_size;
    int32_t n_ubatch;  /* prompt tokens per graph, and the most sessions that decode together; 0 = 512 */
    int32_t n_threads; /* upper limit, fewer while other programs use the cores; 0 = usable cores */
    wnw_attn attn;     /* as in wnw_session_params, for all sessions */
} wnw_engine_params;

WNW_DEFAULT(wnw_engine_params, wnw_engine_default_params)

/* Makes an engine. params NULL = defaults. The model must outlive the engine. E_RANGE: n_ubatch or n_threads is out of
 * range. */
WNW_API int wnw_engine_new(wnw_engine **out, const wnw_model *m, const wnw_engine_params *params);
/* Frees the engine; all sessions on it must have been freed before. */
WNW_API void wnw_engine_free(wnw_engine *e);

/* Makes a new timeline on an engine, which must outlive it. n_ubatch, n_threads and attn of params are not read,
 * because the engine has its own. Errors as wnw_session_new. */
WNW_API int wnw_session_new_on(wnw_session **out, wnw_engine *e, const wnw_session_params *params);

/* wnw_session_decode for n sessions of one engine at once: appends tokens[i] to sessions[i]. Each may have another
 * length, policy, rules and kv_type. The result of a session does not depend on the other sessions of the batch, except
 * for the rounding of matrix products, which is not the same for every n; attention, recorders and rules work exactly
 * as in wnw_session_decode. Checked before anything is read: E_ARG (a session is NULL, is there twice, or uses another
 * engine), E_RANGE (n is not 1 .. n_ubatch; an id that is not a token), E_FULL (a session has no room). After E_NOMEM
 * and E_BACKEND of the computation no session has read its token. Otherwise all sessions have read their tokens and
 * followed their rules, except those that failed: the status is that of the first failure, and the message names the
 * session. E_NOT_FINITE: that session has no logits, and its rules were not followed. Any other status: its rules could
 * not be followed. */
WNW_API int wnw_decode_batch(wnw_engine *e, wnw_session *const *sessions, const int32_t *tokens, int32_t n);

#ifdef __cplusplus
}
#endif
#endif /* WINNOW_BATCH_H */
