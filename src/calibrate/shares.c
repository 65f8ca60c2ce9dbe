/* SPDX-License-Identifier: MIT */
/*
 * Head budgets from a method that reads its text twice: which share of every KV head's entries is among the best of
 * the model. The model reads a piece of text and looks at it a second time as the target does (KVzip, arXiv
 * 2505.23416: it repeats the text; KVCompose, arXiv 2509.05165: it reads it again). With Z the target's scores of
 * the T entries after the chat header, in the R heads of all layers that policies compress,
 *
 *     s_r(f) = mean over pieces of (entries of head r among the floor(f T R) largest Z of the piece) / T
 *
 * for six sizes f. What is written as the size is the mean of floor(f T R) / (T R), so that the shares of all heads
 * have exactly the size as their mean. Pieces have several lengths, and every text of a calibration is a kind of its
 * own: halves of the pieces, kinds and lengths are compared, because budgets that differed between them would be of
 * no use for a prompt that comes later.
 */
#include "base/err.h"
#include "base/json.h"
#include "calibrate/calibrate.h"
#include "calibrate/sample.h"
#include "calibrate/second_look.h"
#include "calibrate/share_count.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_SIZE = 6 };
static const double sizes[N_SIZE] = {0.75, 0.5, 0.25, 0.125, 0.0625, 0.03125};

enum target { TARGET_KVZIP, TARGET_KVCOMPOSE };
static const char *const targets[] = {"kvzip", "kvcompose", NULL}; /* names of the presets too */

struct opts {
    int32_t target, pieces, shortest, longest, extra;
};

/* Sums over a group of pieces. */
struct sums {
    double *share; /* [N_SIZE][n_row] */
    int32_t n;
};

/* Groups of pieces: all, halves, lengths, then one for each text. */
enum group { ALL, HALF, SHORTER = HALF + 2, LONGER, EXTRA, TEXTS };

struct work {
    wnw_calibration *c;
    const struct opts *o;
    wnw_policy *policy;
    struct wnw__samples samples;
    int32_t n_piece, shortest, longest; /* of each text: pieces of rising length */
    int32_t extra;                      /* length of one more; 0 = none */
    int32_t *il, n_layer;               /* [n_layer] layers that are measured */
    int32_t n_row;                      /* their KV heads */
    struct sums *groups;                /* [n_group] */
    double size[N_SIZE];                /* sums of what the sizes came to */
    int32_t n_group;
    struct wnw__calibrate_text *dump;
    int32_t i_text, i_piece; /* the current piece */
};

/* What a piece came to. */
struct tally {
    int32_t n;      /* entries of a head that were scored */
    int32_t *count; /* [N_SIZE][n_row] */
};

/* ---- Pieces ---- */

static int32_t length_of(const struct work *w, int32_t i)
{
    if (i == w->n_piece)
        return w->extra;
    const int32_t span = w->longest - w->shortest;
    return w->shortest + (w->n_piece > 1 ? (int32_t)((int64_t)span * i / (w->n_piece - 1)) : 0);
}

/* The first token of piece i of a text: pieces follow one another. */
static int64_t start_of(const struct work *w, int32_t i)
{
    int64_t at = 0;
    for (int32_t k = 0; k < i; k++)
        at += length_of(w, k);
    return at;
}

/* The number of pieces that a text has room for, at least 1. */
static int32_t n_piece_of(const struct work *w, int32_t i_text)
{
    const int32_t most = w->n_piece + (w->extra > 0);
    int32_t n = 0;
    while (n < most && start_of(w, n + 1) <= w->samples.n_tokens[i_text])
        n++;
    return n;
}

static enum group length_group(const struct work *w, int32_t i)
{
    if (i == w->n_piece)
        return EXTRA;
    if (2 * i < w->n_piece - 1)
        return SHORTER;
    return LONGER;
}

/* ---- The unit of work: a piece ---- */

/* The numbers of best entries of n entries of every head. */
static void best_of(const struct work *w, int32_t n, int64_t best[N_SIZE])
{
    for (int i = 0; i < N_SIZE; i++)
        best[i] = (int64_t)floor(sizes[i] * n * w->n_row + 1e-6);
}

static int count_piece(const struct work *w, const struct wnw__looked *p, json_t **result)
{
    const int32_t n_row = w->n_row;
    int64_t best[N_SIZE];
    int32_t *count = calloc((size_t)(N_SIZE * n_row), sizeof *count);
    if (!count)
        return wnw__fail(WNW_E_NOMEM, "no memory for the counts of %d heads", (int)n_row);
    best_of(w, p->n, best);
    int rc = wnw__share_count(count, p->score, n_row, p->n, best, N_SIZE);
    if (rc == WNW_OK) {
        *result =
            json_pack("{s:i, s:o}", "entries", (int)p->n, "counts", wnw__json_i32_rows(count, N_SIZE, n_row));
        rc = *result ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the counts of %d heads", (int)n_row);
    }
    free(count);
    return rc;
}

static int run_piece(wnw_calibration *c, void *user, json_t **result)
{
    const struct work *w = user;
    const wnw_policy *policy = w->policy;
    struct wnw__looked l = {.il = w->il, .n_layer = w->n_layer, .n_head_kv = c->info.n_head_kv};
    const int32_t *tokens = w->samples.tokens[w->i_text] + start_of(w, w->i_piece);
    int rc = wnw__look_again(&l, c, &policy, 1, tokens, length_of(w, w->i_piece));
    if (rc == WNW_OK)
        rc = count_piece(w, &l, result);
    wnw__looked_free(&l);
    return rc;
}

/* ---- All pieces ---- */

static void add_to(struct sums *to, const struct work *w, const struct tally *t)
{
    for (int32_t i = 0; i < N_SIZE * w->n_row; i++)
        to->share[i] += (double)t->count[i] / t->n;
    to->n++;
}

static void add_piece(struct work *w, const struct tally *t)
{
    int64_t best[N_SIZE];
    best_of(w, t->n, best);
    for (int i = 0; i < N_SIZE; i++)
        w->size[i] += (double)best[i] / ((double)t->n * w->n_row);
    add_to(&w->groups[HALF + w->groups[ALL].n % 2], w, t);
    add_to(&w->groups[length_group(w, w->i_piece)], w, t);
    add_to(&w->groups[TEXTS + w->i_text], w, t);
    add_to(&w->groups[ALL], w, t);
}

static void dump_piece(const struct work *w, const struct tally *t)
{
    const int32_t n_head = w->c->info.n_head_kv;
    for (int32_t i = 0; w->dump && i < N_SIZE * w->n_row; i++)
        wnw__calibrate_print(w->dump, "%d,%d,%d,%g,%d,%d,%d\n", (int)w->i_text, (int)w->i_piece, (int)t->n,
                             sizes[i / w->n_row], (int)w->il[i % w->n_row / n_head],
                             (int)(i % w->n_row % n_head), (int)t->count[i]);
}

/* Reads a result: the counts of every size are as many as its best entries, and none is above the entries. */
static bool read_tally(const struct work *w, const json_t *result, struct tally *t)
{
    const json_t *entries = json_object_get(result, "entries"), *rows = json_object_get(result, "counts");
    const json_int_t n = json_is_integer(entries) ? json_integer_value(entries) : 0;
    int64_t best[N_SIZE];
    if (n < 1 || n > w->c->info.n_ctx_train || json_array_size(rows) != N_SIZE)
        return false;
    t->n = (int32_t)n;
    best_of(w, t->n, best);
    for (int32_t i = 0; i < N_SIZE; i++) {
        json_t *row = json_pack("{s:O}", "row", json_array_get(rows, (size_t)i));
        int32_t *count = t->count + (int64_t)i * w->n_row;
        bool good = row && wnw__json_get_i32s(row, "row", count, w->n_row);
        int64_t sum = 0;
        json_decref(row);
        for (int32_t r = 0; good && r < w->n_row; r++) {
            good = count[r] >= 0 && count[r] <= t->n && (i == 0 || count[r] <= count[r - w->n_row]);
            sum += count[r];
        }
        if (!good || sum != best[i])
            return false;
    }
    return true;
}

static int do_piece(struct work *w, struct tally *t)
{
    char name[64];
    json_t *result;
    snprintf(name, sizeof name, "text %d, piece %d", (int)w->i_text, (int)w->i_piece);
    const struct wnw__calibrate_unit unit = {
        .name = name, .cost = length_of(w, w->i_piece), .run = run_piece, .user = w};
    WNW_TRY(wnw__calibrate_unit(w->c, &unit, &result));
    const bool good = read_tally(w, result, t);
    json_decref(result);
    if (!good)
        return wnw__calibrate_damaged(w->c, name);
    dump_piece(w, t);
    add_piece(w, t);
    return WNW_OK;
}

static int do_pieces(struct work *w)
{
    struct tally t = {.count = calloc((size_t)(N_SIZE * w->n_row), sizeof *t.count)};
    int rc = t.count ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the counts of %d heads", (int)w->n_row);
    for (w->i_text = 0; rc == WNW_OK && w->i_text < w->samples.n_text; w->i_text++)
        for (w->i_piece = 0; rc == WNW_OK && w->i_piece < n_piece_of(w, w->i_text); w->i_piece++)
            rc = do_piece(w, &t);
    free(t.count);
    return rc;
}

/* ---- Comparing groups ---- */

/* What two comparisons of sums are: of one group with another, or with all that is not in it. */
struct comparison {
    const char *what;         /* for people */
    const struct sums *a, *b; /* b NULL: all but a */
};

/* Fills overlap[N_SIZE]; false where a side has no piece. */
static bool compare(const struct work *w, const struct comparison *of, double *overlap)
{
    const struct sums *all = &w->groups[ALL];
    if (of->a->n == 0 || (of->b ? of->b->n : all->n - of->a->n) == 0)
        return false;
    for (int i = 0; i < N_SIZE; i++) {
        const double *a = of->a->share + (int64_t)i * w->n_row;
        double *b = calloc((size_t)w->n_row, sizeof *b);
        for (int32_t r = 0; b && r < w->n_row; r++) {
            const int64_t at = (int64_t)i * w->n_row + r;
            /* What is left of a sum may be a hair below 0. */
            b[r] = of->b ? of->b->share[at] : fmax(all->share[at] - of->a->share[at], 0);
        }
        overlap[i] = b ? wnw__share_overlap(a, b, w->n_row) : 0;
        const bool good = b != NULL;
        free(b);
        if (!good)
            return false;
    }
    return true;
}

/* Adds a comparison to the results as key, and to the report. */
static int report(const struct work *w, struct wnw__calibrate_text *out, json_t *results, const char *key,
                  const struct comparison *of)
{
    double overlap[N_SIZE];
    if (!compare(w, of, overlap))
        return WNW_OK;
    wnw__calibrate_print(out, "%-44.44s", of->what);
    for (int i = 0; i < N_SIZE; i++)
        wnw__calibrate_print(out, "  %.3f", overlap[i]);
    wnw__calibrate_print(out, "\n");
    if (json_object_set_new(results, key, wnw__json_f64s(overlap, N_SIZE)) == 0)
        return WNW_OK;
    return wnw__fail(WNW_E_NOMEM, "no memory for the results");
}

static int report_groups(const struct work *w, struct wnw__calibrate_text *out, json_t *overlap,
                         json_t *kinds)
{
    const struct sums *g = w->groups;
    WNW_TRY(report(w, out, overlap, "halves",
                   &(struct comparison){"two halves of the pieces", &g[HALF], &g[HALF + 1]}));
    WNW_TRY(report(w, out, overlap, "lengths",
                   &(struct comparison){"shorter and longer pieces", &g[SHORTER], &g[LONGER]}));
    WNW_TRY(report(w, out, overlap, "extra",
                   &(struct comparison){"the longest pieces and the others", &g[EXTRA], NULL}));
    for (int32_t i = 0; i < w->samples.n_text; i++) {
        char what[64];
        snprintf(what, sizeof what, "%.30s and the others", w->c->params.texts[i].name);
        WNW_TRY(report(w, out, kinds, w->c->params.texts[i].name,
                       &(struct comparison){what, &g[TEXTS + i], NULL}));
    }
    return WNW_OK;
}

static int report_all(const struct work *w, struct wnw__calibrate_text *out, json_t *overlap)
{
    json_t *kinds = json_object();
    wnw__calibrate_print(out, "what the budgets have in common (1 = the same), by size: ");
    for (int i = 0; i < N_SIZE; i++)
        wnw__calibrate_print(out, "%s%.4g %%", i > 0 ? ", " : "", 100 * sizes[i]);
    wnw__calibrate_print(out, "\n");
    const int rc = report_groups(w, out, overlap, kinds);
    if (json_object_set_new(overlap, "texts", kinds) != 0 && rc == WNW_OK)
        return wnw__fail(WNW_E_NOMEM, "no memory for the results");
    return rc;
}

static void tell_shares(const struct work *w, struct wnw__calibrate_text *out)
{
    enum { AT = 2 };
    const int32_t n_head = w->c->info.n_head_kv;
    wnw__calibrate_print(
        out,
        "head budgets from %s: %d pieces; percent that each head keeps of its entries when the "
        "model keeps %.4g %%\n",
        targets[w->o->target], (int)w->groups[ALL].n, 100 * sizes[AT]);
    for (int32_t i = 0; i < w->n_layer; i++) {
        wnw__calibrate_print(out, "layer %3d ", (int)w->il[i]);
        for (int32_t ih = 0; ih < n_head; ih++)
            wnw__calibrate_print(out, " %5.1f",
                                 100 * w->groups[ALL].share[(int64_t)AT * w->n_row + i * n_head + ih] /
                                     w->groups[ALL].n);
        wnw__calibrate_print(out, "\n");
    }
}

/* ---- The results ---- */

/* Shares as lists [N_SIZE][n_layer][n_head_kv] of all layers; those that policies leave alone keep everything. */
static json_t *share_lists(const struct work *w)
{
    const int32_t n_layer = w->c->info.n_layer, n_head = w->c->info.n_head_kv;
    float *rows = calloc((size_t)n_layer * (size_t)n_head, sizeof *rows);
    json_t *a = json_array();
    bool good = rows && a;
    for (int32_t k = 0; good && k < N_SIZE; k++) {
        for (int32_t r = 0; r < n_layer * n_head; r++)
            rows[r] = 1;
        for (int32_t r = 0; r < w->n_row; r++)
            rows[w->il[r / n_head] * n_head + r % n_head] =
                (float)(w->groups[ALL].share[(int64_t)k * w->n_row + r] / w->groups[ALL].n);
        good = json_array_append_new(a, wnw__json_f32_rows(rows, n_layer, n_head)) == 0;
    }
    free(rows);
    if (good)
        return a;
    json_decref(a);
    return NULL;
}

static int finish(struct work *w)
{
    struct wnw__calibrate_text *out;
    json_t *overlap = json_object();
    WNW_TRY(wnw__calibrate_output(w->c, "report", &out));
    for (int i = 0; i < N_SIZE; i++)
        w->size[i] /= w->groups[ALL].n;
    tell_shares(w, out);
    const int rc = report_all(w, out, overlap);
    if (rc != WNW_OK) {
        json_decref(overlap);
        return rc;
    }
    json_t *more = json_pack("{s:i}", "measured_pieces", (int)w->groups[ALL].n);
    json_t *results =
        json_pack("{s:o, s:o, s:o, s:o}", "size", wnw__json_f64s(w->size, N_SIZE), "layers",
                  wnw__json_i32s(w->il, w->n_layer), "share", share_lists(w), "overlap", overlap);
    return wnw__calibrate_profile(w->c, "shares.json", "shares", more, results);
}

/* ---- The run ---- */

static int new_groups(struct work *w)
{
    w->n_group = TEXTS + w->c->params.n_texts;
    w->groups = calloc((size_t)w->n_group, sizeof *w->groups);
    bool good = w->groups != NULL;
    for (int32_t i = 0; good && i < w->n_group; i++) {
        w->groups[i].share = calloc((size_t)(N_SIZE * w->n_row), sizeof *w->groups[i].share);
        good = w->groups[i].share != NULL;
    }
    return good ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the shares of %d heads", (int)w->n_row);
}

/* Decides on the lengths of pieces. A piece and its second reading must fit the model's context: lengths that are
 * given are refused where they do not, others shrink. */
static int set_lengths(struct work *w)
{
    const struct opts *o = w->o;
    const int32_t longer = o->longest > o->extra ? o->longest : o->extra;
    int32_t most;
    WNW_TRY(wnw__look_fits(&most, w->c, longer > o->shortest ? longer : o->shortest));
    w->n_piece = wnw__effort_value(w->c, o->pieces, (struct wnw__by_effort){9, 3, 18});
    w->longest = o->longest;
    if (o->longest == 0) {
        w->longest = most < 1400 ? most : 1400;
        w->longest = w->longest < o->shortest ? o->shortest : w->longest;
    }
    w->shortest = o->shortest > 0 ? o->shortest : (int32_t)((int64_t)w->longest * 3 / 7); /* 600 of 1400 */
    w->shortest = w->shortest > 0 ? w->shortest : 1;
    w->extra = wnw__effort_value(w->c, o->extra, (struct wnw__by_effort){2800, 2000, 5600});
    w->extra = w->extra < most ? w->extra : most;
    if (o->extra == 0 && w->extra <= w->longest)
        w->extra = 0;
    if (w->shortest <= w->longest)
        return WNW_OK;
    return wnw__fail(WNW_E_ARG, "shortest is %d and longest %d; pieces grow from the one to the other",
                     (int)w->shortest, (int)w->longest);
}

static int prepare(struct work *w)
{
    const struct opts *o = w->o;
    WNW_TRY(wnw__looked_layers(&w->il, &w->n_layer, w->c));
    w->n_row = w->n_layer * w->c->info.n_head_kv;
    WNW_TRY(new_groups(w));
    WNW_TRY(set_lengths(w));
    const int64_t total = start_of(w, w->n_piece) + w->extra, n_most = (total - 1) / w->shortest + 1;
    WNW_TRY(wnw__samples_cut(&w->samples, w->c, w->shortest, 0,
                             n_most < INT32_MAX ? (int32_t)n_most : INT32_MAX));
    WNW_TRY(wnw_policy_parse(&w->policy, targets[o->target], NULL));
    WNW_TRY(wnw__calibrate_set(w->c, "pieces", json_integer(w->n_piece)));
    WNW_TRY(wnw__calibrate_set(w->c, "shortest", json_integer(w->shortest)));
    WNW_TRY(wnw__calibrate_set(w->c, "longest", json_integer(w->longest)));
    return wnw__calibrate_set(w->c, "extra", json_integer(w->extra));
}

static int work(struct work *w)
{
    int64_t total = 0;
    WNW_TRY(prepare(w));
    for (int32_t i = 0; i < w->samples.n_text; i++)
        total += start_of(w, n_piece_of(w, i));
    WNW_TRY(wnw__calibrate_begin(w->c, total));
    WNW_TRY(wnw__calibrate_output(w->c, "dump", &w->dump));
    wnw__calibrate_print(w->dump, "text,piece,entries,size,layer,head,count\n");
    WNW_TRY(do_pieces(w));
    return finish(w);
}

static int run(wnw_calibration *c, const void *opts)
{
    struct work w = {.c = c, .o = opts};
    const int rc = work(&w);
    for (int32_t i = 0; w.groups && i < w.n_group; i++)
        free(w.groups[i].share);
    free(w.groups);
    free(w.il);
    wnw__samples_free(&w.samples);
    wnw_policy_free(w.policy);
    return rc;
}

static const wnw_option options[] = {
    {.name = "target",
     .help = "whose second reading says what is best: kvzip repeats the text, kvcompose reads it again",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, target),
     .def = TARGET_KVZIP,
     .choices = targets},
    {.name = "pieces",
     .help = "pieces of each text, at most; 0 = 3, 9, 18 (quick, normal, paper)",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, pieces),
     .max = 10000},
    {.name = "shortest",
     .help = "tokens of the shortest piece; 0 = 600, or what fits",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, shortest),
     .max = 1000000},
    {.name = "longest",
     .help = "tokens of the longest piece but one; 0 = 1400, or what fits",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, longest),
     .max = 1000000},
    {.name = "extra",
     .help = "tokens of one more piece of each text, longer than the others; 0 = 2000, 2800, 5600",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, extra),
     .max = 1000000},
    {0}};

const struct wnw__calibrate_type wnw__calibrate_shares = {
    .name = "shares",
    .about = "What every KV head would keep if KVzip chose the entries, for the head budget shares.",
    .options = options,
    .options_size = sizeof(struct opts),
    .reads_text = true,
    .run = run,
};
