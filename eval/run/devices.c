/* SPDX-License-Identifier: MIT */
/*
 * Samples on --devices. A sequence of libllama cannot be copied with what was dropped of it, so every config reads the sample by
 * itself: it reads, compresses, reads a question and answers; then the sequence is taken back to where the question ended, and what the full
 * cache has answered is fed to it.
 */
#include "eval/run/devices.h"

#include "app/console.h"
#include "app/process.h"
#include "app/profiles.h"
#include "app/stop.h"
#include "app/values.h"
#include "base/vectors.h"
#include "eval/base/grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT_STEP = 2048, TEXT_STEP = 64 };

struct eval_devices {
    struct app_devices devices;
    struct app_text profiles;
    const struct eval_setup *setup; /* borrowed */
    /* One answers; the other has the full cache that texts are compared with. They share a model. */
    struct eval_on_device {
        struct app_sequence *s;
        int32_t n_ctx;
        wnw_kv_type type;
    } own, full;
};

/* ---- Options ---- */

int eval_devices_check(const struct eval_args *args, const struct eval_configs *c)
{
    const struct app_args *a = &args->app;
    const char *refused =
        APP_FIRST_GIVEN({args->store, "--store"}, {args->time_budget, "--time-budget"},
                        {a->plugins.n > 0, "--plugin"}, {eval_recompresses(args), "--recompress"});
    if (!a->devices)
        return a->layers ? app_fail(APP_BAD_INPUT, "--layers shares layers out among --devices: name them")
                         : APP_OK;
    for (int32_t i = 0; !refused && i < c->n; i++) {
        const struct eval_config *one = &c->items[i];
        refused =
            APP_FIRST_GIVEN({one->phase != WNW_PHASE_END, "--evict"}, {one->every > 0, "--evict-every"},
                            {one->mask, "--mask-heads"}, {one->plans, "plan:DIR"},
                            {one->kv.tail > 0 || one->kv.unrotated, "tails and :unrotated of --kv-types"});
    }
    return refused ? app_fail(APP_BAD_INPUT, "%s is for sessions on the CPU; leave out %s or --devices",
                              refused, refused)
                   : APP_OK;
}

static int check_policies(const struct eval_configs *c)
{
    for (int32_t i = 0; i < c->n; i++) {
        const int status = app_sequence_check_policy(c->items[i].policy, c->items[i].profile);
        if (status == WNW_E_UNSUPPORTED)
            return app_fail(APP_BAD_INPUT, "%s: %s", c->items[i].recipe, wnw_last_error());
        if (status != WNW_OK)
            return eval_status_code(status);
    }
    return APP_OK;
}

/* The files of calibration results that the backend reads: those of the model, and after them what the user names. */
static int list_profiles(struct eval_devices *d, const struct eval_setup *s)
{
    const char *own = s->args->app.profile;
    const int rc = app_profile_list(&d->profiles, s->model_path);
    if (rc != APP_OK || !own)
        return rc;
    const bool good = app_text_put(&d->profiles, "%s%s", d->profiles.len > 0 ? ":" : "", own);
    return good ? APP_OK : eval_no_memory("profiles");
}

int eval_devices_open(struct eval_devices **out, const struct eval_setup *s, const struct eval_configs *c)
{
    *out = NULL;
    if (!s->args->app.devices)
        return APP_OK;
    struct eval_devices *d = calloc(1, sizeof *d);
    if (!d)
        return eval_no_memory("devices");
    *out = d;
    d->setup = s;
    WNW_TRY(app_devices_make(&d->devices, &s->args->app, s->model_path));
    WNW_TRY(check_policies(c));
    return list_profiles(d, s);
}

void eval_devices_close(struct eval_devices *d)
{
    if (!d)
        return;
    app_sequence_free(d->own.s);
    app_sequence_free(d->full.s);
    app_devices_clear(&d->devices);
    free(d->profiles.s);
    free(d);
}

/* ---- Sequences ---- */

static bool go_on(int32_t done, int32_t total, void *user)
{
    (void)done;
    (void)total;
    (void)user;
    return !app_stop_asked();
}

/* Makes the sequence unless there is one with room for n tokens and this type of cache. */
static int need_sequence(struct eval_devices *d, struct eval_on_device *one, const struct eval_runtime *m,
                         int32_t n, wnw_kv_type type)
{
    const int64_t rounded = ((int64_t)n / CONTEXT_STEP + 1) * CONTEXT_STEP;
    const int64_t threads = d->setup->args->app.threads;
    if (one->s && one->n_ctx >= n && one->type == type)
        return APP_OK;
    one->n_ctx = rounded < m->info.n_ctx_train ? (int32_t)rounded : m->info.n_ctx_train;
    one->type = type;
    struct app_sequence *old = one->s;
    struct app_sequence *other = d->own.s ? d->own.s : d->full.s;
    const struct app_sequence_params params = {.model = d->setup->model_path,
                                               .devices = d->devices.ours.s,
                                               .like = old ? old : other,
                                               .split = d->devices.split.s,
                                               .n_ctx = one->n_ctx,
                                               .n_threads = threads == APP_UNSET ? 0 : (int32_t)threads,
                                               .kv_type = type,
                                               .profiles = d->profiles.s,
                                               .progress = go_on};
    const int status = app_sequence_new(&one->s, &params);
    app_sequence_free(old); /* the model is that of the new one, too */
    return eval_status_code(status);
}

/* Reads the tokens that are compressed, observing for the policy. Returns a status of the library. */
static int read_first(struct app_sequence *s, struct eval_entry *e, const struct eval_reading *r)
{
    const struct eval_config *c = e->config;
    WNW_TRY(app_sequence_rewind(s, 0));
    WNW_TRY(app_sequence_set_policy(s, c->full ? NULL : c->policy));
    const double start = app_now_ms();
    WNW_TRY(app_sequence_read(s, r->first[0].ids, e->n_part, NULL, NULL));
    e->prefill_ms = app_now_ms() - start;
    return WNW_OK;
}

/* Reads the first n tokens of the sample and compresses them. The entry is left out where the policy cannot have its size. */
static int read_part(struct eval_devices *d, struct eval_entry *e, const struct eval_runtime *m,
                     const struct eval_reading *r)
{
    const struct eval_config *c = e->config;
    struct app_sequence_size size;
    int rc = APP_OK;
    WNW_TRY(need_sequence(d, &d->own, m, r->n_need + EVAL_FORCED, c->kv.type));
    e->n_part = eval_reading_border(r, c->mode);
    const int status = read_first(d->own.s, e, r);
    if (status != WNW_OK)
        return eval_status_code(status);
    const double before = app_now_ms();
    if (!c->full)
        (void)eval_entry_leave_out(e, app_sequence_compress(d->own.s, &c->size, r->chat->n_prefix), &rc);
    e->compress_ms = app_now_ms() - before;
    app_sequence_measure(d->own.s, &size);
    e->kept_mean = size.kept_mean;
    e->kv_bytes = size.bytes_entries;
    e->peak_bytes = size.bytes_full;
    return rc;
}

/* ---- Questions ---- */

/* An entry while it answers. */
struct speaker {
    struct eval_entry *e;
    struct eval_answer *a;
    struct app_sequence *s;
    int32_t stand;   /* tokens that were read when the question ended */
    float *predicts; /* [n_vocab] what came after them */
};

static int take_back(const struct speaker *sp)
{
    return eval_status_code(app_sequence_rewind(sp->s, sp->stand));
}

/* Reads the question of a turn. own: for tokens that are made here; the caller clears it. */
static int read_question(struct speaker *sp, const struct eval_runtime *m, const struct eval_reading *r,
                         int32_t turn, struct eval_prompt *own)
{
    const int32_t *ids;
    int32_t n;
    WNW_TRY(eval_turn_ids(&ids, &n, own, m, r, sp->e, turn));
    sp->a->n_question = n;
    if (turn > 0 && m->multi_request)
        WNW_TRY(eval_status_code(app_sequence_rewind(sp->s, r->first[turn].n_context)));
    const double start = app_now_ms();
    if (n > 0)
        WNW_TRY(eval_status_code(app_sequence_read(sp->s, ids, n, NULL, NULL)));
    sp->a->question_ms = app_now_ms() - start;
    return APP_OK;
}

/* Asks, and keeps what is predicted after the question. */
static int ask(struct speaker *sp, const struct eval_runtime *m, const struct eval_reading *r, int32_t turn)
{
    struct eval_prompt own = {0};
    const int rc = read_question(sp, m, r, turn, &own);
    eval_prompt_clear(&own);
    WNW_TRY(rc);
    const float *logits = app_sequence_logits(sp->s);
    sp->stand = app_sequence_n_read(sp->s);
    if (!logits)
        return app_fail(APP_FAILED, "the devices have predicted nothing");
    memcpy(sp->predicts, logits, (size_t)m->info.n_vocab * sizeof *logits);
    return APP_OK;
}

/* Generates the answer. n_least: tokens that are generated even if it has ended. */
static int generate(struct speaker *sp, const struct eval_runtime *m, const struct eval_sample *s,
                    int32_t turn, int32_t n_least)
{
    bool open = true;
    WNW_TRY(eval_take_token(sp->a, &open, m, s, turn, n_least, sp->predicts));
    while (open) {
        const bool counts = !sp->a->stop;
        const double start = app_now_ms();
        WNW_TRY(eval_status_code(app_sequence_read(sp->s, &sp->a->ids[sp->a->n - 1], 1, NULL, NULL)));
        sp->a->decode_ms += counts ? app_now_ms() - start : 0;
        WNW_TRY(eval_take_token(sp->a, &open, m, s, turn, n_least, app_sequence_logits(sp->s)));
    }
    return take_back(sp);
}

/* Feeds tokens after the question, and takes them back. */
static int feed(struct eval_forced *l, const struct speaker *sp, const int32_t *ids, int32_t n)
{
    const int rc = eval_force_on(l, sp->s, sp->predicts, ids, n, true);
    return rc == APP_OK ? take_back(sp) : rc;
}

/* Compares with the full cache's answer x, or stores this one as that. */
static int compare(struct speaker *sp, const struct eval_runtime *m, const struct eval_refs *refs,
                   int32_t most, struct eval_expected *x)
{
    const int32_t n_refs = refs->n < most ? refs->n : most;
    struct eval_forced of_refs = {.n_vocab = m->info.n_vocab, .targets = refs->ids};
    struct eval_forced l = {.n_vocab = m->info.n_vocab};
    if (sp->e->is_reference) {
        WNW_TRY(eval_expect(x, m, sp->a, most));
        l.keep = x->logits;
    } else {
        l.full = x->logits;
        l.same = &sp->a->same;
    }
    if (x->n == 0)
        return APP_OK;
    WNW_TRY(feed(&of_refs, sp, refs->ids, n_refs));
    WNW_TRY(feed(&l, sp, x->ids, x->n));
    const double nll = n_refs > 0 ? of_refs.nll / n_refs : 0;
    sp->a->compared = true;
    sp->a->same_first = wnw__argmax(sp->predicts, m->info.n_vocab) == x->ids[0];
    if (sp->e->is_reference) {
        x->refs_nll = nll;
        sp->a->same = (struct eval_agreement){.n = x->n, .n_same = x->n, .n_lead = x->n};
    } else {
        sp->a->dnll = nll - x->refs_nll;
    }
    return APP_OK;
}

static int answer_turn(struct speaker *sp, const struct eval_runtime *m, const struct eval_reading *r,
                       int32_t turn, struct eval_reference *reference)
{
    const int32_t most = eval_reading_forced(r, m, turn);
    const bool is_reference = sp->e->is_reference;
    sp->a = &sp->e->answer[turn];
    WNW_TRY(ask(sp, m, r, turn));
    WNW_TRY(generate(sp, m, r->sample, turn, is_reference ? most : 0));
    return is_reference || turn == 0 || m->multi_request || !m->own_history
               ? compare(sp, m, &r->refs[turn], most, &reference->turn[turn])
               : APP_OK;
}

static int answer(struct eval_devices *d, struct eval_entry *e, const struct eval_runtime *m,
                  const struct eval_reading *r, struct eval_reference *reference)
{
    struct speaker sp = {
        .e = e, .s = d->own.s, .predicts = malloc((size_t)m->info.n_vocab * sizeof *sp.predicts)};
    int rc = sp.predicts ? APP_OK : eval_no_memory("answers");
    for (int32_t turn = 0; rc == APP_OK && turn < r->n_turns; turn++)
        rc = answer_turn(&sp, m, r, turn, reference);
    free(sp.predicts);
    return rc;
}

/* ---- Texts ---- */

/* Keeps a copy of what a sequence predicts, because feeding on needs it. */
static void keep_prediction(float *x, const struct app_sequence *s, int32_t n_vocab)
{
    memcpy(x, app_sequence_logits(s), (size_t)n_vocab * sizeof *x);
}

/* Reads the second half after the full cache and after the entry's. Both have read the first half. predicts[2][n_vocab], logits[TEXT_STEP][n_vocab]. */
static int read_half(struct eval_devices *d, struct eval_entry *e, const struct eval_runtime *m,
                     const struct eval_prompt *p, float *predicts, float *logits)
{
    const int32_t n_vocab = m->info.n_vocab, n_half = p->n - p->n_context;
    struct eval_answer *a = &e->answer[0];
    double full_nll = 0;
    keep_prediction(predicts, d->full.s, n_vocab);
    keep_prediction(predicts + n_vocab, d->own.s, n_vocab);
    const double start = app_now_ms();
    for (int32_t from = p->n_context; from < p->n; from += TEXT_STEP) {
        const int32_t n = p->n - from < TEXT_STEP ? p->n - from : TEXT_STEP;
        const bool last = from + n == p->n;
        const int32_t *ids = p->ids + from;
        struct eval_forced full = {.n_vocab = n_vocab, .keep = logits, .targets = ids};
        struct eval_forced own = {.n_vocab = n_vocab, .full = logits, .same = &a->same, .targets = ids};
        WNW_TRY(eval_force_on(&full, d->full.s, predicts, ids, n, last));
        WNW_TRY(eval_force_on(&own, d->own.s, predicts + n_vocab, ids, n, last));
        full_nll += full.nll;
        a->nll += own.nll;
        if (!last) {
            keep_prediction(predicts, d->full.s, n_vocab);
            keep_prediction(predicts + n_vocab, d->own.s, n_vocab);
        }
    }
    a->question_ms = app_now_ms() - start;
    a->n_question = n_half;
    a->compared = true;
    a->same_first = a->same.n_lead > 0;
    a->nll /= n_half;
    a->dnll = a->nll - full_nll / n_half;
    a->stop = "text";
    return APP_OK;
}

/* Has the full cache's sequence read the first half, so that the last token's prediction is there. */
static int read_full(struct eval_devices *d, const struct eval_entry *e, const struct eval_runtime *m,
                     const struct eval_reading *r)
{
    const struct eval_prompt *p = &r->first[0];
    const wnw_kv_type type = d->full.s ? d->full.type : e->config->kv.type;
    WNW_TRY(need_sequence(d, &d->full, m, r->n_need + EVAL_FORCED, type));
    /* What was read of it for another entry stays but for the last token, whose prediction is wanted. */
    WNW_TRY(eval_status_code(app_sequence_rewind(d->full.s, e->is_reference ? 0 : p->n_context - 1)));
    const int32_t from = app_sequence_n_read(d->full.s);
    return eval_status_code(app_sequence_read(d->full.s, p->ids + from, p->n_context - from, NULL, NULL));
}

static int read_text(struct eval_devices *d, struct eval_entry *e, const struct eval_runtime *m,
                     const struct eval_reading *r)
{
    const size_t n_vocab = (size_t)m->info.n_vocab;
    float *room = malloc((TEXT_STEP + 2) * n_vocab * sizeof *room);
    int rc = room ? read_full(d, e, m, r) : eval_no_memory("the full cache's predictions");
    if (rc == APP_OK)
        rc = read_half(d, e, m, &r->first[0], room + TEXT_STEP * n_vocab, room);
    free(room);
    return rc;
}

/* ---- All configs of a sample ---- */

static int read_and_answer(const struct eval_runtime *m, const struct eval_reading *r,
                           const struct eval_wanted *w, struct eval_reference *reference,
                           struct eval_entry *e)
{
    WNW_TRY(read_part(m->devices, e, m, r));
    if (w->readings) {
        w->readings->n++;
        w->readings->n_tokens += e->n_part;
        w->readings->ms += e->prefill_ms;
    }
    if (e->left_out)
        return APP_OK;
    return r->is_text ? read_text(m->devices, e, m, r) : answer(m->devices, e, m, r, reference);
}

static int run_config(const struct eval_runtime *m, const struct eval_reading *r, const struct eval_wanted *w,
                      struct eval_reference *reference, int32_t i)
{
    struct eval_entry e;
    int rc = eval_entry_open(&e, &w->configs->items[i], r->n_turns);
    e.is_reference = i == 0;
    if (rc == APP_OK)
        rc = read_and_answer(m, r, w, reference, &e);
    if (rc == APP_OK && w->config[i])
        rc = w->done(&e, w->user);
    eval_entry_close(&e);
    return rc;
}

int eval_read_on_devices(const struct eval_runtime *m, const struct eval_reading *r,
                         const struct eval_wanted *w, struct eval_reference *reference)
{
    /* The first config is the full cache, which others are compared with. */
    for (int32_t i = 0; i < w->configs->n; i++)
        if (i == 0 || w->config[i])
            WNW_TRY(app_stop_asked() ? APP_INTERRUPTED : run_config(m, r, w, reference, i));
    return APP_OK;
}
