/* SPDX-License-Identifier: MIT */
#include "plans.h"
#include "winnow_method.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wnw_policy *test_policy(const char *recipe)
{
    wnw_policy *p = NULL;
    if (wnw_policy_parse(&p, recipe, NULL) != WNW_OK)
        fail_msg("%s: %s", recipe, wnw_last_error());
    assert_non_null(p);
    return p;
}

wnw_policy *test_policy_with(const wnw_part *part, const char *recipe)
{
    wnw_registry *r;
    wnw_policy *p = NULL;
    assert_ok(wnw_registry_new(&r));
    assert_ok(wnw_registry_add(r, part));
    assert_ok(wnw_policy_parse(&p, recipe ? recipe : part->name, r));
    wnw_registry_free(r);
    return p;
}

wnw_size size_budget(int64_t n)
{
    return (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = n};
}

wnw_size size_ratio(double r)
{
    return (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = r};
}

wnw_size size_bytes(uint64_t n)
{
    return (wnw_size){.kind = WNW_SIZE_BYTES, .bytes = n};
}

/* ---- Plans compared ---- */

/* Where two arrays differ first, as words; false where they do not. */
static bool positions_differ(const wnw_plan *a, const wnw_plan *b, int32_t il, int32_t ih, char *out,
                             size_t cap)
{
    const int32_t *p, *q;
    const int32_t n = wnw_plan_head(a, il, ih, &p), m = wnw_plan_head(b, il, ih, &q);
    for (int32_t i = 0; i < n && i < m; i++)
        if (p[i] != q[i]) {
            snprintf(out, cap, "entry %d of %d and %d is position %d and %d", i, n, m, p[i], q[i]);
            return true;
        }
    if (n != m)
        snprintf(out, cap, "%d and %d entries", n, m);
    return n != m;
}

static bool contents_differ(const wnw_plan *a, const wnw_plan *b, int32_t il, int32_t ih, char *out,
                            size_t cap)
{
    const wnw_merge *m, *n;
    const int32_t *c, *d;
    int32_t spared_a, spared_b;
    const int32_t n_merge = wnw_plan_merges(a, il, ih, &m), n_merge_b = wnw_plan_merges(b, il, ih, &n),
                  n_channel = wnw_plan_channels(a, il, ih, &c, &spared_a),
                  n_channel_b = wnw_plan_channels(b, il, ih, &d, &spared_b);
    const bool differ = n_merge != n_merge_b || n_channel != n_channel_b || spared_a != spared_b ||
                        (n_merge > 0 && memcmp(m, n, (size_t)n_merge * sizeof *m) != 0) ||
                        (n_channel > 0 && memcmp(c, d, (size_t)n_channel * sizeof *c) != 0);
    if (differ)
        snprintf(out, cap, "merges (%d and %d) or channels (%d and %d, %d and %d spared)", n_merge, n_merge_b,
                 n_channel, n_channel_b, spared_a, spared_b);
    return differ;
}

static bool plans_differ(const wnw_plan *a, const wnw_plan *b, char *out, size_t cap)
{
    char what[160] = "";
    const int32_t n_layer = wnw_plan_n_layer(a), n_head = wnw_plan_n_head_kv(a);
    if (n_layer != wnw_plan_n_layer(b) || n_head != wnw_plan_n_head_kv(b)) {
        snprintf(out, cap, "%d layers of %d heads and %d of %d", n_layer, n_head, wnw_plan_n_layer(b),
                 wnw_plan_n_head_kv(b));
        return true;
    }
    for (int32_t il = 0; il < n_layer; il++)
        for (int32_t ih = 0; ih < n_head; ih++)
            if (positions_differ(a, b, il, ih, what, sizeof what) ||
                contents_differ(a, b, il, ih, what, sizeof what)) {
                snprintf(out, cap, "layer %d, head %d: %s", il, ih, what);
                return true;
            }
    return false;
}

int32_t test_plan_below(const wnw_plan *plan, int32_t end)
{
    int32_t sum = 0;
    for (int32_t il = 0; il < wnw_plan_n_layer(plan); il++)
        for (int32_t ih = 0; ih < wnw_plan_n_head_kv(plan); ih++) {
            const int32_t *pos;
            const int32_t n = wnw_plan_head(plan, il, ih, &pos);
            for (int32_t i = 0; i < n && pos[i] < end; i++)
                sum++;
        }
    return sum;
}

bool test_same_plan(const wnw_plan *a, const wnw_plan *b)
{
    char what[256];
    return !plans_differ(a, b, what, sizeof what);
}

void test_plans(const wnw_plan *a, const wnw_plan *b, bool same, const char *what, const char *file, int line)
{
    char how[256] = "";
    if (plans_differ(a, b, how, sizeof how) != same)
        return;
    if (same)
        print_error("plans %s differ in %s\n", what, how);
    else
        print_error("plans %s are the same\n", what);
    _fail(file, line);
}

wnw_plan *test_plan_of_layer(const wnw_session *s, const wnw_plan *of, int32_t il)
{
    const int32_t n_layer = wnw_plan_n_layer(of), n_kv = wnw_plan_n_head_kv(of);
    int32_t *n = calloc((size_t)(n_layer * n_kv), sizeof *n);
    const int32_t **pos = calloc((size_t)(n_layer * n_kv), sizeof *pos);
    wnw_plan *plan;
    for (int32_t i = 0; i < n_layer * n_kv; i++) {
        if (i / n_kv == il) {
            n[i] = wnw_plan_head(of, il, i % n_kv, &pos[i]);
            continue;
        }
        n[i] = wnw_cache_n(s, i / n_kv, i % n_kv);
        pos[i] = wnw_cache_positions(s, i / n_kv, i % n_kv);
    }
    assert_ok(wnw_plan_new(&plan, n_layer, n_kv, wnw_plan_n_tokens(of), n, pos));
    free(n);
    free(pos);
    return plan;
}
