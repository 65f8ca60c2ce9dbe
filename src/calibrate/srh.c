/* SPDX-License-Identifier: MIT */
/*
 * Kind "srh": semantic retrieval heads, and traditional ones next to them, from the same probes ("CompressKV",
 * arXiv 2508.02401; "Retrieval Head", arXiv 2404.15574, both with prompts of plain text: chat=none).
 */
#include "base/json.h"
#include "base/vectors.h"
#include "calibrate/probe_round.h"
#include "winnow_method.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum stop { STOP_LINE, STOP_NEVER };
static const char *const stop_names[] = {"line", "never", NULL};

struct options {
    struct wnw__probe_options probes;
    int32_t stop, multiplicity, top, distinct, k;
};

static const wnw_option table[] = {
    WNW_PROBE_GRID_OPTIONS,
    WNW_KIND_ENUM(
        struct options, stop, stop_names,
        "line: an answer ends with the line; never: all steps are generated, as the paper's code does"),
    WNW_PROBE_ANSWER_OPTIONS,
    WNW_KIND_BOOL(struct options, multiplicity,
                  "semantic: a token that is k times in the answer counts k times, as in the paper's code"),
    WNW_KIND_INT(struct options, top, 1, 1, 64,
                 "traditional: how many of the largest attentions may be the hit"),
    WNW_KIND_BOOL(struct options, distinct, "traditional: a token of the answer counts once"),
    WNW_KIND_INT(struct options, k, 0, 0, 1 << 16,
                 "heads per layer that CompressKV is to use; 0 = an eighth"),
    {0},
};

struct srh {
    struct wnw__probe_round round;
    const struct options *o;
    struct wnw__shape model;
    int32_t n_all;
    /* Sums over the probes that count: semantic and traditional; of all, of every second, of the others. */
    double *sum[2][3];                /* [n_all] each, parts of one block */
    double *fact[2][WNW_PROBE_FACTS]; /* the same of the probes of each fact */
    int32_t n_fact[WNW_PROBE_FACTS];  /* of them */
    /* The current probe. */
    const struct wnw__probe *probe;
    double *score[2]; /* [n_all] semantic, traditional */
    bool *copied;     /* [n_all][probe->span.n] owned */
    struct wnw__calibrate_text *dump, *probes;
};

/* ---- One probe ---- */

static int begin(void *user, const struct wnw__probe *p)
{
    struct srh *s = user;
    s->probe = p;
    for (int kind = 0; kind < 2; kind++)
        memset(s->score[kind], 0, (size_t)s->n_all * sizeof(double));
    free(s->copied);
    s->copied = calloc((size_t)s->n_all * (size_t)p->span.n, sizeof *s->copied);
    return s->copied ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the heads of a probe");
}

static void look(void *user, int32_t il, int32_t h, const float *row, int32_t n, int32_t token)
{
    struct srh *s = user;
    const struct wnw__retrieval_rule rule = {s->o->top, s->o->multiplicity != 0, s->o->distinct != 0};
    const struct wnw__probe *p = s->probe;
    const int64_t i = (int64_t)il * s->model.n_head + h;
    struct wnw__retrieval r = {.semantic = s->score[0][i], .traditional = s->score[1][i]};
    wnw__retrieval_add(&r, &rule,
                       &(struct wnw__retrieval_step){.row = row,
                                                     .n_row = n,
                                                     .prompt = p->tokens,
                                                     .span = p->span,
                                                     .token = token,
                                                     .copied = s->copied + i * p->span.n});
    s->score[0][i] = r.semantic;
    s->score[1][i] = r.traditional;
}

static bool write_result(void *user, json_t *v)
{
    const struct srh *s = user;
    const struct wnw__probe_play *play = &s->round.play;
    return json_object_set_new(v, "recall", json_real(s->round.recall)) == 0 &&
           json_object_set_new(v, "generated", wnw__json_i32s(play->tokens, play->n)) == 0 &&
           (!s->round.answered ||
            (json_object_set_new(v, "semantic", wnw__json_f64s(s->score[0], s->n_all)) == 0 &&
             json_object_set_new(v, "traditional", wnw__json_f64s(s->score[1], s->n_all)) == 0));
}

static bool read_result(void *user, const json_t *v)
{
    struct srh *s = user;
    struct wnw__probe_play *play = &s->round.play;
    const size_t n = json_array_size(json_object_get(v, "generated"));
    if (n > (size_t)play->n_answer || !wnw__json_get_i32s(v, "generated", play->tokens, (int32_t)n))
        return false;
    play->n = (int32_t)n;
    return !s->round.answered || (wnw__json_get_f64s(v, "semantic", s->score[0], s->n_all) &&
                                  wnw__json_get_f64s(v, "traditional", s->score[1], s->n_all));
}

static int write_probe(const struct srh *s, const struct wnw__probe *p)
{
    if (!s->probes)
        return WNW_OK;
    const struct wnw__probe_play *play = &s->round.play;
    json_t *v = json_pack("{s:s, s:o, s:i, s:i, s:o}", "id", p->id, "prompt_tokens",
                          wnw__json_i32s(p->tokens, p->n), "target_first", p->span.first, "target_len",
                          p->span.n, "generated_tokens", wnw__json_i32s(play->tokens, play->n));
    const int rc = wnw__calibrate_line(s->probes, v);
    json_decref(v);
    return rc;
}

static int take(void *user, const struct wnw__probe *p)
{
    struct srh *s = user;
    const int half = 1 + s->round.n_counted % 2;
    for (int kind = 0; kind < 2; kind++)
        for (int32_t i = 0; i < s->n_all; i++) {
            s->sum[kind][0][i] += s->score[kind][i];
            s->sum[kind][half][i] += s->score[kind][i];
            s->fact[kind][p->fact][i] += s->score[kind][i];
        }
    s->n_fact[p->fact]++;
    wnw__probe_round_dump(&s->round, s->dump, p, s->score[0], s->score[1]);
    return write_probe(s, p);
}

static void forget(void *user)
{
    struct srh *s = user;
    memset(s->sum[0][0], 0, (6 + 2 * WNW_PROBE_FACTS) * (size_t)s->n_all * sizeof(double));
    memset(s->n_fact, 0, sizeof s->n_fact);
}

static const struct wnw__probe_scoring scoring = {
    .nothing = "nothing to score",
    .numbers = "scores",
    .begin = begin,
    .look = look,
    .write = write_result,
    .read = read_result,
    .take = take,
    .forget = forget,
};

/* ---- Results ---- */

static const char *const kinds[2] = {"srh", "trad"};
static const char *const titles[2] = {"semantic", "traditional"};

static int set_scores(struct srh *s, json_t *results)
{
    int32_t *rank = malloc((size_t)s->n_all * sizeof *rank);
    bool good = rank != NULL;
    for (int kind = 0; good && kind < 2; kind++) {
        double *mean = s->sum[kind][0];
        char key[16];
        for (int32_t i = 0; i < s->n_all; i++)
            mean[i] /= s->round.n_counted;
        for (int32_t il = 0; il < s->model.n_layer; il++)
            wnw__rank_heads(mean + (int64_t)il * s->model.n_head, s->model.n_head,
                            rank + (int64_t)il * s->model.n_head);
        snprintf(key, sizeof key, "%s_mean", kinds[kind]);
        good = json_object_set_new(results, kinds[kind],
                                   wnw__json_i32_rows(rank, s->model.n_layer, s->model.n_head)) == 0 &&
               json_object_set_new(results, key,
                                   wnw__json_f64_rows(mean, s->model.n_layer, s->model.n_head)) == 0;
    }
    free(rank);
    return good ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the ranks of heads");
}

/* ---- Stability ---- */

/* Whether a layer has a score in which heads differ: a ranking of zeros alone says nothing. */
static bool ranks(const double *layer, int32_t n_head)
{
    bool any = false;
    for (int32_t h = 0; h < n_head; h++)
        any = any || layer[h] > 0;
    return any;
}

/* How many of the k best heads of a layer two facts have in common: the mean over pairs of facts; NaN where no two rank it. */
static double same_best(const struct srh *s, int kind, int32_t il, int32_t k)
{
    const int64_t at = (int64_t)il * s->model.n_head;
    double sum = 0;
    int32_t n = 0;
    for (int a = 0; a < WNW_PROBE_FACTS; a++)
        for (int b = a + 1; b < WNW_PROBE_FACTS; b++) {
            const double *x = s->fact[kind][a] + at, *y = s->fact[kind][b] + at;
            if (!ranks(x, s->model.n_head) || !ranks(y, s->model.n_head))
                continue;
            sum += wnw__top_overlap(x, y, s->model.n_head, k);
            n++;
        }
    return n > 0 ? sum / n : NAN;
}

/* Adds "KIND_topK": the mean over the layers, and each of them; null where no two facts rank a layer. */
static bool set_best(const struct srh *s, int kind, int32_t k, json_t *v, struct wnw__calibrate_text *report)
{
    json_t *layers = json_array();
    bool good = layers != NULL;
    double sum = 0;
    int32_t n = 0;
    for (int32_t il = 0; good && il < s->model.n_layer; il++) {
        const double x = same_best(s, kind, il, k);
        good = json_array_append_new(layers, isnan(x) ? json_null() : json_real(x)) == 0;
        sum += isnan(x) ? 0 : x;
        n += !isnan(x);
    }
    char key[32];
    snprintf(key, sizeof key, "%s_top%d", titles[kind], (int)k);
    if (n > 0)
        wnw__calibrate_print(
            report,
            "%s heads: two facts have %.3f of the %d best of a layer in common (mean over %d "
            "layers; %.3f by chance)\n",
            titles[kind], sum / n, (int)k, (int)n, (double)k / s->model.n_head);
    json_t *one = NULL;
    if (good)
        one = json_pack("{s:o, s:O}", "mean", n > 0 ? json_real(sum / n) : json_null(), "layers", layers);
    json_decref(layers);
    return one && json_object_set_new(v, key, one) == 0;
}

/* Whether different facts have the same best heads in each layer. */
static bool set_facts(const struct srh *s, json_t *v, struct wnw__calibrate_text *report)
{
    const int32_t n_head = s->model.n_head, few = n_head < 4 ? n_head : 4;
    int32_t n = 0;
    for (int i = 0; i < WNW_PROBE_FACTS; i++)
        n += s->n_fact[i] > 0;
    bool good = json_object_set_new(v, "facts", json_integer(n)) == 0;
    for (int kind = 0; good && kind < 2; kind++)
        good = set_best(s, kind, 1, v, report) && (few == 1 || set_best(s, kind, few, v, report));
    return good;
}

/* Whether other probes would rank the heads alike: by halves of the probes over all heads, and by facts within each layer,
 * which is where heads are chosen. */
static int set_stability(struct srh *s, json_t *results, struct wnw__calibrate_text *report)
{
    double r[2];
    for (int kind = 0; kind < 2; kind++) {
        WNW_TRY(wnw__rank_correlation(&r[kind], s->sum[kind][1], s->sum[kind][2], s->n_all));
        wnw__calibrate_print(report, "%s heads: rank correlation of two halves of the probes %.3f\n",
                             titles[kind], r[kind]);
    }
    json_t *v = json_pack("{s:f, s:f}", titles[0], r[0], titles[1], r[1]);
    if (v && set_facts(s, v, report) && json_object_set(results, "stability", v) == 0) {
        json_decref(v);
        return WNW_OK;
    }
    json_decref(v);
    return wnw__fail(WNW_E_NOMEM, "no memory for the stability of ranks");
}

/* The heads with the highest scores of all layers. */
static void report_best(const struct srh *s, int kind, struct wnw__calibrate_text *report)
{
    enum { SHOWN = 10 };
    const double *mean = s->sum[kind][0];
    int32_t before = -1;
    wnw__calibrate_print(report, "%s, layer-head:", titles[kind]);
    for (int k = 0; k < SHOWN && k < s->n_all; k++) {
        int32_t best = -1;
        for (int32_t i = 0; i < s->n_all; i++) {
            const bool later =
                before < 0 || mean[i] < mean[before] || (mean[i] == mean[before] && i > before);
            if (later && (best < 0 || mean[i] > mean[best]))
                best = i;
        }
        wnw__calibrate_print(report, " %d-%d %.3f%s", (int)(best / s->model.n_head),
                             (int)(best % s->model.n_head), mean[best],
                             k + 1 < SHOWN && k + 1 < s->n_all ? "," : "");
        before = best;
    }
    wnw__calibrate_print(report, "\n");
}

static int fill_results(struct srh *s, json_t *results, struct wnw__calibrate_text *report)
{
    WNW_TRY(set_scores(s, results));
    WNW_TRY(set_stability(s, results, report));
    if (!wnw__probe_round_set(&s->round, results))
        return wnw__fail(WNW_E_NOMEM, "no memory for results");
    for (int kind = 0; kind < 2; kind++)
        report_best(s, kind, report);
    return WNW_OK;
}

static int finish(struct srh *s)
{
    struct wnw__calibrate_text *report;
    WNW_TRY(wnw__calibrate_output(s->round.c, "report", &report));
    json_t *results = json_object();
    wnw__probe_round_report(&s->round, report);
    const int rc =
        results ? fill_results(s, results, report) : wnw__fail(WNW_E_NOMEM, "no memory for results");
    if (rc == WNW_OK)
        return wnw__calibrate_profile(s->round.c, "srh.json", "srh", NULL, results);
    json_decref(results);
    return rc;
}

/* ---- The run ---- */

static int prepare(struct srh *s)
{
    enum { SUMS = 6, PER_FACT = 2 * WNW_PROBE_FACTS };
    double *block = calloc((SUMS + PER_FACT + 2) * (size_t)s->n_all, sizeof *block);
    s->sum[0][0] = block;
    if (!block)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %d heads", (int)s->n_all);
    for (int i = 0; i < SUMS; i++)
        s->sum[i / 3][i % 3] = block + (int64_t)i * s->n_all;
    for (int i = 0; i < PER_FACT; i++)
        s->fact[i / WNW_PROBE_FACTS][i % WNW_PROBE_FACTS] = block + (int64_t)(SUMS + i) * s->n_all;
    for (int i = 0; i < 2; i++)
        s->score[i] = block + (int64_t)(SUMS + PER_FACT + i) * s->n_all;
    WNW_TRY(wnw__calibrate_output(s->round.c, "dump", &s->dump));
    WNW_TRY(wnw__calibrate_output(s->round.c, "probes", &s->probes));
    wnw__calibrate_print(s->dump, "probe,layer,head,semantic,traditional\n");
    return WNW_OK;
}

static int check_k(wnw_calibration *c, const struct options *o)
{
    if (o->k > c->info.n_head)
        return wnw__fail(WNW_E_RANGE, "srh: k is %d, and a layer has %d heads", (int)o->k,
                         (int)c->info.n_head);
    const int32_t eighth = (c->info.n_head + 4) / 8, usual = eighth > 0 ? eighth : 1;
    return wnw__calibrate_set(c, "k", json_integer(o->k > 0 ? o->k : usual));
}

static int measure(struct srh *s)
{
    WNW_TRY(check_k(s->round.c, s->o));
    WNW_TRY(wnw__probe_round_open(&s->round));
    WNW_TRY(prepare(s));
    WNW_TRY(wnw__probe_round_run(&s->round));
    return finish(s);
}

static int run(wnw_calibration *c, const void *opts)
{
    const struct options *o = opts;
    struct srh s = {.o = o, .model = c->shape};
    s.n_all = s.model.n_layer * s.model.n_head;
    s.round = (struct wnw__probe_round){
        .c = c, .o = &o->probes, .scoring = &scoring, .user = &s, .play.stop_at_line = o->stop == STOP_LINE};
    const int rc = measure(&s);
    wnw__probe_round_free(&s.round);
    free(s.sum[0][0]);
    free(s.copied);
    return rc;
}

const struct wnw__calibrate_type wnw__calibrate_srh = {
    .name = "srh",
    .about = "Semantic and traditional retrieval heads, from questions about a sentence in a long text.",
    .options = table,
    .options_size = sizeof(struct options),
    .reads_text = true,
    .run = run,
};
