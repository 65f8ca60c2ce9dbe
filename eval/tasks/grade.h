/* SPDX-License-Identifier: MIT */
/* From the text that a model generated to its scores. */
#ifndef WNW_EVAL_GRADE_H
#define WNW_EVAL_GRADE_H

#include "eval/tasks/sample.h"

/* Cuts a prediction to what the metric sees, in place: for RULER's tasks and others that search for the
 * references, control characters become line breaks and white space at both ends goes; where the sample's
 * meta says first_line, leading line breaks go and the first line stays. Returns false if memory runs out. */
bool eval_grade_trim(struct app_text *pred, const struct eval_sample *s);

/* Scores of one prediction. */
struct eval_grade {
    double score;   /* of the sample's own metric, 0 to 1 */
    json_t *scores; /* further metrics by name, owned by the caller */
};
/* Grades a trimmed prediction for a turn. Returns an exit code. */
int eval_grade_turn(struct eval_grade *g, const struct eval_sample *s, int32_t turn,
                    const struct app_text *pred);

/* Whether the score of the prediction so far is 1 already and no further text can change it. */
bool eval_grade_is_final(const struct eval_sample *s, int32_t turn, const struct app_text *pred);

/* Adds a turn's references as one text, "a, b", with a blank in front unless `after` (may be NULL) ends with
 * white space. Returns false if memory runs out. */
bool eval_refs_text(struct app_text *out, const struct eval_turn *turn, const char *after);

#endif
