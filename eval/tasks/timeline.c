/* SPDX-License-Identifier: MIT */
/* How many tokens a conversation takes. */
#include "eval/tasks/timeline.h"

#include "app/console.h"
#include "eval/tasks/grade.h"

#include <stdlib.h>

int eval_history_gold(struct app_text *out, const struct eval_chat *c, const struct eval_turn *turn)
{
    const char *prefix = turn->prefix.s ? turn->prefix.s : "";
    if (c->prefix_first) /* the answer opens the model's turn */
        prefix = "\n";
    return eval_grade_gold(out, turn, *prefix ? prefix : "\n")
               ? APP_OK
               : app_fail(APP_FAILED, "out of memory for the references");
}

/* Tokens from the end of the question of turn - 1, whose answer is `answer`, to the end of the question of `turn`. */
static int count_step(int32_t *n, const struct eval_tokenizer *t, const struct eval_chat *c,
                      const struct eval_sample *s, int32_t turn, const char *answer, bool apart)
{
    struct eval_prompt p = {0};
    const int rc = eval_prompt_next(&p, t, c, s, turn, answer, apart);
    *n = p.n;
    eval_prompt_clear(&p);
    return rc;
}

int eval_timeline_ends(int32_t *end, const struct eval_tokenizer *t, const struct eval_chat *c,
                       const struct eval_sample *s, uint32_t history, bool apart)
{
    int rc = APP_OK;
    for (int32_t turn = 1; rc == APP_OK && turn < s->n_turns; turn++) {
        struct app_text gold = {0};
        int32_t with_gold = 0, with_answer = 0;
        rc = eval_history_gold(&gold, c, &s->turns[turn - 1]);
        if (rc == APP_OK && history & EVAL_HISTORY_REFERENCES)
            rc = count_step(&with_gold, t, c, s, turn, gold.s, apart);
        if (rc == APP_OK && history & EVAL_HISTORY_ANSWERS) {
            rc = count_step(&with_answer, t, c, s, turn, "", apart);
            with_answer += s->max_new;
        }
        end[turn] = end[turn - 1] + (with_gold > with_answer ? with_gold : with_answer);
        free(gold.s);
    }
    return rc;
}
