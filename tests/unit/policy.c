/* SPDX-License-Identifier: MIT */
/* Recipes: what they mean, their canonical form, and every way to get one wrong. */
#include "asserts.h"

#include <stdio.h>
#include <string.h>

#include "peek_plan.h"
#include "plans.h"

static void assert_canonical(const char *recipe, const char *want)
{
    wnw_policy *p = test_policy(recipe);
    assert_string_equal(wnw_policy_string(p), want);
    wnw_policy *again = test_policy(wnw_policy_string(p));
    assert_string_equal(wnw_policy_string(again), want);
    wnw_policy_free(again);
    wnw_policy_free(p);
}

static void assert_refused(const char *recipe, const char *because)
{
    wnw_policy *p = (wnw_policy *)&p;
    assert_int_equal(wnw_policy_parse(&p, recipe, NULL), WNW_E_ARG);
    assert_null(p);
    if (!strstr(wnw_last_error(), because))
        fail_msg("\"%s\": \"%s\" does not say \"%s\"", recipe, wnw_last_error(), because);
}

#define SNAPKV "snapkv:window=32,kernel=7,pool=max,agg=mean,pool_after=0+group_mean:cross_head=0,gqa_bug=0"

static void canonical_form(void **state)
{
    (void)state;
    assert_canonical("snapkv", SNAPKV "+uniform:rounding=exact+equal+topk:ties=early+original");
    assert_canonical("full", "full+direct+uniform:rounding=exact+equal+topk:ties=early+original");
    assert_canonical(
        "snapkv:window=32+adakv",
        SNAPKV "+uniform:rounding=exact+adakv:alpha_safeguard=0.2,mode=safeguard+topk:ties=early+original");
    assert_canonical(
        "snapkv:kernel=5,pool=avg,window=8+pyramid:beta=10",
        "snapkv:window=8,kernel=5,pool=avg,agg=mean,pool_after=0+group_mean:cross_head=0,gqa_bug=0"
        "+pyramid:rounding=exact,beta=10,form=exact+equal+topk:ties=early+original");
    /* Order of further parts does not matter. */
    assert_canonical("tova+topk+adakv:mode=floor+pyramid",
                     "tova:last=0+layer_mean+pyramid:rounding=exact,beta=20,form=exact"
                     "+adakv:alpha_safeguard=0.2,mode=floor+topk:ties=early+original");
    /* A preset's options reach the part that has the key. */
    assert_canonical("adakv:window=16,alpha_safeguard=0.35,rounding=trunc",
                     "snapkv:window=16,kernel=7,pool=max,agg=mean,pool_after=0+group_mean:cross_head=0,gqa_"
                     "bug=0+uniform:rounding=trunc"
                     "+adakv:alpha_safeguard=0.35,mode=safeguard+topk:ties=early+original");
    assert_canonical("lagkv:lag=64,retain=0.167",
                     "lagkv:sink=16,lag=64,skip=0,ref=next,use=both,wv=1,ranked="
                     "0+direct+uniform:rounding=exact+equal+partition:retain=0.167+original");
    /* A replaced part takes its own defaults, not the preset's. */
    assert_canonical(
        "kvpress-snapkv+pyramid",
        "snapkv:window=32,kernel=5,pool=avg,agg=mean,pool_after=0+group_mean:cross_head=0,gqa_bug=0"
        "+pyramid:rounding=exact,beta=20,form=exact+equal+topk:ties=early+original");
    assert_canonical(
        "lagkv:wv=1e-3+topk+adakv",
        "lagkv:sink=16,lag=128,skip=0,ref=next,use=both,wv=0.001,ranked=0+direct+uniform:rounding=exact"
        "+adakv:alpha_safeguard=0.2,mode=safeguard+topk:ties=early+original");
    /* A head aggregation is a part like any other; the scorer says which one it takes by itself. */
    assert_canonical("knorm+layer_mean",
                     "knorm+layer_mean+uniform:rounding=exact+equal+topk:ties=early+original");
    assert_canonical(
        "tova+group_max",
        "tova:last=0+group_max:cross_head=0+uniform:rounding=exact+equal+topk:ties=late+original");
    assert_canonical("compresskv:heads=all,k=2+uniform",
                     "compresskv:window=8,kernel=5,pool=avg+retrieval_heads:k=2,heads=all,seed=42,zero=all"
                     "+uniform:rounding=exact+equal+topk:ties=early+original");
    /* Positions come last, wherever they are named. */
    assert_canonical(
        "streaming_llm+rerotate",
        "streaming_llm:sinks=4,recent=0+direct+uniform:rounding=exact+equal+topk:ties=early+rerotate");
    assert_canonical("knorm+rerotate+layer_mean",
                     "knorm+layer_mean+uniform:rounding=exact+equal+topk:ties=early+rerotate");
    assert_canonical(
        "streaming_llm-rerotated+original",
        "streaming_llm:sinks=4,recent=0+direct+uniform:rounding=exact+equal+topk:ties=early+original");
    assert_canonical("lagkv:ranked=true+topk",
                     "lagkv:sink=16,lag=128,skip=0,ref=next,use=both,wv=1,ranked=1+direct+"
                     "uniform:rounding=exact+equal+topk:ties=early+original");
}

/* Preset rows are canonical, and every listed name parses or is a part. */
static void method_list(void **state)
{
    (void)state;
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    int n_preset = 0, n_parity = 0, n_scorer = 0, n_part = 0;
    for (int32_t i = 0; wnw_method_get(i, &info); i++) {
        assert_cmp(strlen(info.name), >, 0);
        assert_cmp(strlen(info.about), >, 0);
        assert_non_null(info.paper);
        const bool parity = strcmp(info.kind, "parity preset") == 0;
        const bool preset = strcmp(info.kind, "preset") == 0;
        const bool scorer = strcmp(info.kind, "scorer") == 0;
        n_preset += preset;
        n_parity += parity;
        n_scorer += scorer;
        n_part += !preset && !parity && !scorer;
        if (preset || parity) {
            assert_cmp(strlen(info.recipe), >, 0); /* forms_of_all_presets has what it means */
            assert_cmp(strlen(info.layout), >, 0);
            assert_true(info.phases & 1u << WNW_PHASE_END);
            assert_cmp(parity, ==,
                       (strncmp(info.name, "kvpress-", 8) == 0 || strncmp(info.name, "paper-", 6) == 0));
        } else {
            assert_string_equal(info.recipe, "");
            assert_string_equal(info.layout, "");
            assert_cmp((info.phases != 0), ==, scorer);
        }
    }
    assert_cmp(n_preset, >=, 8);
    assert_cmp(n_parity, >=, 7);
    assert_cmp(n_scorer, >=, 6);
    assert_cmp(n_part, >=, 6);
    assert_false(wnw_method_get(-1, &info));
    assert_false(wnw_method_get(100000, &info));
}

static void facts_of(const char *name, const char *layout, uint32_t needs)
{
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    for (int32_t i = 0; wnw_method_get(i, &info); i++)
        if (strcmp(info.name, name) == 0) {
            assert_string_equal(info.layout, layout);
            assert_int_equal(info.needs, needs);
            return;
        }
    fail_msg("no method %s", name);
}

static void method_facts(void **state)
{
    (void)state;
    facts_of("full", "uniform", 0);
    facts_of("streaming_llm", "uniform", 0);
    facts_of("snapkv", "composite", WNW_NEED_WINDOW_ATTN);
    facts_of("tova", "layer", WNW_NEED_WINDOW_ATTN);
    facts_of("knorm", "composite", WNW_NEED_KEYS);
    facts_of("lagkv", "composite", WNW_NEED_KEYS | WNW_NEED_VALUES);
    facts_of("adakv", "ragged", WNW_NEED_WINDOW_ATTN);
    facts_of("pyramidkv", "composite", WNW_NEED_WINDOW_ATTN);
}

static void unknown_names(void **state)
{
    (void)state;
    assert_refused("", "empty");
    assert_refused("snapvk", "did you mean \"snapkv\"");
    assert_refused("pyramid_kv", "did you mean \"pyramidkv\"");
    assert_refused("xyzzy", "known are: full, streaming_llm");
    assert_refused("SnapKV", "unknown policy name");
    assert_refused(" snapkv", "snapkv");
    assert_refused("snapkv+adakvv", "did you mean \"adakv\"");
    assert_refused("snapkv+xyzzy", "known are: direct, group_mean");
    assert_refused("topk", "starts with a preset or a scorer, for example snapkv+topk");
    assert_refused("pyramid", "layer budget");
    assert_refused("snapkv+", "ends with");
    assert_refused("snapkv++adakv", "unknown policy part");
    assert_refused("+adakv", "unknown policy name");
    char longest[5000];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_refused(longest, "longer than");
    wnw_policy *p;
    assert_int_equal(wnw_policy_parse(&p, NULL, NULL), WNW_E_ARG);
}

static void bad_options(void **state)
{
    (void)state;
    assert_refused("snapkv:windw=8", "did you mean \"window\"");
    assert_refused("snapkv:zzz=8", "it has window, kernel, pool");
    assert_refused("full+topk:k=3", "it has ties");
    assert_refused("full+equal:k=3", "it has none");
    assert_refused("snapkv+adakv:window=8", "adakv has no option \"window\"");
    assert_refused("pyramidkv:beta=10+uniform", "no option \"beta\"");
    assert_refused("snapkv:", "key=value");
    assert_refused("snapkv:window", "key=value");
    assert_refused("snapkv:=8", "key=value");
    assert_refused("snapkv:window=8,", "key=value");
    assert_refused("snapkv:window=", "whole number from 1 to 4096");
    assert_refused("snapkv:window=0", "whole number from 1 to 4096");
    assert_refused("snapkv:window=-8", "whole number from 1 to 4096");
    assert_refused("snapkv:window=8.5", "whole number");
    assert_refused("snapkv:window=8x", "whole number");
    assert_refused("snapkv:window= 8", "whole number");
    assert_refused("snapkv:window=99999999999999999999", "whole number");
    assert_refused("snapkv:window=8,window=9", "given twice");
    assert_refused("adakv:alpha_safeguard=0.1+adakv:alpha_safeguard=0.3", "given twice");
    assert_refused("snapkv:kernel=4", "must be odd");
    assert_refused("snapkv:pool=mean", "choose one of: max, avg");
    assert_refused("snapkv:gqa_bug=2", "0 or 1");
    assert_refused("adakv:alpha_safeguard=nan", "number from 0 to 1");
    assert_refused("adakv:alpha_safeguard=inf", "number from 0 to 1");
    assert_refused("adakv:alpha_safeguard=0x1", "number from 0 to 1");
    assert_refused("adakv:alpha_safeguard=1.01", "number from 0 to 1");
    assert_refused("lagkv:retain=0", "number from");
    assert_refused("lagkv:retain=1.5", "number from");
    assert_refused("lagkv:wv=1e999", "number from");
}

static void bad_combinations(void **state)
{
    (void)state;
    assert_refused("snapkv+adakv+equal", "both a head budget");
    assert_refused("snapkv+topk+topk", "both a selector");
    assert_refused("snapkv+pyramid+uniform", "both a layer budget");
    assert_refused("snapkv+tova", "one scorer");
    assert_refused("snapkv+pyramidkv", "must come first");
    assert_refused("lagkv+adakv", "cannot be combined");
    assert_refused("lagkv+pyramid", "cannot be combined");
    assert_refused("snapkv+partition", "blocks");
    assert_refused("knorm+group_max", "no query heads");
    assert_refused("knorm+retrieval_heads", "no query heads");
    assert_refused("snapkv+direct", "scores query heads");
    assert_refused("snapkv+group_max+layer_mean", "both a head aggregation");
    assert_refused("rerotate", "snapkv+rerotate");
    assert_refused("snapkv+rerotate+original", "both a position rule");
    wnw_policy *p = test_policy("lagkv+adakv+topk");
    wnw_policy_free(p);
    p = test_policy("streaming_llm+adakv");
    wnw_policy_free(p);
}

static void assert_phases(const char *recipe, uint32_t want)
{
    wnw_policy *p;
    uint32_t phases = 0;
    p = test_policy(recipe);
    for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_DECODE; phase++)
        phases |= (uint32_t)wnw_policy_allows(p, (wnw_phase)phase, NULL) << phase;
    if (phases != want)
        fail_msg("%s: phases %x, not %x", recipe, phases, want);
    wnw_policy_free(p);
}

/* The next token has one position, so that all heads must keep as many entries; and what a policy leaves
 * after it must be able to read. */
static void new_positions(void **state)
{
    (void)state;
    const uint32_t once = 1u << WNW_PHASE_END | 1u << WNW_PHASE_LAYER,
                   always = once | 1u << WNW_PHASE_CHUNK | 1u << WNW_PHASE_DECODE;
    wnw_policy *p;
    assert_refused("snapkv+adakv+rerotate", "rerotate cannot be combined with adakv");
    assert_refused("adakv+rerotate", "adakv");
    assert_refused("snapkv+pyramid+rerotate", "pyramid");
    assert_refused("kvzip+rerotate", "global");
    assert_refused("l2norm+partition+rerotate", "skip=0");
    p = test_policy("l2norm:skip=0+partition+rerotate");
    assert_true(wnw_policy_rerotates(p));
    wnw_policy_free(p);
    p = test_policy("streaming_llm");
    assert_false(wnw_policy_rerotates(p));
    wnw_policy_free(p);
    assert_phases("streaming_llm+rerotate", always);
    assert_phases("snapkv+rerotate", always);
    assert_phases("tova+rerotate", always);           /* one list per layer */
    assert_phases("snapkv+chunkkv+rerotate", always); /* the same */
    assert_phases("snapkv:cross_head=1", always);
    assert_phases("snapkv:cross_head=1+rerotate", once);       /* heads with tokens of their own */
    assert_phases("snapkv+layer_max+critical+rerotate", once); /* one list of scores, not of tokens */
    assert_phases("defensivekv+equal+rerotate", once);
    assert_phases("observed_attention", always);
    assert_phases("observed_attention+rerotate", once); /* positions tell no age any more */
    assert_phases("h2o+rerotate", always);
}

static void needs_and_kinds(void **state)
{
    (void)state;
    wnw_policy *p = test_policy("snapkv:window=16");
    assert_int_equal(wnw_policy_needs(p).flags, WNW_NEED_WINDOW_ATTN);
    assert_int_equal(wnw_policy_needs(p).window, 16);
    assert_false(wnw_policy_is_full(p));
    assert_false(wnw_policy_has_own_size(p));
    wnw_policy_free(p);
    p = test_policy("full");
    assert_int_equal(wnw_policy_needs(p).flags, 0);
    assert_true(wnw_policy_is_full(p));
    wnw_policy_free(p);
    p = test_policy("lagkv:wv=0");
    assert_int_equal(wnw_policy_needs(p).flags, WNW_NEED_KEYS);
    assert_true(wnw_policy_has_own_size(p));
    wnw_policy_free(p);
    p = test_policy("kvpress-lagkv");
    assert_int_equal(wnw_policy_needs(p).flags, WNW_NEED_KEYS | WNW_NEED_VALUES);
    assert_false(wnw_policy_has_own_size(p));
    wnw_policy_free(p);
    wnw_policy_free(NULL);
}

/* Which policies drop entries at times of their own while answers are generated. */
static void own_times(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        bool own;
    } rows[] = {{"lagkv", true},   {"duoattention", true},   {"duoattention-prompt", true},
                {"snapkv", false}, {"streaming_llm", false}, {"kvpress-duoattention", false},
                {"full", false},   {"kvpress-lagkv", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy *p = test_policy(rows[i].recipe);
        if (wnw_policy_has_own_times(p) != rows[i].own)
            fail_msg("%s", rows[i].recipe);
        wnw_policy_free(p);
    }
}

/* ---- A scorer from outside ---- */

struct mine_opts {
    double slope;
    int32_t keep;
};

static int mine_score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)scratch;
    for (int64_t i = 0; i < (int64_t)obs->n_head_kv * obs->n; i++)
        score[i] = (float)((const struct mine_opts *)opts)->slope;
    return WNW_OK;
}

static const wnw_option mine_options[] = {
    {.name = "slope", .help = "", .type = WNW_OPT_REAL, .offset = 0, .def = -0.25, .min = -1e9, .max = 1e9},
    {.name = "keep", .help = "", .type = WNW_OPT_INT, .offset = 8, .def = 3, .min = 0, .max = 10},
    {0}};

static const wnw_scorer mine = {
    .part =
        {
            WNW_SCORER_INIT,
            .name = "mine",
            .options = mine_options,
            .options_size = sizeof(struct mine_opts),
        },
    .score = mine_score,
};

static void registry(void **state)
{
    (void)state;
    wnw_registry *r = NULL;
    wnw_policy *p, *again;
    assert_int_equal(wnw_registry_new(&r), WNW_OK);
    assert_int_equal(wnw_registry_add(r, &mine.part), WNW_OK);
    assert_int_equal(wnw_policy_parse(&p, "mine:slope=3e8+pyramid", r), WNW_OK);
    const char *want = "mine:slope=3e08,keep=3+direct+pyramid:rounding=exact,beta=20,form=exact+equal+topk:"
                       "ties=early+original";
    assert_string_equal(wnw_policy_string(p), want);
    assert_int_equal(wnw_policy_parse(&again, want, r), WNW_OK);
    assert_string_equal(wnw_policy_string(again), want);
    wnw_policy_free(again);
    assert_int_equal(wnw_policy_parse(&again, "mone", r), WNW_E_ARG);
    assert_says("did you mean \"mine\"");
    assert_int_equal(wnw_policy_parse(&again, "snapkv+mine", r), WNW_E_ARG);
    assert_int_equal(wnw_policy_parse(&again, "mine+partition", r), WNW_E_ARG);
    assert_int_equal(wnw_policy_parse(&again, "mine", NULL), WNW_E_ARG);
    wnw_registry_free(r);
    assert_string_equal(wnw_policy_string(p), want); /* outlives the registry */
    wnw_policy_free(p);
    wnw_registry_free(NULL);
}

static void registry_refuses(void **state)
{
    (void)state;
    wnw_registry *r = NULL;
    assert_int_equal(wnw_registry_new(&r), WNW_OK);
    wnw_scorer s = mine;
    assert_int_equal(wnw_registry_add(r, &mine.part), WNW_OK);
    assert_int_equal(wnw_registry_add(r, &mine.part), WNW_E_ARG); /* taken by itself */
    static const char *const bad[] = {"snapkv", "adakv", "topk", "kvpress-tova", "", "Mine", "a b", "x+y"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        s.part.name = bad[i];
        assert_int_equal(wnw_registry_add(r, &s.part), WNW_E_ARG);
    }
    s = mine;
    s.part.name = "other";
    s.score = NULL;
    assert_int_equal(wnw_registry_add(r, &s.part), WNW_E_ARG);
    s.score = mine_score;
    s.part.options_size = 8; /* "keep" would lie outside */
    assert_int_equal(wnw_registry_add(r, &s.part), WNW_E_ARG);
    s.part.options_size = sizeof(struct mine_opts);
    const wnw_option out_of_range[] = {{.name = "a", .type = WNW_OPT_INT, .def = 5, .min = 0, .max = 4}, {0}};
    s.part.options = out_of_range;
    assert_int_equal(wnw_registry_add(r, &s.part), WNW_E_ARG);
    assert_says("default 5");
    const wnw_option twice[] = {
        {.name = "a", .type = WNW_OPT_BOOL}, {.name = "a", .type = WNW_OPT_BOOL}, {0}};
    s.part.options = twice;
    assert_int_equal(wnw_registry_add(r, &s.part), WNW_E_ARG);
    const wnw_option no_choice[] = {{.name = "a", .type = WNW_OPT_ENUM}, {0}};
    s.part.options = no_choice;
    assert_int_equal(wnw_registry_add(r, &s.part), WNW_E_ARG);
    wnw_registry_free(r);
}

/* Settings of the papers' RULER tables, and counts that are rounded as those of the same table's other rows. */
static void settings_of_tables(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *has[2];
    } rows[] = {
        {"kvpress-lagkv-ruler", {"lagkv:sink=4,lag=128,", "ranked=1"}},
        {"kvpress-snapkv-ruler", {"window=64,kernel=5,pool=avg", "rounding=trunc"}},
        {"kvpress-adakv_snapkv-ruler", {"window=64,kernel=5,pool=avg", "adakv:alpha_safeguard=0.2"}},
        {"kvpress-criticalkv_snapkv-ruler", {"window=64,kernel=5,pool=avg", "norm=l1,sinks=0"}},
        {"kvpress-critical_adakv_snapkv-ruler", {"window=64,kernel=5,pool=avg", "adakv:alpha_safeguard=0.2"}},
        {"kvpress-lagkv", {"lag=64", "ranked=1"}},
        {"paper-criticalkv-h2o", {"window=256,kernel=1", "rounding=trunc"}},
        {"paper-criticalkv", {"window=32", "rounding=trunc"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy *p = test_policy(rows[i].preset);
        for (int k = 0; k < 2; k++)
            if (!strstr(wnw_policy_string(p), rows[i].has[k]))
                fail_msg("%s lacks %s", rows[i].preset, rows[i].has[k]);
        wnw_policy_free(p);
    }
}

/* tests/unit/presets.txt has the canonical form of every preset, a name and a tab before it: a new default of a part changes no preset
 * without a change there. */
static void forms_of_all_presets(void **state)
{
    char line[2048];
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    int32_t n = 0;
    (void)state;
    FILE *f = fopen(WNW_TEST_SOURCE_DIR "/tests/unit/presets.txt", "r");
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); n++) {
        line[strcspn(line, "\n")] = '\0';
        char *form = strchr(line, '\t');
        assert_non_null(form);
        *form++ = '\0';
        assert_canonical(line, form);
        assert_true(wnw_method_get(n, &info)); /* all, in their order */
        assert_string_equal(info.name, line);
    }
    fclose(f);
    assert_true(wnw_method_get(n, &info));
    assert_string_equal(info.recipe, ""); /* the first part follows the last preset */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_of_tables),
        cmocka_unit_test(canonical_form),
        cmocka_unit_test(method_list),
        cmocka_unit_test(method_facts),
        cmocka_unit_test(unknown_names),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(bad_combinations),
        cmocka_unit_test(new_positions),
        cmocka_unit_test(needs_and_kinds),
        cmocka_unit_test(own_times),
        cmocka_unit_test(registry),
        cmocka_unit_test(registry_refuses),
        cmocka_unit_test(forms_of_all_presets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
