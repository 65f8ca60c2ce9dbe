/* SPDX-License-Identifier: MIT */
/* Running an evaluation, as far as no model is needed: comparisons, grades, configs and the folder of a run. */
#include "asserts.h"

#include "app/console.h"
#include "app/likelihood.h"
#include "eval/base/contrast.h"
#include "eval/run/config.h"
#include "eval/run/forced.h"
#include "eval/run/journal.h"
#include "eval/run/lists.h"
#include "eval/run/manifest.h"
#include "eval/run/record.h"
#include "eval/run/suite.h"
#include "eval/tasks/grade.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Comparisons ---- */

static void test_kl_by_hand(void **state)
{
    (void)state;
    /* p = 1/2, 1/4, 1/4 and q = 1/4, 1/4, 1/2: KL = 1/2 log 2 + 1/4 log(1/2) = 1/4 log 2. Logits may be shifted. */
    const float p[] = {logf(0.5f) + 3, logf(0.25f) + 3, logf(0.25f) + 3};
    const float q[] = {logf(0.25f) - 90, logf(0.25f) - 90, logf(0.5f) - 90};
    assert_near(eval_kl(p, q, app_log_sum(q, 3), 3), 0.25 * log(2), 1e-5);
    assert_near(eval_kl(p, p, app_log_sum(p, 3), 3), 0, 0);
    assert_near(app_token_nll(p, 3, 0), log(2), 1e-6);
    assert_near(app_token_nll(q, 3, 1), log(4), 1e-5);
    const float far[] = {0, -200, 300}; /* exp would overflow in float */
    assert_near(app_token_nll(far, 3, 2), 0, 1e-9);
    assert_near(app_token_nll(far, 3, 1), 500, 1e-9);
}

static void test_agreement_by_hand(void **state)
{
    (void)state;
    const float a[] = {1, 0}, b[] = {0, 1}, tie[] = {1, 1};
    struct eval_agreement s = {0};
    eval_agreement_add(&s, a, a, app_log_sum(a, 2), 2);
    eval_agreement_add(&s, a, tie, app_log_sum(tie, 2), 2); /* of equal ones the first counts */
    eval_agreement_add(&s, a, b, app_log_sum(b, 2), 2);
    eval_agreement_add(&s, b, b, app_log_sum(b, 2), 2);
    assert_int_equal(s.n, 4);
    assert_int_equal(s.n_same, 3);
    assert_int_equal(s.n_lead, 2);
    const double q = 1 / (1 + exp(-1.0)); /* softmax of {1, 0} */
    assert_near(s.kl, (q * log(2 * q) + (1 - q) * log(2 * (1 - q))) + (2 * q - 1), 1e-6);
}

/* ---- Grades ---- */

struct grade_row {
    const char *name, *metric, *meta, *ref, *pred;
    double score;
    bool final;
};

static void grade(void **state)
{
    const struct grade_row *row = *state;
    char ref[64];
    char *refs[] = {ref};
    struct eval_turn turn = {.refs = refs, .n_refs = 1};
    struct eval_sample s = {.task = "t",
                            .metric = row->metric,
                            .turns = &turn,
                            .n_turns = 1,
                            .meta = json_loads(row->meta, 0, NULL)};
    struct eval_grade g;
    struct app_text pred = {0};
    snprintf(ref, sizeof ref, "%s", row->ref);
    assert_true(app_text_add(&pred, row->pred, strlen(row->pred)));
    assert_true(eval_grade_trim(&pred, &s));
    assert_int_equal(eval_grade_turn(&g, &s, 0, &pred), APP_OK);
    assert_near(g.score, row->score, 1e-9);
    assert_int_equal(eval_grade_is_final(&s, 0, &pred), row->final);
    json_decref(g.scores);
    json_decref(s.meta);
    free(pred.s);
}

static const struct grade_row grade_rows[] = {
    {"found", "string_match_all", "{}", "1234567", " is\t1234567.", 1, true},
    {"found, but not as it is written", "string_match_all", "{}", "AbCdEfGh", "abcdefgh", 1, false},
    {"a key without a fault", "exact", "{}", "3141", "3141", 1, true},
    {"a key with a comma", "exact", "{}", "3141", "3,141", 1, false},
    {"a clause, whose full stop may come", "contains", "{}", "sit in a park.", "sit in a park", 1, false},
    {"a clause, in a sentence that may go on", "contains", "{}", "sit in a park.", "sit in a park.", 1,
     false},
    {"not found", "string_match_all", "{}", "1234567", "123456", 0, false},
    {"control characters part words", "string_match_all", "{}", "ab", "a\001b", 0, false},
    {"nothing", "string_match_part", "{}", "x", "", 0, false},
    {"first line", "qa_f1", "{\"first_line\": true}", "blue", "\n\nblue\nred", 1, false},
    {"all lines", "qa_f1", "{}", "blue", "blue\nred", 2.0 / 3, false},
    {"a number may grow", "number", "{}", "41", "41", 1, false},
    {"classes", "classification", "{\"classes\": [\"Date\", \"Location\"]}", "Date", "Date or Location", 0.5,
     false},
};

static void test_scores_beside(void **state)
{
    char ref[] = "31415926";
    char *refs[] = {ref};
    char sentence[] = "x The pass key is 31415926. y";
    struct eval_turn turn = {.refs = refs, .n_refs = 1};
    struct eval_span span = {2, strlen(sentence) - 2};
    struct eval_sample s = {.task = "t",
                            .metric = "contains",
                            .turns = &turn,
                            .n_turns = 1,
                            .spans = &span,
                            .n_spans = 1,
                            .context = {.s = sentence, .len = strlen(sentence)}};
    struct eval_grade g;
    char text[] = "3141 the pass";
    const struct app_text pred = {.s = text, .len = strlen(text)};
    (void)state;
    assert_int_equal(eval_grade_turn(&g, &s, 0, &pred), APP_OK);
    assert_near(g.score, 0, 0);
    assert_near(json_real_value(json_object_get(g.scores, "partial")), 0.5, 1e-9);
    /* Of the five words of the sentence two were said. */
    assert_near(json_real_value(json_object_get(g.scores, "rouge1_recall")), 0.4, 1e-9);
    assert_near(json_real_value(json_object_get(g.scores, "wordset_recall")), 0, 0);
    /* All that kvpress reports: one word of three that were said is among the sentence's five, and no pair is. */
    static const struct {
        const char *name;
        double want;
    } package[] = {{"rouge_pkg_1_p", 0.2}, {"rouge_pkg_1_r", 1.0 / 3}, {"rouge_pkg_1_f", 0.25},
                   {"rouge_pkg_2_p", 0},   {"rouge_pkg_2_r", 0},       {"rouge_pkg_2_f", 0},
                   {"rouge_pkg_l_p", 0.2}, {"rouge_pkg_l_r", 1.0 / 3}, {"rouge_pkg_l_f", 0.25}};
    for (size_t i = 0; i < sizeof package / sizeof *package; i++) {
        const json_t *score = json_object_get(g.scores, package[i].name);
        assert_true(json_is_real(score));
        assert_near(json_real_value(score), package[i].want, 1e-6);
    }
    json_decref(g.scores);
}

static void test_gold(void **state)
{
    char one[] = "a", two[] = "b";
    char *refs[] = {one, two};
    struct eval_turn turn = {.refs = refs, .n_refs = 2};
    struct app_text text = {0};
    (void)state;
    assert_true(eval_refs_text(&text, &turn, "the answers are"));
    assert_string_equal(text.s, " a, b");
    text.len = 0;
    assert_true(eval_refs_text(&text, &turn, "they are: "));
    assert_string_equal(text.s, "a, b");
    free(text.s);
}

/* ---- Lists and configs ---- */

static void test_words_of_a_list(void **state)
{
    (void)state;
    char **w = eval_list_words("full,snapkv:window=8,kernel=5+adakv,knorm,,lagkv:lag=4,sink=2", EVAL_RECIPES);
    assert_non_null(w);
    assert_string_equal(w[0], "full");
    assert_string_equal(w[1], "snapkv:window=8,kernel=5+adakv");
    assert_string_equal(w[2], "knorm");
    assert_string_equal(w[3], "lagkv:lag=4,sink=2");
    assert_null(w[4]);
    free(w);
    w = eval_list_words("", ',');
    assert_non_null(w);
    assert_null(w[0]);
    free(w);
}

/* Arguments as the options' defaults leave them. */
static struct eval_args plain_args(void)
{
    static char types[] = "f16", evict[] = "end";
    struct eval_args a = {.kv_types = types};
    a.app.evict = evict;
    return a;
}

static void test_configs_are_the_product(void **state)
{
    char policies[] = "snapkv,full,knorm,snapkv", ratios[] = "0.5,auc9", types[] = "q8_0,f16",
         modes[] = "aware,agnostic";
    struct eval_args a = plain_args();
    struct eval_configs c;
    (void)state;
    a.policies = policies;
    a.ratios = ratios;
    a.kv_types = types;
    a.modes = modes;
    assert_int_equal(eval_configs_open(&c, &a, NULL), APP_OK);
    assert_int_equal(c.n, 2 * 2 * (1 + 2 * 9)); /* 0.5 is in auc9 */
    for (int32_t i = 0; i < c.n; i++) {
        const struct eval_config *ref = &c.items[c.items[i].reference];
        assert_true(ref->full);
        assert_int_equal(ref->kv.type, WNW_KV_F16);
        assert_int_equal(ref->mode, c.items[i].mode);
        assert_int_equal(strlen(c.items[i].id), 16);
    }
    assert_int_equal(c.items[0].mode, EVAL_AGNOSTIC);
    assert_string_equal(c.items[1].size_text, "ratio=0.5");
    eval_configs_close(&c);
}

/* By themselves all but the full cache read; that changes no name. */
static void test_alone(void **state)
{
    char policies[] = "snapkv,lagkv", modes[] = "agnostic,aware";
    struct eval_args a = plain_args();
    struct eval_configs c, x;
    (void)state;
    a.policies = policies;
    a.modes = modes;
    assert_int_equal(eval_configs_open(&c, &a, NULL), APP_OK);
    a.separate_readings = true;
    assert_int_equal(eval_configs_open(&x, &a, NULL), APP_OK);
    assert_int_equal(x.n, c.n);
    for (int32_t i = 0; i < c.n; i++) {
        assert_false(c.items[i].own_read);
        assert_int_equal(x.items[i].own_read, !x.items[i].full);
        assert_string_equal(c.items[i].id, x.items[i].id);
    }
    eval_configs_close(&c);
    eval_configs_close(&x);
}

/* The same config has the same name in another list: results of one folder fit into another's table. */
static void test_names_do_not_depend_on_the_list(void **state)
{
    char one[] = "snapkv", two[] = "knorm,snapkv:window=32";
    struct eval_args a = plain_args();
    struct eval_configs x, y;
    (void)state;
    a.policies = one;
    assert_int_equal(eval_configs_open(&x, &a, NULL), APP_OK);
    a.policies = two;
    assert_int_equal(eval_configs_open(&y, &a, NULL), APP_OK);
    assert_string_equal(x.items[0].id, y.items[0].id);
    assert_string_equal(x.items[1].id, y.items[2].id);
    assert_string_not_equal(x.items[1].id, y.items[1].id);
    eval_configs_close(&x);
    eval_configs_close(&y);
}

/* A recipe is kept as it was given, together with its shortest form. Two spellings of one are one method, which has the first. */
static void test_recipes_as_they_were_asked_for(void **state)
{
    char list[] = "paper-compilerkv-snapkv,snapkv:pool=avg,paper-lagkv-localkv";
    struct eval_args a = plain_args();
    struct eval_configs c;
    (void)state;
    a.policies = list;
    assert_int_equal(eval_configs_open(&c, &a, NULL), APP_OK);
    assert_int_equal(c.n_recipes, 3);
    assert_string_equal(c.recipes[1].text, "snapkv:pool=avg");
    assert_string_equal(c.recipes[1].asked, "paper-compilerkv-snapkv");
    assert_string_equal(c.recipes[2].text, "paper-lagkv:ref=own");
    assert_string_equal(c.recipes[2].asked, "paper-lagkv-localkv");
    eval_configs_close(&c);
}

/* Rules of --evict-every are an axis: each policy has a config under each of them, the full cache has one. */
static void test_rules_are_an_axis(void **state)
{
    char policies[] = "snapkv", rules[] = "64/64:0.5:all/64";
    struct eval_args a = plain_args();
    struct eval_configs c;
    struct eval_contrast x;
    (void)state;
    a.policies = policies;
    a.app.evict_every = rules;
    assert_int_equal(eval_configs_open(&c, &a, NULL), APP_OK);
    assert_int_equal(c.n, 3);
    assert_true(c.items[0].full && c.items[0].every == 0 && !c.items[0].every_text);
    assert_string_equal(c.items[1].every_text, "64");
    assert_true(c.items[1].own_read && c.items[1].every == 64 && c.items[1].every_ratio == 0);
    assert_string_equal(c.items[2].every_text, "64:0.5:all");
    assert_true(c.items[2].every == 64 && c.items[2].every_ratio == 0.5 && c.items[2].every_ratio_read);
    assert_string_not_equal(c.items[1].id, c.items[2].id);
    assert_int_equal(
        eval_contrast_read(&x, "snapkv vs snapkv mode=agnostic size=ratio=0.5 every=64:0.5:all/64", "x"),
        APP_OK);
    assert_true(eval_contrast_is_compared(&c, &x));
    x.a.every = "32";
    assert_false(eval_contrast_is_compared(&c, &x));
    x.a.every = NULL; /* two rules, and none is named */
    assert_false(eval_contrast_is_compared(&c, &x));
    eval_contrast_clear(&x);
    eval_configs_close(&c);
    /* One rule has the name that it had before there were several. */
    rules[2] = '\0';
    struct eval_configs one;
    assert_int_equal(eval_configs_open(&one, &a, NULL), APP_OK);
    assert_int_equal(one.n, 2);
    assert_string_equal(json_string_value(json_object_get(one.items[1].json, "evict_every")), "64");
    eval_configs_close(&one);
}

/* One line names a policy with times of its own, and no other. */
static void test_own_times_are_noted(void **state)
{
    char policies[] = "lagkv,snapkv", rules[] = "64/64:0.5:all";
    struct eval_args a = plain_args();
    struct eval_configs c;
    (void)state;
    a.policies = policies;
    assert_int_equal(eval_configs_open(&c, &a, NULL), APP_OK);
    assert_null(c.notes.s);
    eval_configs_close(&c);
    a.app.evict_every = rules;
    assert_int_equal(eval_configs_open(&c, &a, NULL), APP_OK);
    assert_string_equal(c.notes.s, "lagkv drops entries at times of its own while it answers: no number of "
                                   "--evict-every has an effect on it");
    eval_configs_close(&c);
}

/* Heads that are masked while reading need a reading of their own, one type of cache after the other; those that are
 * masked while answering do not. The full cache without masks is what all are compared with. */
static void test_masks_are_an_axis(void **state)
{
    char policies[] = "snapkv", types[] = "q8_0,f16", masks[] = "0-0/none/random:2:1", one[] = "0-0",
         when[] = "decode";
    struct eval_args a = plain_args();
    struct eval_configs c;
    (void)state;
    a.policies = policies;
    a.kv_types = types;
    a.app.mask_heads = masks;
    assert_int_equal(eval_configs_open(&c, &a, NULL), APP_OK);
    assert_int_equal(c.n, 2 * 3 * 2);
    for (int32_t i = 0; i < c.n; i++) {
        assert_int_equal(c.items[i].full, i % 2 == 0);
        assert_int_equal(eval_config_is_uncompressed(&c.items[i]), i % 2 == 0);
        assert_int_equal(c.items[i].reference, 0);
        assert_int_equal(c.items[i].mask != NULL, i / 2 % 3 > 0);
        assert_int_equal(c.items[i].kv.type, i < 6 ? WNW_KV_F16 : WNW_KV_Q8_0);
        for (int32_t k = 0; k < i; k++) {
            assert_string_not_equal(c.items[i].id, c.items[k].id);
            assert_int_equal(eval_configs_share_reading(&c.items[i], &c.items[k]), i / 2 == k / 2);
        }
    }
    assert_string_equal(json_string_value(json_object_get(c.items[2].json, "mask")), "0-0");
    assert_null(json_object_get(c.items[0].json, "mask"));
    eval_configs_close(&c);

    a.kv_types = NULL;
    a.app.mask_heads = one;
    a.app.mask_phase = when;
    assert_int_equal(eval_configs_open(&c, &a, NULL), APP_OK);
    assert_int_equal(c.n, 3); /* the full cache, and with the mask SnapKV and the full cache */
    for (int32_t i = 0; i < c.n; i++) {
        assert_true(eval_configs_share_reading(&c.items[i], &c.items[0]));
        assert_int_equal(eval_config_is_uncompressed(&c.items[i]), i == 0);
        assert_int_equal(c.items[i].mask != NULL, i > 0);
    }
    assert_string_equal(json_string_value(json_object_get(c.items[1].json, "mask_phase")), "decode");
    eval_configs_close(&c);
}

/* Rules of eviction are an axis, to which the full cache does not belong. A contrast names the rule of each side, or one of both. */
static void test_rules_of_eviction_are_an_axis(void **state)
{
    static const struct {
        const char *line;
        bool is_compared;
    } contrasts[] = {
        {"snapkv vs snapkv mode=agnostic size=ratio=0.5 evict=chunk:300/end", true},
        {"snapkv vs keydiff mode=agnostic size=ratio=0.5 evict=chunk:300", true},
        {"snapkv vs full mode=agnostic size=ratio=0.5 evict=chunk:300", true},
        {"snapkv vs keydiff mode=agnostic size=ratio=0.5", true}, /* at the end */
        {"snapkv vs snapkv mode=agnostic size=ratio=0.5 evict=chunk:200/end", false},
        {"snapkv vs keydiff mode=agnostic size=ratio=0.5 evict=layer", false},
    };
    char policies[] = "snapkv,keydiff", evict[] = "end,chunk:300,end", no_chunk[] = "end,layer";
    struct eval_args a = plain_args();
    struct eval_configs c;
    (void)state;
    a.policies = policies;
    a.app.evict = evict;
    a.app.chunk_slack = 1.5;
    assert_int_equal(eval_configs_open(&c, &a, NULL), APP_OK);
    assert_int_equal(c.n, 1 + 2 * 2); /* a rule that is named twice is one */
    for (int32_t i = 0; i < c.n; i++) {
        const bool chunk = i > 2;
        assert_string_equal(json_string_value(json_object_get(c.items[i].json, "evict")),
                            chunk ? "chunk:300" : "end");
        assert_int_equal(c.items[i].phase, chunk ? WNW_PHASE_CHUNK : WNW_PHASE_END);
        assert_int_equal(c.items[i].chunk, chunk ? 300 : 0);
        assert_int_equal(c.items[i].slack > 1, chunk);
        assert_int_equal(c.items[i].own_read, chunk);
    }
    for (size_t i = 0; i < sizeof contrasts / sizeof *contrasts; i++) {
        struct eval_contrast x;
        assert_int_equal(eval_contrast_read(&x, contrasts[i].line, "here"), APP_OK);
        if (eval_contrast_is_compared(&c, &x) != contrasts[i].is_compared)
            fail_msg("'%s': %s", contrasts[i].line, contrasts[i].is_compared ? "is not found" : "is found");
        eval_contrast_clear(&x);
    }
    eval_configs_close(&c);

    a.app.evict = no_chunk;
    assert_int_equal(eval_configs_open(&c, &a, NULL), APP_BAD_INPUT); /* slack of nothing */
    eval_configs_close(&c);
}

/* What a study is to decide can be decided from its own lists. */
static void check_contrasts(const struct eval_configs *c, const struct eval_args *a,
                            const struct eval_suite *study)
{
    json_t *lines;
    assert_int_equal(eval_contrasts_open(&lines, a, study), APP_OK);
    for (size_t i = 0; i < json_array_size(lines); i++) {
        struct eval_contrast x;
        const char *line = json_string_value(json_array_get(lines, i));
        assert_int_equal(eval_contrast_read(&x, line, study->name), APP_OK);
        if (!eval_contrast_is_compared(c, &x))
            fail_msg("%s: the lists have not both of '%s'", study->name, line);
        eval_contrast_clear(&x);
    }
    json_decref(lines);
    if (!c->items[0].full)
        return;
    const struct eval_contrast_side full = {
        .policy = "full", .size = "ratio=0.123", .kv_type = c->items[0].kv_text};
    struct eval_contrast other = {.a = full, .b = full, .mode = eval_mode_name(c->items[0].mode)};
    assert_true(eval_contrast_is_compared(c, &other)); /* it has no size */
    other.b.policy = "random:seed=77";
    assert_false(eval_contrast_is_compared(c, &other));
}

/* Every study, and every suite with contrasts, names existing recipes, sizes and types, and the parts of one name no config twice. */
static void test_studies(void **state)
{
    const struct eval_args plain = plain_args();
    struct eval_suites all;
    (void)state;
    assert_int_equal(eval_suites_open(&all), APP_OK);
    for (int32_t i = 0; i < all.n; i++) {
        struct eval_args a = plain;
        struct eval_configs c;
        if ((!all.items[i].study && all.items[i].contrasts.len == 0) || all.items[i].perturbs)
            continue;
        a.app.evict = a.kv_types = NULL;
        assert_int_equal(eval_configs_open(&c, &a, &all.items[i]), APP_OK);
        assert_cmp(c.n, >, 5);
        for (int32_t k = 0; k < c.n; k++) {
            const struct eval_config *reference = &c.items[c.items[k].reference];
            assert_true(reference->full && !reference->mask);
            assert_int_equal(reference->mode, c.items[k].mode);
            for (int32_t j = 0; j < k; j++)
                assert_string_not_equal(c.items[j].id, c.items[k].id);
        }
        check_contrasts(&c, &a, &all.items[i]);
        eval_configs_close(&c);
    }
    eval_suites_close(&all);
}

/* An option replaces the list of every part. */
static void test_options_replace_a_study(void **state)
{
    char policies[] = "knorm", modes[] = "agnostic", budgets[] = "64";
    const struct eval_suite *study;
    struct eval_suites all;
    struct eval_args a = plain_args();
    struct eval_configs c;
    char name[] = "criticalkv";
    (void)state;
    json_t *remarks;
    a.study = name;
    assert_int_equal(eval_suites_open(&all), APP_OK);
    assert_int_equal(eval_suite_choose(&study, &all, &a), APP_OK);
    c = (struct eval_configs){.n = 0};
    assert_int_equal(eval_manifest_remarks(&remarks, &a, study, &c, 9), APP_OK);
    assert_cmp(json_array_size(remarks), >=, 1); /* they are on the study's own names */
    json_decref(remarks);
    a.policies = policies;
    assert_int_equal(eval_manifest_remarks(&remarks, &a, study, &c, 9), APP_OK);
    assert_null(remarks);
    a.modes = modes;
    a.budgets = budgets;
    assert_int_equal(eval_configs_open(&c, &a, study), APP_OK);
    assert_int_equal(c.n, 2);
    assert_string_equal(c.items[1].size_text, "budget=64");
    eval_configs_close(&c);
    eval_suites_close(&all);
}

/* A frozen suite takes other policies, in every part, and nothing else. */
static void test_frozen_suite(void **state)
{
    char name[] = "equal_bytes", policies[] = "knorm", ratios[] = "0.5", every[] = "64";
    const struct eval_suite *suite;
    struct eval_suites all;
    struct eval_args a = plain_args();
    struct eval_configs c;
    (void)state;
    a.suite = name;
    a.policies = policies;
    a.app.evict = a.kv_types = NULL;
    assert_int_equal(eval_suites_open(&all), APP_OK);
    assert_int_equal(eval_suite_choose(&suite, &all, &a), APP_OK);
    assert_int_equal(eval_configs_open(&c, &a, suite), APP_OK);
    assert_int_equal(c.n, 3 + 4 + 4 + 3); /* a full cache of each type, and its sizes */
    eval_configs_close(&c);
    a.ratios = ratios;
    assert_int_equal(eval_suite_choose(&suite, &all, &a), APP_BAD_INPUT);
    a.ratios = NULL;
    a.app.evict_every = every;
    assert_int_equal(eval_suite_choose(&suite, &all, &a), APP_BAD_INPUT);
    eval_suites_close(&all);
}

/* How many heads of a layer choose. */
static void test_heads_that_choose(void **state)
{
    char policies[] = "snapkv,compresskv,paper-compresskv,paper-compresskv:heads=all,paper-compresskv:k=24",
         budgets[] = "64";
    static const char *const want[] = {
        "compresskv: 1 of 9 heads of a layer choose, an eighth, unless its profile says another number.",
        "paper-compresskv: 4 of 9 heads of a layer choose.", "9 of 9 heads of a layer choose.",
        "9 of 9 heads of a layer choose."};
    struct eval_args a = plain_args();
    struct eval_configs c;
    json_t *remarks;
    (void)state;
    a.policies = policies;
    a.budgets = budgets;
    assert_int_equal(eval_configs_open(&c, &a, NULL), APP_OK);
    assert_int_equal(eval_manifest_remarks(&remarks, &a, NULL, &c, 9), APP_OK);
    assert_int_equal(json_array_size(remarks), 4);
    for (size_t i = 0; i < 4; i++)
        assert_contains(json_string_value(json_array_get(remarks, i)), want[i]);
    json_decref(remarks);
    eval_configs_close(&c);
}

/* ---- The folder ---- */

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void test_a_torn_line_is_cut_off(void **state)
{
    char dir[] = "/tmp/winnow-journal-XXXXXX", path[64], lock[64];
    struct eval_journal j, other;
    struct stat st;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/results.jsonl", dir);
    snprintf(lock, sizeof lock, "%s/lock", dir);
    write_file(path, "{\"key\":\"a\"}\n{\"key\":\"b\"}\n{\"key\":\"c");
    assert_int_equal(eval_journal_open(&j, dir), APP_OK);
    assert_true(eval_journal_has(&j, "a"));
    assert_true(eval_journal_has(&j, "b"));
    assert_false(eval_journal_has(&j, "c"));
    assert_int_equal(eval_journal_open(&other, dir), APP_BAD_INPUT); /* one writer */
    eval_journal_close(&other);
    json_t *row = json_pack("{s:s}", "key", "c");
    assert_int_equal(eval_journal_add(&j, row), APP_OK);
    json_decref(row);
    assert_true(eval_journal_has(&j, "c"));
    eval_journal_close(&j);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 3 * strlen("{\"key\":\"a\"}\n"));
    write_file(path, "{\"key\":\"a\"}\nx\n{\"key\":\"b\"}\n"); /* damage in the middle is not repaired */
    assert_int_equal(eval_journal_open(&j, dir), APP_BAD_INPUT);
    eval_journal_close(&j);
    unlink(path);
    unlink(lock);
    assert_int_equal(rmdir(dir), 0);
}

static void test_samples_among_keys(void **state)
{
    (void)state;
    assert_true(eval_record_is_sample("vt|1024|3|42|0123456789abcdef|0"));
    assert_true(eval_record_is_sample("user|0|899999|0|0123456789abcdef|0"));
    assert_false(eval_record_is_sample("vt|1024|900000|42|0123456789abcdef|0"));
    assert_false(eval_record_is_sample("vt"));
}

/* Whether a folder is another run's is found out without a change to it. */
static void test_a_folder_of_another_run(void **state)
{
    char dir[] = "/tmp/winnow-manifest-XXXXXX", path[64], results[64];
    json_t *run = json_pack("{s:i}", "seed", 42), *other = json_pack("{s:i}", "seed", 43);
    struct stat st;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/run.json", dir);
    snprintf(results, sizeof results, "%s/results.jsonl", dir);
    assert_int_equal(eval_manifest_check(dir, run), APP_OK);
    assert_int_equal(stat(path, &st), -1);
    write_file(results, "torn"); /* results that nothing describes */
    assert_int_equal(eval_manifest_check(dir, run), APP_BAD_INPUT);
    unlink(results);
    assert_int_equal(eval_manifest_claim(dir, run), APP_OK);
    write_file(results, "{\"key\":\"a\"}\ntorn");
    assert_int_equal(eval_manifest_check(dir, run), APP_OK);
    assert_int_equal(eval_manifest_check(dir, other), APP_BAD_INPUT);
    unlink(path);
    unlink(results);
    assert_int_equal(rmdir(dir), 0);
    json_decref(run);
    json_decref(other);
}

static void test_many_keys(void **state)
{
    char dir[] = "/tmp/winnow-journal-XXXXXX", path[64], key[32];
    struct eval_journal j;
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(eval_journal_open(&j, dir), APP_OK);
        assert_int_equal(json_object_size(j.keys), round * 3000);
        for (int i = 0; i < 3000; i++) {
            snprintf(key, sizeof key, "k%d", i);
            assert_int_equal(eval_journal_has(&j, key), round == 1);
            json_t *row = json_pack("{s:s}", "key", key);
            if (round == 0)
                assert_int_equal(eval_journal_add(&j, row), APP_OK);
            json_decref(row);
        }
        eval_journal_close(&j);
    }
    snprintf(path, sizeof path, "%s/results.jsonl", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/lock", dir);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kl_by_hand),
        cmocka_unit_test(test_agreement_by_hand),
        cmocka_unit_test(test_scores_beside),
        cmocka_unit_test(test_gold),
        cmocka_unit_test(test_words_of_a_list),
        cmocka_unit_test(test_configs_are_the_product),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_names_do_not_depend_on_the_list),
        cmocka_unit_test(test_recipes_as_they_were_asked_for),
        cmocka_unit_test(test_rules_are_an_axis),
        cmocka_unit_test(test_own_times_are_noted),
        cmocka_unit_test(test_masks_are_an_axis),
        cmocka_unit_test(test_rules_of_eviction_are_an_axis),
        cmocka_unit_test(test_studies),
        cmocka_unit_test(test_options_replace_a_study),
        cmocka_unit_test(test_frozen_suite),
        cmocka_unit_test(test_heads_that_choose),
        cmocka_unit_test(test_a_torn_line_is_cut_off),
        cmocka_unit_test(test_samples_among_keys),
        cmocka_unit_test(test_a_folder_of_another_run),
        cmocka_unit_test(test_many_keys),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + run_rows(grade, grade_rows);
}
