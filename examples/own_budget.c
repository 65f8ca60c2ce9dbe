/* SPDX-License-Identifier: MIT */
/*
 * Budgets and a selector of your own, in your own program, without touching winnow's source.
 *
 *     own_budget MODEL.gguf
 *
 * examples/own_method.c brings a scorer; this one brings two other kinds of part and puts them into recipes
 * with scorers of the library:
 *
 *   hourglass   a layer budget: the first and last layers keep more entries than those between. Its option
 *               `waist` is what the layer in the middle gets, as a share of the average.
 *   spread      a selector: best scores, but of every `step` neighbouring entries at least one stays, so that
 *               no stretch of the text is lost altogether.
 *
 * They are here to show the steps, not to win. Every descriptor begins with a wnw_part: kind, name, options,
 * flags. The functions of its kind follow. The program reads a made-up text, compresses copies of
 * the cache and prints what every layer keeps. docs/research/new-method.md walks through this file.
 */
#include <winnow_method.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns from the function where a call fails. The caller frees everything. */
#define TRY(call)                   \
    do {                            \
        const int status_ = (call); \
        if (status_ != WNW_OK)      \
            return status_;         \
    } while (0)

/* ---- A layer budget ---- */

struct hourglass_opts {
    double waist;
};

static const wnw_option hourglass_options[] = {
    {.name = "waist",
     .help = "entries of the layer in the middle, as a share of the average",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct hourglass_opts, waist),
     .def = 0.5,
     .min = 0,
     .max = 1},
    {.name = NULL}};

/* The share of the average that layer i of n gets. It falls from the ends to `waist` in the middle; its mean
 * is 1. */
static double share(double waist, int32_t i, int32_t n)
{
    const double end = 2 - waist, x = n > 1 ? 2.0 * i / (n - 1) - 1 : 0; /* -1 .. 1 */
    return n > 1 ? waist + (end - waist) * fabs(x) : 1;
}

/* n_keep[l] = protected + (budget - protected) * share, at most the entries of the layer. Because counts are
 * rounded down, their sum never exceeds the size; what a full layer cannot use stays unused. */
static int hourglass_allocate(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    const struct hourglass_opts *o = opts;
    const double free_entries = p->budget - p->n_protected;
    double sum = 0;
    int32_t n_full = 0;
    for (int32_t l = 0; l < p->n_layer; l++)
        sum += share(o->waist, l, p->n_layer);
    for (int32_t l = 0; l < p->n_layer; l++) {
        const double want = free_entries * share(o->waist, l, p->n_layer) * p->n_layer / sum;
        const double room = p->n - p->n_protected;
        n_full += want > room;
        n_keep[l] = p->n_protected + (int32_t)(want < room ? want : room);
    }
    if (n_full > 0)
        wnw_part_warn(warning,
                      "hourglass: some layers keep everything and leave a part of their share unused");
    return WNW_OK;
}

static const wnw_layer_budget hourglass = {
    .part = {WNW_LAYER_BUDGET_INIT, .name = "hourglass",
             .about = "More entries in the first and the last layers, fewer between.",
             .options = hourglass_options, .options_size = sizeof(struct hourglass_opts),
             .flags = WNW_FLAG_RAGGED},
    .allocate = hourglass_allocate,
};

/* ---- A selector ---- */

struct spread_opts {
    int32_t step;
};

static const wnw_option spread_options[] = {
    {.name = "step",
     .help = "entries of which at least one stays, if the count allows",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct spread_opts, step),
     .def = 16,
     .min = 1,
     .max = 65536},
    {.name = NULL}};

static size_t spread_scratch(const void *opts, int32_t n)
{
    (void)opts;
    return (size_t)n; /* 1 = taken */
}

/* Takes the best entry of first .. end - 1 that is not taken; false if all are. */
static int take_best(const wnw_select_problem *p, int32_t first, int32_t end, float *taken)
{
    int32_t best = -1;
    for (int32_t i = first; i < end; i++)
        if (taken[i] == 0 && (best < 0 || p->score[i] > p->score[best]))
            best = i;
    if (best >= 0)
        taken[best] = 1;
    return best >= 0;
}

static int32_t spread_select(const void *opts, const wnw_select_problem *p, int32_t *keep, float *taken)
{
    const struct spread_opts *o = opts;
    const int32_t end = p->n - p->prot.n_last;
    int32_t left = p->n_keep - p->prot.n_first - p->prot.n_last, n = 0;
    for (int32_t i = 0; i < p->n; i++)
        taken[i] = i < p->prot.n_first || i >= end;
    for (int32_t at = p->prot.n_first; at < end && left > 0; at += o->step)
        left -= take_best(p, at, end - at < o->step ? end : at + o->step, taken);
    while (left > 0 && take_best(p, p->prot.n_first, end, taken))
        left--;
    for (int32_t i = 0; i < p->n; i++)
        if (taken[i] != 0)
            keep[n++] = i;
    return n;
}

static const wnw_selector spread = {
    .part = {WNW_SELECTOR_INIT, .name = "spread",
             .about = "Best scores, and at least one of every few neighbours.", .options = spread_options,
             .options_size = sizeof(struct spread_opts)},
    .scratch = spread_scratch,
    .select = spread_select,
};

/* ---- Recipes with them ---- */

static int read_text(wnw_session *s, const wnw_model *m)
{
    enum { N_LINES = 24, LINE = 80 };
    char text[N_LINES * LINE];
    size_t len = 0;
    int32_t *tokens = NULL, n = 0;
    for (int i = 0; i < N_LINES; i++)
        len += (size_t)snprintf(text + len, sizeof text - len,
                                "Train %d leaves in the morning for harbor %d.\n", i + 1, 3 * i % 7);
    int rc = wnw_tokenize(m, text, len, true, false, &tokens, &n);
    if (rc == WNW_OK)
        rc = wnw_session_prefill(s, tokens, n, NULL, NULL);
    wnw_free(tokens);
    return rc;
}

static void print_kept(const wnw_session *s, int32_t n_layer, const wnw_policy *policy,
                       const wnw_report *report)
{
    printf("%s\n  keeps %.2f of %d entries per head; by layer:", wnw_policy_string(policy), report->kept_mean,
           wnw_session_n_past(s));
    for (int32_t il = 0; il < n_layer; il++)
        printf(" %d", wnw_cache_n(s, il, 0));
    printf("\n%s%s%s", *report->warning ? "  " : "", report->warning, *report->warning ? "\n" : "");
}

/* Compresses a copy of the session by half and prints what the first KV head of every layer keeps. */
static int run_policy(const wnw_session *read, int32_t n_layer, const wnw_policy *policy)
{
    wnw_session *s = NULL;
    wnw_report report = {WNW_INIT(wnw_report)};
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    TRY(wnw_session_copy(&s, read));
    const int rc = wnw_session_compress(s, policy, &half, &report);
    if (rc == WNW_OK)
        print_kept(s, n_layer, policy, &report);
    wnw_session_free(s);
    return rc;
}

static const char *const recipes[] = {"knorm", "knorm+hourglass", "knorm+hourglass:waist=0.25+spread:step=8",
                                      "snapkv:window=8+hourglass+adakv+spread"};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* What the program makes. main frees it in any case. */
struct made {
    wnw_registry *registry;
    wnw_model *model;
    wnw_session *session; /* reads the text once, and is copied for every policy */
    wnw_policy *policies[N_RECIPES];
};

static int compare(struct made *x, const char *path)
{
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    const wnw_run run = {WNW_INIT(wnw_run),
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more),
                                                 .policies = (const wnw_policy *const *)x->policies,
                                                 .n_policies = N_RECIPES}};
    TRY(wnw_registry_new(&x->registry));
    TRY(wnw_registry_add(x->registry, &hourglass.part));
    TRY(wnw_registry_add(x->registry, &spread.part));
    TRY(wnw_model_open(&x->model, path, NULL));
    TRY(wnw_model_get_info(x->model, &info));
    TRY(wnw_session_new(&x->session, x->model, NULL));
    for (int i = 0; i < N_RECIPES; i++)
        TRY(wnw_policy_parse(&x->policies[i], recipes[i], x->registry));
    TRY(wnw_session_begin(x->session, &run));
    TRY(read_text(x->session, x->model));
    for (int i = 0; i < N_RECIPES; i++)
        TRY(run_policy(x->session, info.n_layer, x->policies[i]));
    return WNW_OK;
}

int main(int argc, char **argv)
{
    struct made x = {.registry = NULL};
    if (argc != 2) {
        fprintf(stderr, "usage: own_budget MODEL.gguf\n");
        return 2;
    }
    const int rc = compare(&x, argv[1]);
    if (rc != WNW_OK)
        fprintf(stderr, "own_budget: %s\n", wnw_last_error());
    for (int i = 0; i < N_RECIPES; i++)
        wnw_policy_free(x.policies[i]);
    wnw_session_free(x.session);
    wnw_model_free(x.model);
    wnw_registry_free(x.registry);
    return rc == WNW_OK ? 0 : 1;
}
