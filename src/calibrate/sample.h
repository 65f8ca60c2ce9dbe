/* SPDX-License-Identifier: MIT */
/* Samples of texts that a calibration reads with the full cache, and the policy whose choices it looks at. */
#ifndef WNW_CALIBRATE_SAMPLE_H
#define WNW_CALIBRATE_SAMPLE_H

#include "calibrate/calibrate.h"
#include "policy/policy.h"
#include "text/prompt.h"

/* Pieces of one length, evenly spread over every text, without overlap. */
struct wnw__samples {
    int32_t length;      /* tokens of a piece */
    int32_t n_text;      /* of the calibration */
    int32_t *bos, n_bos; /* tokens in front of every piece: the BOS where the vocabulary adds one */
    int32_t **tokens;    /* [n_text] */
    int32_t *n_tokens;   /* [n_text] */
    int32_t *n_piece;    /* [n_text] at least 1 */
};

/* `n_after` is the number of tokens that must follow the last piece. E_RANGE: a text is too short for one
 * piece. The caller frees *s, which starts as {0}, also after a failure. */
int wnw__samples_cut(struct wnw__samples *s, const wnw_calibration *c, int32_t length, int32_t n_after,
                     int32_t n_most);
void wnw__samples_free(struct wnw__samples *s);
/* Pieces of all texts. */
int32_t wnw__samples_n(const struct wnw__samples *s);
/* The first token of piece i of a text; length tokens and those after follow it. Borrowed. */
const int32_t *wnw__samples_piece(const struct wnw__samples *s, int32_t i_text, int32_t i);

/* Questions that can be asked about any prose, each about something else in it: question i of 0 .. WNW_N_QUESTIONS - 1
 * (sample_questions.c). Static. */
#define WNW_N_QUESTIONS 30
const char *wnw__question(int32_t i);

/* A piece as text, without parts of characters at its ends; *text is released with wnw_free, also after a
 * failure. */
int wnw__sample_text(char **text, const wnw_calibration *c, const int32_t *tokens, int32_t n);
/* The text as a document with one of the questions after it. *prompt is cleared by the caller, also
 * after a failure. */
int wnw__sample_prompt(wnw_prompt **prompt, const wnw_calibration *c, const char *text, int32_t question);
/* A session that observes for the policies, and what the recorder called `record` notes (NULL = none), and has read the
 * prompt's document. The caller frees *s, which is NULL at first, also after a failure. */
int wnw__sample_read(wnw_session **s, wnw_calibration *c, const wnw_policy *const *policies, int32_t n_policy,
                     const char *record, const wnw_prompt *prompt, int32_t n_ctx);

/* Parses the recipe that is given, or `def`, and checks that the profiles it needs are there. Notes it among the
 * settings as `policy`, with `profiles`, a hash of what it reads. The caller frees *policy. */
int wnw__calibrate_policy(wnw_policy **policy, wnw_calibration *c, const char *def);

/* The number of tokens of an option, or what the effort says where the option is 0, cut to the model's context so
 * that `n_other` more fit. E_RANGE: an option that does not fit. */
struct wnw__by_effort {
    int32_t normal, quick, paper;
};
int32_t wnw__effort_value(const wnw_calibration *c, int32_t given, struct wnw__by_effort by);
int wnw__sample_length(int32_t *length, const wnw_calibration *c, int32_t given, struct wnw__by_effort by,
                       int32_t n_other);

#endif
