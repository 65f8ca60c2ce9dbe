/* SPDX-License-Identifier: MIT */
/*
 * Budget curves: which share of its entries every KV head should keep when the model keeps a given share. Paper:
 * "Predicting Future Utility: Global Combinatorial Optimization for Task-Agnostic KV Cache Eviction" (LU-KV, arXiv
 * 2602.08585) and its authors' program. The model reads a piece of text, and a policy scores its entries. Then it
 * answers questions about the text with the full cache, and what an entry j was worth to KV head g of layer l is
 *
 *     u_j = max over steps t and the query heads h of g of A_htj nu_hj      A attention of the generated token
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
#include "calibrate/questions.h"
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

struct job {
    wnw_calibration *c;
    const struct opts *o;
    wnw_policy *policy;
    struct wnw__samples samples;
    int32_t n_generate, n_question, n_row, n_sample;
    struct sums all, half[2];
    struct wnw__calibrate_text *dump;
    int32_t i_text, i_piece; /* the sample at hand */
};

/* ---- The unit of work: a sample with its questions ---- */

static int run_sample(wnw_calibration *c, void *user, json_t **result)
{
    const struct job *j = user;
    const struct wnw__curve_piece piece = {.c = c,
                                           .policy = j->policy,
                                           .tokens = wnw__samples_piece(&j->samples, j->i_text, j->i_piece),
                                           .n_token = j->samples.length,
                                           .n_row = j->n_row,
                                           .n_question = j->n_question,
                                           .n_generate = j->n_generate,
                                           .share_norms = j->o->norm == WORTH_LAYER};
    struct wnw__curve_tally t;
    int rc = wnw__curve_tally_new(&t, j->n_row);
    if (rc == WNW_OK)
        rc = wnw__curve_measure(&t, &piece);
    if (rc == WNW_OK)
        *result = json_pack("{s:i, s:i, s:o, s:o}", "entries", (int)t.n_entry, "questions", (int)t.n_question,
                            "kept", wnw__json_i32s(t.count, N_RATIO * j->n_row), "lost",
                            wnw__json_f64s(t.lost, j->n_row * N_LOST));
    if (rc == WNW_OK && !*result)
        rc = wnw__fail(WNW_E_NOMEM, "no memory for budget curves");
    wnw__curve_tally_free(&t);
    return rc;
}

/* ---- All samples ---- */

static void add_sums(struct sums *to, const struct job *j, const struct wnw__curve_tally *t)
{
    for (int32_t i = 0; i < N_RATIO * j->n_row; i++)
        to->keep[i] += (double)t->count[i] / t->n_entry;
    for (int32_t i = 0; i < j->n_row * N_LOST; i++)
        to->lost[i] += t->lost[i];
    to->n += t->n_question;
}

static void dump_sample(const struct job *j, const struct wnw__curve_tally *t)
{
    const int32_t n_kv = j->c->info.n_head_kv;
    for (int32_t i = 0; j->dump && t->n_question > 0 && i < N_RATIO; i++)
        for (int32_t row = 0; row < j->n_row; row++)
            wnw__calibrate_print(j->dump, "%d,%d,%.2f,%d,%d,%.9g\n", (int)j->i_text, (int)j->i_piece,
                                 (i + 1) / 100.0, (int)(row / n_kv), (int)(row % n_kv),
                                 (double)t->count[i * j->n_row + row] / t->n_entry / t->n_question);
}

static bool read_tally(const struct job *j, const json_t *result, struct wnw__curve_tally *t)
{
    const json_t *entries = json_object_get(result, "entries"),
                 *questions = json_object_get(result, "questions");
    if (!json_is_integer(entries) || !json_is_integer(questions))
        return false;
    const json_int_t most = j->c->info.n_ctx_train, a = json_integer_value(entries),
                     b = json_integer_value(questions);
    t->n_entry = a >= 1 && a <= most ? (int32_t)a : 0;
    t->n_question = b >= 0 && b <= j->n_question ? (int32_t)b : -1;
    return t->n_entry > 0 && t->n_question >= 0 &&
           wnw__json_get_i32s(result, "kept", t->count, N_RATIO * j->n_row) &&
           wnw__json_get_f64s(result, "lost", t->lost, j->n_row * N_LOST);
}

static int add_sample(struct job *j, struct wnw__curve_tally *t)
{
    char name[64];
    json_t *result;
    snprintf(name, sizeof name, "text %d, sample %d", (int)j->i_text, (int)j->i_piece);
    const struct wnw__calibrate_unit unit = {.name = name,
                                             .cost = j->samples.length + j->n_question * j->n_generate,
                                             .run = run_sample,
                                             .user = j};
    WNW_TRY(wnw__calibrate_unit(j->c, &unit, &result));
    const bool good = read_tally(j, result, t);
    json_decref(result);
    if (!good)
        return wnw__calibrate_damaged(j->c, name);
    dump_sample(j, t);
    add_sums(&j->all, j, t);
    add_sums(&j->half[j->n_sample++ % 2], j, t);
    return WNW_OK;
}

static int run_samples(struct job *j)
{
    struct wnw__curve_tally t;
    int rc = wnw__curve_tally_new(&t, j->n_row);
    for (j->i_text = 0; rc == WNW_OK && j->i_text < j->samples.n_text; j->i_text++)
        for (j->i_piece = 0; rc == WNW_OK && j->i_piece < j->samples.n_piece[j->i_text]; j->i_piece++)
            rc = add_sample(j, &t);
    wnw__curve_tally_free(&t);
    if (rc == WNW_OK && j->all.n == 0)
        return wnw__fail(WNW_E_UNSUPPORTED, "the model answers no question: it ends its answers at once");
    return rc;
}

/* ---- The results ---- */

/* Divides by the number of questions; layers that policies leave alone keep everything. */
static void divide(struct sums *s, const struct job *j)
{
    for (int32_t i = 0; i < N_RATIO * j->n_row && s->n > 0; i++)
        s->keep[i] =
            wnw__layer_takes_part(&j->c->shape, i % j->n_row / j->c->info.n_head_kv) ? s->keep[i] / s->n : 1;
    for (int32_t i = 0; i < j->n_row * N_LOST && s->n > 0; i++)
        s->lost[i] /= s->n;
}

/* x [n_list][n_layer][n_head_kv] */
static json_t *lists(const struct job *j, const double *x, int32_t n_list)
{
    const int32_t n_layer = j->c->info.n_layer, n_kv = j->c->info.n_head_kv;
    float *rows = calloc((size_t)j->n_row, sizeof *rows);
    json_t *a = json_array();
    bool good = rows && a;
    for (int32_t i = 0; good && i < n_list; i++) {
        for (int32_t k = 0; k < j->n_row; k++)
            rows[k] = (float)x[(int64_t)i * j->n_row + k];
        good = json_array_append_new(a, wnw__json_f32_rows(rows, n_layer, n_kv)) == 0;
    }
    free(rows);
    if (good)
        return a;
    json_decref(a);
    return NULL;
}

/* The losses as lists [N_LOST][n_layer][n_head_kv]. */
static json_t *lost_lists(const struct job *j)
{
    double *x = calloc((size_t)(N_LOST * j->n_row), sizeof *x);
    for (int32_t row = 0; x && row < j->n_row; row++)
        for (int32_t p = 0; p < N_LOST; p++)
            x[p * j->n_row + row] = j->all.lost[row * N_LOST + p];
    json_t *a = x ? lists(j, x, N_LOST) : NULL;
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

static int report(struct job *j)
{
    struct wnw__calibrate_text *out;
    const int32_t n_kv = j->c->info.n_head_kv, at = 79; /* 80 % removed */
    WNW_TRY(wnw__calibrate_output(j->c, "report", &out));
    wnw__calibrate_print(
        out,
        "budget curves: %d samples, %d questions; percent that each head keeps of its entries "
        "when 80 %% are removed\n",
        (int)j->n_sample, (int)j->all.n);
    for (int32_t il = 0; il < j->c->info.n_layer; il++) {
        wnw__calibrate_print(out, "layer %3d ", (int)il);
        for (int32_t ih = 0; ih < n_kv; ih++)
            wnw__calibrate_print(out, " %5.1f", 100 * j->all.keep[at * j->n_row + il * n_kv + ih]);
        wnw__calibrate_print(out, "\n");
    }
    if (j->half[0].n > 0 && j->half[1].n > 0) {
        double r = 0;
        WNW_TRY(wnw__rank_correlation(&r, j->half[0].keep + at * j->n_row, j->half[1].keep + at * j->n_row,
                                      j->n_row));
        wnw__calibrate_print(out, "rank correlation of the two halves of the samples: %.3f\n", r);
    }
    return WNW_OK;
}

static int finish(struct job *j)
{
    divide(&j->all, j);
    divide(&j->half[0], j);
    divide(&j->half[1], j);
    json_t *more =
        json_pack("{s:i, s:i}", "measured_samples", (int)j->n_sample, "measured_questions", (int)j->all.n);
    json_t *results = json_pack("{s:o, s:o, s:o, s:o}", "ratio", steps(N_RATIO, 100), "keep",
                                lists(j, j->all.keep, N_RATIO), "lost_ratio", steps(N_LOST, N_LOST + 1),
                                "lost", lost_lists(j));
    WNW_TRY(wnw__calibrate_profile(j->c, "curves.json", "curves", more, results));
    return report(j);
}

static int check_scorer(const struct job *j)
{
    const wnw_scorer *scorer = wnw__scorer_of(j->policy);
    if (!scorer->blocks)
        return WNW_OK;
    return wnw__fail(WNW_E_ARG,
                     "scores of %s compare entries inside a block only; budget curves need scores of all "
                     "entries",
                     scorer->part.name);
}

static int prepare(struct job *j)
{
    const struct opts *o = j->o;
    const int32_t n_most = wnw__effort_value(j->c, o->samples, (struct wnw__by_effort){4, 2, 8});
    int32_t length;
    j->n_generate = wnw__effort_value(j->c, o->generate, (struct wnw__by_effort){32, 16, 64});
    j->n_question = wnw__effort_value(j->c, o->questions, (struct wnw__by_effort){8, 4, WNW_N_QUESTIONS});
    WNW_TRY(wnw__sample_length(&length, j->c, o->length, (struct wnw__by_effort){2048, 1024, 4096},
                               j->n_generate + WNW_CURVE_ROOM));
    if (j->c->info.n_layer_swa == j->c->info.n_layer)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "all layers of the model have a sliding window; policies leave them alone");
    WNW_TRY(wnw__samples_cut(&j->samples, j->c, length, 0, n_most));
    WNW_TRY(wnw__calibrate_policy(&j->policy, j->c, "expected_attention:epsilon=0.02"));
    WNW_TRY(check_scorer(j));
    WNW_TRY(wnw__calibrate_set(j->c, "length", json_integer(length)));
    WNW_TRY(wnw__calibrate_set(j->c, "samples", json_integer(n_most)));
    WNW_TRY(wnw__calibrate_set(j->c, "questions", json_integer(j->n_question)));
    return wnw__calibrate_set(j->c, "generate", json_integer(j->n_generate));
}

static bool new_sums(struct sums *s, int32_t n_row)
{
    s->keep = calloc((size_t)(N_RATIO * n_row), sizeof *s->keep);
    s->lost = calloc((size_t)(N_LOST * n_row), sizeof *s->lost);
    return s->keep && s->lost;
}

static int work(struct job *j)
{
    int64_t total = 0;
    WNW_TRY(prepare(j));
    if (!new_sums(&j->all, j->n_row) || !new_sums(&j->half[0], j->n_row) || !new_sums(&j->half[1], j->n_row))
        return wnw__fail(WNW_E_NOMEM, "no memory for budget curves");
    for (int32_t i = 0; i < j->samples.n_text; i++)
        total += (int64_t)j->samples.n_piece[i] * (j->samples.length + j->n_question * j->n_generate);
    WNW_TRY(wnw__calibrate_begin(j->c, total));
    WNW_TRY(wnw__calibrate_output(j->c, "dump", &j->dump));
    wnw__calibrate_print(j->dump, "text,sample,ratio,layer,head,keep\n");
    WNW_TRY(run_samples(j));
    return finish(j);
}

static int run(wnw_calibration *c, const void *opts)
{
    struct job j = {.c = c, .o = opts, .n_row = c->info.n_layer * c->info.n_head_kv};
    struct sums *sums[] = {&j.all, &j.half[0], &j.half[1]};
    const int rc = work(&j);
    for (int i = 0; i < 3; i++) {
        free(sums[i]->keep);
        free(sums[i]->lost);
    }
    wnw__samples_free(&j.samples);
    wnw_policy_free(j.policy);
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
