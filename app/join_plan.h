/* SPDX-License-Identifier: MIT */
/* Where the tokens of several documents are in a prompt that has one after the other. */
#ifndef WNW_APP_JOIN_PLAN_H
#define WNW_APP_JOIN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    APP_JOIN_LEAST = 32, /* first tokens of a later document that are read again, at least, where any are */
    APP_JOIN_EDGE = 8    /* tokens at both ends of a document that its neighbours may write otherwise */
};
#define APP_JOIN_SHARE 0.05 /* and the share of them, unless a request says it */

/* A document as it is stored. The chat template writes the first n_header of its tokens. */
struct app_join_source {
    const int32_t *ids;
    int32_t n, n_header;
};
/* Its tokens from `from` on, n of them, are taken to the position `at` of the prompt. What is between two parts is read. */
struct app_join_part {
    int32_t at, from, n;
};
/* Fills parts[n] and *total, the tokens of the prompt up to the end of the last document. False: a document is not in the prompt as it is
 * stored, and *wrong is its number. */
bool app_join_plan(struct app_join_part *parts, const struct app_join_source *of, int32_t n,
                   const int32_t *prompt, int32_t n_prompt, double share, int32_t *total, int32_t *wrong);

#ifdef __cplusplus
}
#endif

#endif
