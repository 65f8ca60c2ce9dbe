/* SPDX-License-Identifier: MIT */
/*
 * The second pass of policies that judge the cache by what other tokens look for in it. Tokens are fed after
 * those that were read, column statistics (observe/columns.h) are taken of the entries that were there
 * before, and the fed tokens are dropped again. Afterwards the session is as it was, to the bit. What is fed:
 *
 *     CONTEXT:      the tokens read, once more (KVCompose, arXiv 2509.05165, task-agnostic)
 *     TASK:         each task on the bare cache (KVCompose with the questions alone)
 *     BOTH:         the tokens read, once more, and each task after them (KVCompose, task-aware)
 *     REPEAT:       chunk by chunk: an instruction to repeat, the chat template's tail, which ends the user's
 *                   turn, and the chunk (KVzip, arXiv 2505.23416). Chunks begin after the chat header. The
 *                   forward pass sees everything; the statistics' softmax sees only the header, the chunk and
 *                   the repeat input
 *     REPEAT_SINKS: as REPEAT, but the softmax sees 4 sinks of the header (kvpress)
 *     REPEAT_ALL:   as REPEAT_SINKS, and the header is part of the first chunk
 *     SAMPLE:       some of what no compression has judged, at several places (wnw_sample_places), in one go; the softmax sees everything
 */
#ifndef WNW_SECOND_PASS_H
#define WNW_SECOND_PASS_H

#include "base/err.h"
#include "winnow_method.h"

/* Column statistics of a second pass; columns.h defines sum and max. */
struct wnw__second_pass {
    int32_t n_layer;
    int32_t n_queries;                         /* tokens fed, each one query per query head */
    wnw_sample_place place[WNW_SAMPLE_PLACES]; /* [n_places] positions whose columns were taken */
    int32_t n_places;
    int32_t *n;  /* [n_layer] entries of the longest head */
    float **sum; /* [n_layer], each [n_head][n]; NULL for sliding-window layers */
    float **max; /* the same; with BY_INPUT divided by lengths, like sum */
};

/* Runs the pass that is needed and gives its statistics to *out, which the caller frees; *out = NULL on failure. The
 * function may write a sentence to warning[256]. */
int wnw__second_pass_run(struct wnw__second_pass **out, wnw_session *s, const wnw_needs *needs,
                         char *warning);
void wnw__second_pass_free(struct wnw__second_pass *p);

#endif
