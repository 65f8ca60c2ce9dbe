/* SPDX-License-Identifier: MIT */
/*
 * Budget curves: which share of its entries every KV head should keep when the model keeps a given share. Paper:
 * "Predicting Future Utility: Global Combinatorial Optimization for Task-Agnostic KV Cache Eviction" (LU-KV, arXiv
 * 2602.08585) and its authors' program. The model reads a piece of text, and a policy scores its entries. Then it
 * answers questions about the text with the full cache. The worth of an entry j to KV head g of layer l is
 *
 *     u_j = max over steps t and the query heads h of g of A_htj nu_hj      A attention of the generated token;
 *     nu_hj = ||v_j W_O^h||_2, over the sum of those of the layer           norm=layer; norm=none: as it is
 *
 * Entries go in the order of the policy's scores, worst first; curve_solve.h finds who gives up how many for every
 * share of the model's entries. The curves are means over pieces and questions. A head keeps the policy's protected
 * entries, and at least a hundredth of its entries, as in the authors' program.
 */
#include "base/json.h"
#include "base/vectors.h"
#include "calibrate/calibrate.h"
#include "calibrate/curve_sample.h"
#include "calibrate/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_RATIO = WNW_CURVE_RATIOS, N_LOST = WNW_CURVE_LOST };
enum worth { WORTH_LAYER, WORTH_NONE };

struct opts {
    int32_t length, samples, questions, generate, norm;
};

/* What the samples came to; rows are KV heads of all layers. */
struct sums {
    double *keep; /* [N_RATIO][n_row] shares of entries */
    double *lost; /* [n_row][N_LOST] shares of worth */
    int32_t n;    /* questions */
};

struct work {
    wnw_calibration *c;
    const struct opts *o;
    wnw_policy *policy;
    struct wnw__samples samples;
    int32_t n_generate, n_question, n_row, n_sample;
    struct sums all, half[2];
    struct wnw__calibrate_text *dump;
    int32_t i_text, i_piece; /* the current sample */
};

/* ---- The unit of work: a sample with its questions ---- */

static int measure(struct wnw__curve_tally *t, const struct wnw__curve_piece *piece, json_t **result)
{
    WNW_TRY(wnw__curve_tally_new(t, piece->n_row));
    WNW_TRY(wnw__curve_measure(t, piece));
    *result = json_pack("{s:i, s:i, s:o, s:o}", "entries", (int)t->n_entry, "questions", (int)t->n_question,
                        "kept", wnw__json_i32s(t->count, N_RATIO * piece->n_row), "lost",
                        wnw__json_f64s(t->lost, piece->n_row * N_LOST));
    return *result ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for budget curves");
}

static int run_sample(wnw_calibration *c, void *user, json_t **result)
{
    const struct work *w = user;
    const struct wnw__curve_piece piece = {.c = c,
                                           .policy = w->policy,
                                           .tokens = wnw__samples_piece(&w->samples, w->i_text, w->i_piece),
                                           .n_token = w->samples.length,
                                           .n_row = w->n_row,
                                           .n_question = w->n_question,
                                           .n_generate = w->n_generate,
                                           .share_norms = w->o->norm == WORTH_LAYER};
    struct wnw__curve_tally t;
    const int rc = measure(&t, &piece, result);
    wnw__curve_tally_free(&t);
    return rc;
}

/* ---- All samples ---- */

static void add_sums(struct sums *to, const struct work *w, const struct wnw__curve_tally *t)
{
    for (int32_t i = 0; i < N_RATIO * w->n_row; i++)
        to->keep[i] += (double)t->count[i] / t->n_entry;
    for (int32_t i = 0; i < w->n_row * N_LOST; i++)
        to->lost[i] += t->lost[i];
    to->n += t->n_question;
}

static void dump_sample(const struct work *w, const struct wnw__curve_tally *t)
{
    const int32_t n_kv = w->c->info.n_head_kv;
    for (int32_t i = 0; w->dump && t->n_question > 0 && i < N_RATIO; i++)
        for (int32_t row = 0; row < w->n_row; row++)
            wnw__calibrate_print(w->dump, "%d,%d,%.2f,%d,%d,%.9g\n", (int)w->i_text, (int)w->i_piece,
                                 (i + 1) / 100.0, (int)(row / n_kv), (int)(row % n_kv),
                                 (double)t->count[i * w->n_row + row] / t->n_entry / t->n_question);
}

static bool read_tally(const struct work *w, const json_t *result, struct wnw__curve_tally *t)
{
    const json_t *entries = json_object_get(result, "entries"),
                 *questions = json_object_get(result, "questions");
    if (!json_is_integer(entries) || !json_is_integer(questions))
        return false;
    const json_int_t most = w->c->info.n_ctx_train, a = json_integer_value(entries),
                     b = json_integer_value(questions);
    t->n_entry = a >= 1 && a <= most ? (int32_t)a : 0;
    t->n_question = b >= 0 && b <= w->n_question ? (int32_t)b : -1;
    return t->n_entry > 0 && t->n_question >= 0 &&
           wnw__json_get_i32s(result, "kept", t->count, N_RATIO * w->n_row) &&
           wnw__json_get_f64s(result, "lost", t->lost, w->n_row * N_LOST);
}

static int add_sample(struct work *w, struct wnw__curve_tally *t)
{
    char name[64];
    json_t *result;
    snprintf(name, sizeof name, "text %d, sample %d", (int)w->i_text, (int)w->i_piece);
    const struct wnw__calibrate_unit unit = {.name = name,
                                             .cost = w->samples.length + w->n_question * w->n_generate,
                                             .run = run_sample,
                                             .user = w};
    WNW_TRY(wnw__calibrate_unit(w->c, &unit, &result));
    const bool good = read_tally(w, result, t);
    json_decref(result);
    if (!good)
        return wnw__calibrate_damaged(w->c, name);
    dump_sample(w, t);
    add_sums(&w->all, w, t);
    add_sums(&w->half[w->n_sample++ % 2], w, t);
    return WNW_OK;
}

static int add_samples(struct work *w, struct wnw__curve_tally *t)
{
    WNW_TRY(wnw__curve_tally_new(t, w->n_row));
    for (w->i_text = 0; w->i_text < w->samples.n_text; w->i_text++)
        for (w->i_piece = 0; w->i_piece < w->samples.n_piece[w->i_text]; w->i_piece++)
            WNW_TRY(add_sample(w, t));
    if (w->all.n == 0)
        return wnw__fail(WNW_E_UNSUPPORTED, "the model answers no question: it ends its answers at once");
    return WNW_OK;
}

static int run_samples(struct work *w)
{
    struct wnw__curve_tally t;
    const int rc = add_samples(w, &t);
    wnw__curve_tally_free(&t);
    return rc;
}

/* ---- The results ---- */

/* Divides by the number of questions; layers that policies leave alone keep everything. */
static void divide(struct sums *s, const struct work *w)
{
    for (int32_t i = 0; i < N_RATIO * w->n_row && s->n > 0; i++)
        s->keep[i] =
            wnw__layer_takes_part(&w->c->shape, i % w->n_row / w->c->info.n_head_kv) ? s->keep[i] / s->n : 1;
    for (int32_t i = 0; i < w->n_row * N_LOST && s->n > 0; i++)
        s->lost[i] /= s->n;
}

/* x [n_list][n_layer][n_head_kv] */
static json_t *lists(const struct work *w, const double *x, int32_t n_list)
{
    const int32_t n_layer = w->c->info.n_layer, n_kv = w->c->info.n_head_kv;
    float *rows = calloc((size_t)w->n_row, sizeof *rows);
    json_t *a = json_array();
    bool good = rows && a;
    for (int32_t i = 0; good && i < n_list; i++) {
        for (int32_t k = 0; k < w->n_row; k++)
            rows[k] = (float)x[(int64_t)i * w->n_row + k];
        good = json_array_append_new(a, wnw__json_f32_rows(rows, n_layer, n_kv)) == 0;
    }
    free(rows);
    if (good)
        return a;
    json_decref(a);
    return NULL;
}

/* The losses as lists [N_LOST][n_layer][n_head_kv]. */
static json_t *lost_lists(const struct work *w)
{
    double *x = calloc((size_t)(N_LOST * w->n_row), sizeof *x);
    for (int32_t row = 0; x && row < w->n_row; row++)
        for (int32_t p = 0; p < N_LOST; p++)
            x[p * w->n_row + row] = w->all.lost[row * N_LOST + p];
    json_t *a = x ? lists(w, x, N_LOST) : NULL;
    free(x);
    return a;
}

static json_t *steps(int32_t n, double step)
{
    double x[N_RATIO];
    for (int32_t i = 0; i < n; i++)
        x[i] = (i + 1) / step;
    return wnw__json_f64s(x, n);
}

static int report(struct work *w)
{
    struct wnw__calibrate_text *out;
    const int32_t n_kv = w->c->info.n_head_kv, at = 79; /* 80 % removed */
    WNW_TRY(wnw__calibrate_output(w->c, "report", &out));
    wnw__calibrate_print(
        out,
        "budget curves: %d samples, %d questions; percent that each head keeps of its entries "
        "when 80 %% are removed\n",
        (int)w->n_sample, (int)w->all.n);
    for (int32_t il = 0; il < w->c->info.n_layer; il++) {
        wnw__calibrate_print(out, "layer %3d ", (int)il);
        for (int32_t ih = 0; ih < n_kv; ih++)
            wnw__calibrate_print(out, " %5.1f", 100 * w->all.keep[at * w->n_row + il * n_kv + ih]);
        wnw__calibrate_print(out, "\n");
    }
    if (w->half[0].n > 0 && w->half[1].n > 0) {
        double r = 0;
        WNW_TRY(wnw__rank_correlation(&r, w->half[0].keep + at * w->n_row, w->half[1].keep + at * w->n_row,
                                      w->n_row));
        wnw__calibrate_print(out, "rank correlation of the two halves of the samples: %.3f\n", r);
    }
    return WNW_OK;
}

static int finish(struct work *w)
{
    divide(&w->all, w);
    divide(&w->half[0], w);
    divide(&w->half[1], w);
    json_t *more =
        json_pack("{s:i, s:i}", "measured_samples", (int)w->n_sample, "measured_questions", (int)w->all.n);
    json_t *results = json_pack("{s:o, s:o, s:o, s:o}", "ratio", steps(N_RATIO, 100), "keep",
                                lists(w, w->all.keep, N_RATIO), "lost_ratio", steps(N_LOST, N_LOST + 1),
                                "lost", lost_lists(w));
    WNW_TRY(wnw__calibrate_profile(w->c, "curves.json", "curves", more, results));
    return report(w);
}

static int check_scorer(const struct work *w)
{
    const wnw_scorer *scorer = wnw__scorer_of(w->policy);
    if (!scorer->blocks)
        return WNW_OK;
    return wnw__fail(WNW_E_ARG,
                     "scores of %s compare entries inside a block only; budget curves need scores of all "
                     "entries",
                     scorer->part.name);
}

static int prepare(struct work *w)
{
    const struct opts *o = w->o;
    const int32_t n_most = wnw__effort_value(w->c, o->samples, (struct wnw__by_effort){4, 2, 8});
    int32_t length;
    w->n_generate = wnw__effort_value(w->c, o->generate, (struct wnw__by_effort){32, 16, 64});
    w->n_question = wnw__effort_value(w->c, o->questions, (struct wnw__by_effort){8, 4, WNW_N_QUESTIONS});
    WNW_TRY(wnw__sample_length(&length, w->c, o->length, (struct wnw__by_effort){2048, 1024, 4096},
                               w->n_generate + WNW_CURVE_ROOM));
    if (w->c->info.n_layer_swa == w->c->info.n_layer)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "all layers of the model have a sliding window; policies leave them alone");
    WNW_TRY(wnw__samples_cut(&w->samples, w->c, length, 0, n_most));
    WNW_TRY(wnw__calibrate_policy(&w->policy, w->c, "expected_attention:epsilon=0.02"));
    WNW_TRY(check_scorer(w));
    WNW_TRY(wnw__calibrate_set(w->c, "length", json_integer(length)));
    WNW_TRY(wnw__calibrate_set(w->c, "samples", json_integer(n_most)));
    WNW_TRY(wnw__calibrate_set(w->c, "questions", json_integer(w->n_question)));
    return wnw__calibrate_set(w->c, "generate", json_integer(w->n_generate));
}

static bool new_sums(struct sums *s, int32_t n_row)
{
    s->keep = calloc((size_t)(N_RATIO * n_row), sizeof *s->keep);
    s->lost = calloc((size_t)(N_LOST * n_row), sizeof *s->lost);
    return s->keep && s->lost;
}

static int work(struct work *w)
{
    WNW_TRY(prepare(w));
    if (!new_sums(&w->all, w->n_row) || !new_sums(&w->half[0], w->n_row) || !new_sums(&w->half[1], w->n_row))
        return wnw__fail(WNW_E_NOMEM, "no memory for budget curves");
    const int64_t length = w->samples.length + w->n_question * w->n_generate;
    WNW_TRY(wnw__calibrate_begin(w->c, wnw__samples_n(&w->samples) * length));
    WNW_TRY(wnw__calibrate_output(w->c, "dump", &w->dump));
    wnw__calibrate_print(w->dump, "text,sample,ratio,layer,head,keep\n");
    WNW_TRY(run_samples(w));
    return finish(w);
}

static int run(wnw_calibration *c, const void *opts)
{
    struct work w = {.c = c, .o = opts, .n_row = c->info.n_layer * c->info.n_head_kv};
    struct sums *sums[] = {&w.all, &w.half[0], &w.half[1]};
    const int rc = work(&w);
    for (int i = 0; i < 3; i++) {
        free(sums[i]->keep);
        free(sums[i]->lost);
    }
    wnw__samples_free(&w.samples);
    wnw_policy_free(w.policy);
    return rc;
}

static const char *const norms[] = {"layer", "none", NULL};

static const wnw_option options[] = {
    {.name = "length",
     .help = "tokens of a sample; 0 = 1024, 2048, 4096 (quick, normal, paper)",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, length),
     .max = 10000000},
    {.name = "samples",
     .help = "samples of each text, at most; 0 = 2, 4, 8",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, samples),
     .max = 100000},
    {.name = "questions",
     .help = "questions about each sample; 0 = 4, 8, 30",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, questions),
     .max = WNW_N_QUESTIONS},
    {.name = "generate",
     .help = "tokens of each answer, at most; 0 = 16, 32, 64",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, generate),
     .max = 100000},
    {.name = "norm",
     .help = "norms of values: shares of their sum in the layer, as in the authors' program, or as they are",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, norm),
     .def = WORTH_LAYER,
     .choices = norms},
    {0}};

const struct wnw__calibrate_type wnw__calibrate_curves = {
    .name = "curves",
    .about =
        "What every KV head should keep for any size, by what a scorer's choice is worth later, for LU-KV.",
    .options = options,
    .options_size = sizeof(struct opts),
    .reads_text = true,
    .run = run,
};
