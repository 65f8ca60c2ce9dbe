/* SPDX-License-Identifier: MIT */
/*
 * Texts without questions. The second half of a piece is read after each entry's compressed first half, and the predictions
 * are compared with the full cache's. All entries advance together, a few tokens at a time. Otherwise the predictions of a
 * whole piece would have to be stored, and one prediction has a value for each token of the vocabulary.
 *
 * If the full cache predicts values that are not numbers, nothing can be compared with it. The other entries still get their
 * own loss on the text.
 */
#include "eval/run/entry.h"

#include "app/console.h"
#include "app/process.h"
#include "eval/base/grow.h"

#include <math.h>
#include <stdlib.h>

enum { STEP = 64 }; /* tokens at a time */

/* Reads one step after an entry; full: what the full cache predicts there, NULL where these are no numbers. */
static int step_entry(struct eval_entry *e, const struct eval_runtime *m, const int32_t *ids, int32_t n,
                      bool last, const float *full)
{
    struct eval_answer *a = &e->answer[0];
    struct eval_forced l = {.n_vocab = m->info.n_vocab, .full = full, .same = &a->same, .targets = ids};
    bool good;
    if (a->stop)
        return APP_OK;
    const double start = app_now_ms();
    const int rc = eval_force(&l, e->session, ids, n, last, &good);
    a->question_ms += app_now_ms() - start;
    a->nll += l.nll;
    if (!good)
        a->stop = "bad";
    return rc;
}

/* Reads the second half after the full cache and all entries; full_nll becomes what it costs the full cache, NaN where that
 * is no number. */
static int read_half(const struct eval_runtime *m, const struct eval_prompt *p, struct eval_entry *e,
                     int32_t n, wnw_session *full, double *full_nll)
{
    float *logits = malloc((size_t)STEP * (size_t)m->info.n_vocab * sizeof *logits);
    int rc = logits ? APP_OK : eval_no_memory("the full cache's predictions");
    bool good = true;
    *full_nll = 0;
    for (int32_t from = p->n_context; rc == APP_OK && from < p->n; from += STEP) {
        const int32_t n_now = p->n - from < STEP ? p->n - from : STEP;
        struct eval_forced l = {.n_vocab = m->info.n_vocab, .keep = logits, .targets = p->ids + from};
        if (good) {
            rc = eval_force(&l, full, p->ids + from, n_now, from + n_now == p->n, &good);
            *full_nll = good ? *full_nll + l.nll : NAN;
        }
        for (int32_t i = 0; rc == APP_OK && i < n; i++)
            rc = step_entry(&e[i], m, p->ids + from, n_now, from + n_now == p->n, good ? logits : NULL);
    }
    free(logits);
    return rc;
}

/* A copy of the full cache, which the reference's entry has where no other wave has copied it. */
static int copy_full(wnw_session **full, const struct eval_entry *e, int32_t n,
                     struct eval_reference *reference)
{
    for (int32_t i = 0; !reference->text_cache && i < n; i++)
        if (e[i].is_reference)
            WNW_TRY(eval_status_code(wnw_session_copy(&reference->text_cache, e[i].session)));
    return eval_status_code(wnw_session_copy(full, reference->text_cache));
}

int eval_text_entries(const struct eval_runtime *m, const struct eval_reading *r, struct eval_entry *e,
                      int32_t n, struct eval_reference *reference)
{
    const struct eval_prompt *p = &r->first[0];
    wnw_session *full;
    double full_nll = 0;
    WNW_TRY(copy_full(&full, e, n, reference));
    const int rc = read_half(m, p, e, n, full, &full_nll);
    for (int32_t i = 0; rc == APP_OK && i < n; i++) {
        struct eval_answer *a = &e[i].answer[0];
        a->n_question = p->n - p->n_context;
        a->compared = !a->stop && !isnan(full_nll);
        a->same_first = a->same.n_lead > 0;
        a->nll = a->stop ? NAN : a->nll / (p->n - p->n_context);
        a->dnll = a->nll - full_nll / (p->n - p->n_context);
        a->stop = a->stop ? a->stop : "text";
        wnw_session_free(e[i].session);
        e[i].session = NULL;
    }
    wnw_session_free(full);
    return rc;
}
