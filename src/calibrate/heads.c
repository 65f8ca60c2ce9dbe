/* SPDX-License-Identifier: MIT */
/*
 * Kind "heads": how important every query head is, and which KV heads may stream. Both come from the same
 * probes, long texts with a hidden sentence and a question about it, and from the attention of every generated
 * token, without any training.
 *
 *   score [L][H]   HeadKV's importance (arXiv 2410.19258): attention on the answer in the text as far as it is
 *                  among the largest, summed over the steps, mean over the probes
 *   alpha [L][G]   for DuoAttention (arXiv 2410.10819): the share of a head's attention that lies neither on the
 *                  first `sink` nor on the last `recent` entries, mean over steps, group and probes. The authors
 *                  learn gates instead: they train alpha so that the model's outputs change least.
 *
 * A unit of work is a probe. Probes that the model answers wrongly do not count; where too few are left the
 * answers are fed (see probe_round.h).
 */
#include "base/json.h"
#include "calibrate/probe_round.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>

struct options {
    struct wnw__probe_options probes;
    int32_t sink, recent;
};

struct heads {
    struct wnw__probe_round round;
    const struct options *o;
    int32_t n_head, n_all;
    double *score, *far;         /* [n_all] of one probe */
    double *sum_score, *sum_far; /* [n_all] of the probes that count; parts of one block, as the two above */
    const struct wnw__probe *probe;
    struct wnw__calibrate_text *dump;
};

/* ---- One probe ---- */

static int begin(void *user, const struct wnw__probe *p)
{
    struct heads *s = user;
    s->probe = p;
    memset(s->score, 0, (size_t)s->n_all * sizeof *s->score);
    memset(s->far, 0, (size_t)s->n_all * sizeof *s->far);
    return WNW_OK;
}

static void look(void *user, int32_t il, int32_t h, const float *row, int32_t n, int32_t token)
{
    struct heads *s = user;
    const int64_t i = (int64_t)il * s->n_head + h;
    (void)token;
    s->score[i] += wnw__importance(row, n, s->probe->span);
    s->far[i] += wnw__far_share(row, n, s->o->sink, s->o->recent);
}

static bool write_result(void *user, json_t *v)
{
    struct heads *s = user;
    for (int32_t i = 0; i < s->n_all; i++)
        s->far[i] /= s->round.play.n > 0 ? s->round.play.n : 1;
    return !s->round.answered || (json_object_set_new(v, "score", wnw__json_f64s(s->score, s->n_all)) == 0 &&
                                  json_object_set_new(v, "far", wnw__json_f64s(s->far, s->n_all)) == 0);
}

static bool read_result(void *user, const json_t *v)
{
    const struct heads *s = user;
    return !s->round.answered || (wnw__json_get_f64s(v, "score", s->score, s->n_all) &&
                                  wnw__json_get_f64s(v, "far", s->far, s->n_all));
}

static int take(void *user, const struct wnw__probe *p)
{
    struct heads *s = user;
    for (int32_t i = 0; i < s->n_all; i++) {
        s->sum_score[i] += s->score[i];
        s->sum_far[i] += s->far[i];
    }
    wnw__probe_round_dump(&s->round, s->dump, p, s->score, s->far);
    return WNW_OK;
}

static void forget(void *user)
{
    struct heads *s = user;
    memset(s->sum_score, 0, 2 * (size_t)s->n_all * sizeof *s->sum_score);
}

static const struct wnw__probe_scoring scoring = {
    .nothing = "nothing to measure",
    .numbers = "numbers",
    .begin = begin,
    .look = look,
    .write = write_result,
    .read = read_result,
    .take = take,
    .forget = forget,
};

/* ---- Results ---- */

/* alpha[n_layer][n_head_kv] from the sums of the query heads. */
static json_t *alpha_json(const struct heads *s)
{
    const wnw_model_info *m = &s->round.c->info;
    const int32_t group = m->n_head / m->n_head_kv, n = m->n_layer * m->n_head_kv;
    double *alpha = calloc((size_t)n, sizeof *alpha);
    for (int32_t i = 0; alpha && i < s->n_all; i++)
        alpha[i / group] += s->sum_far[i] / ((double)s->round.n_counted * group);
    for (int32_t i = 0; alpha && i < n; i++)
        alpha[i] = alpha[i] < 1 ? alpha[i] : 1; /* a sum of rounded shares may be above */
    json_t *v = alpha ? wnw__json_f64_rows(alpha, m->n_layer, m->n_head_kv) : NULL;
    free(alpha);
    return v;
}

static int finish(struct heads *s)
{
    wnw_calibration *c = s->round.c;
    struct wnw__calibrate_text *report;
    WNW_TRY(wnw__calibrate_output(c, "report", &report));
    wnw__probe_round_report(&s->round, report);
    for (int32_t i = 0; i < s->n_all; i++)
        s->sum_score[i] /= s->round.n_counted;
    json_t *results =
        json_pack("{s:o, s:o}", "score", wnw__json_f64_rows(s->sum_score, c->info.n_layer, s->n_head),
                  "alpha", alpha_json(s));
    if (results && !wnw__probe_round_set(&s->round, results)) {
        json_decref(results);
        results = NULL;
    }
    return wnw__calibrate_profile(c, "heads.json", "heads", NULL, results);
}

/* ---- The run ---- */

static int prepare(struct heads *s)
{
    s->score = calloc(4 * (size_t)s->n_all, sizeof *s->score);
    if (!s->score)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %d heads", (int)s->n_all);
    s->far = s->score + s->n_all;
    s->sum_score = s->far + s->n_all;
    s->sum_far = s->sum_score + s->n_all;
    WNW_TRY(wnw__calibrate_output(s->round.c, "dump", &s->dump));
    wnw__calibrate_print(s->dump, "probe,layer,head,importance,far\n");
    return WNW_OK;
}

static int measure(struct heads *s)
{
    WNW_TRY(wnw__probe_round_open(&s->round));
    WNW_TRY(prepare(s));
    WNW_TRY(wnw__probe_round_run(&s->round));
    return finish(s);
}

static int run(wnw_calibration *c, const void *opts)
{
    const struct options *o = opts;
    struct heads s = {.o = o, .n_head = c->info.n_head, .n_all = c->info.n_layer * c->info.n_head};
    s.round = (struct wnw__probe_round){
        .c = c, .o = &o->probes, .scoring = &scoring, .user = &s, .play.stop_at_line = true};
    const int rc = measure(&s);
    wnw__probe_round_free(&s.round);
    free(s.score);
    return rc;
}

static const wnw_option table[] = {
    WNW_PROBE_GRID_OPTIONS,
    WNW_PROBE_ANSWER_OPTIONS,
    WNW_KIND_INT(struct options, sink, 128, 1, 1 << 24, "alpha: first entries that streaming heads keep"),
    WNW_KIND_INT(struct options, recent, 256, 1, 1 << 24, "alpha: recent entries that streaming heads keep"),
    {0},
};

const struct wnw__calibrate_type wnw__calibrate_heads = {
    .name = "heads",
    .about = "Importance of query heads, for HeadKV; which KV heads may stream, for DuoAttention.",
    .options = table,
    .options_size = sizeof(struct options),
    .reads_text = true,
    .run = run,
};
