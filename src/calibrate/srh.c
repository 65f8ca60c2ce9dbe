/* SPDX-License-Identifier: MIT */
/*
 * Kind "srh": semantic retrieval heads, and traditional ones beside them, from the same probes ("CompressKV",
 * arXiv 2508.02401; "Retrieval Head", arXiv 2404.15574). A unit of work is a probe. Probes that the model
 * answers wrongly do not count. Where too few are left, because the model is small, the answer is fed instead
 * of asked for, and those probes count whose answer the model predicts itself, token after token; this is
 * not in the papers, and the profile then says forced = true.
 */
#include "base/rank_correlation.h"
#include "calibrate/json.h"
#include "calibrate/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum forced { FORCED_AUTO, FORCED_NEVER, FORCED_ALWAYS };
static const char *const forced_names[] = {"auto", "never", "always", NULL};
enum chat { CHAT_AUTO, CHAT_NONE };
static const char *const chat_names[] = {"auto", "none", NULL};
enum stop { STOP_LINE, STOP_NEVER };
static const char *const stop_names[] = {"line", "never", NULL};

struct options {
    int32_t facts, lengths, depths, shortest, longest, steps, stop, chat, forced, least, multiplicity, top,
        distinct, k;
    double recall;
};

#define INT(name, def, min, max, help)                                                \
    {                                                                                 \
#name, help, WNW_OPT_INT, offsetof(struct options, name), def, min, max, NULL \
    }
#define BOOL(name, help)                                                         \
    {                                                                            \
#name, help, WNW_OPT_BOOL, offsetof(struct options, name), 0, 0, 1, NULL \
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
    ENUM(stop, stop_names,
         "line: an answer ends with the line; never: all steps are generated, as the paper's code does"),
    ENUM(chat, chat_names,
         "auto: prompts are in the model's chat template; none: plain text, as in the papers"),
    {"recall", "per cent of the answer's words that must be generated for a probe to count, exclusive",
     WNW_OPT_REAL, offsetof(struct options, recall), 50, 0, 100, NULL},
    INT(least, 20, 0, 1 << 20, "forced=auto: with fewer answered probes the answers are fed"),
    ENUM(forced, forced_names,
         "whether the answer is fed instead of asked for; always: and every probe counts"),
    BOOL(multiplicity,
         "semantic: a token that is k times in the answer counts k times, as in the paper's code"),
    INT(top, 1, 1, 64, "traditional: how many of the largest attentions may be the hit"),
    BOOL(distinct, "traditional: a token of the answer counts once"),
    INT(k, 0, 0, 1 << 16, "heads per layer that CompressKV is to use; 0 = an eighth"),
    {0},
};
#undef INT
#undef BOOL
#undef ENUM

/* ---- One probe ---- */

/* What a probe is scored with and what it gives. */
struct trial {
    const struct options *o;
    struct wnw__probe *probe;
    struct wnw__probe_play *play;
    struct wnw__retrieval_rule rule;
    int32_t n_head, n_all;
    double *semantic, *traditional; /* [n_all] of the run */
    bool *copied;                   /* [n_all][probe->span.n] */
    bool answered;
    double recall;
};

static void look(void *user, int32_t il, int32_t h, const float *row, int32_t n, int32_t token)
{
    struct trial *t = user;
    const int64_t i = (int64_t)il * t->n_head + h;
    struct wnw__retrieval r = {.semantic = t->semantic[i], .traditional = t->traditional[i]};
    wnw__retrieval_add(&r, &t->rule, row, n, t->probe->tokens, t->probe->span, token,
                       t->copied + i * t->probe->span.n);
    t->semantic[i] = r.semantic;
    t->traditional[i] = r.traditional;
}

static int judge(const wnw_calibration *c, struct trial *t)
{
    char *text;
    WNW_TRY(wnw_detokenize(c->m, t->play->tokens, t->play->n, &text));
    t->recall = t->play->forced ? (double)t->play->n_predicted / t->play->n
                                : wnw__word_recall(t->probe->answer, text);
    t->answered = t->o->forced == FORCED_ALWAYS || 100 * t->recall > t->o->recall;
    wnw_free(text);
    return WNW_OK;
}

static json_t *trial_json(const struct trial *t)
{
    json_t *v = json_pack("{s:b, s:f, s:o}", "answered", t->answered, "recall", t->recall, "generated",
                          wnw__json_i32s(t->play->tokens, t->play->n));
    if (v && t->answered &&
        (json_object_set_new(v, "semantic", wnw__json_f64s(t->semantic, t->n_all)) != 0 ||
         json_object_set_new(v, "traditional", wnw__json_f64s(t->traditional, t->n_all)) != 0)) {
        json_decref(v);
        return NULL;
    }
    return v;
}

static int run_trial(wnw_calibration *c, void *user, json_t **result)
{
    struct trial *t = user;
    struct wnw__probe_play *play = t->play;
    memset(t->semantic, 0, (size_t)t->n_all * sizeof *t->semantic);
    memset(t->traditional, 0, (size_t)t->n_all * sizeof *t->traditional);
    t->copied = calloc((size_t)t->n_all * (size_t)t->probe->span.n, sizeof *t->copied);
    if (!t->copied)
        return wnw__fail(WNW_E_NOMEM, "no memory for the heads of a probe");
    play->look = look;
    play->user = t;
    int rc = wnw__probe_play(c, t->probe, play);
    if (rc == WNW_OK)
        rc = judge(c, t);
    if (rc == WNW_OK)
        *result = trial_json(t);
    free(t->copied);
    t->copied = NULL;
    return rc;
}

/* ---- All probes ---- */

struct srh {
    wnw_calibration *c;
    const struct options *o;
    struct wnw__probe_grid grid;
    int32_t n_layer, n_head, n_all;
    int32_t n_counted;
    /* Sums over the probes that count: semantic and traditional; of all, of every second, of the others. */
    double *sum[2][3]; /* [n_all] each, parts of one block */
    double *score[2];  /* [n_all] of one probe */
    int32_t *tokens;   /* [steps] */
    struct wnw__calibrate_text *dump, *probes;
};

/* The tokens of a result, and whether it has the shape of one. */
static bool read_trial(const struct srh *s, const json_t *v, bool *answered, struct wnw__probe_play *play)
{
    const json_t *generated = json_object_get(v, "generated"), *flag = json_object_get(v, "answered");
    const size_t n = json_array_size(generated);
    if (!json_is_boolean(flag) || n > (size_t)s->o->steps ||
        !wnw__json_get_i32s(v, "generated", play->tokens, (int32_t)n))
        return false;
    play->n = (int32_t)n;
    *answered = json_is_true(flag);
    return !*answered || (wnw__json_get_f64s(v, "semantic", s->score[0], s->n_all) &&
                          wnw__json_get_f64s(v, "traditional", s->score[1], s->n_all));
}

static int write_probe(const struct srh *s, const struct wnw__probe *p, const struct wnw__probe_play *play)
{
    for (int32_t i = 0; s->dump && i < s->n_all; i++)
        wnw__calibrate_print(s->dump, "%s,%d,%d,%.9g,%.9g\n", p->id, (int)(i / s->n_head),
                             (int)(i % s->n_head), s->score[0][i], s->score[1][i]);
    if (!s->probes)
        return WNW_OK;
    json_t *v = json_pack("{s:s, s:o, s:i, s:i, s:o}", "id", p->id, "prompt_tokens",
                          wnw__json_i32s(p->tokens, p->n), "target_first", p->span.first, "target_len",
                          p->span.n, "generated_tokens", wnw__json_i32s(play->tokens, play->n));
    const int rc = wnw__calibrate_line(s->probes, v);
    json_decref(v);
    return rc;
}

static void count(struct srh *s)
{
    const int half = 1 + s->n_counted++ % 2;
    for (int kind = 0; kind < 2; kind++)
        for (int32_t i = 0; i < s->n_all; i++) {
            s->sum[kind][0][i] += s->score[kind][i];
            s->sum[kind][half][i] += s->score[kind][i];
        }
}

static int one_probe(struct srh *s, int32_t i, bool forced)
{
    struct wnw__probe p;
    WNW_TRY(wnw__probe_make(&p, s->c, &s->grid, i));
    struct wnw__probe_play play = {.n_answer = s->o->steps,
                                   .stop_at_line = s->o->stop == STOP_LINE,
                                   .forced = forced,
                                   .tokens = s->tokens};
    struct trial t = {.o = s->o,
                      .probe = &p,
                      .play = &play,
                      .rule = {s->o->top, s->o->multiplicity != 0, s->o->distinct != 0},
                      .n_head = s->n_head,
                      .n_all = s->n_all,
                      .semantic = s->score[0],
                      .traditional = s->score[1]};
    char name[64];
    snprintf(name, sizeof name, "%sprobe %s", forced ? "forced " : "", p.id);
    const struct wnw__calibrate_unit unit = {
        .name = name, .cost = p.n + s->o->steps, .run = run_trial, .user = &t};
    json_t *v;
    bool answered = false;
    int rc = wnw__calibrate_unit(s->c, &unit, &v);
    /* Scores are read from the result even if they were computed now: one way for both. */
    if (rc == WNW_OK && !read_trial(s, v, &answered, &play))
        rc = wnw__calibrate_damaged(s->c, name);
    if (rc == WNW_OK && answered) {
        count(s);
        rc = write_probe(s, &p, &play);
    }
    json_decref(v);
    wnw__probe_free(&p);
    return rc;
}

static void forget(struct srh *s)
{
    s->n_counted = 0;
    memset(s->sum[0][0], 0, 6 * (size_t)s->n_all * sizeof(double));
}

static int no_answer(const struct srh *s)
{
    return wnw__fail(
        WNW_E_UNSUPPORTED,
        "the model answers none of %d probes, so there is nothing to score; shorter probes may help "
        "(longest=N), or have the answers fed to it with forced=always",
        (int)wnw__probe_grid_n(&s->grid));
}

static int64_t cost_of(const struct srh *s)
{
    const int64_t n = wnw__probe_grid_n(&s->grid);
    return n * (s->grid.shortest + s->grid.longest) / 2;
}

/* Asks all probes; where too few are answered, feeds all answers. */
static int all_probes(struct srh *s, bool *forced, int32_t *n_answered)
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
        forget(s);
        *forced = true;
    }
    for (int32_t i = 0; i < n; i++)
        WNW_TRY(one_probe(s, i, true));
    return s->n_counted > 0 ? WNW_OK : no_answer(s);
}

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
            mean[i] /= s->n_counted;
        for (int32_t il = 0; il < s->n_layer; il++)
            wnw__rank_heads(mean + (int64_t)il * s->n_head, s->n_head, rank + (int64_t)il * s->n_head);
        snprintf(key, sizeof key, "%s_mean", kinds[kind]);
        good =
            json_object_set_new(results, kinds[kind], wnw__json_i32_rows(rank, s->n_layer, s->n_head)) == 0 &&
            json_object_set_new(results, key, wnw__json_f64_rows(mean, s->n_layer, s->n_head)) == 0;
    }
    free(rank);
    return good ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the ranks of heads");
}

/* Whether two halves of the probes rank the heads alike. */
static int set_stability(struct srh *s, json_t *results, struct wnw__calibrate_text *report)
{
    double r[2];
    for (int kind = 0; kind < 2; kind++) {
        WNW_TRY(wnw__rank_correlation(&r[kind], s->sum[kind][1], s->sum[kind][2], s->n_all));
        wnw__calibrate_print(report, "%s heads: rank correlation of two halves of the probes %.3f\n",
                             titles[kind], r[kind]);
    }
    json_t *v = json_pack("{s:f, s:f}", titles[0], r[0], titles[1], r[1]);
    if (v && json_object_set_new(results, "stability", v) == 0)
        return WNW_OK;
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
        wnw__calibrate_print(report, " %d-%d %.3f%s", (int)(best / s->n_head), (int)(best % s->n_head),
                             mean[best], k + 1 < SHOWN && k + 1 < s->n_all ? "," : "");
        before = best;
    }
    wnw__calibrate_print(report, "\n");
}

static int finish(struct srh *s, bool forced, int32_t n_answered)
{
    struct wnw__calibrate_text *report;
    WNW_TRY(wnw__calibrate_output(s->c, "report", &report));
    const int32_t n = wnw__probe_grid_n(&s->grid);
    json_t *results = json_object();
    int rc = results ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for results");
    if (s->o->forced != FORCED_ALWAYS)
        wnw__calibrate_print(report, "%d of %d probes answered\n", (int)n_answered, (int)n);
    if (forced)
        wnw__calibrate_print(report, "scores are of %d probes whose answers were fed\n", (int)s->n_counted);
    if (rc == WNW_OK)
        rc = set_scores(s, results);
    if (rc == WNW_OK)
        rc = set_stability(s, results, report);
    if (rc == WNW_OK &&
        json_object_update_new(results, json_pack("{s:i, s:i, s:i, s:b}", "probes", n, "answered", n_answered,
                                                  "counted", s->n_counted, "forced", forced)) != 0)
        rc = wnw__fail(WNW_E_NOMEM, "no memory for results");
    for (int kind = 0; rc == WNW_OK && kind < 2; kind++)
        report_best(s, kind, report);
    if (rc == WNW_OK)
        return wnw__calibrate_profile(s->c, "srh.json", "srh", NULL, results);
    json_decref(results);
    return rc;
}

/* ---- The run ---- */

static int prepare(struct srh *s)
{
    double *block = calloc(8 * (size_t)s->n_all, sizeof *block);
    s->sum[0][0] = block;
    s->tokens = malloc((size_t)s->o->steps * sizeof *s->tokens);
    if (!block || !s->tokens)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %d heads", (int)s->n_all);
    for (int i = 0; i < 6; i++)
        s->sum[i / 3][i % 3] = block + (int64_t)i * s->n_all;
    for (int i = 0; i < 2; i++)
        s->score[i] = block + (int64_t)(6 + i) * s->n_all;
    WNW_TRY(wnw__calibrate_output(s->c, "dump", &s->dump));
    WNW_TRY(wnw__calibrate_output(s->c, "probes", &s->probes));
    wnw__calibrate_print(s->dump, "probe,layer,head,semantic,traditional\n");
    return WNW_OK;
}

static int check_k(wnw_calibration *c, const struct options *o)
{
    if (o->k > c->info.n_head)
        return wnw__fail(WNW_E_RANGE, "srh: k is %d, and a layer has %d heads", (int)o->k,
                         (int)c->info.n_head);
    const int32_t eighth = (c->info.n_head + 4) / 8;
    return wnw__calibrate_set(c, "k", json_integer(o->k > 0 ? o->k : eighth > 0 ? eighth : 1));
}

static int run(wnw_calibration *c, const void *opts)
{
    const struct options *o = opts;
    struct srh s = {.c = c, .o = o, .n_layer = c->info.n_layer, .n_head = c->info.n_head};
    bool forced = false;
    int32_t n_answered = 0;
    s.n_all = s.n_layer * s.n_head;
    s.grid = (struct wnw__probe_grid){.n_facts = o->facts,
                                      .n_lengths = o->lengths,
                                      .n_depths = o->depths,
                                      .shortest = o->shortest,
                                      .longest = o->longest,
                                      .n_answer = o->steps,
                                      .raw = o->chat == CHAT_NONE};
    wnw__probe_grid_resolve(&s.grid, c);
    int rc = check_k(c, o);
    if (rc == WNW_OK)
        rc = wnw__probe_grid_open(&s.grid, c);
    if (rc == WNW_OK)
        rc = prepare(&s);
    if (rc == WNW_OK)
        rc = wnw__calibrate_begin(c, cost_of(&s));
    if (rc == WNW_OK)
        rc = all_probes(&s, &forced, &n_answered);
    if (rc == WNW_OK)
        rc = finish(&s, forced, n_answered);
    wnw__probe_grid_free(&s.grid);
    free(s.sum[0][0]);
    free(s.tokens);
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
