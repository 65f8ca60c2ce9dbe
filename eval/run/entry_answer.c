/* SPDX-License-Identifier: MIT */
/*
 * Answers of several entries to the questions of one sample. All entries read a question, then answer together:
 * each step is one pass over the weights (wnw_decode_batch). A batch of one row is filled up with a row that
 * nobody reads, because products of one row round differently from those of several; so an answer does not
 * depend on who else is in the batch, and an interrupted run goes on with the same answers.
 *
 * The full cache's answer is then fed to the other entries, to see where their predictions differ.
 */
#include "eval/run/entry.h"

#include "app/console.h"
#include "app/process.h"
#include "base/vectors.h"
#include "eval/base/grow.h"
#include "eval/tasks/grade.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAD_TOKENS = 1024 }; /* the row that fills a batch begins again after these */

/* An entry while it answers one question. */
struct speaker {
    struct eval_entry *e;
    struct eval_answer *a;
    wnw_session *s;     /* generates, owned */
    wnw_session *stand; /* stays after the question, owned */
    bool open;
    int32_t n_least; /* tokens that are generated even if the answer has ended */
};

/* ---- Generating ---- */

/* Sets the prediction to the text of the first n tokens. */
static int set_text(struct eval_answer *a, const struct eval_runtime *m, const struct eval_sample *s,
                    int32_t n)
{
    char *text = NULL;
    int rc = m->tokenizer->decode(m->tokenizer, a->ids, n, &text);
    a->text.len = 0;
    if (rc == APP_OK && (!app_text_add_utf8(&a->text, text, strlen(text)) || !eval_grade_trim(&a->text, s)))
        rc = eval_no_memory("an answer");
    free(text);
    a->n_text = n;
    return rc;
}

/* Whether the newest token is after the end of the answer's first line. */
static bool ends_line(const struct eval_answer *a, const struct eval_runtime *m, const struct eval_sample *s)
{
    char *piece = NULL;
    if (a->n < 2 || !json_is_true(json_object_get(s->meta, "stop_at_line")))
        return false;
    const bool ends = wnw_token_piece(m->model, a->ids[a->n - 1], &piece) == WNW_OK && strchr(piece, '\n');
    wnw_free(piece);
    return ends;
}

int eval_take_token(struct eval_answer *a, bool *open, const struct eval_runtime *m,
                    const struct eval_sample *s, int32_t turn, int32_t n_least, const float *logits)
{
    const int32_t id = wnw__argmax(logits, m->info.n_vocab);
    const bool fixed = m->answer_tokens > 0, eog = !fixed && wnw_token_is_eog(m->model, id);
    int rc = APP_OK;
    if (!eval_grow(&a->ids, (size_t)a->n, sizeof *a->ids))
        return eval_no_memory("an answer");
    a->ids[a->n++] = id;
    if (!a->stop) {
        rc = set_text(a, m, s, a->n - eog);
        if (eog)
            a->stop = "eog";
        else if (!fixed && ends_line(a, m, s))
            a->stop = "line";
        else if (rc == APP_OK && !fixed && m->early_stop && eval_grade_is_final(s, turn, &a->text))
            a->stop = "matched";
        else if (a->n >= s->max_new)
            a->stop = "length";
    }
    *open = rc == APP_OK && !eog && !(a->stop && a->n >= n_least);
    return rc;
}

static int take_token(struct speaker *sp, const struct eval_runtime *m, const struct eval_sample *s,
                      int32_t turn)
{
    return eval_take_token(sp->a, &sp->open, m, s, turn, sp->n_least, wnw_session_logits(sp->s));
}

/* The session that fills a batch of one row. */
static int ready_pad(const struct eval_runtime *m)
{
    int status = WNW_OK;
    const int32_t n = wnw_session_n_past(m->pad);
    if (n >= PAD_TOKENS)
        status = wnw_session_reset(m->pad);
    if (status == WNW_OK && (n == 0 || n >= PAD_TOKENS))
        status = wnw_session_prefill(m->pad, (const int32_t[]){0, 0}, 2, NULL, NULL);
    return eval_status_code(status);
}

/* Feeds the newest token of each open speaker. Those whose logits are not numbers end there. */
static int step(const struct eval_runtime *m, struct speaker *sp, int32_t n, double *ms)
{
    wnw_session *sessions[EVAL_MAX_BATCH + 1];
    int32_t tokens[EVAL_MAX_BATCH + 1], n_row = 0, n_open;
    for (int32_t i = 0; i < n; i++)
        if (sp[i].open) {
            sessions[n_row] = sp[i].s;
            tokens[n_row++] = sp[i].a->ids[sp[i].a->n - 1];
        }
    n_open = n_row;
    if (n_row == 1 && m->batch > 1) {
        WNW_TRY(ready_pad(m));
        sessions[n_row] = m->pad;
        tokens[n_row++] = 0;
    }
    const double start = app_now_ms();
    const int status = n_row == 1 ? wnw_session_decode(sessions[0], tokens[0])
                                  : wnw_decode_batch(m->engine, sessions, tokens, n_row);
    *ms = (app_now_ms() - start) / n_open;
    for (int32_t i = 0; i < n; i++)
        if (sp[i].open && status == WNW_E_NOT_FINITE && !wnw_session_logits(sp[i].s)) {
            sp[i].a->stop = "bad";
            sp[i].open = false;
        }
    return eval_status_code(status);
}

/* Generates the answers of all speakers; those of the question that was read last. */
static int generate(const struct eval_runtime *m, const struct eval_sample *s, int32_t turn,
                    struct speaker *sp, int32_t n)
{
    bool any = false;
    for (int32_t i = 0; i < n; i++) {
        sp[i].open = sp[i].s && wnw_session_logits(sp[i].s);
        if (sp[i].open)
            WNW_TRY(take_token(&sp[i], m, s, turn));
        else
            sp[i].a->stop = "bad";
        any = any || sp[i].open;
    }
    while (any) {
        double ms;
        bool counts[EVAL_MAX_BATCH]; /* the answer goes on; the reference's may have ended */
        for (int32_t i = 0; i < n; i++)
            counts[i] = sp[i].open && !sp[i].a->stop;
        WNW_TRY(step(m, sp, n, &ms));
        any = false;
        for (int32_t i = 0; i < n; i++) {
            if (counts[i])
                sp[i].a->decode_ms += ms;
            if (sp[i].open)
                WNW_TRY(take_token(&sp[i], m, s, turn));
            any = any || sp[i].open;
        }
    }
    return APP_OK;
}

/* ---- Comparing ---- */

/* Mean NLL of the references after the question, on a copy. Only a bounded number of their first tokens counts. */
static int feed_refs(double *nll, bool *good, const struct eval_runtime *m, const struct eval_refs *refs,
                     int32_t most, const wnw_session *stand)
{
    struct eval_forced l = {.n_vocab = m->info.n_vocab, .targets = refs->ids};
    const int32_t n = refs->n < most ? refs->n : most;
    wnw_session *s;
    WNW_TRY(eval_status_code(wnw_session_copy(&s, stand)));
    const int rc = eval_force(&l, s, refs->ids, n, true, good);
    wnw_session_free(s);
    *nll = n > 0 ? l.nll / n : 0;
    return rc;
}

int eval_expect(struct eval_expected *x, const struct eval_runtime *m, const struct eval_answer *a,
                int32_t most)
{
    x->n = a->n < most ? a->n : most;
    x->ids = malloc(((size_t)x->n + 1) * sizeof *x->ids);
    x->logits = malloc(((size_t)x->n + 1) * (size_t)m->info.n_vocab * sizeof *x->logits);
    if (!x->ids || !x->logits)
        return eval_no_memory("the full cache's answer");
    if (x->n > 0)
        memcpy(x->ids, a->ids, (size_t)x->n * sizeof *x->ids);
    return APP_OK;
}

/* Stores the predictions of the first tokens of the full cache's answer, up to a bounded number. */
static int keep_expected(struct eval_expected *x, const struct eval_runtime *m, const struct eval_refs *refs,
                         int32_t most, struct speaker *sp)
{
    bool good, good_refs;
    WNW_TRY(eval_expect(x, m, sp->a, most));
    struct eval_forced l = {.n_vocab = m->info.n_vocab, .keep = x->logits};
    WNW_TRY(feed_refs(&x->refs_nll, &good_refs, m, refs, most, sp->stand));
    WNW_TRY(eval_force(&l, sp->stand, x->ids, x->n, true, &good));
    if (!(good && good_refs))
        x->n = 0; /* nothing can be compared with it */
    sp->a->compared = x->n > 0;
    sp->a->same_first = true;
    sp->a->same = (struct eval_agreement){.n = x->n, .n_same = x->n, .n_lead = x->n};
    return APP_OK;
}

static int compare(struct speaker *sp, const struct eval_runtime *m, const struct eval_refs *refs,
                   int32_t most, const struct eval_expected *x)
{
    struct eval_answer *a = sp->a;
    struct eval_forced l = {.n_vocab = m->info.n_vocab, .full = x->logits, .same = &a->same};
    bool good, good_refs;
    double nll = 0;
    if (x->n == 0 || !wnw_session_logits(sp->stand))
        return APP_OK;
    if (sp->e->config->mask && sp->e->config->mask->phase == WNW_MASK_DECODE)
        return APP_OK; /* what is fed here is read like a prompt, without the mask */
    a->same_first = wnw__argmax(wnw_session_logits(sp->stand), m->info.n_vocab) == x->ids[0];
    WNW_TRY(feed_refs(&nll, &good_refs, m, refs, most, sp->stand));
    WNW_TRY(eval_force(&l, sp->stand, x->ids, x->n, true, &good));
    a->compared = good && good_refs;
    a->dnll = nll - x->refs_nll;
    if (!a->compared)
        a->stop = "bad";
    return APP_OK;
}

/* ---- Turns ---- */

/* The tokens from the end of the previous question to the end of this one, with the model's own answer in between. The answer's
 * text may have more tokens than the model generated. Then it is shortened until it fits into the room counted for it. */
static int own_ids(struct eval_prompt *own, const struct eval_runtime *m, const struct eval_reading *r,
                   const struct app_text *said, int32_t turn)
{
    const int32_t room = r->end[turn] - r->end[turn - 1];
    char *answer = strndup(said->s ? said->s : "", said->len);
    int rc = answer ? APP_OK : eval_no_memory("an answer");
    for (bool fits = false; rc == APP_OK && !fits;) {
        size_t n = strlen(answer);
        rc = eval_prompt_next(own, m->tokenizer, r->chat, r->sample, turn, answer, m->recompress);
        fits = own->n <= room || n == 0;
        if (rc == APP_OK && !fits) {
            for (n /= 2; n > 0 && ((unsigned char)answer[n] & 0xc0) == 0x80; n--)
                ; /* not within a character */
            answer[n] = '\0';
            eval_prompt_clear(own);
        }
    }
    free(answer);
    return rc;
}

int eval_turn_ids(const int32_t **ids, int32_t *n, struct eval_prompt *own, const struct eval_runtime *m,
                  const struct eval_reading *r, const struct eval_entry *e, int32_t turn)
{
    const struct eval_prompt *p = &r->first[turn];
    *own = (struct eval_prompt){0};
    if (turn == 0 || m->multi_request) {
        /* Compressed tokens have been read already; of a further question, only the tokens before it. */
        const int32_t from = turn == 0 ? e->n_part : p->n_context;
        *ids = p->ids + from;
        *n = p->n - from;
        return APP_OK;
    }
    const int rc = m->own_history ? own_ids(own, m, r, &e->answer[turn - 1].text, turn)
                                  : eval_prompt_next(own, m->tokenizer, r->chat, r->sample, turn,
                                                     r->refs[turn - 1].text.s, m->recompress);
    *ids = own->ids;
    *n = own->n;
    return rc;
}

/* Reads ids[n], the tokens before a further question, under the rules of the first reading. The size then applies to all tokens
 * read so far. */
static int compress_again(struct speaker *sp, const int32_t *ids, int32_t n)
{
    struct eval_answer *a = sp->a;
    wnw_report report = wnw_report_default();
    wnw_cache_stats stats = wnw_cache_stats_default();
    const int rc = eval_status_code(wnw_session_read(sp->e->session, ids, n, &report));
    a->again = rc == APP_OK && wnw_cache_get_stats(sp->e->session, &stats) == WNW_OK;
    a->n_part = wnw_session_n_past(sp->e->session);
    a->kept_mean = report.kept_mean;
    a->kv_bytes = stats.bytes;
    a->meta_bytes = stats.bytes_meta;
    a->again_ms = report.observe_ms + report.score_ms + report.select_ms + report.compact_ms;
    return rc;
}

/* Ends the rules of a session that only answers: nothing that it generates is dropped, regardless of the policy's own rule. */
static int end_rules(wnw_session *s, const struct eval_runtime *m, const struct eval_config *c)
{
    const wnw_run nothing = wnw_run_default();
    return m->recompress && c->own_read && c->every == 0 ? eval_status_code(wnw_session_begin(s, &nothing))
                                                         : APP_OK;
}

/* Reads the question of a turn and makes the sessions that the answer needs. own: for tokens that are made here; the caller
 * clears it. */
static int read_question(struct speaker *sp, const struct eval_runtime *m, const struct eval_reading *r,
                         int32_t turn, struct eval_prompt *own)
{
    struct eval_entry *e = sp->e;
    const int32_t *ids;
    int32_t n;
    const bool last = turn + 1 == r->n_turns;
    WNW_TRY(eval_turn_ids(&ids, &n, own, m, r, e, turn));
    sp->a->n_question = n;
    if (m->recompress && turn > 0 && e->config->own_read) {
        WNW_TRY(compress_again(sp, ids, own->n_context));
        ids += own->n_context;
        n -= own->n_context;
    }
    if (m->multi_request && !last) {
        WNW_TRY(eval_status_code(wnw_session_copy(&sp->stand, e->session)));
    } else {
        sp->stand = e->session;
        e->session = NULL;
    }
    const double start = app_now_ms();
    if (n > 0)
        WNW_TRY(eval_status_code(wnw_session_prefill(sp->stand, ids, n, NULL, NULL)));
    sp->a->question_ms = app_now_ms() - start;
    if (!m->multi_request && !last) /* the history goes on from here */
        WNW_TRY(eval_status_code(wnw_session_copy(&e->session, sp->stand)));
    WNW_TRY(end_rules(sp->stand, m, e->config));
    return eval_status_code(wnw_session_copy(&sp->s, sp->stand));
}

static int ask(struct speaker *sp, const struct eval_runtime *m, const struct eval_reading *r, int32_t turn)
{
    struct eval_prompt own = {0};
    const int rc = read_question(sp, m, r, turn, &own);
    eval_prompt_clear(&own);
    return rc;
}

/* Asks all entries one question. The reference comes first, if it is among them. */
static int answer_turn(const struct eval_runtime *m, const struct eval_reading *r, struct speaker *sp,
                       int32_t n, int32_t turn, struct eval_reference *reference)
{
    struct eval_expected *x = &reference->turn[turn];
    const struct eval_refs *refs = &r->refs[turn];
    const int32_t most = eval_reading_forced(r, m, turn);
    const bool comparable = turn == 0 || m->multi_request || !m->own_history;
    for (int32_t i = 0; i < n; i++)
        WNW_TRY(ask(&sp[i], m, r, turn));
    WNW_TRY(generate(m, r->sample, turn, sp, n));
    for (int32_t i = 0; i < n; i++) {
        wnw_session_free(sp[i].s);
        sp[i].s = NULL;
        if (sp[i].e->is_reference && !reference->there)
            WNW_TRY(keep_expected(x, m, refs, most, &sp[i]));
        else if (comparable)
            WNW_TRY(compare(&sp[i], m, refs, most, x));
    }
    return APP_OK;
}

int eval_answer_entries(const struct eval_runtime *m, const struct eval_reading *r, struct eval_entry *e,
                        int32_t n, struct eval_reference *reference)
{
    int rc = APP_OK;
    bool has_reference = false;
    for (int32_t turn = 0; rc == APP_OK && turn < r->n_turns; turn++) {
        struct speaker sp[EVAL_MAX_BATCH] = {0};
        for (int32_t i = 0; i < n; i++) {
            sp[i] = (struct speaker){.e = &e[i],
                                     .a = &e[i].answer[turn],
                                     .n_least = e[i].is_reference ? eval_reading_forced(r, m, turn) : 0};
            has_reference = has_reference || e[i].is_reference;
        }
        rc = answer_turn(m, r, sp, n, turn, reference);
        for (int32_t i = 0; i < n; i++) {
            wnw_session_free(sp[i].s);
            wnw_session_free(sp[i].stand);
        }
    }
    reference->there = reference->there || (rc == APP_OK && has_reference);
    return rc;
}
