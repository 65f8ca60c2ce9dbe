/* SPDX-License-Identifier: MIT */
/*
 * Parts from outside the library. Every kind can be registered and works like the library's own. A wrong
 * descriptor is refused. A fault of a part while it runs is an error, never memory damage.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_source.h"
#include "peek_plan.h"
#include "plans.h"

/* ---- Copies of our parts under other names ---- */

static union wnw__part copy_of(const wnw_part *part, const char *name)
{
    union wnw__part copy = {0};
    memcpy(&copy, part, part->struct_size);
    copy.head.name = name;
    return copy;
}

/* Plans of a recipe of the library and of the same with a copy from outside. False if the first does not parse. scorer: the
 * recipe names a scorer, not the preset of its name. */
static bool same_plans(struct fake *f, const wnw_registry *r, bool scorer, const char *ours,
                       const char *theirs)
{
    const wnw_size size = size_ratio(0.6);
    wnw_policy *p, *q;
    wnw_plan *a = NULL, *b = NULL;
    wnw_report ra = {WNW_INIT(wnw_report)}, rb = ra;
    if ((scorer ? wnw__policy_parse_parts(&p, ours) : wnw_policy_parse(&p, ours, NULL)) != WNW_OK)
        return false;
    if (wnw_policy_parse(&q, theirs, r) != WNW_OK)
        fail_msg("%s: %s", theirs, wnw_last_error());
    const int rc = wnw__plan_make(&a, p, &size, &f->src, &ra);
    assert_int_equal(wnw__plan_make(&b, q, &size, &f->src, &rb), rc);
    if (rc == WNW_OK && !test_same_plan(a, b))
        fail_msg("%s and %s keep other entries", ours, theirs);
    assert_int_equal(*ra.warning != '\0', *rb.warning != '\0');
    wnw_plan_free(a);
    wnw_plan_free(b);
    wnw_policy_free(p);
    wnw_policy_free(q);
    return true;
}

static void copies_do_the_same(void **state)
{
    (void)state;
    static const char *const hosts[] = {"snapkv", "knorm", "lagkv", "kvcompose", "random", "score=replay"};
    const wnw_part *part;
    struct fake f;
    int32_t n_part = 0, n_same = 0;
    fake_init(&f, 3, 2, 2, 300, false);
    for (int32_t i = 0; (part = wnw__part_get(i)); i++, n_part++) {
        char name[64], ours[160], theirs[160];
        bool same = false;
        wnw_registry *r;
        snprintf(name, sizeof name, "%s-copy", part->name);
        const union wnw__part copy = copy_of(part, name);
        assert_ok(wnw_registry_new(&r));
        if (part->kind == WNW_PART_AGGREGATION && !copy.aggregation.aggregate) {
            assert_error(wnw_registry_add(r, &copy.head), WNW_E_ARG); /* direct is no work of its own */
            n_same++;
        } else if (part->kind == WNW_PART_CONTENTS && !wnw__contents_works(&copy.contents)) {
            assert_error(wnw_registry_add(r, &copy.head), WNW_E_ARG);
            n_same++;
        } else {
            assert_ok(wnw_registry_add(r, &copy.head));
            if (part->kind == WNW_PART_SCORER)
                same = same_plans(&f, r, true, part->name, name);
            for (size_t h = 0; h < sizeof hosts / sizeof *hosts && part->kind != WNW_PART_SCORER; h++) {
                snprintf(ours, sizeof ours, "%s+%s", hosts[h], part->name);
                snprintf(theirs, sizeof theirs, "%s+%s", hosts[h], name);
                same = same_plans(&f, r, false, ours, theirs) || same;
            }
            n_same += same;
        }
        wnw_registry_free(r);
    }
    fake_free(&f);
    assert_int_equal(n_same, n_part);
}

/* ---- Parts that do as their option says ---- */

struct opts {
    int32_t fault; /* 0 = none */
};
static const wnw_option options[] = {
    {.name = "fault", .help = "", .type = WNW_OPT_INT, .offset = 0, .def = 0, .min = 0, .max = 20}, {0}};
#define PART(KIND, name_) \
    WNW_##KIND##_INIT, .name = name_, .options = options, .options_size = sizeof(struct opts)

static int32_t fault(const void *opts)
{
    return ((const struct opts *)opts)->fault;
}

enum {
    SCORE_NAN = 1,
    SCORE_FAILS,
    SCORE_ODD_STATUS,
    SCORE_SCRATCH,
    SCORE_FLAG,
    SCORE_WINDOW,
    SCORE_SKIP,
    SCORE_PASS,
    SCORE_GATHER_SIZE,
    SCORE_GATHER_FAILS,
    SCORE_KEEP_NEGATIVE,
    SCORE_KEEP_HUGE,
    SCORE_BLOCKS
};

static void scorer_needs(const void *opts, wnw_needs *out)
{
    const int32_t f = fault(opts);
    out->flags = f == SCORE_FLAG     ? 1u << 30
                 : f == SCORE_WINDOW ? WNW_NEED_WINDOW_ATTN
                 : f == SCORE_SKIP   ? WNW_NEED_QUERY_STATS
                 : f == SCORE_PASS   ? WNW_NEED_SECOND_PASS
                                     : 0u;
    out->skip = f == SCORE_SKIP ? -1 : 0;
    out->second_pass = 99;
}

static void scorer_keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    (void)p;
    if (fault(opts) == SCORE_KEEP_NEGATIVE)
        *out = (wnw_protected){INT32_MIN, -3};
    if (fault(opts) == SCORE_KEEP_HUGE)
        *out = (wnw_protected){INT32_MAX, INT32_MAX};
}

static size_t scorer_gather_size(const void *opts, const wnw_shape *shape)
{
    (void)shape;
    return fault(opts) == SCORE_GATHER_SIZE ? SIZE_MAX / 2 : fault(opts) == SCORE_GATHER_FAILS;
}

static int scorer_visit(const void *opts, const wnw_observation *obs, double *numbers)
{
    (void)opts;
    (void)obs;
    (void)numbers;
    return WNW_E_BACKEND;
}
static const wnw_gather scorer_gather = {.size = scorer_gather_size, .visit = scorer_visit};

static size_t scorer_scratch(const void *opts, const wnw_observation *obs)
{
    (void)obs;
    return fault(opts) == SCORE_SCRATCH ? SIZE_MAX - 2 : 0;
}

static int scorer_score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)scratch;
    for (int64_t i = 0; i < (int64_t)obs->n_head_kv * obs->n; i++)
        score[i] = fault(opts) == SCORE_NAN ? NAN : (float)(i * 7 % 11);
    return fault(opts) == SCORE_FAILS ? WNW_E_IO : fault(opts) == SCORE_ODD_STATUS ? 7 : WNW_OK;
}

static void scorer_blocks(const void *opts, wnw_blocks *out)
{
    *out = (wnw_blocks){.sink = 2, .lag = fault(opts) == SCORE_BLOCKS ? 0 : 8};
}
static const wnw_block_rule scorer_rule = {.of = scorer_blocks};

static const wnw_scorer my_scorer = {
    .part = {PART(SCORER, "my_scorer"), .needs = scorer_needs, .keep = scorer_keep, .gather = &scorer_gather},
    .scratch = scorer_scratch,
    .score = scorer_score,
    .blocks = &scorer_rule,
};

static int fails_to_choose(const void *opts, const wnw_observation *obs, bool *used)
{
    (void)obs;
    (void)used;
    return fault(opts) ? WNW_E_UNSUPPORTED : WNW_OK;
}

static void copy_rows(const void *opts, const wnw_observation *obs, const float *head_score, int32_t n_row,
                      float *score, float *scratch)
{
    (void)opts;
    (void)n_row;
    (void)scratch;
    memcpy(score, head_score, (size_t)obs->n_head_kv * (size_t)obs->n * sizeof *score);
}

static const wnw_aggregation my_rows = {
    .part = {PART(AGGREGATION, "my_rows")}, .choose = fails_to_choose, .aggregate = copy_rows};

static int my_allocate_layers(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    for (int32_t l = 0; l < p->n_layer; l++)
        n_keep[l] = p->budget;
    n_keep[p->n_layer - 1] = fault(opts) == 1 ? -1 : fault(opts) == 2 ? p->n + 1 : p->budget;
    wnw_part_warn(warning, "my layers");
    return fault(opts) == 3 ? WNW_E_BACKEND : WNW_OK;
}

/* What it gathers is how often each layer was seen. */
static size_t one_per_layer(const void *opts, const wnw_shape *shape)
{
    (void)opts;
    return (size_t)shape->n_layer;
}

static int count_visit(const void *opts, const wnw_observation *obs, double *numbers)
{
    (void)opts;
    numbers[obs->il]++;
    return WNW_OK;
}
static const wnw_gather counts = {.size = one_per_layer, .visit = count_visit};

static bool seen_once(const double *numbers, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (numbers[i] != 1)
            return false;
    return true;
}

static int layers_that_gather(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    return seen_once(p->gathered, p->n_layer_model) && p->score ? my_allocate_layers(opts, p, n_keep, warning)
                                                                : WNW_E_ARG;
}

static const wnw_layer_budget my_layers = {.part = {PART(LAYER_BUDGET, "my_layers")},
                                           .allocate = my_allocate_layers};
static const wnw_layer_budget my_gathering_layers = {
    .part = {PART(LAYER_BUDGET, "my_gathering_layers"), .gather = &counts}, .allocate = layers_that_gather};

static int my_allocate_heads(const void *opts, const wnw_head_problem *p, int32_t *n_keep, int32_t *n_safe,
                             float *scratch)
{
    (void)scratch;
    for (int32_t ih = 0; ih < p->n_head_kv; ih++)
        n_keep[ih] = p->budget < p->n_entry[ih] ? p->budget : p->n_entry[ih];
    const int32_t n_prot = p->prot[0].n_first + p->prot[0].n_last;
    if (fault(opts) == 1)
        n_keep[0] = n_prot - 1;
    if (fault(opts) == 2)
        n_keep[0] = p->n_entry[0] + 1;
    if (fault(opts) == 3)
        n_safe[0] = -1;
    if (fault(opts) == 4)
        n_safe[0] = n_keep[0] - n_prot + 1;
    return fault(opts) == 5 ? WNW_E_NOMEM : WNW_OK;
}

static const wnw_head_budget my_heads = {.part = {PART(HEAD_BUDGET, "my_heads")},
                                         .allocate = my_allocate_heads};

static int my_allocate_model(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, float *scratch,
                             char *warning)
{
    (void)scratch;
    (void)warning;
    for (int32_t r = 0; r < p->n_layer * p->n_head_kv; r++)
        n_keep[r] = p->budget < p->n_entry[r] ? p->budget : p->n_entry[r];
    n_keep[1] = fault(opts) == 1 ? -7 : fault(opts) == 2 ? p->n_entry[1] + 1 : n_keep[1];
    return fault(opts) == 3 || !seen_once(p->gathered, p->n_layer_model) ? WNW_E_IO : WNW_OK;
}

static const wnw_head_budget my_model = {.part = {PART(HEAD_BUDGET, "my_model"), .gather = &counts},
                                         .allocate_model = my_allocate_model};

enum {
    SELECT_FAILS = 1,
    SELECT_MANY,
    SELECT_FALLING,
    SELECT_TWICE,
    SELECT_NEGATIVE,
    SELECT_BEYOND,
    SELECT_OWN_SIZE,
    SELECT_SETTLED
};

static int32_t my_select(const void *opts, const wnw_select_problem *p, int32_t *keep, float *scratch)
{
    const int32_t k = p->n_keep;
    (void)scratch;
    for (int32_t i = 0; i < k; i++)
        keep[i] = i;
    switch (fault(opts)) {
    case SELECT_FAILS:
        return WNW_E_BACKEND;
    case SELECT_MANY:
        return p->n + 1;
    case SELECT_FALLING:
        keep[0] = 1;
        keep[1] = 0;
        break;
    case SELECT_TWICE:
        keep[1] = 0;
        break;
    case SELECT_NEGATIVE:
        keep[0] = -1;
        break;
    case SELECT_BEYOND:
        keep[k - 1] = p->n;
        break;
    default:
        break;
    }
    return k;
}

static int32_t gathering_select(const void *opts, const wnw_select_problem *p, int32_t *keep, float *scratch)
{
    return seen_once(p->gathered, 3) ? my_select(opts, p, keep, scratch) : WNW_E_ARG;
}

static int32_t my_own_size(const void *opts, const wnw_blocks *blocks, int32_t n, wnw_rounding rounding)
{
    (void)rounding;
    assert_cmp(blocks->lag, >, 0);
    return fault(opts) == SELECT_OWN_SIZE ? n + 1 : n / 2;
}

static void my_fit(void *opts, const wnw_blocks *blocks, int32_t n, int32_t n_keep)
{
    (void)opts;
    (void)blocks;
    (void)n;
    (void)n_keep;
}

static int32_t my_settled(const void *opts, const wnw_blocks *blocks, int32_t n, int32_t n_keep)
{
    (void)blocks;
    (void)n;
    return fault(opts) == SELECT_SETTLED ? n_keep + 1 : 0;
}
static const wnw_recursive my_rule = {.own_size = my_own_size, .fit = my_fit, .settled = my_settled};

static const wnw_selector my_selector = {.part = {PART(SELECTOR, "my_selector")}, .select = my_select};
static const wnw_selector my_gathering_selector = {
    .part = {PART(SELECTOR, "my_gathering_selector"), .gather = &counts}, .select = gathering_select};
static const wnw_selector my_recursive = {
    .part = {PART(SELECTOR, "my_recursive")}, .recursive = &my_rule, .select = my_select};

enum {
    MERGE_FALLING = 1,
    MERGE_FROM_KEPT,
    MERGE_TO_GONE,
    MERGE_TO_NONE,
    MERGE_TO_MANY,
    MERGE_COUNT,
    PRUNE_FALLING,
    PRUNE_BEYOND,
    PRUNE_SPARED,
    PRUNE_COUNT
};

/* Of entries that are all but the first n_keep: those go. */
static int32_t my_merge(const void *opts, const wnw_contents_problem *p, wnw_merge *out, float *scratch)
{
    (void)scratch;
    if (p->n - p->n_keep < 2 || p->n_keep < 2)
        return 0;
    for (int32_t i = 0; i < 2; i++)
        out[i] = (wnw_merge){.from = p->n - 2 + i, .to = p->keep[i], .n_to = 1, .weight = 0.5f};
    switch (fault(opts)) {
    case MERGE_FALLING:
        out[1].from = out[0].from;
        break;
    case MERGE_FROM_KEPT:
        out[0].from = p->keep[1];
        break;
    case MERGE_TO_GONE:
        out[0].to = p->n - 1;
        break;
    case MERGE_TO_NONE:
        out[0].n_to = 0;
        break;
    case MERGE_TO_MANY:
        out[0].n_to = p->n_keep + 1;
        break;
    default:
        break;
    }
    return fault(opts) == MERGE_COUNT ? p->n - p->n_keep + 1 : 2;
}

static int32_t my_prune(const void *opts, const wnw_contents_problem *p, int32_t *out, int32_t *n_spared,
                        float *scratch)
{
    (void)scratch;
    out[0] = 1;
    out[1] = fault(opts) == PRUNE_FALLING ? 0 : fault(opts) == PRUNE_BEYOND ? p->obs->n_embd_head : 3;
    *n_spared = fault(opts) == PRUNE_SPARED ? -1 : 0;
    return fault(opts) == PRUNE_COUNT ? -2 : 2;
}

static const wnw_contents my_contents = {
    .part = {PART(CONTENTS, "my_contents")}, .merge = my_merge, .prune = my_prune};
static const wnw_positions my_positions = {.part = {WNW_POSITIONS_INIT, .name = "my_positions"},
                                           .rerotates = true};

static wnw_registry *all_parts(void)
{
    const wnw_part *const parts[] = {
        &my_scorer.part,    &my_rows.part,     &my_layers.part,   &my_gathering_layers.part,
        &my_heads.part,     &my_model.part,    &my_selector.part, &my_gathering_selector.part,
        &my_recursive.part, &my_contents.part, &my_positions.part};
    wnw_registry *r;
    assert_ok(wnw_registry_new(&r));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_ok(wnw_registry_add(r, parts[i]));
    return r;
}

struct row {
    const char *recipe;
    int status;
    const char *says; /* NULL = it works */
};

static const struct row rows[] = {
    {"my_scorer", WNW_OK, NULL},
    {"my_scorer+my_layers+my_heads+my_selector+my_contents", WNW_OK, NULL},
    {"my_scorer+my_gathering_layers", WNW_OK, NULL},
    {"my_scorer+my_model", WNW_OK, NULL},
    {"my_scorer+my_gathering_selector", WNW_OK, NULL},
    {"my_scorer+my_gathering_layers+my_gathering_selector", WNW_OK, NULL},
    {"my_scorer+my_positions", WNW_OK, NULL},
    {"my_scorer+my_rows", WNW_OK, NULL},
    {"my_scorer:fault=1", WNW_E_NOT_FINITE, "a fault of this scorer"},
    {"my_scorer:fault=2", WNW_E_IO, "scorer my_scorer failed: reading or writing failed (-2)"},
    {"my_scorer:fault=3", WNW_E_ARG, "scorer my_scorer failed"},
    {"my_scorer:fault=4", WNW_E_NOMEM, "out of memory"},
    {"my_scorer:fault=4+my_rows:fault=0", WNW_E_NOMEM, "out of memory"},
    {"my_scorer:fault=5", WNW_E_ARG, "scorer my_scorer asks for observations 0x40000000"},
    {"my_scorer:fault=6", WNW_E_ARG, "scorer my_scorer asks for a window of 0"},
    {"my_scorer:fault=7", WNW_E_ARG, "scorer my_scorer leaves out the first -1"},
    {"my_scorer:fault=8", WNW_E_ARG, "scorer my_scorer asks for second pass 99"},
    {"my_scorer:fault=9", WNW_E_NOMEM, "gathered numbers"},
    {"my_scorer:fault=10", WNW_E_BACKEND, "scorer my_scorer failed"},
    {"my_scorer:fault=11", WNW_OK, NULL},
    {"my_scorer:fault=12", WNW_E_RANGE, "always keeps the first"},
    {"my_scorer:fault=13", WNW_E_ARG, "blocks of 0 entries"},
    {"my_scorer+my_rows:fault=1", WNW_E_UNSUPPORTED, "head aggregation my_rows failed"},
    {"my_scorer+my_layers:fault=1", WNW_E_RANGE, "layer budget my_layers: -1 entries for layer 2"},
    {"my_scorer+my_layers:fault=2", WNW_E_RANGE, "layer budget my_layers: 301 entries for layer 2"},
    {"my_scorer+my_layers:fault=3", WNW_E_BACKEND, "layer budget my_layers failed"},
    {"my_scorer+my_gathering_layers:fault=1", WNW_E_RANGE, "-1 entries for layer 2"},
    {"snapkv:window=4+my_heads:fault=1", WNW_E_RANGE,
     "head budget my_heads: 3 entries for layer 0, KV head 0"},
    {"my_scorer+my_heads:fault=2", WNW_E_RANGE, "301 entries for layer 0, KV head 0"},
    {"my_scorer+my_heads:fault=3", WNW_E_RANGE, "-1 entries for layer 0, KV head 0"},
    {"my_scorer+my_heads:fault=4", WNW_E_RANGE, "which must be 0 to 100"},
    {"my_scorer+my_heads:fault=5", WNW_E_NOMEM, "head budget my_heads failed: out of memory"},
    {"my_scorer+my_model:fault=1", WNW_E_RANGE, "head budget my_model: -7 entries for layer 0, KV head 1"},
    {"my_scorer+my_model:fault=2", WNW_E_RANGE, "301 entries for layer 0, KV head 1"},
    {"my_scorer+my_model:fault=3", WNW_E_IO, "head budget my_model failed"},
    {"my_scorer+my_layers+my_model", WNW_E_ARG, "it shares one budget out over all layers"},
    {"my_scorer+my_selector:fault=1", WNW_E_BACKEND, "selector my_selector failed"},
    {"my_scorer+my_selector:fault=2", WNW_E_RANGE, "selector my_selector: what it keeps of layer 0"},
    {"my_scorer+my_selector:fault=3", WNW_E_RANGE, "not ascending entries of 300"},
    {"my_scorer+my_selector:fault=4", WNW_E_RANGE, "not ascending entries of 300"},
    {"my_scorer+my_selector:fault=5", WNW_E_RANGE, "not ascending entries of 300"},
    {"my_scorer+my_selector:fault=6", WNW_E_RANGE, "not ascending entries of 300"},
    {"my_scorer+my_contents:fault=1", WNW_E_RANGE, "content rule my_contents: merges of layer 0"},
    {"my_scorer+my_contents+my_selector", WNW_OK, NULL},
    {"my_scorer+my_selector+my_contents:fault=2", WNW_E_RANGE, "merges of layer 0"},
    {"my_scorer+my_selector+my_contents:fault=3", WNW_E_RANGE, "merges of layer 0"},
    {"my_scorer+my_selector+my_contents:fault=4", WNW_E_RANGE, "merges of layer 0"},
    {"my_scorer+my_selector+my_contents:fault=5", WNW_E_RANGE, "merges of layer 0"},
    {"my_scorer+my_selector+my_contents:fault=6", WNW_E_RANGE, "merges of layer 0"},
    {"my_scorer+my_selector+my_contents:fault=7", WNW_E_RANGE, "channels of layer 0"},
    {"my_scorer+my_selector+my_contents:fault=8", WNW_E_RANGE, "channels of layer 0"},
    {"my_scorer+my_selector+my_contents:fault=9", WNW_E_RANGE, "channels of layer 0"},
    {"my_scorer+my_selector+my_contents:fault=10", WNW_E_RANGE, "channels of layer 0"},
    {"my_scorer+critical", WNW_E_ARG, "its scores are not attention"},
    {"my_scorer+partition", WNW_OK, NULL},
    {"my_scorer+my_layers+my_selectr", WNW_E_ARG, "did you mean \"my_selector\"?"},
};

static void check_row(struct fake *f, const wnw_registry *r, const char *recipe, const wnw_size *size,
                      int status, const char *says)
{
    wnw_policy *p = NULL;
    wnw_plan *plan = NULL;
    int rc = wnw_policy_parse(&p, recipe, r);
    if (rc == WNW_OK)
        rc = wnw__plan_make(&plan, p, size, &f->src, NULL);
    if (rc != status)
        fail_msg("%s: status %d, not %d: %s", recipe, rc, status, wnw_last_error());
    if (says && !strstr(wnw_last_error(), says))
        fail_msg("%s: \"%s\" does not say \"%s\"", recipe, wnw_last_error(), says);
    if (rc == WNW_OK)
        fake_check_plan(plan, f);
    else
        assert_null(plan);
    wnw_plan_free(plan);
    wnw_policy_free(p);
}

static void faults_are_errors(void **state)
{
    (void)state;
    const wnw_size third = size_budget(100);
    wnw_registry *r = all_parts();
    struct fake f;
    fake_init(&f, 3, 2, 2, 300, false);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&f, r, rows[i].recipe, &third, rows[i].status, rows[i].says);
    const wnw_size none = {.kind = WNW_SIZE_NONE};
    check_row(&f, r, "my_scorer+my_recursive", &none, WNW_OK, NULL);
    check_row(&f, r, "my_scorer+my_gathering_layers+my_recursive", &none, WNW_OK, NULL);
    check_row(&f, r, "my_scorer+my_recursive:fault=7", &none, WNW_E_RANGE,
              "selector my_recursive: 301 entries");
    check_row(&f, r, "my_scorer+my_recursive:fault=8", &none, WNW_E_RANGE, "151 of 150 kept entries");
    fake_free(&f);
    wnw_registry_free(r);
}

/* Parts that gather cannot work layer by layer; the others can. */
static void phases_follow(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        bool layer;
    } cases[] = {{"my_scorer+my_layers+my_heads+my_selector", true},
                 {"my_scorer+my_gathering_layers", false},
                 {"my_scorer+my_model", false},
                 {"my_scorer+my_gathering_selector", false},
                 {"my_scorer:fault=10", false}};
    wnw_registry *r = all_parts();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wnw_policy *p;
        assert_ok(wnw_policy_parse(&p, cases[i].recipe, r));
        assert_int_equal(wnw_policy_allows(p, WNW_PHASE_LAYER, NULL), cases[i].layer);
        assert_true(wnw_policy_allows(p, WNW_PHASE_END, NULL));
        wnw_policy_free(p);
    }
    wnw_registry_free(r);
}

/* ---- Descriptors that are refused ---- */

static void descriptors_are_checked(void **state)
{
    (void)state;
    static const wnw_gather half = {.size = one_per_layer};
    static const wnw_recursive no_settled = {.own_size = my_own_size, .fit = my_fit};
    static const wnw_block_rule no_blocks = {.of = NULL};
    wnw_registry *r;
    union wnw__part p;
    assert_ok(wnw_registry_new(&r));
#define REFUSED(says_)                                         \
    do {                                                       \
        assert_error(wnw_registry_add(r, &p.head), WNW_E_ARG); \
        assert_says(says_);                                    \
    } while (0)
    p = copy_of(&my_layers.part, "other");
    p.head.struct_size = 0;
    REFUSED("WNW_SCORER_INIT");
    p.head.struct_size = sizeof(wnw_layer_budget) + 8;
    REFUSED("compile the program with the header of this version");
    p.head.struct_size = sizeof(wnw_layer_budget) - 8;
    REFUSED("compile the program with the header of this version");
    p = copy_of(&my_layers.part, "other");
    p.head.kind = (wnw_part_kind)7;
    REFUSED("no kind of part 7");
    p.head.kind = (wnw_part_kind)-1;
    REFUSED("no kind of part");
    p = copy_of(&my_layers.part, NULL);
    REFUSED("a layer budget needs a name");
    p = copy_of(&my_layers.part, "a name");
    REFUSED("not 1 to 64 letters");
    p = copy_of(&my_layers.part, "pyramid");
    REFUSED("is taken");
    p = copy_of(&my_layers.part, "pyramidkv");
    REFUSED("is taken");
    p = copy_of(&my_layers.part, "other");
    p.layer.allocate = NULL;
    REFUSED("has no allocate function");
    p = copy_of(&my_layers.part, "other");
    p.head.flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_RAGGED;
    REFUSED("flags 0x8");
    p = copy_of(&my_layers.part, "other");
    p.head.gather = &half;
    REFUSED("no size or no visit function");
    p = copy_of(&my_layers.part, "other");
    p.head.options_size = 2;
    REFUSED("lies outside its options struct of 2 bytes");
    p = copy_of(&my_heads.part, "other");
    p.heads.allocate_model = my_allocate_model;
    REFUSED("one of the two");
    p.heads.allocate = NULL;
    p.heads.allocate_model = NULL;
    REFUSED("one of the two");
    p = copy_of(&my_selector.part, "other");
    p.selector.recursive = &no_settled;
    REFUSED("complete set of functions in recursive");
    p.selector.select = NULL;
    REFUSED("has no select function");
    p = copy_of(&my_scorer.part, "other");
    p.scorer.blocks = &no_blocks;
    REFUSED("function of in its blocks");
    p.scorer.score = NULL;
    REFUSED("has no score function");
    p = copy_of(&my_rows.part, "other");
    p.head.gather = &counts;
    REFUSED("cannot gather");
    p.aggregation.aggregate = NULL;
    REFUSED("has no aggregate function");
    p = copy_of(&my_contents.part, "other");
    p.contents.merge = NULL;
    union wnw__part fine = p;
    assert_ok(wnw_registry_add(r, &fine.head));
    p.contents.prune = NULL;
    p.head.name = "another";
    REFUSED("has no merge, prune or fit function");
    wnw_registry_free(r);
}

/* An aggregation that a scorer asks for must be there. */
static void missing_aggregation(void **state)
{
    (void)state;
    union wnw__part p = copy_of(&my_scorer.part, "asks");
    wnw_registry *r;
    wnw_policy *policy;
    assert_ok(wnw_registry_new(&r));
    p.scorer.aggregation = "my_rows";
    assert_ok(wnw_registry_add(r, &p.head));
    assert_error(wnw_policy_parse(&policy, "asks", r), WNW_E_ARG);
    assert_says("asks for the head aggregation \"my_rows\"");
    assert_ok(wnw_registry_add(r, &my_rows.part));
    assert_ok(wnw_policy_parse(&policy, "asks", r));
    assert_contains(wnw_policy_string(policy), "asks:fault=0+my_rows:fault=0");
    wnw_registry_free(r);
    wnw_policy_free(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_do_the_same),  cmocka_unit_test(faults_are_errors),
        cmocka_unit_test(phases_follow),       cmocka_unit_test(descriptors_are_checked),
        cmocka_unit_test(missing_aggregation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
