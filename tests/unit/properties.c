/* SPDX-License-Identifier: MIT */
/*
 * What holds for every policy, checked on made-up caches: every preset on many shapes and sizes, and every
 * combination of scorer, layer budget, head budget and selector that parses on some. New parts are covered by
 * being listed; where a method does not promise an exact total it is named below, with the reason.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_source.h"
#include "peek_plan.h"

/* ---- Shapes and sizes ---- */

struct shape {
    int32_t n_layer, n_head_kv, group, n_past;
    bool ragged; /* as in a second turn: heads hold different subsets */
    uint32_t skip;
};

/* Empty and tiny prompts, shorter than any window; one KV head; odd groups; sliding-window layers; longer
 * than all windows together. */
static const struct shape shapes[] = {
    {2, 1, 1, 0, false, 0},   {1, 1, 1, 1, false, 0},   {2, 1, 1, 2, false, 0},  {2, 1, 7, 5, false, 0},
    {3, 2, 3, 17, false, 0},  {4, 3, 2, 40, false, 0},  {5, 1, 5, 64, true, 0},  {2, 4, 1, 90, true, 0},
    {8, 2, 2, 130, false, 0}, {6, 2, 2, 100, false, 5}, {3, 8, 1, 70, false, 0}, {2, 2, 3, 420, false, 0},
    {7, 3, 3, 33, true, 0},   {3, 2, 2, 44, true, 2},
};
enum { N_SHAPE = sizeof shapes / sizeof *shapes, N_SIZE = 12 };

/* Sanitizers look at what a policy does with memory, which is seen at every shape with a sixth of the sizes, and the other way around.
 * What plans promise is tested without them. */
#ifdef __SANITIZE_ADDRESS__
enum { NTH = 6 };
#else
enum { NTH = 1 };
#endif

static wnw_size size_of(int i, int32_t n)
{
    const int64_t budgets[] = {1, n / 7, n / 4, n / 2, n - 1, n, n + 5};
    const double ratios[] = {0.1, 0.5, 0.77, 0.99};
    if (i < 7)
        return size_budget(budgets[i] > 0 ? budgets[i] : 1);
    return i < 11 ? size_ratio(ratios[i - 7]) : (wnw_size){.kind = WNW_SIZE_NONE};
}

static void shape_init(struct fake *f, int i)
{
    const struct shape *s = &shapes[i];
    fake_init(f, s->n_layer, s->n_head_kv, s->group, s->n_past, s->ragged);
    fake_leave_alone(f, s->skip);
}

/* ---- What a policy promises ---- */

enum total { EXACT, AT_MOST, MEASURED };

/* Parts, by how they are written in a canonical recipe, that do not promise exactly the size asked for. */
static const struct {
    const char *text;
    enum total total;
    const char *why;
} exceptions[] = {
    {"full+", MEASURED, "keeps everything"},
    {"l2norm:", MEASURED, "the first layers stay whole"},
    {"+partition:", AT_MOST, "the same count of every block, what is left over stays unused"},
    {"+error_aware:", AT_MOST, "layers shorter than their count keep all, and nobody gets the rest"},
    {"+threshold:", AT_MOST, "entries that do not reach the threshold go, whatever the size allows"},
    {"+quality:", AT_MOST, "what the quality can do without goes, whatever the size allows"},
    {"mode=elastic", AT_MOST, "CompilerKV's threshold lets a layer keep less"},
    {",form=cascade", AT_MOST, "a layer that gave entries up early does not get them back"},
    {"beta=20,form=paper", MEASURED, "PyramidKV's code floors the step between layers"},
    {"beta=20,form=factory", MEASURED, "the same"},
    {"beta=20,form=kvpress", MEASURED, "kvpress rounds every layer to the nearest by itself"},
    {"tau2=1,form=paper", MEASURED, "CAKE's code keeps prompts just above the size whole"},
    {"count=removed", MEASURED, "kvpress rounds the entries that go, not those that stay"},
    {",rest=drop", MEASURED, "kvpress' ChunkKV keeps whole chunks only"},
    {",mode=code", MEASURED, "AdaKV's code rounds every head by itself"},
    {",form=threshold", MEASURED, "SimLayerKV's lazy layers follow from the text"},
    {",form=nearest", MEASURED, "kvpress' LU-KV rounds every layer by itself, to the nearest percent"},
    {",form=ratio", MEASURED, "kvpress' DuoAttention: the ratio counts heads"},
};

static enum total promise(const wnw_policy *p)
{
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
        if (strstr(wnw_policy_string(p), exceptions[i].text))
            return exceptions[i].total;
    return EXACT;
}

/* ---- Checks of one plan ---- */

struct trial {
    const wnw_policy *policy;
    struct fake *f;
    wnw_size size;
    int shape;
};

static void complain(const struct trial *t, const char *what)
{
    const struct shape *s = &shapes[t->shape];
    fail_msg("%s\n  %s\n  %d layers, %d x %d heads, %d tokens%s; size kind %d, budget %lld, ratio %g; %s",
             what, wnw_policy_string(t->policy), s->n_layer, s->n_head_kv, s->group, s->n_past,
             s->ragged ? ", ragged" : "", (int)t->size.kind, (long long)t->size.budget, t->size.ratio,
             wnw_last_error());
}

/* Average entries asked for, before and after rounding. */
static void asked(const struct trial *t, double *mean, int32_t *budget)
{
    const int32_t n = t->f->n;
    *mean = t->size.kind == WNW_SIZE_BUDGET  ? (double)t->size.budget
            : t->size.kind == WNW_SIZE_RATIO ? n * (1 - t->size.ratio)
                                             : n * 0.5;
    *mean = *mean > n ? n : *mean;
    *budget = wnw__round_count(*mean, t->policy->rounding);
    *budget = *budget < 1 ? 1 : *budget;
    *mean = *mean < 1 ? 1 : *mean;
}

static void check_total(const struct trial *t, const wnw_plan *plan, const wnw_report *report)
{
    const int64_t sum = fake_check_plan(plan, t->f), all = fake_entries(t->f);
    const enum total total = promise(t->policy);
    double mean;
    int32_t budget;
    asked(t, &mean, &budget);
    if (sum > all)
        complain(t, "more than there is");
    const bool own = wnw__policy_has(t->policy, WNW_PART_HEAD_BUDGET, WNW_FLAG_OWN_SIZE);
    if (t->f->n > 0 && budget >= t->f->n && t->size.kind != WNW_SIZE_NONE && sum != all && !own)
        complain(t, "a size that holds everything does not keep everything");
    if (t->size.kind == WNW_SIZE_NONE && wnw_policy_has_own_size(t->policy))
        return;
    if (shapes[t->shape].ragged || t->f->n == 0 || total == MEASURED)
        return;
    /* all = heads x n here */
    const double heads = (double)all / t->f->n;
    /* No block loses everything, and the warning says what that comes to. */
    const bool least = wnw__policy_is_recursive(t->policy) && strstr(report->warning, "even with blocks");
    if ((double)sum > floor(mean * heads + 1e-6) && !least)
        complain(t, "keeps more than was asked for");
    if (total == EXACT && (double)sum < budget * heads)
        complain(t, "keeps less than was asked for");
}

/* What the scorer protects is there, as far as the head's count holds it. */
static void check_protected(const struct trial *t, const wnw_plan *plan, const wnw_report *report)
{
    const wnw_part *part = &t->policy->part[WNW_PART_SCORER].head;
    double mean;
    int32_t budget;
    asked(t, &mean, &budget);
    if (report->warning[0]) /* says that what is protected had to shrink */
        return;
    if ((strcmp(part->name, "h2o") == 0 || strcmp(part->name, "vatp") == 0) &&
        t->size.kind != WNW_SIZE_BUDGET)
        return;                                             /* depends on what the ratio becomes */
    if (strstr(wnw_policy_string(t->policy), ",rest=drop")) /* whole chunks, protected or not */
        return;
    for (int32_t il = 0; il < t->f->src.shape.n_layer; il++)
        for (int32_t ih = 0; ih < t->f->src.shape.n_head_kv; ih++) {
            const int32_t *have = t->f->pos + ((int64_t)il * t->f->src.shape.n_head_kv + ih) * t->f->n;
            const int32_t n = t->f->n_entry[il][ih];
            wnw_protected p = {0};
            if (part->keep)
                part->keep(t->policy->opts[WNW_PART_SCORER],
                           &(wnw_keep_problem){.n = n, .budget = budget, .sized = true}, &p);
            p = wnw__protected_shrink(wnw__protected_clamp(p, n), fake_kept(plan, il, ih));
            for (int32_t i = 0; i < n; i++)
                if ((i < p.n_first || i >= n - p.n_last) && !fake_holds(plan, il, ih, have[i]))
                    complain(t, "a protected entry is gone");
        }
}

/* CompilerKV's tables are made for certain settings and a budget, and say so. */
static bool other_table(int rc)
{
    return rc == WNW_E_MISMATCH && strstr(wnw_last_error(), "the compiler profile was made");
}

/* A size too small for what is protected is refused; nothing else may fail. */
static bool refusal_is_fair(const struct trial *t, int rc)
{
    return other_table(rc) || (rc == WNW_E_RANGE && t->size.kind == WNW_SIZE_BUDGET &&
                               strstr(wnw_last_error(), "allow at least"));
}

/* The plan for one size, NULL where it is refused; the caller frees it. */
static wnw_plan *plan_policy(const wnw_policy *p, struct fake *f, int shape, int size)
{
    const struct trial t = {.policy = p, .f = f, .size = size_of(size, f->n), .shape = shape};
    wnw_plan *plan = NULL, *again = NULL;
    wnw_report report = {WNW_INIT(wnw_report)};
    double mean;
    asked(&t, &mean, &f->profile.compiler.budget); /* a table must be made for about this budget */
    const int rc = wnw__plan_make(&plan, p, &t.size, &f->src, &report);
    if (rc != WNW_OK) {
        if (plan || !refusal_is_fair(&t, rc))
            complain(&t, "no plan");
        return NULL;
    }
    check_total(&t, plan, &report);
    check_protected(&t, plan, &report);
    assert_non_null(memchr(report.warning, 0, sizeof report.warning));
    if (NTH == 1) {
        assert_int_equal(wnw__plan_make(&again, p, &t.size, &f->src, NULL), WNW_OK);
        if (!test_same_plan(plan, again))
            complain(&t, "another plan the second time");
        wnw_plan_free(again);
    }
    return plan;
}

static void check_policy(const wnw_policy *p, struct fake *f, int shape, int size)
{
    wnw_plan_free(plan_policy(p, f, shape, size));
}

static void check_round_trip(const wnw_policy *p)
{
    wnw_policy *again = NULL;
    assert_int_equal(wnw__policy_parse_parts(&again, wnw_policy_string(p)), WNW_OK);
    assert_string_equal(wnw_policy_string(again), wnw_policy_string(p));
    wnw_policy_free(again);
}

/* ---- The tests ---- */

static void presets(void **state)
{
    (void)state;
    const struct wnw__preset *row;
    for (int shape = 0; shape < N_SHAPE; shape++) {
        struct fake f;
        shape_init(&f, shape);
        for (int32_t i = 0; (row = wnw__preset_get(i)); i++) {
            wnw_policy *p = NULL;
            assert_int_equal(wnw_policy_parse(&p, row->name, NULL), WNW_OK);
            check_round_trip(p);
            for (int size = (shape + i) % NTH; size < N_SIZE; size += NTH)
                check_policy(p, &f, shape, size);
            wnw_policy_free(p);
        }
        fake_free(&f);
    }
}

static bool next_of_kind(wnw_part_kind kind, int32_t *i, const wnw_part **out)
{
    while ((*out = wnw__part_get((*i)++)))
        if ((*out)->kind == kind)
            return true;
    return false;
}

/* Every combination that parses, each on a few shapes and sizes that change from one to the next. */
static void combinations(void **state)
{
    (void)state;
    struct fake f[N_SHAPE];
    const wnw_part *s, *l, *h, *sel;
    uint32_t turn = 0;
    int32_t n_parsed = 0;
    for (int i = 0; i < N_SHAPE; i++)
        shape_init(&f[i], i);
    for (int32_t a = 0; next_of_kind(WNW_PART_SCORER, &a, &s);)
        for (int32_t b = 0; next_of_kind(WNW_PART_LAYER_BUDGET, &b, &l);)
            for (int32_t c = 0; next_of_kind(WNW_PART_HEAD_BUDGET, &c, &h);)
                for (int32_t d = 0; next_of_kind(WNW_PART_SELECTOR, &d, &sel);) {
                    char recipe[512];
                    wnw_policy *p = NULL;
                    snprintf(recipe, sizeof recipe, "%s+%s+%s+%s", s->name, l->name, h->name, sel->name);
                    if (wnw__policy_parse_parts(&p, recipe) != WNW_OK)
                        continue;
                    n_parsed++;
                    check_round_trip(p);
                    for (int k = 0; k < 3; k++, turn++)
                        if (k % NTH == n_parsed % NTH)
                            check_policy(p, &f[turn % N_SHAPE], (int)(turn % N_SHAPE), (int)(turn % N_SIZE));
                    turn++; /* so that shapes and sizes do not meet the same parts again */
                    wnw_policy_free(p);
                }
    for (int i = 0; i < N_SHAPE; i++)
        fake_free(&f[i]);
    assert_cmp(n_parsed, >, 100);
}

/* Every head aggregation with every scorer that takes it, and with head budgets and selectors that look at
 * the scores of several heads. */
static void aggregations(void **state)
{
    (void)state;
    static const char *const rest[] = {"", "+adakv", "+critical", "+chunkkv", "+global", "+dynamickv"};
    struct fake f[N_SHAPE];
    const wnw_part *s, *agg;
    uint32_t turn = 0;
    int32_t n_parsed = 0;
    for (int i = 0; i < N_SHAPE; i++)
        shape_init(&f[i], i);
    for (int32_t a = 0; next_of_kind(WNW_PART_SCORER, &a, &s);)
        for (int32_t b = 0; next_of_kind(WNW_PART_AGGREGATION, &b, &agg);)
            for (size_t r = 0; r < sizeof rest / sizeof *rest; r++) {
                char recipe[256];
                wnw_policy *p = NULL;
                snprintf(recipe, sizeof recipe, "%s+%s%s", s->name, agg->name, rest[r]);
                if (wnw__policy_parse_parts(&p, recipe) != WNW_OK)
                    continue;
                n_parsed++;
                check_round_trip(p);
                for (int k = 0; k < 3; k++, turn++)
                    if (k % NTH == n_parsed % NTH)
                        check_policy(p, &f[turn % N_SHAPE], (int)(turn % N_SHAPE), (int)(turn % N_SIZE));
                turn++;
                wnw_policy_free(p);
            }
    for (int i = 0; i < N_SHAPE; i++)
        fake_free(&f[i]);
    assert_cmp(n_parsed, >, 200);
}

/* Merges take from entries that go and give to entries that stay; keep-sets are those without. */
static void check_contents(const wnw_plan *plan, const wnw_plan *without, const char *recipe)
{
    for (int32_t il = 0; il < wnw_plan_n_layer(plan); il++)
        for (int32_t ih = 0; ih < wnw_plan_n_head_kv(plan); ih++) {
            const wnw_merge *m;
            const int32_t *p, *q, n = wnw_plan_head(plan, il, ih, &p);
            if (n != wnw_plan_head(without, il, ih, &q) ||
                (n > 0 && memcmp(p, q, (size_t)n * sizeof *p) != 0))
                fail_msg("%s keeps other entries than without its content rule", recipe);
            for (int32_t i = 0, n_merge = wnw_plan_merges(plan, il, ih, &m); i < n_merge; i++)
                if (fake_holds(plan, il, ih, m[i].from) || !fake_holds(plan, il, ih, m[i].to) ||
                    m[i].n_to < 1 || !(m[i].weight > 0) || (i > 0 && m[i].from <= m[i - 1].from))
                    fail_msg("%s: layer %d head %d merges %d into %d", recipe, il, ih, m[i].from, m[i].to);
        }
}

/* Every content rule with every scorer, and with budgets and selectors of model scope. */
static void contents(void **state)
{
    (void)state;
    static const char *const rest[] = {"",           "+adakv",     "+chunkkv", "+global",
                                       "+dynamickv", "+threshold", "+rerotate"};
    struct fake f[N_SHAPE];
    const wnw_part *s, *c;
    uint32_t turn = 0;
    for (int i = 0; i < N_SHAPE; i++)
        shape_init(&f[i], i);
    for (int32_t a = 0; next_of_kind(WNW_PART_SCORER, &a, &s);)
        for (int32_t b = 0; next_of_kind(WNW_PART_CONTENTS, &b, &c);)
            for (size_t r = 0; r < sizeof rest / sizeof *rest; r++, turn++) {
                char recipe[256], plain[128];
                wnw_policy *p = NULL, *q = NULL;
                const int shape = (int)(turn % N_SHAPE);
                const int size = (int)(turn / N_SHAPE % N_SIZE);
                if ((a + b + (int32_t)r) % NTH != 0) /* each rule with each scorer twice at least */
                    continue;
                snprintf(plain, sizeof plain, "%s%s", s->name, rest[r]);
                snprintf(recipe, sizeof recipe, "%s+%s", plain, c->name);
                if (wnw__policy_parse_parts(&q, plain) != WNW_OK)
                    continue;
                assert_int_equal(wnw__policy_parse_parts(&p, recipe), WNW_OK);
                check_round_trip(p);
                wnw_plan *with = plan_policy(p, &f[shape], shape, size);
                wnw_plan *without = NULL;
                const wnw_size same = size_of(size, f[shape].n);
                const int rc = wnw__plan_make(&without, q, &same, &f[shape].src, NULL);
                assert_cmp((rc == WNW_OK), ==, (with != NULL));
                if (with)
                    check_contents(with, without, recipe);
                wnw_plan_free(with);
                wnw_plan_free(without);
                wnw_policy_free(p);
                wnw_policy_free(q);
            }
    for (int i = 0; i < N_SHAPE; i++)
        fake_free(&f[i]);
}

enum { MAX_POLICY = 256 };

/* Plans of those policies that can share a run, with each other and with their plans alone; true if any were
 * left. */
static bool run_together(struct fake *f, int shape, wnw_policy **p, wnw_plan **alone, const wnw_size *sizes,
                         int32_t n)
{
    const wnw_policy *chosen[MAX_POLICY];
    wnw_plan *many[MAX_POLICY];
    wnw_size size[MAX_POLICY];
    int32_t which[MAX_POLICY], m = 0;
    for (int32_t i = 0; i < n; i++) {
        chosen[m] = p[i];
        if (!p[i] || wnw__needs_agree(chosen, m + 1) != WNW_OK)
            continue;
        size[m] = sizes[i];
        which[m++] = i;
    }
    f->n_observed = 0;
    if (m > 0 && wnw__plan_make_many(many, chosen, size, m, &f->src, NULL) != WNW_OK)
        fail_msg("%s", wnw_last_error());
    /* One look at a layer when it is scored, at most one before and one after. */
    assert_cmp(f->n_observed, <=, 3 * f->src.shape.n_layer);
    for (int32_t k = 0; k < m; k++) {
        const int32_t i = which[k];
        const struct trial t = {.policy = p[i], .f = f, .size = sizes[i], .shape = shape};
        if (!test_same_plan(alone[i], many[k]))
            complain(&t, "another plan in company");
        wnw_plan_free(alone[i]);
        wnw_plan_free(many[k]);
        wnw_policy_free(p[i]);
        p[i] = NULL;
    }
    return m > 0;
}

/* Several policies that look at a cache together get the plans that each would get alone. */
static void together(void **state)
{
    (void)state;
    wnw_policy *p[MAX_POLICY];
    wnw_plan *alone[MAX_POLICY];
    wnw_size sizes[MAX_POLICY];
    const struct wnw__preset *row;
    for (int shape = 3; shape < N_SHAPE; shape += NTH + 1) {
        struct fake f;
        shape_init(&f, shape);
        int32_t n = 0;
        for (int32_t i = 0; (row = wnw__preset_get(i)); i++) {
            assert_cmp(n, <, MAX_POLICY);
            assert_int_equal(wnw_policy_parse(&p[n], row->name, NULL), WNW_OK);
            sizes[n] = size_of(3 + i % 9, f.n);
            if (wnw__plan_make(&alone[n], p[n], &sizes[n], &f.src, NULL) == WNW_OK)
                n++;
            else
                wnw_policy_free(p[n]); /* refused, see above */
        }
        while (run_together(&f, shape, p, alone, sizes, n))
            ;
        fake_free(&f);
    }
}

/* Without observations every policy that needs some fails with a message, and there is no plan. */
static void unobserved(void **state)
{
    (void)state;
    struct fake f;
    const struct wnw__preset *row;
    fake_init(&f, 3, 2, 2, 300, false);
    f.unobserved = true;
    for (int32_t i = 0; (row = wnw__preset_get(i)); i++) {
        wnw_policy *p = NULL;
        wnw_plan *plan = NULL;
        assert_int_equal(wnw_policy_parse(&p, row->name, NULL), WNW_OK);
        const uint32_t flags =
            wnw_policy_needs(p).flags & ~(uint32_t)(WNW_NEED_PROFILE | WNW_NEED_PERPLEXITY);
        const wnw_size size = size_ratio(0.2);
        const int rc = wnw__plan_make(&plan, p, &size, &f.src, NULL);
        if (rc != (flags ? WNW_E_NOT_OBSERVED : WNW_OK) && !other_table(rc))
            fail_msg("%s: status %d, %s", row->name, rc, wnw_last_error());
        assert_cmp((rc == WNW_OK), ==, (plan != NULL));
        wnw_plan_free(plan);
        wnw_policy_free(p);
    }
    fake_free(&f);
}

/* Scores follow the text: of a few texts, not all get the same plan. Guards against policies that look at
 * nothing. A small ratio too, because some methods decide little at a large one. */
static void plans_depend_on_the_text(void **state)
{
    (void)state;
    const struct wnw__preset *row;
    for (int32_t i = 0; (row = wnw__preset_get(i)); i++) {
        wnw_policy *p = NULL;
        wnw_plan *first[2] = {NULL}, *plan;
        bool same = true;
        assert_int_equal(wnw_policy_parse(&p, row->name, NULL), WNW_OK);
        const uint32_t flags = wnw_policy_needs(p).flags & ~(uint32_t)WNW_NEED_PROFILE;
        for (uint32_t k = 0; k < 8 && same; k++) {
            struct fake f;
            const wnw_size size = size_ratio(k % 2 ? 0.03 : 0.6);
            fake_init(&f, 3, 1, 2, 1150, false);
            f.seed += 100 * (k / 2);
            f.profile.compiler.budget = (int32_t)(f.n * (1 - size.ratio));
            const int rc = wnw__plan_make(&plan, p, &size, &f.src, NULL);
            fake_free(&f);
            if (other_table(rc)) {
                same = false;
                break;
            }
            if (rc != WNW_OK)
                fail_msg("%s: %s", row->name, wnw_last_error());
            same = !first[k % 2] || test_same_plan(first[k % 2], plan);
            if (first[k % 2])
                wnw_plan_free(plan);
            else
                first[k % 2] = plan;
        }
        if (flags && same)
            fail_msg("%s keeps the same entries of every text", row->name);
        if (!flags && !same)
            fail_msg("%s observes nothing and still depends on the text", row->name);
        wnw_plan_free(first[0]);
        wnw_plan_free(first[1]);
        wnw_policy_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets),
        cmocka_unit_test(combinations),
        cmocka_unit_test(aggregations),
        cmocka_unit_test(contents),
        cmocka_unit_test(together),
        cmocka_unit_test(unobserved),
        cmocka_unit_test(plans_depend_on_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
