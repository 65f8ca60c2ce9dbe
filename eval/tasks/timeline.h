/* SPDX-License-Identifier: MIT */
/* How many tokens a conversation about one context takes, where every question stays in the cache. */
#ifndef WNW_EVAL_TIMELINE_H
#define WNW_EVAL_TIMELINE_H

#include "eval/tasks/tokens.h"

/* What earlier questions leave behind as their answers; both: whichever of the two is longer. */
enum eval_history {
    EVAL_HISTORY_REFERENCES = 1,
    EVAL_HISTORY_ANSWERS = 2 /* the model's own, each of as many tokens as it may have */
};

/* Adds a turn's references as one text, with what the beginning of the answer leaves to be put in front. Returns an exit
 * code. */
int eval_history_gold(struct app_text *out, const struct eval_chat *c, const struct eval_turn *turn);

/* Sets end[t] to the tokens that stand before the answer to turn t, where end[0] is known. history: a sum of eval_history.
 * apart: questions are tokenised by themselves, as where the cache is compressed before each of them. Returns an exit code:
 * bad input if the chat template takes no earlier turns. */
int eval_timeline_ends(int32_t *end, const struct eval_tokenizer *t, const struct eval_chat *c,
                       const struct eval_sample *s, uint32_t history, bool apart);

#endif
