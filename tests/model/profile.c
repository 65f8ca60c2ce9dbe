/* SPDX-License-Identifier: MIT */
/* Profiles on a real model: written with its fingerprint, read back, used by CompressKV and CompilerKV. */
#include "helpers.h"
#include "winnow_calibrate.h"
#include "winnow_tools.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "smollm2-135m.gguf"

enum { N = 400 };

struct setup {
    wnw_model *m;
    wnw_model_info info;
    wnw_session *s;
    const wnw_policy *policies[3]; /* owned; what s observes */
    char dir[32], path[64];
};

/* From now on plans use the profile; NULL = none. */
static void use_profile(const struct setup *t, const wnw_profile *profile)
{
    assert_ok(wnw_session_begin(
        t->s, &(wnw_run){WNW_INIT(wnw_run), .profile = profile,
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .policies = t->policies,
                                                 .n_policies = 3}}));
}

/* One row of whole or real numbers, made from a sequence that depends on the layer. */
static void write_profile(struct setup *t, const char *kind, const char *fingerprint)
{
    uint64_t seed = 5;
    const int32_t n_layer = t->info.n_layer, n_head = t->info.n_head;
    snprintf(t->path, sizeof t->path, "%s/%s.json", t->dir, kind);
    FILE *f = fopen(t->path, "w");
    assert_non_null(f);
    fprintf(
        f,
        "{\"format\":\"winnow-profile-1\",\"kind\":\"%s\",\"model\":{\"fingerprint\":\"%s\",\"n_layer\":%d,"
        "\"n_head\":%d,\"n_head_kv\":%d,\"n_embd_head\":%d},\"data\":{},\"settings\":{",
        kind, fingerprint, n_layer, n_head, t->info.n_head_kv, t->info.n_embd_head);
    if (strcmp(kind, "compiler") == 0)
        fprintf(f, "\"budget\":100,\"window\":16,\"alpha_scope\":\"global\",\"score_norm\":\"mean\","
                   "\"gate\":\"elastic\",\"entropy_norm\":false},\"results\":{\"entropy_edges\":[3,4.5],"
                   "\"ppl_edges\":[20],\"default_ppl_bin\":0,\"weight\":[");
    else
        fprintf(f, strcmp(kind, "srh") == 0 ? "\"k\":2},\"results\":{\"srh\":["
                                            : "},\"results\":{\"avg_score\":[");
    for (int32_t il = 0; il < n_layer; il++) {
        const char *sep = il ? "," : "";
        if (strcmp(kind, "layers") == 0) {
            fprintf(f, "%s%.6f", sep, 0.02 + 0.04 * (double)(test_random(&seed) % 100) / 100);
            continue;
        }
        fprintf(f, "%s[", sep);
        for (int32_t h = 0; h < n_head; h++)
            if (strcmp(kind, "srh") == 0)
                fprintf(f, "%s%d", h ? "," : "", (h + il * 4) % n_head);
            else
                fprintf(f, "%s%.2f", h ? "," : "", 0.85 + 0.05 * (double)(test_random(&seed) % 7));
        fprintf(f, "]");
    }
    if (strcmp(kind, "compiler") == 0) {
        fprintf(f, "],\"tau\":[");
        for (int32_t il = 0; il < n_layer; il++)
            fprintf(f, "%s[[1,0.5],[1.5,1],[2,1.5]]", il ? "," : "");
    }
    fprintf(f, "]}}\n");
    assert_int_equal(fclose(f), 0);
}

static wnw_profile *profile_of(struct setup *t, uint32_t kinds)
{
    char fingerprint[WNW_FINGERPRINT_SIZE];
    wnw_profile *p = NULL;
    wnw_model_fingerprint(t->m, fingerprint);
    assert_ok(wnw_profile_new(&p, t->m));
    for (int32_t kind = 0; kind < 3; kind++)
        if (kinds >> kind & 1u) {
            write_profile(t, wnw_profile_kind_name(kind), fingerprint);
            assert_ok(wnw_profile_add_file(p, t->path));
            unlink(t->path);
        }
    assert_int_equal(wnw_profile_kinds(p), kinds);
    return p;
}

static int set_up(void **state)
{
    static struct setup t;
    static const char *const recipes[] = {"compresskv", "compilerkv:window=16", "snapkv:window=8"};
    t = (struct setup){.dir = "/tmp/winnow-model-XXXXXX"};
    assert_non_null(mkdtemp(t.dir));
    t.m = test_model_open(MODEL);
    t.info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(t.m, &t.info));
    t.s = test_session_new(t.m, &(struct test_session){.n_ctx = 1024, .n_threads = 1});
    for (int i = 0; i < 3; i++)
        t.policies[i] = test_policy(recipes[i]);
    use_profile(&t, NULL);
    int32_t n;
    int32_t *tokens = test_golden_tokens(&n);
    assert_cmp(n, >=, N);
    test_prefill(t.s, tokens, N);
    free(tokens);
    *state = &t;
    return 0;
}

static int tear_down(void **state)
{
    struct setup *t = *state;
    wnw_session_free(t->s);
    for (int i = 0; i < 3; i++)
        wnw_policy_free((wnw_policy *)(uintptr_t)t->policies[i]);
    wnw_model_free(t->m);
    return rmdir(t->dir);
}

static wnw_plan *plan_of(struct setup *t, const char *recipe, int64_t budget, wnw_report *r)
{
    wnw_policy *p = test_policy(recipe);
    wnw_plan *plan = NULL;
    assert_ok(wnw_session_plan(t->s, p, &(wnw_size){.kind = WNW_SIZE_BUDGET, .budget = budget}, &plan, r));
    wnw_policy_free(p);
    return plan;
}

static void other_models_are_refused(void **state)
{
    struct setup *t = *state;
    wnw_profile *p = NULL, *other = NULL;
    assert_ok(wnw_profile_new(&p, t->m));
    write_profile(t, "srh", "00000000000000ff");
    assert_error(wnw_profile_add_file(p, t->path), WNW_E_MISMATCH);
    unlink(t->path);
    assert_int_equal(wnw_profile_kinds(p), 0);
    wnw_profile_free(p);
    wnw_model *tiny = test_model_open("tiny/tiny-llama.gguf");
    assert_ok(wnw_profile_new(&other, tiny));
    assert_error(wnw_session_begin(t->s, &(wnw_run){WNW_INIT(wnw_run), .profile = other}), WNW_E_MISMATCH);
    wnw_profile_free(other);
    wnw_model_free(tiny);
    /* Without one CompressKV says what it needs. */
    wnw_policy *policy = test_policy("compresskv");
    wnw_plan *plan;
    assert_error(wnw_session_plan(t->s, policy, NULL, &plan, NULL), WNW_E_MISMATCH);
    assert_says("srh and layers");
    wnw_policy_free(policy);
}

static void compresskv_keeps_one_list_per_layer(void **state)
{
    struct setup *t = *state;
    wnw_report r = {WNW_INIT(wnw_report)};
    wnw_profile *p = profile_of(t, 1u << WNW_PROFILE_SRH | 1u << WNW_PROFILE_LAYERS);
    use_profile(t, p);
    wnw_plan *plan = plan_of(t, "compresskv", 100, &r);
    assert_string_equal(r.warning, "");
    assert_near(r.kept_mean, 100, 1e-9);
    int32_t least = N, most = 0, n_other = 0;
    wnw_plan *all = plan_of(t, "compresskv:heads=all+uniform", 100, &r);
    for (int32_t il = 0; il < t->info.n_layer; il++) {
        const int32_t *first, *other;
        const int32_t n = wnw_plan_head(plan, il, 0, &first);
        least = n < least ? n : least;
        most = n > most ? n : most;
        assert_int_equal(first[n - 8], N - 8);
        for (int32_t ih = 1; ih < t->info.n_head_kv; ih++) {
            assert_int_equal(wnw_plan_head(plan, il, ih, &other), n);
            assert_memory_equal(first, other, (size_t)n * sizeof *first);
        }
        assert_int_equal(wnw_plan_head(all, il, 0, &other), 100);
        n_other += n != 100 || memcmp(first, other, 100 * sizeof *first) != 0;
    }
    assert_cmp(least, >=, 32);
    assert_cmp(most, >, least); /* the profile's shares differ, so do the counts */
    assert_cmp(n_other, >, t->info.n_layer / 2);
    wnw_plan_free(all);
    wnw_plan_free(plan);
    use_profile(t, NULL);
    wnw_profile_free(p);
}

static void compilerkv_follows_its_table(void **state)
{
    struct setup *t = *state;
    wnw_report r = {WNW_INIT(wnw_report)};
    wnw_profile *p = profile_of(t, 1u << WNW_PROFILE_COMPILER);
    use_profile(t, p);
    wnw_plan *strict = plan_of(t, "compilerkv-strict:window=16", 100, &r);
    assert_near(r.kept_mean, 100, 1e-9);
    assert_string_equal(r.warning, "");
    wnw_plan *pooled = plan_of(t, "compilerkv-pooled:window=16", 100, &r);
    assert_near(r.kept_mean, 100, 1e-9);
    assert_contains(r.warning, "mode=elastic");
    wnw_plan *elastic = plan_of(t, "compilerkv:window=16", 100, &r);
    assert_string_equal(r.warning, "");
    assert_cmp(r.kept_mean, <=, 100);
    assert_cmp(r.kept_mean, >=, 16 + 21);
    for (int32_t il = 0; il < t->info.n_layer; il++) { /* what clears the threshold is the best of it */
        const int32_t *few, *many;
        const int32_t n = wnw_plan_head(elastic, il, 1, &few), m = wnw_plan_head(strict, il, 1, &many);
        int32_t j = 0;
        for (int32_t i = 0; i < n; i++) {
            while (j < m && many[j] != few[i])
                j++;
            assert_cmp(j, <, m);
        }
        assert_int_equal(few[n - 16], N - 16);
    }
    wnw_plan_free(strict);
    wnw_plan_free(pooled);
    wnw_plan_free(elastic);
    /* Neutral values differ, and say so. */
    use_profile(t, NULL);
    wnw_plan *neutral = plan_of(t, "compilerkv:window=16", 100, &r);
    assert_contains(r.warning, "kind compiler");
    wnw_plan_free(neutral);
    wnw_profile_free(p);
}

/* CompilerKV with rho = 1, a layer's attention alone and CompressKV's pooling is CompressKV with all heads:
 * two ways from the cache to a keep-set. Its gate has no thresholds, so that every layer keeps what is
 * allowed. */
static void attention_alone_is_compresskv(void **state)
{
    struct setup *t = *state;
    static const int64_t budgets[] = {12, 30, 100, 250};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        wnw_report r = {WNW_INIT(wnw_report)};
        wnw_plan *a = plan_of(t,
                              "compilerkv:utility=attention,alpha_scope=layer,pool=avg,kernel=5,window=8,"
                              "table=none+topk:ties=early",
                              budgets[i], &r);
        wnw_plan *b = plan_of(t, "compresskv:heads=all+uniform", budgets[i], &r);
        for (int32_t il = 0; il < t->info.n_layer; il++)
            for (int32_t ih = 0; ih < t->info.n_head_kv; ih++) {
                const int32_t *one, *two, n = wnw_plan_head(a, il, ih, &one);
                assert_int_equal(n, budgets[i]);
                assert_int_equal(wnw_plan_head(b, il, ih, &two), n);
                for (int32_t k = 0; k < n; k++)
                    if (one[k] != two[k])
                        fail_msg("budget %lld, layer %d, head %d: %d and %d", (long long)budgets[i], (int)il,
                                 (int)ih, (int)one[k], (int)two[k]);
            }
        wnw_plan_free(a);
        wnw_plan_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_models_are_refused),
        cmocka_unit_test(compresskv_keeps_one_list_per_layer),
        cmocka_unit_test(compilerkv_follows_its_table),
        cmocka_unit_test(attention_alone_is_compresskv),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
