/* SPDX-License-Identifier: MIT */
/*
 * Layer errors: how much the output of every layer's attention block suffers when few entries are left. Paper:
 * "CompressKV: Semantic Retrieval Heads Know What Tokens are Not Important Before Generation" (arXiv
 * 2508.02401), section 3.2. A sample of a text is read, and the policy chooses the `keep` entries per layer and KV head that it
 * would keep. Nothing is evicted. Then the model goes on with the full cache, and at every step t
 *
 *     e_lt = || O_kept - O_full || / (|| O_full || + 1e-5)           layer_error.h
 *
 * with the kept entries and those of the generated tokens. The first generated token comes from the prompt and
 * has no step. Layers do not influence each other, because the full output is what flows on.
 *
 *     e_l of a sample = mean over its steps    agg=mean; its sum as in the authors' program: agg=sum;
 *     e_l of a set    = sum over its samples,  n_l = e_l / sum_l e_l                     (equation 10);
 *     avg_score_l     = mean over sets of n_l, over the sum                              (equations 11 and 12)
 *
 * A set is a text, how its samples end and how long they are. Each sample is read without changes, and as a document with a
 * question after it (ends), at every length. A shorter sample is the end of a longer one, so that lengths differ only in the
 * tokens before. A step with a value that is not a number is dropped and counted. Layers with a sliding window have share 0.
 */
#include "base/json.h"
#include "base/vectors.h"
#include "calibrate/calibrate.h"
#include "calibrate/layer_error.h"
#include "calibrate/sample.h"
#include "observe/newest.h"
#include "observe/recorders.h"
#include "session/run/run.h"
#include "session/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum agg { AGG_MEAN, AGG_SUM };
enum tokens { TOKENS_GREEDY, TOKENS_TEXT };

enum ends { ENDS_BOTH, ENDS_TEXT, ENDS_QUESTION };

struct opts {
    int32_t keep, length, lengths, samples, generate, agg, tokens, ends;
};

/* What the samples of a set have in common. */
struct set {
    int32_t i_text, length;
    bool asks;     /* a question follows each */
    double *share; /* [n_layer] part of work.shares */
    bool any;      /* an error was measured */
};

struct work {
    wnw_calibration *c;
    const struct opts *o;
    wnw_policy *policy;
    struct wnw__samples samples;
    int32_t n_generate;
    struct set *
        sets; /* [n_sets] in the order of texts, longest first, without questions first; owned as what follows */
    int32_t n_sets, n_lengths;
    double *shares, *set, *share; /* [n_sets][n_layer]; [n_layer] errors of the current set, shares of all */
    int32_t n_step, n_dropped, n_sample;
    struct wnw__calibrate_text *dump;
    /* The current sample. */
    const struct set *of;
    int32_t i_piece;
    wnw_session *s;
    wnw_plan *plan;
    double *error; /* [n_generate][n_layer] */
};

/* ---- One sample ---- */

/* The first one of the sample's w->of->length tokens. */
static const int32_t *sample_tokens(const struct work *w)
{
    return wnw__samples_piece(&w->samples, w->of->i_text, w->i_piece) + w->samples.length - w->of->length;
}

/* Begins a session of n tokens that observes for the policy; prompt NULL = plain text. */
static int new_session(struct work *w, int32_t n, const wnw_prompt *prompt)
{
    const wnw_policy *policy = w->policy;
    const wnw_run run = {WNW_INIT(wnw_run), .profile = w->c->params.profile, .prompt = prompt,
                         .more =
                             &(wnw_run_more){WNW_INIT(wnw_run_more), .policies = &policy, .n_policies = 1}};
    WNW_TRY(wnw__calibrate_session(&w->s, w->c, n + w->n_generate + 1));
    return wnw_session_begin(w->s, &run);
}

static int read_plain(struct work *w)
{
    const struct wnw__samples *of = &w->samples;
    WNW_TRY(new_session(w, of->n_bos + w->of->length, NULL));
    if (of->n_bos > 0)
        WNW_TRY(wnw_session_prefill(w->s, of->bos, of->n_bos, NULL, NULL));
    return wnw_session_prefill(w->s, sample_tokens(w), w->of->length, NULL, NULL);
}

/* The caller frees *text and *prompt in any case. */
static int ask_and_read(struct work *w, char **text, wnw_prompt **prompt)
{
    WNW_TRY(wnw__sample_text(text, w->c, sample_tokens(w), w->of->length));
    WNW_TRY(wnw__sample_prompt(prompt, w->c, *text, w->i_piece % WNW_N_QUESTIONS));
    WNW_TRY(new_session(w, (*prompt)->n_tokens, *prompt));
    return wnw_session_prefill(w->s, (*prompt)->tokens, (*prompt)->n_tokens, NULL, NULL);
}

/* Reads the sample as a document with a question after it; each has another question. */
static int read_asked(struct work *w)
{
    wnw_prompt *prompt = NULL;
    char *text = NULL;
    const int rc = ask_and_read(w, &text, &prompt);
    wnw_prompt_free(prompt);
    wnw_free(text);
    return rc;
}

static int read_prompt(struct work *w)
{
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = w->o->keep};
    WNW_TRY(w->of->asks ? read_asked(w) : read_plain(w));
    WNW_TRY(wnw_session_plan(w->s, w->policy, &size, &w->plan, NULL));
    wnw__session_end_observing(w->s);
    return wnw__session_record(w->s, wnw__outputs_recorder.name, true);
}

/* The error of the newest token in layer il. */
static int error_of_layer(const struct work *w, int32_t il, double *error)
{
    const wnw_session *s = w->s;
    const struct wnw__hparams *hp = &s->m->hp;
    WNW_TRY(wnw__proj_check(s->m, il));
    const struct wnw__proj_weight weight = wnw__proj_weight_of(s->m, il);
    const struct wnw__outputs *rows = wnw__recorders_find(&s->recorders, &wnw__outputs_recorder);
    const int32_t **keep = calloc((size_t)hp->n_head_kv, sizeof *keep);
    int32_t *n_keep = calloc((size_t)hp->n_head_kv, sizeof *n_keep);
    int rc = keep && n_keep ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the entries of a layer");
    for (int32_t ih = 0; rc == WNW_OK && ih < hp->n_head_kv; ih++)
        n_keep[ih] = wnw_plan_head(w->plan, il, ih, &keep[ih]); /* entry i of a full cache is position i */
    struct wnw__layer_token t = {.cache = &s->cache,
                                 .il = il,
                                 .scale = hp->attn_scale,
                                 .form = wnw__shape_form(&w->c->shape, il),
                                 .w = &weight,
                                 .pool = wnw__engine_pool(s->engine),
                                 .keep = keep,
                                 .n_keep = n_keep,
                                 .n_prompt = wnw_plan_n_tokens(w->plan)};
    t.q = wnw__outputs_of(rows, il, &t.out);
    if (rc == WNW_OK)
        rc = wnw__layer_error(error, &t);
    free(keep);
    free(n_keep);
    return rc;
}

/* The errors of the newest token in all layers; all are -1 if one of them is not a number. */
static int error_of_step(const struct work *w, double *error)
{
    const int32_t n_layer = w->c->info.n_layer;
    bool finite = true;
    for (int32_t il = 0; il < n_layer; il++) {
        error[il] = 0;
        if (wnw__layer_takes_part(&w->c->shape, il))
            WNW_TRY(error_of_layer(w, il, &error[il]));
        finite = finite && isfinite(error[il]);
    }
    for (int32_t il = 0; il < n_layer && !finite; il++)
        error[il] = -1;
    return WNW_OK;
}

static int32_t next_token(const struct work *w, int32_t step)
{
    const float *logits = wnw_session_logits(w->s);
    if (w->o->tokens == TOKENS_TEXT)
        return sample_tokens(w)[w->of->length + step];
    return wnw__argmax(logits, w->c->info.n_vocab);
}

static int measure(struct work *w, json_t **result)
{
    int32_t n = 0;
    WNW_TRY(read_prompt(w));
    for (; n < w->n_generate; n++) {
        const int32_t token = next_token(w, n);
        if (w->o->tokens == TOKENS_GREEDY && wnw_token_is_eog(w->c->m, token))
            break;
        WNW_TRY(wnw_session_decode(w->s, token));
        WNW_TRY(error_of_step(w, w->error + (int64_t)n * w->c->info.n_layer));
        WNW_TRY(wnw__calibrate_progress(w->c, (double)(w->of->length + n) / (w->of->length + w->n_generate)));
    }
    *result =
        json_pack("{s:i, s:o}", "steps", (int)n, "errors", wnw__json_f64s(w->error, n * w->c->info.n_layer));
    return *result ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the errors of a sample");
}

static int run_sample(wnw_calibration *c, void *user, json_t **result)
{
    struct work *w = user;
    (void)c;
    const int rc = measure(w, result);
    wnw_plan_free(w->plan);
    wnw_session_free(w->s);
    w->plan = NULL;
    w->s = NULL;
    return rc;
}

/* ---- All samples ---- */

static void dump_sample(const struct work *w, int32_t n)
{
    const int32_t n_layer = w->c->info.n_layer;
    for (int32_t t = 0; w->dump && t < n; t++)
        for (int32_t il = 0; il < n_layer; il++)
            wnw__calibrate_print(w->dump, "%d,%d,%d,%d,%.9g,%d,%d\n", (int)w->of->i_text, (int)w->i_piece,
                                 (int)t, (int)il, w->error[(int64_t)t * n_layer + il], (int)w->of->length,
                                 w->of->asks);
}

static int add_sample(struct work *w)
{
    char name[64];
    json_t *result;
    snprintf(name, sizeof name, "text %d, %d tokens, %ssample %d", (int)w->of->i_text, (int)w->of->length,
             w->of->asks ? "question, " : "", (int)w->i_piece);
    const struct wnw__calibrate_unit unit = {
        .name = name, .cost = w->of->length + w->n_generate, .run = run_sample, .user = w};
    WNW_TRY(wnw__calibrate_unit(w->c, &unit, &result));
    const int32_t n_layer = w->c->info.n_layer;
    const json_t *steps = json_object_get(result, "steps");
    const json_int_t n = json_is_integer(steps) ? json_integer_value(steps) : -1;
    const bool good =
        n >= 0 && n <= w->n_generate && wnw__json_get_f64s(result, "errors", w->error, (int32_t)n * n_layer);
    json_decref(result);
    if (!good)
        return wnw__calibrate_damaged(w->c, name);
    dump_sample(w, (int32_t)n);
    for (int32_t t = 0; t < (int32_t)n; t++)
        w->n_dropped += w->error[(int64_t)t * n_layer] < 0;
    w->n_step += (int32_t)n;
    w->n_sample += wnw__layer_add_sample(w->error, (int32_t)n, n_layer, w->o->agg == AGG_MEAN, w->set);
    return WNW_OK;
}

/* The set's name: that of its text, how long its samples are, and whether they end with a question. */
static char *set_name(const struct work *w, const struct set *set)
{
    char *name;
    const char *text = w->c->params.texts[set->i_text].name;
    const int n = asprintf(&name, "%s, %d tokens%s", text, (int)set->length, set->asks ? ", question" : "");
    return n < 0 ? NULL : name;
}

/* Adds the share of every layer in the errors of a set; a set without any error has none. */
static int end_set(struct work *w, struct set *set, json_t *per_set)
{
    const int32_t n_layer = w->c->info.n_layer;
    set->any = wnw__layer_add_set(w->set, n_layer, set->share);
    for (int32_t il = 0; il < n_layer; il++)
        w->share[il] += set->share[il];
    char *name = set_name(w, set);
    const bool good =
        name && (!set->any || json_object_set_new(per_set, name, wnw__json_f64s(set->share, n_layer)) == 0);
    free(name);
    return good ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the shares of a set");
}

static int run_sets(struct work *w, json_t *per_set)
{
    for (int32_t i = 0; i < w->n_sets; i++) {
        w->of = &w->sets[i];
        memset(w->set, 0, (size_t)w->c->info.n_layer * sizeof *w->set);
        for (w->i_piece = 0; w->i_piece < w->samples.n_piece[w->of->i_text]; w->i_piece++)
            WNW_TRY(add_sample(w));
        WNW_TRY(end_set(w, &w->sets[i], per_set));
    }
    if (json_object_size(per_set) == 0)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "no error could be measured: the model ends its text at once, computes values that are "
            "not numbers, or the policy keeps everything");
    wnw__layer_normalise(w->share, w->c->info.n_layer);
    return WNW_OK;
}

/* ---- The results ---- */

static int report(const struct work *w, struct wnw__calibrate_text *out)
{
    int32_t n_sets = 0;
    for (int32_t i = 0; i < w->n_sets; i++)
        n_sets += w->sets[i].any;
    wnw__calibrate_print(out, "layer errors: %d samples in %d sets, %d steps, %d dropped\n", (int)w->n_sample,
                         (int)n_sets, (int)w->n_step, (int)w->n_dropped);
    double most = 0;
    for (int32_t il = 0; il < w->c->info.n_layer; il++)
        most = w->share[il] > most ? w->share[il] : most;
    for (int32_t il = 0; il < w->c->info.n_layer; il++) {
        const int n_bar = (int)(40 * w->share[il] / most + 0.5);
        wnw__calibrate_print(out, "layer %3d  %.4f  %.*s\n", (int)il, w->share[il], n_bar,
                             "########################################");
    }
    return WNW_OK;
}

/* ---- How shares move from set to set ---- */

/* Which sets are compared: those of one length, kind of end or text with all others. */
enum part { PART_LENGTH, PART_ENDS, PART_TEXT, N_PARTS };

static bool in_part(const struct set *set, enum part part, int32_t value)
{
    const int32_t values[N_PARTS] = {
        [PART_LENGTH] = set->length, [PART_ENDS] = set->asks, [PART_TEXT] = set->i_text};
    return values[part] == value;
}

/* The mean share of each layer over the sets that are in the part, or over the others. False: there are none. */
static bool mean_share(const struct work *w, enum part part, int32_t value, bool in, double *share)
{
    const int32_t n_layer = w->c->info.n_layer;
    int32_t n = 0;
    memset(share, 0, (size_t)n_layer * sizeof *share);
    for (int32_t i = 0; i < w->n_sets; i++) {
        if (!w->sets[i].any || in_part(&w->sets[i], part, value) != in)
            continue;
        for (int32_t il = 0; il < n_layer; il++)
            share[il] += w->sets[i].share[il];
        n++;
    }
    wnw__layer_normalise(share, n_layer);
    return n > 0;
}

/* Compares the sets of a part with the others. room: [2][n_layer]. */
static bool put_moves(const struct work *w, enum part part, int32_t value, const char *name, double *room,
                      json_t *moves, struct wnw__calibrate_text *out)
{
    const int32_t n_layer = w->c->info.n_layer;
    double *here = room, *there = room + n_layer;
    if (!mean_share(w, part, value, true, here) || !mean_share(w, part, value, false, there))
        return true; /* there is nothing to compare with */
    int32_t most;
    const double overlap = wnw__layer_overlap(here, there, n_layer, &most);
    wnw__calibrate_print(out, "%s and the others: %.3f in common; layer %d moves most, %.4f to %.4f\n", name,
                         overlap, (int)most, there[most], here[most]);
    json_t *one = json_pack("{s:f, s:i, s:o}", "overlap", overlap, "layer", (int)most, "share",
                            wnw__json_f64s(here, n_layer));
    return one && json_object_set_new(moves, name, one) == 0;
}

/* How the shares move with length, end and text. */
static bool set_moves(const struct work *w, json_t *moves, struct wnw__calibrate_text *out)
{
    double *room = malloc(2 * (size_t)w->c->info.n_layer * sizeof *room);
    bool good = room && moves;
    char name[64];
    for (int32_t i = 0; good && i < w->n_lengths; i++) {
        snprintf(name, sizeof name, "samples of %d tokens", (int)(w->samples.length >> i));
        good = put_moves(w, PART_LENGTH, w->samples.length >> i, name, room, moves, out);
    }
    good = good && put_moves(w, PART_ENDS, true, "samples with a question", room, moves, out);
    for (int32_t i = 0; good && i < w->samples.n_text; i++)
        good = put_moves(w, PART_TEXT, i, w->c->params.texts[i].name, room, moves, out);
    free(room);
    return good;
}

static int finish(struct work *w, json_t *per_set)
{
    struct wnw__calibrate_text *out;
    WNW_TRY(wnw__calibrate_output(w->c, "report", &out));
    WNW_TRY(report(w, out));
    json_t *more = json_pack("{s:i, s:i, s:i}", "measured_samples", (int)w->n_sample, "measured_steps",
                             (int)w->n_step, "dropped_steps", (int)w->n_dropped);
    json_t *moves = json_object();
    json_t *results = json_pack("{s:o, s:O, s:O}", "avg_score", wnw__json_f64s(w->share, w->c->info.n_layer),
                                "per_set", per_set, "moves", moves);
    if (!set_moves(w, moves, out)) {
        json_decref(results);
        results = NULL;
    }
    json_decref(moves);
    return wnw__calibrate_profile(w->c, "layers.json", "layers", more, results);
}

/* Tokens of a question and of a template's parts, at most. */
enum { ASKING = 160, SHORTEST = 32 };

/* Whether sets with (asks) or without questions are measured. What the text goes on with answers no question. */
static bool has_ends(const struct opts *o, bool asks)
{
    return asks ? o->ends != ENDS_TEXT && o->tokens != TOKENS_TEXT : o->ends != ENDS_QUESTION;
}

/* Checks the samples' lengths: each is half of the one before it. One that nobody asked for may not be too short. */
static int check_lengths(struct work *w, int32_t length)
{
    const struct opts *o = w->o;
    const bool half = length / 2 >= SHORTEST && length / 2 > 2 * o->keep;
    w->n_lengths = half ? 2 : 1;
    if (o->lengths > 0)
        w->n_lengths = o->lengths;
    if (length >> (w->n_lengths - 1) > o->keep)
        return WNW_OK;
    return wnw__fail(WNW_E_RANGE,
                     "samples of %d tokens with %d kept: give a larger length, a smaller keep or fewer "
                     "lengths",
                     (int)(length >> (w->n_lengths - 1)), (int)o->keep);
}

/* Settles what is read, by which policy, and how much of it. */
static int prepare(struct work *w)
{
    const struct opts *o = w->o;
    const int32_t n_most = wnw__effort_value(w->c, o->samples, (struct wnw__by_effort){4, 2, 32});
    int32_t length;
    w->n_generate = wnw__effort_value(w->c, o->generate, (struct wnw__by_effort){64, 32, 128});
    if (o->tokens == TOKENS_TEXT && o->ends == ENDS_QUESTION)
        return wnw__fail(WNW_E_ARG, "ends=question wants the model's answers: leave out tokens=text");
    /* One position for a BOS, one because the last generated token is not read. */
    WNW_TRY(wnw__sample_length(&length, w->c, o->length, (struct wnw__by_effort){2048, 1024, 8192},
                               w->n_generate + 2 + (has_ends(o, true) ? ASKING : 0)));
    WNW_TRY(check_lengths(w, length));
    if (w->c->info.n_layer_swa == w->c->info.n_layer)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "all layers of the model have a sliding window; policies leave them alone");
    WNW_TRY(
        wnw__samples_cut(&w->samples, w->c, length, o->tokens == TOKENS_TEXT ? w->n_generate : 0, n_most));
    WNW_TRY(wnw__calibrate_policy(&w->policy, w->c, "compresskv+uniform"));
    WNW_TRY(wnw__calibrate_set(w->c, "length", json_integer(length)));
    WNW_TRY(wnw__calibrate_set(w->c, "lengths", json_integer(w->n_lengths)));
    WNW_TRY(wnw__calibrate_set(w->c, "samples", json_integer(n_most)));
    return wnw__calibrate_set(w->c, "generate", json_integer(w->n_generate));
}

/* Makes the list of sets. */
static int make_sets(struct work *w)
{
    const size_t n_layer = (size_t)w->c->info.n_layer,
                 most = 2 * (size_t)w->samples.n_text * (size_t)w->n_lengths;
    w->sets = calloc(most, sizeof *w->sets);
    w->shares = calloc(most * n_layer, sizeof *w->shares);
    if (!w->sets || !w->shares)
        return wnw__fail(WNW_E_NOMEM, "no memory for %zu sets", most);
    for (int32_t i = 0; i < w->samples.n_text; i++)
        for (int32_t k = 0; k < w->n_lengths; k++)
            for (int asks = 0; asks < 2; asks++)
                if (has_ends(w->o, asks)) {
                    w->sets[w->n_sets] = (struct set){.i_text = i,
                                                      .length = w->samples.length >> k,
                                                      .asks = asks,
                                                      .share = w->shares + (size_t)w->n_sets * n_layer};
                    w->n_sets++;
                }
    return WNW_OK;
}

static int begin(struct work *w)
{
    int64_t total = 0;
    for (int32_t i = 0; i < w->n_sets; i++)
        total += (int64_t)w->samples.n_piece[w->sets[i].i_text] * (w->sets[i].length + w->n_generate);
    WNW_TRY(wnw__calibrate_begin(w->c, total));
    WNW_TRY(wnw__calibrate_output(w->c, "dump", &w->dump));
    wnw__calibrate_print(w->dump, "text,sample,step,layer,error,tokens,question\n");
    return WNW_OK;
}

static int work(struct work *w)
{
    const size_t n_layer = (size_t)w->c->info.n_layer;
    WNW_TRY(prepare(w));
    WNW_TRY(make_sets(w));
    w->set = calloc(n_layer, sizeof *w->set);
    w->share = calloc(n_layer, sizeof *w->share);
    w->error = calloc(n_layer * (size_t)w->n_generate, sizeof *w->error);
    json_t *per_set = json_object();
    int rc = w->set && w->share && w->error && per_set
                 ? begin(w)
                 : wnw__fail(WNW_E_NOMEM, "no memory for the errors of %zu layers", n_layer);
    if (rc == WNW_OK)
        rc = run_sets(w, per_set);
    if (rc == WNW_OK)
        rc = finish(w, per_set);
    json_decref(per_set);
    return rc;
}

static int run(wnw_calibration *c, const void *opts)
{
    struct work w = {.c = c, .o = opts};
    const int rc = work(&w);
    wnw__samples_free(&w.samples);
    wnw_policy_free(w.policy);
    free(w.sets);
    free(w.shares);
    free(w.set);
    free(w.share);
    free(w.error);
    return rc;
}

static const char *const aggs[] = {"mean", "sum", NULL};
static const char *const tokens[] = {"greedy", "text", NULL};
static const char *const ends[] = {"both", "text", "question", NULL};

static const wnw_option options[] = {
    {.name = "keep",
     .help = "entries per layer and KV head that the policy keeps",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, keep),
     .def = 32,
     .min = 1,
     .max = 1000000},
    {.name = "length",
     .help = "tokens of the longest samples; 0 = 1024, 2048, 8192 (quick, normal, paper)",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, length),
     .max = 10000000},
    {.name = "lengths",
     .help = "lengths of samples, each half of the one before; 0 = 2, or 1 where half would be too short",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, lengths),
     .max = 8},
    {.name = "ends",
     .help = "samples end as the text does, with a question, or both, which are different sets",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, ends),
     .def = ENDS_BOTH,
     .choices = ends},
    {.name = "samples",
     .help = "samples of each set, at most; 0 = 2, 4, 32",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, samples),
     .max = 100000},
    {.name = "generate",
     .help = "steps of each sample, at most; 0 = 32, 64, 128",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, generate),
     .max = 100000},
    {.name = "agg",
     .help = "steps of a sample: their mean, or their sum as in the authors' program",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, agg),
     .def = AGG_MEAN,
     .choices = aggs},
    {.name = "tokens",
     .help = "tokens after a sample: the model's most likely ones, or those of the text",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, tokens),
     .def = TOKENS_GREEDY,
     .choices = tokens},
    {0}};

const struct wnw__calibrate_type wnw__calibrate_layers = {
    .name = "layers",
    .about = "Error of every layer's output when few entries are left, for CompressKV's layer budgets.",
    .options = options,
    .options_size = sizeof(struct opts),
    .reads_text = true,
    .run = run,
};
