/* SPDX-License-Identifier: MIT */
/* Which shard has a sample, what fits a budget of time, and which folders are shards of one run. */
#include "asserts.h"

#include "app/console.h"
#include "eval/base/info.h"
#include "eval/base/stats.h"
#include "eval/run/pace.h"
#include "eval/run/shard.h"

#include <string.h>

enum { ITEMS = 2, PLANNED = 10 };

/* Two tasks with ten and seven samples and two probes each. */
static void make_items(struct eval_item items[ITEMS])
{
    const int32_t n[ITEMS] = {PLANNED, 7};
    for (int i = 0; i < ITEMS; i++) {
        items[i] = (struct eval_item){.task = eval_task_find("niah_single_1"),
                                      .n_target = 1000 * (i + 1),
                                      .n_trials = 1,
                                      .n = n[i],
                                      .n_probes = 2,
                                      .max_new = 100};
        items[i].planned.n = n[i];
        items[i].planned.n_probes = 2;
    }
}

/* How often each sample was visited; after them, each probe. */
struct visits {
    int at[ITEMS][PLANNED + 2], n;
};

static int count(void *user, struct eval_item *item, int32_t index)
{
    struct visits *v = user;
    const int which = item->n_target / 1000 - 1;
    v->at[which][index >= EVAL_GATE_FIRST ? PLANNED + index - EVAL_GATE_FIRST : index]++;
    v->n++;
    return APP_OK;
}

static void test_words(void **state)
{
    struct eval_shard shard;
    (void)state;
    assert_int_equal(eval_shard_read(&shard, NULL), APP_OK);
    assert_true(shard.i == 0 && shard.n == 1);
    assert_int_equal(eval_shard_read(&shard, "2/3"), APP_OK);
    assert_true(shard.i == 1 && shard.n == 3);
    static const char *const bad[] = {"", "/", "1", "0/3", "4/3", "1/", "/2", "1/2/3", "a/b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(eval_shard_read(&shard, bad[i]), APP_BAD_INPUT);
}

/* Shards have every sample once. Where each has time for another number of them, some are nobody's and none is
 * in two shards. */
static void test_every_sample_once(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 4; n++) {
        struct visits whole = {.n = 0}, cut = {.n = 0};
        for (int32_t i = 0; i < n; i++) {
            const struct eval_shard shard = {.i = i, .n = n};
            struct eval_item items[ITEMS];
            struct eval_items s = {.items = items, .n = ITEMS};
            make_items(items);
            assert_int_equal(eval_shard_each(&shard, &s, count, &whole), APP_OK);
            items[0].n = 3 + i;
            items[1].n = 6 - i;
            items[1].n_probes = i % 2;
            assert_int_equal(eval_shard_each(&shard, &s, count, &cut), APP_OK);
        }
        assert_int_equal(whole.n, PLANNED + 7 + 4);
        for (int i = 0; i < ITEMS; i++)
            for (int k = 0; k < PLANNED + 2; k++) {
                assert_int_equal(whole.at[i][k], i == 0 || k < 7 || k >= PLANNED);
                assert_true(cut.at[i][k] <= 1);
                if (k < 3)
                    assert_int_equal(cut.at[i][k], 1); /* all shards had time for these */
            }
        assert_true(cut.n < whole.n);
    }
}

static int stop_at_third(void *user, struct eval_item *item, int32_t index)
{
    int *n = user;
    (void)item;
    (void)index;
    return ++*n == 3 ? APP_FAILED : APP_OK;
}

static void test_a_visit_ends_it(void **state)
{
    const struct eval_shard whole = {.i = 0, .n = 1};
    struct eval_item items[ITEMS];
    struct eval_items s = {.items = items, .n = ITEMS};
    int n = 0;
    (void)state;
    make_items(items);
    assert_int_equal(eval_shard_each(&whole, &s, stop_at_third, &n), APP_FAILED);
    assert_int_equal(n, 3);
}

/* A sample of 1000 tokens costs 1 s, one of 2000 tokens 2 s: 10 + 14 s, and 6 s for the probes, which stay while they take no more
 * than half of the time. */
static const struct eval_pace pace = {.token_ms = 1, .n_reads = 1, .n_ctx = 4096};

static void test_a_budget_is_of_one_shard(void **state)
{
    struct eval_item items[ITEMS];
    struct eval_items s = {.items = items, .n = ITEMS};
    (void)state;
    make_items(items);
    eval_pace_cut(&pace, &s, 2, 15e3); /* each shard has half */
    assert_true(items[0].n == 10 && items[1].n == 7 && items[1].n_probes == 2);
    eval_pace_cut(&pace, &s, 1, 15e3);
    assert_true(items[0].n == 3 && items[1].n == 2 && items[1].n_probes == 2); /* 9 of 24 s */
    assert_true(items[0].planned.n == 10 && items[1].planned.n == 7);
    make_items(items);
    eval_pace_cut(&pace, &s, 1, 11e3);
    assert_true(items[0].n == 4 && items[1].n == 3 && items[1].n_probes == 0); /* 11 of 24 s */
    assert_int_equal(items[1].planned.n_probes, 2);
}

static void test_what_the_model_cannot_read_costs_nothing(void **state)
{
    struct eval_pace shorter = pace;
    struct eval_item items[ITEMS];
    struct eval_items s = {.items = items, .n = ITEMS};
    (void)state;
    shorter.n_ctx = 1999;
    make_items(items);
    assert_true(eval_pace_cost(&shorter, &items[0], 0) > 0);
    assert_true(eval_pace_cost(&shorter, &items[1], 0) == 0);
    assert_true(eval_pace_cost(&shorter, &items[1], EVAL_GATE_FIRST) == 0);
    eval_pace_cut(&shorter, &s, 1, 12e3); /* 10 + 2 s */
    assert_true(items[0].n == 10 && items[1].n == 7);
    eval_pace_cut(&shorter, &s, 1, 6e3);
    assert_true(items[0].n == 4 &&
                items[1].n == 7); /* these are left out as too long, and are counted as that */
}

/* The first member in which two descriptions differ, "" if there is none. */
static const char *difference(const char *a, const char *b, bool shards)
{
    static char name[32];
    json_t *x = json_loads(a, 0, NULL), *y = json_loads(b, 0, NULL);
    assert_non_null(x);
    assert_non_null(y);
    const char *field = eval_info_difference(x, y, shards);
    snprintf(name, sizeof name, "%s", field ? field : "");
    json_decref(x);
    json_decref(y);
    return name;
}

#define TASK(n, N) "\"tasks\":[{\"task\":\"vt\",\"n\":" #n ",\"probes\":" #n ",\"N\":" #N "}]"

static void test_shards_of_one_run(void **state)
{
    (void)state;
    const char *const ten = "{\"time_budget\":\"1m\"," TASK(10, 1024) "}";
    assert_string_equal(difference(ten, "{\"time_budget\":\"1m\"," TASK(7, 1024) "}", true), "");
    assert_string_equal(difference(ten, "{\"time_budget\":\"1m\"," TASK(7, 1024) "}", false), "tasks");
    assert_string_equal(difference(ten, "{\"time_budget\":\"1m\"," TASK(7, 2048) "}", true), "tasks");
    assert_string_equal(difference(ten, "{\"time_budget\":\"1m\",\"tasks\":[]}", true), "tasks");
    assert_string_equal(difference(ten, "{\"time_budget\":\"1m\"}", true), "tasks");
    assert_string_equal(difference(ten, "{\"time_budget\":\"2m\"," TASK(10, 1024) "}", true), "time_budget");
    /* Nothing explains other numbers where there is no budget. */
    assert_string_equal(difference("{\"time_budget\":\"\"," TASK(10, 1024) "}",
                                   "{\"time_budget\":\"\"," TASK(7, 1024) "}", true),
                        "tasks");
}

static void test_what_may_differ(void **state)
{
    (void)state;
    /* Field; whether it may differ where a run goes on, and between shards. */
    static const struct {
        const char *name;
        bool goes_on, shards;
    } fields[] = {{"command", true, true},     {"recipes", true, true},  {"threads", true, true},
                  {"calibration", true, true}, {"device", false, true},  {"backend", false, true},
                  {"winnow", false, false},    {"kernel", false, false}, {"seed", false, false}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char a[64], b[64];
        snprintf(a, sizeof a, "{\"%s\":\"x\"}", fields[i].name);
        snprintf(b, sizeof b, "{\"%s\":\"y\"}", fields[i].name);
        assert_string_equal(difference(a, b, false), fields[i].goes_on ? "" : fields[i].name);
        assert_string_equal(difference(a, b, true), fields[i].shards ? "" : fields[i].name);
        assert_string_equal(difference(a, "{}", false), fields[i].goes_on ? "" : fields[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_every_sample_once),
        cmocka_unit_test(test_a_visit_ends_it),
        cmocka_unit_test(test_a_budget_is_of_one_shard),
        cmocka_unit_test(test_what_the_model_cannot_read_costs_nothing),
        cmocka_unit_test(test_shards_of_one_run),
        cmocka_unit_test(test_what_may_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
