/* SPDX-License-Identifier: MIT */
/*
 * Measures what is lost when entries with low scores are dropped: for the head budget quality. A piece of text is read with
 * the full cache. For each share delta_1 < delta_2 < .. of all scores of a scorer, the entries with the lowest scores are
 * dropped that together have at most that share (budget/quality.c). Then two texts are read on: the tokens that follow the
 * piece, and a passage of the piece once more. With p and p' the probabilities of the next token v with the full and the
 * compressed cache,
 *
 *     loss(i, k) = the larger of the two means over tokens of 1 - sum over v of min(p(v), p'(v));
 *     worst(i, k) = max over k' <= k of loss(i, k');
 *     curve(k) = the ceil((n + 1) 0.95)-th smallest worst(i, k) of the n pieces i that are learned from
 *
 * If a later text is drawn as these were, its loss at share k is at most curve(k) in at least 95 % of cases (split conformal
 * prediction). So the loss is below a bound at the largest share whose curve is below it. Every third piece is not learned
 * from. The report says for how many of them that holds.
 */
#include "base/json.h"
#include "base/vectors.h"
#include "calibrate/calibrate.h"
#include "calibrate/sample.h"
#include "chooser/chooser.h"
#include "plan/plan.h"
#include "policy/policy.h"
#include "profile/profile.h"
#include "session/compact/compact.h"
#include "session/run/run.h"
#include "session/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_SHARE = 12,
    HELD_OUT = 3 /* every third piece */,
    LEAST = 29 /* 19 or more are learned from */
};
static const double shares[N_SHARE] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02,
                                       0.04,   0.08,  0.12,  0.2,   0.3,  0.5};
#define QUANTILE 0.95
/* Bounds for which the report says how held-out pieces fare. */
static const double bounds[] = {0.7, 0.8, 0.9, 0.95, 0.98};
enum { N_BOUND = sizeof bounds / sizeof *bounds };

struct opts {
    int32_t pieces, length, next;
};

/* What a piece came to, for each scorer that is measured and each share. */
struct measured {
    double loss[WNW_N_QUALITY][N_SHARE], kept[WNW_N_QUALITY][N_SHARE];
};

struct work {
    wnw_calibration *c;
    const struct opts *o;
    struct wnw__samples samples;
    int32_t length, next;
    bool used[WNW_N_QUALITY];
    wnw_policy *policies[WNW_N_QUALITY * N_SHARE];
    int32_t n_policy;
    int32_t i_text, i_piece; /* the current piece */
    struct measured *all;    /* [n] */
    int32_t n;
};

/* ---- Losses ---- */

/* Tokens that are read on, and what the full cache says after each. */
struct follow {
    const int32_t *tokens; /* [n] */
    int32_t n, n_vocab;
    float *p;   /* [n][n_vocab] */
    double sum; /* of the losses */
};

/* row[n] = probabilities. */
static void to_probabilities(const float *logits, float *row, int32_t n)
{
    float top = logits[0];
    double sum = 0;
    for (int32_t v = 1; v < n; v++)
        top = logits[v] > top ? logits[v] : top;
    for (int32_t v = 0; v < n; v++)
        sum += (double)(row[v] = expf(logits[v] - top));
    for (int32_t v = 0; v < n; v++)
        row[v] = (float)((double)row[v] / sum);
}

static bool keep_row(int32_t i, const float *logits, void *user)
{
    const struct follow *f = user;
    to_probabilities(logits, f->p + (size_t)i * (size_t)f->n_vocab, f->n_vocab);
    return true;
}

static bool compare_row(int32_t i, const float *logits, void *user)
{
    struct follow *f = user;
    const float *p = f->p + (size_t)i * (size_t)f->n_vocab;
    float *row = f->p + (size_t)f->n * (size_t)f->n_vocab;
    double same = 0;
    to_probabilities(logits, row, f->n_vocab);
    for (int32_t v = 0; v < f->n_vocab; v++)
        same += (double)(row[v] < p[v] ? row[v] : p[v]);
    f->sum += same < 1 ? 1 - same : 0;
    return true;
}

/* Reads on with a copy of the session, of whose cache the plan is kept (NULL = all of it). */
static int read_on(const wnw_session *full, const wnw_plan *plan, struct follow *f)
{
    wnw_session *copy;
    f->sum = 0;
    WNW_TRY(wnw__session_copy_on(&copy, full, full->engine));
    int rc = plan ? wnw__session_apply(copy, plan, -1, NULL) : WNW_OK;
    if (rc == WNW_OK)
        rc = wnw_session_prefill(copy, f->tokens, f->n, plan ? compare_row : keep_row, f);
    wnw_session_free(copy);
    return rc;
}

static double kept_share(const wnw_plan *plan, const wnw_session *s)
{
    const int32_t *unused;
    int64_t kept = 0, all = 0;
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv && wnw__layer_takes_part(&s->shape.model, il); ih++) {
            kept += wnw_plan_head(plan, il, ih, &unused);
            all += s->n_past;
        }
    return all > 0 ? (double)kept / (double)all : 1;
}

static int follow_plans(const struct work *w, const wnw_session *full, wnw_plan *const *plans,
                        const int32_t *piece, struct follow *f, double *loss, double *kept)
{
    const int32_t place = (w->i_piece * 7 + w->i_text * 3) % 10 * (w->length - w->next) / 10;
    const int32_t *const from[] = {piece + w->length, piece + place};
    for (int k = 0; k < 2; k++) {
        f->tokens = from[k];
        WNW_TRY(read_on(full, NULL, f));
        for (int32_t i = 0; i < w->n_policy; i++) {
            WNW_TRY(read_on(full, plans[i], f));
            const double mean = f->sum / f->n;
            loss[i] = k == 0 || mean > loss[i] ? mean : loss[i];
            kept[i] = kept_share(plans[i], full);
            WNW_TRY(wnw__calibrate_progress(w->c, 0.2 + 0.8 * (k * w->n_policy + i) / (2.0 * w->n_policy)));
        }
    }
    return WNW_OK;
}

/* Fills the losses of the plans, in the order of the policies. */
static int measure_plans(const struct work *w, const wnw_session *full, wnw_plan *const *plans,
                         const int32_t *piece, double *loss, double *kept)
{
    const int32_t n_vocab = w->c->info.n_vocab;
    struct follow f = {
        .n = w->next, .n_vocab = n_vocab, .p = calloc(((size_t)w->next + 1) * (size_t)n_vocab, sizeof *f.p)};
    if (!f.p)
        return wnw__fail(WNW_E_NOMEM, "no memory for the probabilities of %d tokens", (int)w->next);
    const int rc = follow_plans(w, full, plans, piece, &f, loss, kept);
    free(f.p);
    return rc;
}

/* ---- The unit of work: a piece ---- */

static int read_piece(const struct work *w, wnw_session **s, const int32_t *piece)
{
    const struct wnw__samples *of = &w->samples;
    const wnw_run run = {WNW_INIT(wnw_run), .profile = w->c->params.profile,
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more),
                                                 .policies = (const wnw_policy *const *)w->policies,
                                                 .n_policies = w->n_policy}};
    WNW_TRY(wnw__calibrate_session(s, w->c, of->n_bos + w->length + w->next));
    WNW_TRY(wnw_session_begin(*s, &run));
    wnw__calibrate_progress_in(w->c, 0, 0.2);
    if (of->n_bos > 0)
        WNW_TRY(wnw_session_prefill(*s, of->bos, of->n_bos, NULL, NULL));
    WNW_TRY(wnw_session_prefill(*s, piece, w->length, NULL, NULL));
    wnw__calibrate_progress_in(w->c, 0, 1);
    (*s)->params.progress = NULL; /* copies tell nothing */
    return WNW_OK;
}

static int measure_piece(const struct work *w, wnw_session **s, wnw_plan **plans, double *loss, double *kept)
{
    const int32_t *piece = wnw__samples_piece(&w->samples, w->i_text, w->i_piece);
    WNW_TRY(read_piece(w, s, piece));
    WNW_TRY(
        wnw_session_plan_many(*s, (const wnw_policy *const *)w->policies, NULL, w->n_policy, plans, NULL));
    wnw__session_end_observing(*s); /* copies need not carry what was recorded */
    return measure_plans(w, *s, plans, piece, loss, kept);
}

static int run_piece(wnw_calibration *c, void *user, json_t **result)
{
    const struct work *w = user;
    wnw_session *s = NULL;
    wnw_plan *plans[WNW_N_QUALITY * N_SHARE] = {0};
    double loss[WNW_N_QUALITY * N_SHARE], kept[WNW_N_QUALITY * N_SHARE];
    (void)c;
    int rc = measure_piece(w, &s, plans, loss, kept);
    for (int32_t i = 0; i < w->n_policy; i++)
        wnw_plan_free(plans[i]);
    wnw_session_free(s);
    if (rc != WNW_OK)
        return rc;
    *result = json_pack("{s:o, s:o}", "loss", wnw__json_f64s(loss, w->n_policy), "kept",
                        wnw__json_f64s(kept, w->n_policy));
    return *result ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the losses of a piece");
}

/* ---- All pieces ---- */

static bool all_shares(const double *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (!(x[i] >= 0 && x[i] <= 1))
            return false;
    return true;
}

static int do_piece(struct work *w)
{
    char name[64];
    json_t *result;
    double loss[WNW_N_QUALITY * N_SHARE], kept[WNW_N_QUALITY * N_SHARE];
    snprintf(name, sizeof name, "text %d, piece %d", (int)w->i_text, (int)w->i_piece);
    const struct wnw__calibrate_unit unit = {.name = name, .cost = w->length, .run = run_piece, .user = w};
    WNW_TRY(wnw__calibrate_unit(w->c, &unit, &result));
    const bool good = wnw__json_get_f64s(result, "loss", loss, w->n_policy) &&
                      wnw__json_get_f64s(result, "kept", kept, w->n_policy) &&
                      all_shares(loss, w->n_policy) && all_shares(kept, w->n_policy);
    json_decref(result);
    if (!good)
        return wnw__calibrate_damaged(w->c, name);
    for (int32_t s = 0, i = 0; s < WNW_N_QUALITY; s++)
        for (int32_t k = 0; w->used[s] && k < N_SHARE; k++, i++) {
            w->all[w->n].loss[s][k] = loss[i];
            w->all[w->n].kept[s][k] = kept[i];
        }
    w->n++;
    return WNW_OK;
}

static bool is_held_out(int32_t i)
{
    return i % HELD_OUT == HELD_OUT - 1;
}

/* ---- The curve ---- */

/* Fills curve[N_SHARE] of scorer s, and the mean share that stays; worst[n] is scratch. */
static void make_curve(const struct work *w, int32_t s, double *curve, double *kept, double *worst)
{
    for (int32_t k = 0; k < N_SHARE; k++) {
        int32_t n = 0;
        kept[k] = 0;
        for (int32_t i = 0; i < w->n; i++) {
            if (is_held_out(i))
                continue;
            worst[n] = 0;
            for (int32_t j = 0; j <= k; j++)
                worst[n] = w->all[i].loss[s][j] > worst[n] ? w->all[i].loss[s][j] : worst[n];
            kept[k] += w->all[i].kept[s][k];
            n++;
        }
        const int32_t rank = (int32_t)ceil((n + 1) * QUANTILE - 1e-9);
        qsort(worst, (size_t)n, sizeof *worst, wnw__ascending_f64);
        curve[k] = rank <= n ? worst[rank - 1] : 1;
        kept[k] /= n;
    }
}

/* Adds to the report how the pieces that were not learned from fare, and returns it: rows of bound, share dropped, share
 * that stays, pieces, and how many of them keep the bound. */
static json_t *check(const struct work *w, int32_t s, const double *curve, struct wnw__calibrate_text *out)
{
    double rows[N_BOUND * 5];
    for (int32_t b = 0; b < N_BOUND; b++) {
        const int32_t k = wnw__quality_share(curve, N_SHARE, bounds[b]);
        int32_t n = 0, within = 0;
        double kept = 0;
        for (int32_t i = 0; i < w->n; i++) {
            if (!is_held_out(i))
                continue;
            within += k < 0 || w->all[i].loss[s][k] <= 1 - bounds[b];
            kept += k < 0 ? 1 : w->all[i].kept[s][k];
            n++;
        }
        const double row[] = {bounds[b], k < 0 ? 0 : shares[k], kept / n, n, within};
        memcpy(rows + b * 5, row, sizeof row);
        wnw__calibrate_print(
            out,
            "  held out, %4.2f asked for: %5.1f %% of the scores go, %5.1f %% of the entries stay; "
            "%d of %d texts keep it\n",
            bounds[b], 100 * row[1], 100 * row[2], (int)within, (int)n);
    }
    return wnw__json_f64_rows(rows, N_BOUND, 5);
}

static int add_scorer(const struct work *w, int32_t s, json_t *results, struct wnw__calibrate_text *out)
{
    double curve[N_SHARE], kept[N_SHARE], *worst = calloc((size_t)w->n, sizeof *worst);
    char key[32];
    if (!worst)
        return wnw__fail(WNW_E_NOMEM, "no memory for the losses of %d pieces", (int)w->n);
    make_curve(w, s, curve, kept, worst);
    free(worst);
    wnw__calibrate_print(out, "%s\n", wnw__quality_scorers[s].name);
    for (int32_t k = 0; k < N_SHARE; k++)
        wnw__calibrate_print(
            out, "  %5.1f %% of the scores go: %5.1f %% of the entries stay, the loss is below %.4f\n",
            100 * shares[k], 100 * kept[k], curve[k]);
    bool good =
        json_object_set_new(results, wnw__quality_scorers[s].name, wnw__json_f64s(curve, N_SHARE)) == 0;
    snprintf(key, sizeof key, "%s_kept", wnw__quality_scorers[s].name);
    good = good && json_object_set_new(results, key, wnw__json_f64s(kept, N_SHARE)) == 0;
    snprintf(key, sizeof key, "%s_held_out", wnw__quality_scorers[s].name);
    good = good && json_object_set_new(results, key, check(w, s, curve, out)) == 0;
    return good ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the results");
}

static int finish(struct work *w)
{
    struct wnw__calibrate_text *out;
    json_t *results = json_pack("{s:o}", "dropped", wnw__json_f64s(shares, N_SHARE));
    int rc = wnw__calibrate_output(w->c, "report", &out);
    wnw__calibrate_print(out,
                         "what is lost of next tokens' probabilities: %d texts, a third of them held out; "
                         "bounds for %.0f %%\n",
                         (int)w->n, 100 * QUANTILE);
    for (int32_t s = 0; rc == WNW_OK && s < WNW_N_QUALITY; s++)
        if (w->used[s])
            rc = add_scorer(w, s, results, out);
    if (rc != WNW_OK) {
        json_decref(results);
        return rc;
    }
    json_t *more = json_pack("{s:i, s:f, s:i}", "measured_pieces", (int)w->n, "quantile", QUANTILE,
                             "held_out", (int)(w->n / HELD_OUT));
    return wnw__calibrate_profile(w->c, "quality.json", "quality", more, results);
}

/* ---- The run ---- */

/* One policy for each share and each scorer whose gates are available. */
static int parse_policies(struct work *w)
{
    char recipe[64];
    for (int32_t s = 0; s < WNW_N_QUALITY; s++) {
        const struct wnw__quality_scorer *of = &wnw__quality_scorers[s];
        w->used[s] = of->kind < 0 || wnw_profile_kinds(w->c->params.profile) >> of->kind & 1u;
        for (int32_t k = 0; w->used[s] && k < N_SHARE; k++) {
            snprintf(recipe, sizeof recipe, "%s+quality:dropped=%g", wnw__quality_recipe(s), shares[k]);
            WNW_TRY(wnw_policy_parse(&w->policies[w->n_policy], recipe, NULL));
            w->n_policy++;
        }
    }
    return WNW_OK;
}

/* Says in the settings which gates were measured. */
static int name_gates(const struct work *w)
{
    for (int32_t s = 0; s < WNW_N_QUALITY; s++) {
        const int32_t kind = wnw__quality_scorers[s].kind;
        char hash[17];
        if (kind < 0 || !w->used[s])
            continue;
        snprintf(hash, sizeof hash, "%016llx",
                 (unsigned long long)wnw__profile_hash(w->c->params.profile, 1u << kind));
        WNW_TRY(wnw__calibrate_set(w->c, wnw_profile_kind_name(kind), json_string(hash)));
    }
    return WNW_OK;
}

static int prepare(struct work *w)
{
    const struct opts *o = w->o;
    const int32_t n_text = w->c->params.n_texts,
                  n = wnw__effort_value(w->c, o->pieces, (struct wnw__by_effort){60, 45, 150});
    WNW_TRY(parse_policies(w));
    w->next = o->next > 0 ? o->next : 32;
    /* Replay needs positions after the piece, as many as it has, and the template's. */
    WNW_TRY(wnw__sample_length(&w->length, w->c, o->length, (struct wnw__by_effort){512, 384, 1024},
                               (w->c->info.n_ctx_train + w->next) / 2 + 16));
    if (w->next > w->length)
        return wnw__fail(WNW_E_ARG, "next is %d and length %d; a passage of the piece is read once more",
                         (int)w->next, (int)w->length);
    WNW_TRY(wnw__samples_cut(&w->samples, w->c, w->length, w->next, (n + n_text - 1) / n_text));
    const int32_t n_piece = wnw__samples_n(&w->samples);
    if (n_piece < LEAST)
        return wnw__fail(
            WNW_E_RANGE,
            "the texts give %d pieces of %d tokens; a bound for 95 %% needs at least %d: give longer texts "
            "or a smaller length",
            (int)n_piece, (int)w->length, (int)LEAST);
    w->all = calloc((size_t)n_piece, sizeof *w->all);
    if (!w->all)
        return wnw__fail(WNW_E_NOMEM, "no memory for the losses of %d pieces", (int)n_piece);
    WNW_TRY(wnw__calibrate_set(w->c, "pieces", json_integer(n)));
    WNW_TRY(wnw__calibrate_set(w->c, "length", json_integer(w->length)));
    WNW_TRY(wnw__calibrate_set(w->c, "next", json_integer(w->next)));
    WNW_TRY(name_gates(w));
    return wnw__calibrate_begin(w->c, (int64_t)n_piece * w->length);
}

static int work(struct work *w)
{
    WNW_TRY(prepare(w));
    for (w->i_text = 0; w->i_text < w->samples.n_text; w->i_text++)
        for (w->i_piece = 0; w->i_piece < w->samples.n_piece[w->i_text]; w->i_piece++)
            WNW_TRY(do_piece(w));
    return finish(w);
}

static int run(wnw_calibration *c, const void *opts)
{
    struct work w = {.c = c, .o = opts};
    const int rc = work(&w);
    for (int32_t i = 0; i < w.n_policy; i++)
        wnw_policy_free(w.policies[i]);
    wnw__samples_free(&w.samples);
    free(w.all);
    return rc;
}

static const wnw_option options[] = {
    {.name = "pieces",
     .help = "pieces of all texts, at most; 0 = 45, 60, 150 (quick, normal, paper)",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, pieces),
     .max = 10000},
    {.name = "length",
     .help = "tokens of a piece; 0 = 384, 512, 1024, or what fits",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, length),
     .max = 1000000},
    {.name = "next",
     .help = "tokens that are read on, after the piece and once more from it; 0 = 32",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, next),
     .max = 1000000},
    {0}};

const struct wnw__calibrate_type wnw__calibrate_quality = {
    .name = "quality",
    .about = "What is lost of next tokens when entries go, by their scores, for --keep-quality.",
    .options = options,
    .options_size = sizeof(struct opts),
    .reads_text = true,
    .run = run,
};
