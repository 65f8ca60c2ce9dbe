/* SPDX-License-Identifier: MIT */
/* What the readings of a sample share: those that many configs go on from (entry_read.c), and those of one (entry_separate.c). */
#ifndef WNW_EVAL_ENTRY_IMPL_H
#define WNW_EVAL_ENTRY_IMPL_H

#include "eval/run/entry.h"

/* The questions of a sample, for policies with a second pass. */
struct eval_questions {
    const int32_t **ids;
    int32_t *n_ids, n;
};

/* Configs of one type, mask and group, while they are read. */
struct eval_shared_reading {
    const struct eval_runtime *m;
    const struct eval_reading *r;
    const struct eval_wanted *w;
    struct eval_reference *reference;
    wnw_session *base;              /* the full cache, owned */
    struct eval_entry uncompressed; /* its answer, which is the same in all modes; config NULL = not there */
    int32_t first, n;               /* configs [first, first + n) share the current reading */
    int32_t group;
    int32_t n_kept;    /* first tokens of the base that a folder had */
    double prefill_ms; /* so far */
    /* What the base was told: the policies of its configs, the questions as tasks, and of the prompt what was read. */
    wnw_run told;
    wnw_run_more told_more;
    wnw_prompt *prompt;
    struct eval_questions questions;
    const wnw_policy **policies; /* [n] */
};

/* What is done with a config. */
enum eval_role {
    EVAL_LEFT_OUT,
    EVAL_FROM_BASE,  /* it gets a copy of the base: the full cache as it is, others compressed by a plan */
    EVAL_SAME_AGAIN, /* the full cache in a further mode: its answer is given once more */
    EVAL_OWN_READ
};

/* entry_separate.c: reads for the configs that need a reading of their own. */
int eval_read_separately(struct eval_shared_reading *rd);

/* ---- What readings use (entry_shared.c); those that can fail return exit codes ---- */

enum eval_role eval_role_of(const struct eval_shared_reading *rd, int32_t i);
const struct eval_config *eval_config_at(const struct eval_shared_reading *rd, int32_t i);
/* A session with a config's type of cache and masks. */
int eval_new_session(wnw_session **s, const struct eval_runtime *m, const struct eval_config *c);
/* The questions of all turns, each with the template's tail and the beginning of the answer. */
int eval_questions_make(struct eval_questions *q, const struct eval_reading *r);
void eval_questions_clear(struct eval_questions *q);
/* Gives an entry to the caller, if its config is wanted. */
int eval_entry_hand_over(const struct eval_shared_reading *rd, struct eval_entry *e);
/* Hands over and closes the entries of e[*n] that are left out; the others move up, and *n is their number. */
int eval_hand_over_left_out(const struct eval_shared_reading *rd, struct eval_entry *e, int32_t *n);
/* Stores what the cache of an entry holds. */
void eval_entry_measure(struct eval_entry *e, const wnw_session *s);
void eval_count_reading(const struct eval_shared_reading *rd, int32_t n_tokens, double ms);
/* Has a few entries answered, hands them over and closes them. They get copies of `unobserved`, if it is not NULL. */
int eval_answer_wave(struct eval_shared_reading *rd, struct eval_entry *e, int32_t n,
                     const wnw_session *unobserved);
void eval_entries_close(struct eval_entry *e, int32_t n);

#endif
