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
 * answers are fed (see srh.c).
 */
#include "calibrate/importance.h"
#include "calibrate/json.h"
#include "calibrate/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum forced { FORCED_AUTO, FORCED_NEVER, FORCED_ALWAYS };
static const char *const forced_names[] = {"auto", "never", "always", NULL};
enum chat { CHAT_AUTO, CHAT_NONE };
static const char *const chat_names[] = {"auto", "none", NULL};

struct options {
    int32_t facts, lengths, depths, shortest, longest, steps, chat, forced, least, sink, recent;
    double recall;
};

/* ---- One probe ---- */

struct trial {
    const struct options *o;
    struct wnw__probe *probe;
    struct wnw__probe_play *play;
    int32_t n_head;
    double *score, *far; /* [n_all] */
};

static void look(void *user, int32_t il, int32_t h, const float *row, int32_t n, int32_t token)
{
    struct trial *t = user;
    const int64_t i = (int64_t)il * t->n_head + h;
    (void)token;
    t->score[i] += wnw__importance(row, n, t->probe->span);
    t->far[i] += wnw__far_share(row, n, t->o->sink, t->o->recent);
}

static int judge(const wnw_calibration *c, const struct trial *t, bool *answered)
{
    const struct wnw__probe_play *play = t->play;
    char *text;
    WNW_TRY(wnw_detokenize(c->m, play->tokens, play->n, &text));
    const double recall =
        play->forced ? (double)play->n_predicted / play->n : wnw__word_recall(t->probe->answer, text);
    *answered = t->o->forced == FORCED_ALWAYS || 100 * recall > t->o->recall;
    wnw_free(text);
    return WNW_OK;
}

static int run_trial(wnw_calibration *c, void *user, json_t **result)
{
    struct trial *t = user;
    const int32_t n_all = c->info.n_layer * t->n_head;
    bool answered = false;
    memset(t->score, 0, (size_t)n_all * sizeof *t->score);
    memset(t->far, 0, (size_t)n_all * sizeof *t->far);
    t->play->look = look;
    t->play->user = t;
    WNW_TRY(wnw__probe_play(c, t->probe, t->play));
    WNW_TRY(judge(c, t, &answered));
    for (int32_t i = 0; i < n_all; i++)
        t->far[i] /= t->play->n > 0 ? t->play->n : 1;
    *result = answered ? json_pack("{s:b, s:o, s:o}", "answered", true, "score",
                                   wnw__json_f64s(t->score, n_all), "far", wnw__json_f64s(t->far, n_all))
                       : json_pack("{s:b}", "answered", false);
    return WNW_OK;
}

/* ---- All probes ---- */

struct heads {
    wnw_calibration *c;
    const struct options *o;
    struct wnw__probe_grid grid;
    int32_t n_all, n_counted;
    double *score, *far;         /* [n_all] of one probe */
    double *sum_score, *sum_far; /* [n_all] of the probes that count; parts of one block, as the two above */
    int32_t *tokens;             /* [steps] */
    struct wnw__calibrate_text *dump;
};

/* Adds a result to the sums. False if it does not have the shape of one. */
static bool take_result(struct heads *s, const struct wnw__probe *p, const json_t *v)
{
    const json_t *flag = json_object_get(v, "answered");
    if (!json_is_boolean(flag))
        return false;
    if (!json_is_true(flag))
        return true;
    if (!wnw__json_get_f64s(v, "score", s->score, s->n_all) ||
        !wnw__json_get_f64s(v, "far", s->far, s->n_all))
        return false;
    const int32_t n_head = s->c->info.n_head;
    for (int32_t i = 0; i < s->n_all; i++) {
        s->sum_score[i] += s->score[i];
        s->sum_far[i] += s->far[i];
        wnw__calibrate_print(s->dump, "%s,%d,%d,%.9g,%.9g\n", p->id, (int)(i / n_head), (int)(i % n_head),
                             s->score[i], s->far[i]);
    }
    s->n_counted++;
    return true;
}

static int one_probe(struct heads *s, int32_t i, bool forced)
{
    struct wnw__probe p;
    WNW_TRY(wnw__probe_make(&p, s->c, &s->grid, i));
    struct wnw__probe_play play = {
        .n_answer = s->o->steps, .stop_at_line = true, .forced = forced, .tokens = s->tokens};
    struct trial t = {
        .o = s->o, .probe = &p, .play = &play, .n_head = s->c->info.n_head, .score = s->score, .far = s->far};
    char name[64];
    snprintf(name, sizeof name, "%sprobe %s", forced ? "forced " : "", p.id);
    const struct wnw__calibrate_unit unit = {
        .name = name, .cost = p.n + s->o->steps, .run = run_trial, .user = &t};
    json_t *v;
    int rc = wnw__calibrate_unit(s->c, &unit, &v);
    if (rc == WNW_OK && !take_result(s, &p, v))
        rc = wnw__calibrate_damaged(s->c, name);
    json_decref(v);
    wnw__probe_free(&p);
    return rc;
}

static int64_t cost_of(const struct heads *s)
{
    return (int64_t)wnw__probe_grid_n(&s->grid) * (s->grid.shortest + s->grid.longest) / 2;
}

static int no_answer(const struct heads *s)
{
    return wnw__fail(
        WNW_E_UNSUPPORTED,
        "the model answers none of %d probes, so there is nothing to measure; shorter probes may help "
        "(longest=N), or have the answers fed to it with forced=always",
        (int)wnw__probe_grid_n(&s->grid));
}

/* Asks all probes; where too few are answered, feeds all answers. */
static int all_probes(struct heads *s, bool *forced, int32_t *n_answered)
{
    const int32_t n = wnw__probe_grid_n(&s->grid);
    *forced = s->o->forced == FORCED_ALWAYS;
    *n_answered = 0;
    for (int32_t i = 0; !*forced && i < n; i++)
        WNW_TRY(one_probe(s, i, false));
    if (!*forced) {
        *n_answered = s->n_counted;
        if (s->n_counted > 0 && (s->o->forced == FORCED_NEVER || s->n_counted >= s->o->least))
            return WNW_OK;
        if (s->o->forced == FORCED_NEVER)
            return no_answer(s);
        s->c->total += cost_of(s);
        s->n_counted = 0;
        memset(s->sum_score, 0, 2 * (size_t)s->n_all * sizeof *s->sum_score);
        *forced = true;
    }
    for (int32_t i = 0; i < n; i++)
        WNW_TRY(one_probe(s, i, true));
    return s->n_counted > 0 ? WNW_OK : no_answer(s);
}

/* ---- Results ---- */

/* alpha[n_layer][n_head_kv] from the sums of the query heads. */
static json_t *alpha_json(const struct heads *s)
{
    const wnw_model_info *m = &s->c->info;
    const int32_t group = m->n_head / m->n_head_kv, n = m->n_layer * m->n_head_kv;
    double *alpha = calloc((size_t)n, sizeof *alpha);
    for (int32_t i = 0; alpha && i < s->n_all; i++)
        alpha[i / group] += s->sum_far[i] / ((double)s->n_counted * group);
    for (int32_t i = 0; alpha && i < n; i++)
        alpha[i] = alpha[i] < 1 ? alpha[i] : 1; /* a sum of rounded shares may be above */
    json_t *v = alpha ? wnw__json_f64_rows(alpha, m->n_layer, m->n_head_kv) : NULL;
    free(alpha);
    return v;
}

static int finish(struct heads *s, bool forced, int32_t n_answered)
{
    const wnw_model_info *m = &s->c->info;
    const int32_t n = wnw__probe_grid_n(&s->grid);
    struct wnw__calibrate_text *report;
    WNW_TRY(wnw__calibrate_output(s->c, "report", &report));
    if (s->o->forced != FORCED_ALWAYS)
        wnw__calibrate_print(report, "%d of %d probes answered\n", (int)n_answered, (int)n);
    if (forced)
        wnw__calibrate_print(report, "numbers are of %d probes whose answers were fed\n", (int)s->n_counted);
    for (int32_t i = 0; i < s->n_all; i++)
        s->sum_score[i] /= s->n_counted;
    json_t *results =
        json_pack("{s:o, s:o, s:i, s:i, s:i, s:b}", "score",
                  wnw__json_f64_rows(s->sum_score, m->n_layer, m->n_head), "alpha", alpha_json(s), "probes",
                  n, "answered", n_answered, "counted", s->n_counted, "forced", forced);
    return wnw__calibrate_profile(s->c, "heads.json", "heads", NULL, results);
}

/* ---- The run ---- */

static int prepare(struct heads *s)
{
    s->score = calloc(4 * (size_t)s->n_all, sizeof *s->score);
    s->tokens = malloc((size_t)s->o->steps * sizeof *s->tokens);
    if (!s->score || !s->tokens)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %d heads", (int)s->n_all);
    s->far = s->score + s->n_all;
    s->sum_score = s->far + s->n_all;
    s->sum_far = s->sum_score + s->n_all;
    WNW_TRY(wnw__calibrate_output(s->c, "dump", &s->dump));
    wnw__calibrate_print(s->dump, "probe,layer,head,importance,far\n");
    return WNW_OK;
}

static int run(wnw_calibration *c, const void *opts)
{
    const struct options *o = opts;
    struct heads s = {.c = c, .o = o, .n_all = c->info.n_layer * c->info.n_head};
    bool forced = false;
    int32_t n_answered = 0;
    s.grid = (struct wnw__probe_grid){.n_facts = o->facts,
                                      .n_lengths = o->lengths,
                                      .n_depths = o->depths,
                                      .shortest = o->shortest,
                                      .longest = o->longest,
                                      .n_answer = o->steps,
                                      .raw = o->chat == CHAT_NONE};
    wnw__probe_grid_resolve(&s.grid, c);
    int rc = wnw__probe_grid_open(&s.grid, c);
    if (rc == WNW_OK)
        rc = prepare(&s);
    if (rc == WNW_OK)
        rc = wnw__calibrate_begin(c, cost_of(&s));
    if (rc == WNW_OK)
        rc = all_probes(&s, &forced, &n_answered);
    if (rc == WNW_OK)
        rc = finish(&s, forced, n_answered);
    wnw__probe_grid_free(&s.grid);
    free(s.score);
    free(s.tokens);
    return rc;
}

#define INT(name, def, min, max, help)                                                \
    {                                                                                 \
#name, help, WNW_OPT_INT, offsetof(struct options, name), def, min, max, NULL \
    }
#define ENUM(name, list, help)                                                   \
    {                                                                            \
#name, help, WNW_OPT_ENUM, offsetof(struct options, name), 0, 0, 0, list \
    }
static const wnw_option table[] = {
    INT(facts, 0, 0, WNW_PROBE_FACTS, "sentences that are hidden; 0 = as the effort says"),
    INT(lengths, 0, 0, 100, "lengths of probes; 0 = as the effort says"),
    INT(depths, 0, 0, 100, "depths of the sentence in the text; 0 = as the effort says"),
    INT(shortest, 0, 0, 1 << 24, "tokens of the shortest probe; 0 = as the effort says"),
    INT(longest, 0, 0, 1 << 24, "tokens of the longest probe; 0 = as the effort says"),
    INT(steps, 50, 1, 1000, "tokens that are generated at most"),
    ENUM(chat, chat_names, "auto: prompts are in the model's chat template; none: plain text"),
    {"recall", "per cent of the answer's words that must be generated for a probe to count, exclusive",
     WNW_OPT_REAL, offsetof(struct options, recall), 50, 0, 100, NULL},
    INT(least, 20, 0, 1 << 20, "forced=auto: with fewer answered probes the answers are fed"),
    ENUM(forced, forced_names,
         "whether the answer is fed instead of asked for; always: and every probe counts"),
    INT(sink, 128, 1, 1 << 24, "alpha: first entries that streaming heads keep"),
    INT(recent, 256, 1, 1 << 24, "alpha: recent entries that streaming heads keep"),
    {0},
};
#undef INT
#undef ENUM

const struct wnw__calibrate_type wnw__calibrate_heads = {
    .name = "heads",
    .about = "Importance of query heads, for HeadKV; which KV heads may stream, for DuoAttention.",
    .options = table,
    .options_size = sizeof(struct options),
    .reads_text = true,
    .run = run,
};
