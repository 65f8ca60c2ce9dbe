/* SPDX-License-Identifier: MIT */
/* Results as tables: small files whose means, losses and areas are known. */
#include "asserts.h"

#include "app/console.h"
#include "app/page.h"
#include "eval/base/task_names.h"
#include "eval/report/doc.h"
#include "eval/report/papers.h"
#include "eval/report/report_impl.h"
#include "eval/report/sheet.h"
#include "eval/results/curve.h"
#include "eval/results/limit.h"
#include "eval/results/map.h"
#include "eval/results/planned_contrasts.h"
#include "eval/results/versus.h"
#include "eval/tasks/grade.h"
#include "eval/tasks/task.h"
#include "winnow_method.h"
#include "winnow_tools.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- A folder of results that a test writes ---- */

static char folder[] = "/tmp/unit_eval_report-XXXXXX";
static FILE *results;

static void in_folder(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s", folder, name);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char path[128];
    (void)state;
    in_folder(path, "run.json");
    unlink(path);
    in_folder(path, "results.jsonl");
    unlink(path);
    return rmdir(folder);
}

/* Begins results.jsonl; info is run.json. */
static void begin(const char *info)
{
    char path[128];
    in_folder(path, "run.json");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(info, f);
    assert_int_equal(fclose(f), 0);
    in_folder(path, "results.jsonl");
    results = fopen(path, "w");
    assert_non_null(results);
}

/* A line. `more` is further members with a comma in front. */
static void line_of(const char *task, int n_target, int index, int turn, const char *policy, const char *size,
                    double score, const char *more)
{
    fprintf(
        results,
        "{\"v\":1,\"task\":\"%s\",\"N\":%d,\"index\":%d,\"turn\":%d,\"config\":\"%s %s\","
        "\"policy\":\"%s\",\"mode\":\"agnostic\",\"size\":\"%s\",\"kv_type\":\"f16\",\"score\":%.17g%s}\n",
        task, n_target, index, turn, policy, size, policy, size, score, more);
}

/* A line of task "niah_single_1". */
static void line(int n_target, int index, int turn, const char *policy, const char *size, double score,
                 const char *more)
{
    line_of("niah_single_1", n_target, index, turn, policy, size, score, more);
}

/* A line of a configuration that run.json describes. */
static void line_by(const char *config, int n_target, int index, const char *policy, const char *size,
                    double score)
{
    fprintf(results,
            "{\"v\":1,\"task\":\"niah_single_1\",\"N\":%d,\"index\":%d,\"config\":\"%s\",\"policy\":\"%s\","
            "\"mode\":\"agnostic\",\"size\":\"%s\",\"kv_type\":\"f16\",\"score\":%.17g}\n",
            n_target, index, config, policy, size, score);
}

static void read_tables(struct eval_runs *runs, struct eval_tables *t, bool no_gate)
{
    char *folders[] = {folder};
    assert_int_equal(fclose(results), 0);
    assert_int_equal(eval_runs_read(runs, folders, 1), APP_OK);
    assert_int_equal(runs->n, 1);
    assert_int_equal(eval_tables_make(t, &runs->run[0], no_gate), APP_OK);
}

/* The forms of a report. */
struct forms {
    struct eval_doc text, csv, maps;
};

/* Makes them; shown: what maps show. */
static struct forms make_forms(const struct eval_runs *runs, struct eval_tables *t, char *shown)
{
    const struct eval_args args = {.niah_score = shown};
    struct eval_maps maps;
    const struct eval_report report = {
        .args = &args, .runs = *runs, .tables = t, .n_versus = (int32_t[]){0}, .maps = &maps};
    struct forms f = {{.no_memory = false}, {.no_memory = false}, {.no_memory = false}};
    json_t *object;
    assert_true(eval_maps_make(&maps, t));
    assert_int_equal(eval_report_json(&object, &report), APP_OK);
    eval_report_text(&f.text, &report, object);
    eval_report_csv(&f.csv, object);
    eval_report_maps(&f.maps, &report);
    json_decref(object);
    eval_maps_clear(&maps);
    return f;
}

static void clear_forms(struct forms *f)
{
    eval_doc_clear(&f->text);
    eval_doc_clear(&f->csv);
    eval_doc_clear(&f->maps);
}

static void clear(struct eval_runs *runs, struct eval_tables *t)
{
    eval_tables_clear(t);
    eval_runs_clear(runs);
}

/* ---- Names of tasks ---- */

/* Results know tasks by their names, in the order of the tasks. */
static void test_task_names(void **state)
{
    (void)state;
    assert_true(eval_task_name_find("niah_grid")->on_grid && eval_task_name_find("passkey7")->on_grid);
    assert_false(eval_task_name_find("user")->on_grid);
    assert_string_equal(eval_task_name_find("2wikimqa")->domain, "multi-document QA");
    assert_null(eval_task_name_find("of another program")->name);
    assert_true(eval_task_name_compare("user", "niah_single_1") > 0);
    assert_true(eval_task_name_compare("aaa", "user") > 0);
    assert_true(eval_task_name_compare("aaa", "bbb") < 0);
}

/* ---- Means, intervals, gate ---- */

static const double of_full[] = {1, 1, 1, 0, 1, 1, 1, 1, 0, 1}, of_comp[] = {1, 0, 1, 0, 1, 1, 0, 1, 1, 1};

static void test_row(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\",\"seed\":42}");
    for (int i = 9; i >= 0; i--) { /* in any order */
        line(512, i, 0, "snapkv", "ratio=0.5", of_comp[i], ",\"kl\":0.5,\"ratio_ach\":0.48");
        line(512, i, 0, "full", "full", of_full[i], ",\"kv_bytes\":1048576");
    }
    read_tables(&runs, &t, false);
    assert_int_equal(t.n, 2); /* the length, and all lengths */
    assert_int_equal(t.blocks[0].n_target, 512);
    assert_true(eval_block_is_extra(&t.blocks[1]));
    assert_int_equal(t.blocks[0].n_rows, 2);
    const struct eval_row *full = &t.blocks[0].rows[0], *comp = &t.blocks[0].rows[1];
    assert_int_equal(full->variant, t.blocks[0].baseline);
    assert_near(full->macro.mean, 80.0, 1e-9);
    assert_true(isnan(full->macro.delta.delta));
    assert_near(full->cell[0].m[EVAL_M_BYTES], 1048576.0, 0);
    assert_int_equal(comp->macro.n, 10);
    assert_near(comp->macro.mean, 70.0, 1e-9);
    assert_near(comp->macro.full, 80.0, 1e-9);
    assert_near(comp->cell[0].delta.delta, -10.0, 1e-9);
    /* The same answers have one interval in both tables. */
    const struct eval_cell *over_all = &t.blocks[1].rows[1].macro;
    assert_true(comp->macro.delta.over.lo < -10.0 && comp->macro.delta.over.hi > -10.0);
    assert_near(over_all->delta.over.lo, comp->macro.delta.over.lo, 0);
    assert_near(over_all->delta.over.hi, comp->macro.delta.over.hi, 0);
    /* 10 differences: 2 are -100, 1 is +100, the others 0; with n = 10 the means are multiples of 10. */
    assert_near(comp->cell[0].delta.over.lo, -40.0, 1e-9);
    assert_near(comp->cell[0].delta.over.hi, 20.0, 1e-9);
    assert_string_equal(eval_verdict(&comp->cell[0].delta), "~");
    assert_true(comp->cell[0].binary);
    assert_int_equal(comp->cell[0].discordant.lost, 2);
    assert_int_equal(comp->cell[0].discordant.gained, 1);
    assert_near(comp->cell[0].discordant.p, 1.0, 1e-12);
    assert_near(comp->cell[0].wilson.lo, 39.68, 0.01); /* of 7 in 10 */
    assert_near(eval_cell_retention(&comp->macro), 87.5, 1e-9);
    assert_near(comp->macro.m[EVAL_M_KL], 0.5, 1e-12);
    assert_true(isnan(comp->macro.m[EVAL_M_BYTES]));
    assert_true(comp->off_target); /* 0.48 was removed, and 0.5 was asked for */
    clear(&runs, &t);
}

/* Wilson's interval of first tokens; in a mean it is of all answers together, over all tasks. */
static void test_first_tokens(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 10; i++) {
        line(512, i, 0, "full", "full", 1.0, "");
        line(512, i, 0, "snapkv", "ratio=0.5", 1.0, i < 8 ? ",\"fgt\":1" : ",\"fgt\":0");
        line_of("vt", 512, i, 0, "full", "full", 1.0, "");
        line_of("vt", 512, i, 0, "snapkv", "ratio=0.5", 1.0, ",\"fgt\":1");
    }
    read_tables(&runs, &t, false);
    const struct eval_row *full = &t.blocks[0].rows[0], *comp = &t.blocks[0].rows[1];
    assert_near(comp->cell[0].first.lo, 0.490, 5e-4); /* 8 of 10 */
    assert_near(comp->cell[0].first.hi, 0.943, 5e-4);
    assert_near(comp->cell[1].first.lo, 0.722, 5e-4); /* 10 of 10 */
    assert_near(comp->cell[1].first.hi, 1.0, 0);
    assert_near(comp->macro.m[EVAL_M_FGT], 0.9, 1e-12);
    assert_near(comp->macro.first.lo, 0.699, 5e-4); /* 18 of 20 */
    assert_near(comp->macro.first.hi, 0.972, 5e-4);
    assert_true(isnan(full->macro.first.lo));
    struct forms f = make_forms(&runs, &t, NULL);
    assert_contains(f.text.text.s, " 0.90 [0.70, 0.97]");
    clear_forms(&f);
    clear(&runs, &t);
}

/* If tasks have different numbers of answers, the share of all answers is not the mean of the tasks. Then the interval of the
 * one is not printed next to the other. */
static void test_no_interval_of_another_mean(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 20; i++) {
        line(512, i, 0, "full", "full", 1.0, ",\"fgt\":1");
        if (i < 10)
            line_of("vt", 512, i, 0, "full", "full", 0.0, ",\"fgt\":0");
    }
    read_tables(&runs, &t, true); /* a task that the full cache cannot do counts here */
    const struct eval_row *full = &t.blocks[0].rows[0];
    assert_near(full->macro.mean, 50.0, 1e-9); /* 20 of 30 answers are right */
    assert_false(full->macro.binary);
    assert_true(full->cell[0].binary);
    assert_true(isnan(full->macro.first.lo));
    assert_near(full->cell[0].first.hi, 1.0, 0);
    clear(&runs, &t);
}

/* What a cell says in counts. */
static void assert_counts(const struct eval_cell *c, const char *want)
{
    char text[EVAL_MAX_COUNTS];
    json_t *cell = eval_cell_json(c);
    assert_string_equal(eval_words_counts(text, cell), want);
    json_decref(cell);
}

/* If all differences are equal, Wilson's interval and the counts replace the interval that collapsed. */
static void test_counts_in_words(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\",\"seed\":42}");
    for (int i = 0; i < 10; i++) {
        line(512, i, 0, "full", "full", of_full[i], "");
        line(512, i, 0, "lagkv", "ratio=0.5", of_full[i], "");
        line(512, i, 0, "snapkv", "ratio=0.5", of_comp[i], "");
        line(512, i, 0, "streaming_llm", "ratio=0.5", 0.5, "");
    }
    read_tables(&runs, &t, false);
    const struct eval_row *rows = t.blocks[0].rows;
    assert_counts(&rows[0].cell[0], "Wilson [49.0, 94.3]");
    assert_counts(&rows[1].cell[0], "Wilson [49.0, 94.3], lost 0, gained 0, p = 1");
    assert_counts(&rows[2].cell[0], "Wilson [39.7, 89.2], lost 2, gained 1, p = 1");
    assert_counts(&rows[2].macro, "Wilson [39.7, 89.2], lost 2, gained 1, p = 1");
    assert_counts(&rows[3].cell[0], ""); /* neither 0 nor 1 */
    struct forms f = make_forms(&runs, &t, NULL);
    assert_contains(f.text.text.s, "(no variation)");
    assert_contains(f.text.text.s, "  Wilson [49.0, 94.3], lost 0, gained 0, p = 1\n");
    assert_lacks(f.text.text.s, "lost 2"); /* an interval that is informative is printed alone */
    clear_forms(&f);
    clear(&runs, &t);
}

/* Names of tasks that differ at their ends are not cut. */
static void test_long_names(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 6; i++)
        for (int k = 1; k <= 3; k++) {
            char task[32];
            snprintf(task, sizeof task, "niah_multikey_%d", k);
            line_of(task, 512, i, 0, "full", "full", k / 4.0, "");
        }
    read_tables(&runs, &t, false);
    struct forms f = make_forms(&runs, &t, NULL);
    assert_contains(f.text.text.s, " niah_multikey_1 niah_multikey_2 niah_multikey_3\n");
    assert_contains(f.text.text.s, "          25.0            50.0            75.0 \n");
    clear_forms(&f);
    clear(&runs, &t);
}

/* ---- From answers to an interval ---- */

/* The score of an answer of a question whose reference is "5795124". */
static double score_of(const char *answer)
{
    char ref[] = "5795124", *refs[] = {ref};
    struct eval_turn turn = {.refs = refs, .n_refs = 1};
    const struct eval_sample s = {
        .task = "niah_single_1", .metric = "string_match_all", .turns = &turn, .n_turns = 1};
    struct app_text pred = {0};
    struct eval_grade g;
    assert_true(app_text_add(&pred, answer, strlen(answer)));
    assert_true(eval_grade_trim(&pred, &s));
    assert_int_equal(eval_grade_turn(&g, &s, 0, &pred), APP_OK);
    json_decref(g.scores);
    free(pred.s);
    return g.score;
}

/* A model that knows 60 % of the answers, compared with one that knows all: of 100 runs with 100 samples at least 93 have 60 in
 * the interval of the mean, and -40 in that of the difference. */
static void test_six_of_ten(void **state)
{
    enum { RUNS = 100, SAMPLES = 100 };
    int n_mean = 0, n_delta = 0;
    (void)state;
    for (uint64_t run = 0; run < RUNS; run++) {
        struct eval_random r = eval_random_seed(run);
        struct eval_runs runs;
        struct eval_tables t;
        begin("{\"model\":\"x\",\"seed\":42}");
        for (int i = 0; i < SAMPLES; i++) {
            const bool knows = eval_random_uniform(&r) < 0.6;
            line(512, i, 0, "full", "full", score_of("It is 5795124."), "");
            line(512, i, 0, "snapkv", "ratio=0.5", score_of(knows ? "It is 5795124." : "It is 579512."), "");
        }
        read_tables(&runs, &t, false);
        const struct eval_cell *full = &t.blocks[0].rows[0].cell[0], *comp = &t.blocks[0].rows[1].cell[0];
        assert_near(full->mean, 100, 1e-9);
        assert_true(comp->binary);
        n_mean += comp->wilson.lo <= 60 && comp->wilson.hi >= 60;
        n_delta += comp->delta.over.lo <= -40 + 1e-9 && comp->delta.over.hi >= -40 - 1e-9;
        clear(&runs, &t);
    }
    assert_in_range(n_mean, 93, RUNS);
    assert_in_range(n_delta, 93, RUNS);
}

/* A method is compared on the samples that the full cache answered too; probes are not samples. */
static void test_partners_and_probes(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 8; i++)
        line(512, i, 0, "snapkv", "ratio=0.5", 0.5, "");
    for (int i = 0; i < 4; i++)
        line(512, i, 0, "full", "full", 1.0, "");
    line(512, 900000, 0, "full", "full", 0.0, "");
    line(512, 900001, 0, "full", "full", 0.25, "");
    read_tables(&runs, &t, false);
    assert_int_equal(runs.run[0].n_probes, 2);
    const struct eval_stratum *s = &t.blocks[0].strata[0];
    assert_false(s->informative); /* 12.5 points */
    assert_near(s->probes, 12.5, 1e-9);
    assert_int_equal(t.blocks[0].rows[1].cell[0].n, 4);
    assert_near(t.blocks[0].rows[1].cell[0].delta.delta, -50.0, 1e-9);
    assert_int_equal(t.blocks[0].rows[1].cell[0].delta.spread, EVAL_SPREAD_FEW);
    assert_true(isnan(t.blocks[0].rows[1].macro.mean)); /* no informative task is left */
    eval_tables_clear(&t);
    assert_int_equal(eval_tables_make(&t, &runs.run[0], true), APP_OK);
    assert_true(t.blocks[0].strata[0].informative);
    assert_near(t.blocks[0].rows[1].macro.mean, 50.0, 1e-9);
    clear(&runs, &t);
}

/* Without probes the samples themselves say what the full cache cannot do: below 10 points, with 5 answers or more. */
static void test_unsolved_without_probes(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 5; i++) {
        line_of("vt", 512, i, 0, "full", "full", 1.0, "");
        line_of("vt", 512, i, 0, "snapkv", "ratio=0.5", 0.5, "");
        line_of("cwe", 512, i, 0, "full", "full", i == 0 ? 0.4 : 0.0, ""); /* 8 points */
        line_of("cwe", 512, i, 0, "snapkv", "ratio=0.5", 0.0, "");
        line_of("fwe", 512, i, 0, "full", "full", i == 0 ? 0.5 : 0.0, ""); /* 10 points */
        line_of("fwe", 512, i, 0, "snapkv", "ratio=0.5", 0.0, "");
    }
    for (int i = 0; i < 4; i++) /* too few to tell */
        line_of("qa_syn_1", 512, i, 0, "full", "full", 0.0, "");
    read_tables(&runs, &t, false);
    const struct eval_block *b = &t.blocks[0];
    assert_int_equal(b->n_strata, 4);
    assert_int_equal(b->n_informative, 3);
    for (int32_t k = 0; k < b->n_strata; k++)
        assert_int_equal(b->strata[k].informative, strcmp(runs.run[0].tasks[b->strata[k].task], "cwe") != 0);
    assert_near(b->rows[1].macro.mean, 25.0, 1e-9); /* of vt and fwe, which snapkv answered */
    struct forms f = make_forms(&runs, &t, NULL);
    assert_contains(f.text.text.s,
                    "left out of the means: cwe at N = 512 (8.0 points on 5 of these samples)");
    clear_forms(&f);
    eval_tables_clear(&t);
    assert_int_equal(eval_tables_make(&t, &runs.run[0], true), APP_OK);
    assert_int_equal(t.blocks[0].n_informative, 4);
    clear(&runs, &t);
    /* What a model guesses without the context is not what a full cache can do. */
    begin("{\"model\":\"x\",\"closed_book\":true}");
    for (int i = 0; i < 5; i++)
        line(512, i, 0, "full", "full", 0.0, "");
    read_tables(&runs, &t, false);
    assert_int_equal(t.blocks[0].n_informative, 1);
    clear(&runs, &t);
}

/* Lengths weigh alike in the mean over all lengths, however many samples they have. */
static void test_strata_weigh_alike(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 20; i++) {
        line(512, i, 0, "full", "full", 1.0, "");
        line(512, i, 0, "snapkv", "ratio=0.5", 1.0, "");
    }
    for (int i = 0; i < 10; i++) {
        line(1024, i, 0, "full", "full", 0.8, "");
        line(1024, i, 0, "snapkv", "ratio=0.5", 0.4, "");
    }
    read_tables(&runs, &t, false);
    const struct eval_block *all = eval_tables_all(&t, "agnostic");
    assert_non_null(all);
    assert_int_equal(t.n, 3);
    assert_false(eval_block_is_extra(all));
    assert_near(all->rows[1].macro.mean, 70.0, 1e-9);
    assert_near(all->rows[1].macro.full, 90.0, 1e-9);
    assert_near(all->rows[1].macro.delta.delta, -20.0, 1e-9);
    assert_int_equal(all->rows[1].macro.n, 30);
    assert_null(eval_tables_all(&t, "aware"));
    clear(&runs, &t);
}

/* Domains have means of their own, over informative tasks and all lengths of a table. */
static void test_domains(void **state)
{
    static const struct {
        const char *task;
        double full, comp;
    } tasks[] = {{"cwe", 0.9, 0.5}, {"fwe", 0.7, 0.1}, {"vt", 1.0, 0.25}, {"niah_single_1", 1.0, 1.0}};
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 8; i++)
        for (size_t k = 0; k < sizeof tasks / sizeof *tasks; k++)
            for (int full = 0; full < 2; full++)
                fprintf(results,
                        "{\"v\":1,\"task\":\"%s\",\"N\":512,\"index\":%d,\"config\":\"%s\",\"policy\":\"%s\","
                        "\"mode\":\"agnostic\",\"size\":\"%s\",\"kv_type\":\"f16\",\"score\":%g}\n",
                        tasks[k].task, i, full ? "f" : "s", full ? "full" : "snapkv",
                        full ? "full" : "ratio=0.5", full ? tasks[k].full : tasks[k].comp);
    fprintf(
        results,
        "{\"v\":1,\"task\":\"vt\",\"N\":512,\"index\":900000,\"config\":\"f\",\"policy\":\"full\",\"mode\":"
        "\"agnostic\",\"size\":\"full\",\"kv_type\":\"f16\",\"score\":0.1}\n");
    read_tables(&runs, &t, false);
    const struct eval_block *b = &t.blocks[0];
    assert_int_equal(b->n_domains, 2); /* vt's probe failed */
    const int first = 1 + EVAL_N_ANSWERS, at = strcmp(b->groups[first].name, "needles") == 0 ? 0 : 1;
    assert_string_equal(b->groups[first + at].name, "needles");
    assert_string_equal(b->groups[first + 1 - at].name, "aggregation");
    const struct eval_cell *needles = &b->rows[1].group[first + at],
                           *aggregation = &b->rows[1].group[first + 1 - at];
    assert_near(aggregation->mean, 30.0, 1e-9);
    assert_near(aggregation->full, 80.0, 1e-9);
    assert_near(aggregation->delta.delta, -50.0, 1e-9);
    assert_int_equal(aggregation->n, 16);
    assert_near(needles->mean, 100.0, 1e-9);
    assert_near(b->rows[1].macro.mean, 100.0 * (0.5 + 0.1 + 1.0) / 3, 1e-9);
    eval_tables_clear(&t);
    assert_int_equal(eval_tables_make(&t, &runs.run[0], true), APP_OK);
    assert_int_equal(t.blocks[0].n_domains, 3);
    clear(&runs, &t);
}

/* Turns of one context are one cluster: 4 contexts are too few for an interval, for any number of turns. */
static void test_contexts_are_clusters(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 20; i++) {
        line(512, i / 5, i % 5, "full", "full", 1.0, "");
        line(512, i / 5, i % 5, "snapkv", "ratio=0.5", (double)(i % 2), "");
    }
    read_tables(&runs, &t, false);
    const struct eval_cell *c = &t.blocks[0].rows[1].cell[0];
    assert_int_equal(c->n, 20);
    assert_int_equal(c->n_clusters, 4);
    assert_int_equal(c->delta.spread, EVAL_SPREAD_FEW);
    assert_int_equal(t.blocks[0].n_clusters, 4);
    char counts[EVAL_MAX_COUNTS];
    json_t *cell = eval_cell_json(c);
    assert_contains(eval_words_counts(counts, cell), "answers of one text or context count one by one");
    json_decref(cell);
    json_t *notes = eval_notes_json(&t);
    assert_contains(json_string_value(json_array_get(notes, 0)), "The 20 answers are of 4 texts or contexts");
    assert_contains(json_string_value(json_array_get(notes, 0)), "take each answer for itself");
    assert_contains(json_string_value(json_array_get(notes, 1)), "With n = 4 texts or contexts");
    json_decref(notes);
    clear(&runs, &t);
}

/* A table holds 16 questions of a context. A note says if there are more, and they count in means. */
static void test_many_turns(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    double mean[EVAL_MAX_TURNS];
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int turn = 0; turn < 20; turn++)
        line(512, 0, turn, "full", "full", turn < 16 ? 1.0 : 0.0, "");
    read_tables(&runs, &t, false);
    const struct eval_block *all = eval_tables_all(&t, "agnostic");
    assert_int_equal(eval_turn_means(mean, &runs.run[0], all, 0, 0), 20);
    assert_int_equal(eval_turns_shown(20), EVAL_MAX_TURNS);
    assert_int_equal(eval_turns_shown(3), 3);
    assert_near(mean[15], 100.0, 0);
    assert_near(all->rows[0].macro.mean, 80.0, 1e-9);
    struct forms f = make_forms(&runs, &t, NULL);
    assert_contains(f.text.text.s, "by question (the first 16 of 20)");
    clear_forms(&f);
    clear(&runs, &t);
}

/* Lines of LongBench's sets by how long their contexts are; a mean over tasks of the bucket's lines. */
static void test_buckets(void **state)
{
    static const char *const names[] = {"0-4k", "4-8k", "8k+"};
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 18; i++) {
        char more[40];
        snprintf(more, sizeof more, ",\"bucket\":\"%s\"", names[i % 3]);
        line_of("qasper", 0, i, 0, "full", "full", 1.0, more);
        line_of("qasper", 0, i, 0, "snapkv", "ratio=0.5", 1.0 - i % 3 / 4.0, more);
    }
    for (int i = 0; i < 6; i++) { /* another set has short contexts only */
        line_of("lcc", 0, i, 0, "full", "full", 1.0, ",\"bucket\":\"0-4k\"");
        line_of("lcc", 0, i, 0, "snapkv", "ratio=0.5", 0.5, ",\"bucket\":\"0-4k\"");
    }
    read_tables(&runs, &t, false);
    const struct eval_block *b = &t.blocks[0];
    const struct eval_row *comp = &b->rows[1];
    const struct eval_cell *bucket = &comp->group[1 + EVAL_N_ANSWERS];
    assert_int_equal(b->n_domains, 2); /* QA and code */
    assert_int_equal(b->n_buckets, 3);
    bucket += b->n_domains;
    for (int k = 0; k < 3; k++)
        assert_string_equal(b->groups[1 + EVAL_N_ANSWERS + 2 + k].name, names[k]);
    assert_near(bucket[0].mean, 75.0, 1e-9); /* of 100 and 50 */
    assert_int_equal(bucket[0].n, 12);
    assert_near(bucket[0].delta.delta, -25.0, 1e-9);
    assert_near(bucket[1].mean, 75.0, 1e-9);
    assert_near(bucket[2].mean, 50.0, 1e-9);
    assert_near(bucket[2].full, 100.0, 1e-9);
    assert_near(bucket[2].delta.over.hi, -50.0 + 0.39034 * 150,
                1e-2); /* six equal ones may have missed others */
    assert_int_equal(bucket[2].n, 6);
    assert_near(comp->macro.mean, (75.0 + 50.0) / 2, 1e-9);
    struct forms f = make_forms(&runs, &t, NULL);
    assert_contains(f.csv.text.s, ",macro:0-4k,");
    assert_contains(f.csv.text.s, ",macro:8k+,");
    assert_contains(f.text.text.s, "BY WORDS OF THE CONTEXT");
    clear_forms(&f);
    clear(&runs, &t);
}

/* Samples that share a text are one cluster, with any indices; without texts each sample is one, and of older lines on a grid
 * each cell. Eight samples of two texts by hand: differences -100, -100, -100, 0 and 0, 0, 0, -100 have means -75 and -25, squares
 * between 5000 of 1 degree, within 15000 of 6, so that the correlation is (5000 - 2500) / (5000 + 3 * 2500). */
static void test_texts_are_clusters(void **state)
{
    static const double score[8] = {0, 0, 0, 1, 1, 1, 1, 0};
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 8; i++) {
        const char *text = i < 4 ? ",\"text\":\"0123456789abcdef\"" : ",\"text\":\"fedcba9876543210\"";
        line(512, i, 0, "full", "full", 1.0, text);
        line(512, i, 0, "snapkv", "ratio=0.5", score[i], text);
        line_of("passkey64", 512, i, 0, "full", "full", 1.0, ",\"depth\":0.5");
        line_of("passkey64", 512, i, 0, "snapkv", "ratio=0.5", score[i], ",\"depth\":0.5");
        line_of("vt", 512, i, 0, "full", "full", 1.0, "");
        line_of("vt", 512, i, 0, "snapkv", "ratio=0.5", score[i], "");
    }
    read_tables(&runs, &t, false);
    const struct eval_block *b = &t.blocks[0];
    for (int32_t i = 0; i < b->n_strata; i++) {
        const struct eval_cell *c = &b->rows[1].cell[i];
        const char *task = runs.run[0].tasks[b->strata[i].task];
        assert_int_equal(c->n_clusters, strcmp(task, "vt") == 0 ? 8 : strcmp(task, "passkey64") == 0 ? 1 : 2);
        if (c->n_clusters == 2)
            assert_near(c->delta.icc, 2500.0 / 12500, 1e-9);
        else
            assert_true(isnan(c->delta.icc));
    }
    clear(&runs, &t);
}

/* Tasks with short answers and with long copies have means of their own, in every form. */
static void test_answers(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 8; i++) {
        static const char *const tasks[] = {"niah_single_1", "niah_single_3", "passkey64", "gov_report"};
        static const double scores[] = {0.9, 0.3, 0.1, 0.5};
        for (int k = 0; k < 4; k++) {
            line_of(tasks[k], 512, i, 0, "full", "full", 1.0, "");
            line_of(tasks[k], 512, i, 0, "snapkv", "ratio=0.5", scores[k], "");
        }
    }
    read_tables(&runs, &t, false);
    const struct eval_cell *of = t.blocks[0].rows[1].group;
    assert_near(of[0].mean, 45.0, 1e-9);
    assert_near(of[EVAL_ANSWER_SHORT].mean, 90.0, 1e-9);
    assert_near(of[EVAL_ANSWER_COPY].mean, 20.0, 1e-9);
    assert_near(of[EVAL_ANSWER_COPY].delta.delta, -80.0, 1e-9);
    struct forms f = make_forms(&runs, &t, NULL);
    assert_contains(f.csv.text.s, ",macro:short answers,");
    assert_contains(f.csv.text.s, ",macro:long copies,");
    assert_contains(f.text.text.s, "BY ANSWER");
    assert_contains(f.text.text.s, "copies");
    clear_forms(&f);
    clear(&runs, &t);
}

/* The mean divergence has an interval: of samples with 0 and 1 in turn, of 16, between the binomial's 2.5 % ends 4/16 and 12/16. */
static void test_divergence(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 16; i++) {
        line(512, i, 0, "full", "full", 1.0, "");
        line(512, i, 0, "snapkv", "ratio=0.5", 1.0, i % 2 ? ",\"kl\":1" : ",\"kl\":0");
        line(512, i, 0, "lagkv", "ratio=0.5", 1.0, "");
    }
    read_tables(&runs, &t, false);
    const struct eval_block *b = &t.blocks[0];
    for (int32_t i = 0; i < b->n_rows; i++) {
        const struct eval_cell *c = &b->rows[i].cell[0], *macro = &b->rows[i].macro;
        if (strcmp(runs.run[0].variants[b->rows[i].variant].policy, "snapkv") != 0) {
            assert_true(isnan(c->kl.lo));
            continue;
        }
        assert_near(c->m[EVAL_M_KL], 0.5, 1e-12);
        assert_near(c->kl.lo, 4.0 / 16, 1e-9);
        assert_near(c->kl.hi, 12.0 / 16, 1e-9);
        assert_near(macro->kl.lo, 4.0 / 16, 1e-9);
    }
    struct forms f = make_forms(&runs, &t, NULL);
    assert_contains(f.text.text.s, " 0.500 [0.250, 0.750]");
    assert_contains(f.csv.text.s, "kl_lo,kl_hi");
    clear_forms(&f);
    clear(&runs, &t);
}

/* Lines without an answer count as what they are, and no mean has them. */
static void test_left_out(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 3; i++) {
        line(512, i, 0, "full", "full", 1.0, "");
        if (i == 0)
            line(512, i, 0, "lagkv", "budget=64", 0.5, "");
        else
            fprintf(results,
                    "{\"v\":1,\"task\":\"niah_single_1\",\"N\":512,\"index\":%d,\"turn\":0,\"config\":"
                    "\"lagkv-budget=64\","
                    "\"policy\":\"lagkv\",\"mode\":\"agnostic\",\"size\":\"budget=64\",\"kv_type\":\"f16\","
                    "\"left_out\":\"too few\"}\n",
                    i);
    }
    read_tables(&runs, &t, false);
    assert_int_equal(runs.run[0].n, 4);
    struct forms f = make_forms(&runs, &t, NULL);
    assert_contains(f.text.text.s,
                    "lagkv with budget=64 in mode agnostic is left out of 2 samples: too few.\n");
    clear_forms(&f);
    clear(&runs, &t);
}

/* Contrasts of run.json: one that 8 of 8 samples decide (p = 2 / 256, of three 6 / 256), one in which nothing differs, and one that
 * the run does not have, which counts too. */
static void test_primary_contrasts(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    struct eval_planned_contrast *p;
    int32_t n;
    (void)state;
    begin("{\"model\":\"x\",\"remarks\":[\"lagkv stands for "
          "LagKV.\"],\"contrasts\":[\"paper-compresskv-snapkv vs full "
          "mode=agnostic size=ratio=0.5\","
          "\"lagkv vs full mode=agnostic size=ratio=0.5 N=512\",\"h2o vs full mode=agnostic "
          "size=ratio=0.5\"]}");
    for (int i = 0; i < 8; i++) {
        line(512, i, 0, "full", "full", 1.0, "");
        line(512, i, 0, "paper-compresskv-snapkv", "ratio=0.5", 0.5 + i / 100.0, "");
        line(512, i, 0, "lagkv", "ratio=0.5", 1.0, "");
    }
    read_tables(&runs, &t, false);
    assert_int_equal(eval_planned_contrasts_make(&p, &n, &t), APP_OK);
    assert_int_equal(n, 3);
    assert_true(p[0].measured && p[1].measured && !p[2].measured);
    assert_near(p[0].versus.delta.delta, -46.5, 1e-9);
    assert_near(p[0].p, 2.0 / 256, 1e-12);
    assert_near(p[0].p_holm, 6.0 / 256, 1e-12);
    assert_string_equal(p[0].verdict, "-");
    assert_near(p[1].p_holm, 1, 0);
    assert_string_equal(p[1].verdict, "~");
    assert_string_equal(p[2].verdict, "~");
    eval_planned_contrasts_free(p, n);
    struct forms f = make_forms(&runs, &t, NULL);
    assert_contains(
        f.text.text.s,
        "paper-compresskv-snapkv minus full, agnostic, ratio=0.5, f16, all lengths: n = 8, -46.5");
    assert_contains(f.text.text.s, "p = 0.023 -");
    assert_contains(f.text.text.s, "lagkv stands for LagKV.\n");
    assert_contains(f.text.text.s, "h2o minus full, agnostic, ratio=0.5, f16, all lengths: not measured");
    assert_contains(f.text.text.s,
                    "3 primary contrasts were listed before the run; every other comparison is exploratory.");
    clear_forms(&f);
    clear(&runs, &t);
}

/* A line of a text, which has no score. */
static void line_of_text(int index, const char *policy, const char *size, double kl)
{
    fprintf(results,
            "{\"v\":1,\"task\":\"ppl\",\"N\":512,\"index\":%d,\"turn\":0,\"config\":\"%s\",\"policy\":\"%s\","
            "\"mode\":\"agnostic\",\"size\":\"%s\",\"kv_type\":\"f16\",\"stop\":\"text\",\"kl\":%.17g,"
            "\"scores\":{\"nll\":2}}\n",
            index, policy, policy, size, kl);
}

/* Contrasts of divergence: on texts too, which have no score and are no informative task; less is better. */
static void test_contrasts_of_kl(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    struct eval_planned_contrast *p;
    int32_t n;
    (void)state;
    begin("{\"model\":\"x\",\"contrasts\":[\"snapkv vs lagkv mode=agnostic size=ratio=0.5 of=kl\","
          "\"lagkv vs snapkv mode=agnostic size=ratio=0.5 of=kl\","
          "\"snapkv vs lagkv mode=agnostic size=ratio=0.5 of=score\"]}");
    for (int i = 0; i < 8; i++) {
        line_of_text(i, "full", "full", 0.0);
        line_of_text(i, "snapkv", "ratio=0.5", i < 4 ? 0.125 : 0.25);
        line_of_text(i, "lagkv", "ratio=0.5", 0.5);
    }
    read_tables(&runs, &t, false);
    assert_int_equal(eval_planned_contrasts_make(&p, &n, &t), APP_OK);
    assert_int_equal(n, 3);
    assert_true(p[0].measured && p[1].measured && !p[2].measured);
    assert_near(p[0].versus.delta.delta, -0.3125, 1e-12);
    assert_near(p[0].versus.mean_a, 0.1875, 1e-12);
    assert_near(p[0].p, 2.0 / 256, 1e-12);
    assert_string_equal(p[0].verdict, "+");
    assert_near(p[1].versus.delta.delta, 0.3125, 1e-12);
    assert_string_equal(p[1].verdict, "-");
    eval_planned_contrasts_free(p, n);
    struct forms f = make_forms(&runs, &t, NULL);
    assert_contains(f.text.text.s,
                    "snapkv minus lagkv, agnostic, ratio=0.5, f16, all lengths, KL: n = 8, -0.3125 [");
    clear_forms(&f);
    clear(&runs, &t);
}

/* One policy under two rules of eviction, which run.json names by configuration, and a contrast that names neither: the end's. */
static void test_contrasts_of_rules(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    struct eval_planned_contrast *p;
    int32_t n;
    (void)state;
    begin("{\"model\":\"x\",\"configs\":[{\"config_id\":\"whole\",\"evict\":\"end\"},{\"config_id\":"
          "\"parts\",\"evict\":"
          "\"chunk:512\",\"chunk_slack\":1.5}],\"contrasts\":[\"lagkv vs lagkv mode=agnostic size=ratio=0.5 "
          "evict=chunk:512/end\",\"lagkv vs full mode=agnostic size=ratio=0.5 evict=chunk:512\",\"lagkv vs "
          "full "
          "mode=agnostic size=ratio=0.5\",\"lagkv vs lagkv mode=agnostic size=ratio=0.5 "
          "evict=chunk:51/end\"]}");
    for (int i = 0; i < 8; i++) {
        line(512, i, 0, "full", "full", 1.0, "");
        line_by("whole", 512, i, "lagkv", "ratio=0.5", 0.75);
        line_by("parts", 512, i, "lagkv", "ratio=0.5", 0.5);
    }
    read_tables(&runs, &t, false);
    assert_int_equal(eval_planned_contrasts_make(&p, &n, &t), APP_OK);
    assert_int_equal(n, 4);
    assert_true(p[0].measured && p[1].measured && p[2].measured && !p[3].measured);
    assert_near(p[0].versus.delta.delta, -25, 1e-9);
    assert_near(p[1].versus.delta.delta, -50, 1e-9);
    assert_near(p[2].versus.delta.delta, -25, 1e-9);
    eval_planned_contrasts_free(p, n);
    struct forms f = make_forms(&runs, &t, NULL);
    assert_contains(f.text.text.s, "lagkv minus lagkv, agnostic, ratio=0.5, f16, chunk:512 and end, ");
    assert_contains(f.text.text.s, "\nlagkv minus full, agnostic, ratio=0.5");
    clear_forms(&f);
    clear(&runs, &t);
}

/* What a line of contrasts may say. */
struct contrast_row {
    const char *name;
    int rc;
};

static void test_contrast_lines(void **state)
{
    const struct contrast_row *row = *state;
    struct eval_contrast c;
    assert_int_equal(eval_contrast_read(&c, row->name, "here"), row->rc);
    if (row->rc == APP_OK) {
        assert_string_equal(c.a.policy, "lagkv:lag=128,retain=0.5");
        assert_string_equal(c.b.policy, "full");
        assert_string_equal(c.mode, "aware");
        assert_string_equal(c.a.size, "ratio=0.5");
        assert_string_equal(c.b.kv_type, "q8_0");
        assert_int_equal(c.n_target, 1024);
    }
    eval_contrast_clear(&c);
}

static const struct contrast_row contrast_lines[] = {
    {"lagkv:lag=128,retain=0.5 vs full mode=aware size=ratio=0.5 kv=q8_0 N=1024", APP_OK},
    {"snapkv vs lagkv mode=aware", APP_BAD_INPUT},
    {"snapkv vs lagkv size=own", APP_BAD_INPUT},
    {"snapkv over lagkv mode=aware size=own", APP_BAD_INPUT},
    {"snapkv vs", APP_BAD_INPUT},
    {"snapkv vs nokv mode=aware size=own", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own N=0", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own kv=", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own task=vt", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own mode=agnostic", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own size=own", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own kv=f16 kv=q8_0", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own N=512 N=1024", APP_BAD_INPUT},
    {"snapkv vs snapkv mode=aware size=own/", APP_BAD_INPUT},
    {"snapkv vs snapkv mode=aware size=own kv=f16/q8_0/q4_0", APP_BAD_INPUT},
    {"snapkv vs snapkv mode=aware size=own every=", APP_BAD_INPUT},
    {"snapkv vs snapkv mode=aware size=own every=64/", APP_BAD_INPUT},
    {"snapkv vs snapkv mode=aware size=own every=/64", APP_BAD_INPUT},
    {"snapkv vs snapkv mode=aware size=own every=64/32/16", APP_BAD_INPUT},
    {"snapkv vs snapkv mode=aware size=own every=64 every=32", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own evict=", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own evict=soon", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own evict=chunk:", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own evict=end/", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own evict=end/chunk/layer", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own of=", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own of=words", APP_BAD_INPUT},
    {"snapkv vs lagkv mode=aware size=own of=kl of=kl", APP_BAD_INPUT},
    {"lagkv:lag=128,retain=0.5 vs full mode=aware size=ratio=0.5 kv=q8_0 N=1024 of=kl", APP_OK},
};

/* Sizes, types of cache and rules of --evict-every: one for both sides, or one for each. */
static void test_contrast_sides(void **state)
{
    struct eval_contrast c;
    (void)state;
    assert_int_equal(eval_contrast_read(&c, "keydiff vs snapkv every=64:0.5:all mode=aware size=own", "here"),
                     APP_OK);
    assert_string_equal(c.a.every, "64:0.5:all");
    assert_string_equal(c.b.every, "64:0.5:all");
    assert_string_equal(c.mode, "aware");
    eval_contrast_clear(&c);
    assert_int_equal(
        eval_contrast_read(&c, "keydiff vs keydiff mode=aware every=64:0.5:all/64 size=own", "here"), APP_OK);
    assert_string_equal(c.a.every, "64:0.5:all");
    assert_string_equal(c.b.every, "64");
    assert_string_equal(c.b.size, "own");
    eval_contrast_clear(&c);
    assert_int_equal(
        eval_contrast_read(&c, "keydiff vs full mode=aware size=ratio=0.75/ratio=0.1111 kv=f16/q4_0", "here"),
        APP_OK);
    assert_string_equal(c.a.size, "ratio=0.75");
    assert_string_equal(c.b.size, "ratio=0.1111");
    assert_string_equal(c.a.kv_type, "f16");
    assert_string_equal(c.b.kv_type, "q4_0");
    eval_contrast_clear(&c);
}

/* One policy under two rules is compared answer by answer. */
static void test_contrast_of_rules(void **state)
{
    static const char info[] =
        "{\"model\":\"x\",\"configs\":[{\"config_id\":\"keydiff "
        "ratio=0.5\",\"evict\":\"end\",\"evict_every\":\"64\"},"
        "{\"config_id\":\"keydiff share\",\"evict\":\"end\",\"evict_every\":\"64:0.5:all\"}],"
        "\"contrasts\":[\"keydiff vs keydiff mode=agnostic size=ratio=0.5 every=64:0.5:all/64\","
        "\"keydiff vs keydiff mode=agnostic size=ratio=0.5 every=64/32\"]}";
    struct eval_runs runs;
    struct eval_tables t;
    struct eval_planned_contrast *p;
    int32_t n;
    (void)state;
    begin(info);
    for (int i = 0; i < 8; i++) {
        line(512, i, 0, "full", "full", 1.0, "");
        line(512, i, 0, "keydiff", "ratio=0.5", 0.25, "");
        fprintf(results,
                "{\"v\":1,\"task\":\"niah_single_1\",\"N\":512,\"index\":%d,\"config\":\"keydiff "
                "share\",\"policy\":\"keydiff\","
                "\"mode\":\"agnostic\",\"size\":\"ratio=0.5\",\"kv_type\":\"f16\",\"score\":0.75}\n",
                i);
    }
    read_tables(&runs, &t, false);
    assert_int_equal(eval_planned_contrasts_make(&p, &n, &t), APP_OK);
    assert_int_equal(n, 2);
    assert_true(p[0].measured);
    assert_near(p[0].versus.delta.delta, 50.0, 1e-9);
    assert_false(p[1].measured); /* no answer was given under the rule 32 */
    eval_planned_contrasts_free(p, n);
    struct forms f = make_forms(&runs, &t, NULL);
    assert_contains(f.text.text.s, "keydiff minus keydiff, agnostic, ratio=0.5, f16, 64:0.5:all and 64, all");
    clear_forms(&f);
    clear(&runs, &t);
}

/* Lists of contrasts: what counts once is there once. */
struct contrast_list {
    const char *name;
    size_t n; /* 0: refused */
};

static void test_contrast_lists(void **state)
{
    const struct contrast_list *list = *state;
    json_t *lines;
    assert_int_equal(eval_contrasts_lines(&lines, list->name, "here"), list->n > 0 ? APP_OK : APP_BAD_INPUT);
    if (list->n > 0)
        assert_int_equal(json_array_size(lines), list->n);
    json_decref(lines);
}

static const struct contrast_list contrast_lists[] = {
    {"# what is decided\n\nsnapkv vs lagkv mode=aware size=own\r\n  snapkv vs lagkv mode=aware size=own "
     "N=512\n",
     2},
    {"snapkv vs lagkv mode=aware size=own\nsnapkv vs lagkv mode=agnostic size=own", 2},
    {"snapkv vs snapkv mode=aware size=own every=64/32\nsnapkv vs snapkv mode=aware size=own every=64/16", 2},
    {"snapkv vs snapkv mode=aware size=own every=64/64", 0},
    {"snapkv vs snapkv mode=aware size=ratio=0.5/ratio=0.75 kv=f16/q8_0\nsnapkv vs snapkv mode=aware "
     "size=own",
     0},
    {"snapkv vs snapkv mode=aware size=ratio=0.5/ratio=0.75 kv=f16/q8_0", 1},
    {"snapkv vs snapkv mode=aware size=own every=64/32\nsnapkv vs snapkv mode=aware size=own every=32/64", 0},
    {"snapkv vs lagkv mode=aware size=own\nsnapkv vs lagkv mode=aware size=own kv=q8_0", 2},
    {"snapkv vs lagkv mode=aware size=own\nsnapkv vs lagkv mode=aware size=own", 0},
    {"snapkv vs lagkv mode=aware size=own\nlagkv vs snapkv:window=32 mode=aware size=own kv=f16", 0},
    {"snapkv vs snapkv:window=32 mode=aware size=own", 0},
    {"snapkv vs snapkv:window=32 mode=aware size=own evict=chunk", 0},
    {"snapkv vs snapkv mode=aware size=own evict=chunk:512/end\nsnapkv vs snapkv mode=aware size=own "
     "evict=end/chunk:512",
     0},
    {"snapkv vs snapkv mode=aware size=own evict=chunk:512/end\nsnapkv vs snapkv mode=aware size=own "
     "evict=chunk/end",
     2},
    {"snapkv vs lagkv mode=aware size=own evict=chunk\nsnapkv vs lagkv mode=aware size=own evict=end", 2},
};

/* A line with a score that is no number scores 0 and is counted; one without a score has other numbers only, also where it is
 * bad or there twice. */
static void test_bad_and_unscored(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    static const char form[] = "{\"v\":1,\"task\":\"%s\",\"N\":512,\"index\":%d,\"config\":\"c\",\"policy\":"
                               "\"full\",\"mode\":\"agnostic\",\"size\":\"full\",\"kv_type\":\"f16\"%s}\n";
    (void)state;
    begin("{\"model\":\"x\"}");
    fprintf(results, form, "vt", 0, ",\"score\":1");
    fprintf(results, form, "vt", 1, ",\"score\":null,\"bad\":true");
    fprintf(results, form, "ppl", 0, ",\"kl\":0.25,\"unknown\":[1,{}]");
    fprintf(results, form, "ppl", 0, ",\"kl\":0.25");
    fprintf(results, form, "ppl", 1, ",\"kl\":null,\"scores\":{\"nll\":null},\"bad\":true");
    read_tables(&runs, &t, false);
    assert_int_equal(runs.run[0].n_bad, 2);
    assert_int_equal(runs.run[0].n_twice, 1);
    assert_int_equal(t.blocks[0].n_strata, 2);
    assert_int_equal(t.blocks[0].n_informative, 1);
    assert_near(t.blocks[0].rows[0].macro.mean, 50.0, 1e-9);
    assert_false(t.blocks[0].strata[1].scored);
    assert_near(t.blocks[0].rows[0].cell[1].m[EVAL_M_KL], 0.25, 1e-12);
    clear(&runs, &t);
}

/* ---- Curves ---- */

static void test_curve(void **state)
{
    static const double r[] = {0, .1, .25, .4, .5, .6, .7, .8, .9},
                        s[] = {92, 91, 90, 86, 80, 72, 60, 41, 20};
    struct eval_runs runs;
    struct eval_tables t;
    struct eval_curve *curves;
    int32_t n;
    char size[32];
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int k = 8; k >= 0; k--)
        for (int i = 0; i < 6; i++) {
            snprintf(size, sizeof size, "ratio=%g", r[k]);
            line(512, i, 0, k == 0 ? "full" : "kvcompose", k == 0 ? "full" : size, s[k] / 100, "");
        }
    read_tables(&runs, &t, false);
    assert_true(eval_curves_make(&curves, &n, &t, eval_tables_all(&t, "agnostic")));
    assert_int_equal(n, 1);
    assert_true(curves[0].has_auc);
    assert_int_equal(curves[0].n, 9);
    assert_near(curves[0].auc, 73.9167, 1e-4);
    assert_near(curves[0].auc_rel, 80.344, 1e-3);
    assert_near(curves[0].auc_one, 66.525 + 0.1 * 20 / 2, 1e-9);
    assert_near(curves[0].tolerance[2], 0.4533, 1e-4);
    assert_near(curves[0].tolerance[3], 0.58, 1e-9);
    free(curves);
    clear(&runs, &t);
}

/* Two sizes are no curve to measure an area under, and a loss that is never reached is infinite. */
static void test_short_and_flat_curves(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    struct eval_curve *curves;
    int32_t n;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 6; i++) {
        line(512, i, 0, "full", "full", 0.5, "");
        line(512, i, 0, "snapkv", "ratio=0.25", 0.5, "");
        line(512, i, 0, "snapkv", "ratio=0.5", 0.5, "");
        line(512, i, 0, "lagkv", "ratio=0.25", 0.5, "");
        line(512, i, 0, "lagkv", "ratio=0.5", 0.5, "");
        line(512, i, 0, "lagkv", "budget=64", 0.5, ",\"ratio_ach\":0.875");
    }
    read_tables(&runs, &t, false);
    assert_true(eval_curves_make(&curves, &n, &t, eval_tables_all(&t, "agnostic")));
    assert_int_equal(n, 2);
    assert_true(curves[0].has_auc); /* lagkv: a budget is placed at its achieved ratio */
    assert_near(curves[0].r[3], 0.875, 1e-12);
    assert_near(curves[0].auc, 50.0, 1e-9);
    assert_true(isinf(curves[0].tolerance[0]));
    assert_false(curves[1].has_auc);
    assert_true(isnan(curves[1].auc));
    free(curves);
    clear(&runs, &t);
}

/* ---- Two policies, maps, limits ---- */

static void test_two_policies(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    struct eval_versus *v = NULL;
    char *names[2];
    int32_t n = 0;
    (void)state;
    /* Calibration results of one of them do not prevent the comparison. */
    begin("{\"model\":\"x\",\"configs\":[{\"config_id\":\"snapkv "
          "ratio=0.5\",\"profile\":\"61a2c5e3f2d64d51\"}]}");
    for (int i = 0; i < 10; i++) {
        line(512, i, 0, "full", "full", 1.0, "");
        line(512, i, 0, "snapkv", "ratio=0.5", of_full[i], "");
        line(512, i, 0, "snapkv", "ratio=0.75", 1.0, ""); /* no partner of the same size */
        line(512, i, 0, "lagkv", "ratio=0.5", of_comp[i], "");
    }
    read_tables(&runs, &t, false);
    assert_int_equal(eval_versus_names(names, "snapkv:window=32,lagkv"),
                     APP_OK); /* the preset's own window */
    assert_string_equal(names[0], "snapkv:window=32");
    assert_int_equal(eval_versus_make(&v, &n, &t, names), APP_OK);
    assert_int_equal(n, 1);
    assert_int_equal(v[0].n, 10);
    assert_near(v[0].mean_a, 80.0, 1e-9);
    assert_near(v[0].mean_b, 70.0, 1e-9);
    assert_near(v[0].delta.delta, 10.0, 1e-9);
    assert_near(v[0].delta.over.lo, -20.0, 1e-9);
    assert_near(v[0].delta.over.hi, 40.0, 1e-9);
    free(v);
    free(names[0]);
    free(names[1]);
    clear(&runs, &t);
}

static void test_two_names(void **state)
{
    char *names[2];
    (void)state;
    assert_int_equal(eval_versus_names(names, "snapkv:window=8,kernel=5+adakv,lagkv:sink=4,lag=128"), APP_OK);
    assert_string_equal(names[0], "snapkv:window=8,kernel=5+adakv");
    assert_string_equal(names[1], "lagkv:sink=4,lag=128");
    free(names[0]);
    free(names[1]);
    assert_int_equal(eval_versus_names(names, "snapkv"), APP_BAD_INPUT);
    assert_int_equal(eval_versus_names(names, "snapkv,"), APP_BAD_INPUT);
    assert_int_equal(eval_versus_names(names, "a,b,c"), APP_BAD_INPUT);
}

/* Two trials of a cell; the nominal depth of run.json counts, not the real place of the evidence. */
static void test_map(void **state)
{
    struct eval_runs runs;
    struct eval_map h;
    char *folders[] = {folder};
    (void)state;
    begin("{\"model\":\"x\",\"depths\":[0,50,100],\"tasks\":[{\"task\":\"passkey64\",\"n_trials\":2}]}");
    for (int n = 512; n <= 1024; n += 512)
        for (int i = 0; i < 6; i++)
            fprintf(
                results,
                "{\"v\":1,\"task\":\"passkey64\",\"N\":%d,\"index\":%d,\"config\":\"c\",\"policy\":\"full\","
                "\"mode\":\"aware_full\",\"size\":\"full\",\"kv_type\":\"f16\",\"score\":%d,\"depth\":0.3,"
                "\"protected\":%s}\n",
                n, i, n == 512 || i == 3 ? 1 : 0, i >= 4 ? "true" : "false");
    assert_int_equal(fclose(results), 0);
    assert_int_equal(eval_runs_read(&runs, folders, 1), APP_OK);
    assert_true(eval_map_make(&h, &runs.run[0], 0, 0, EVAL_M_SCORE));
    assert_int_equal(h.n_depths, 3);
    assert_int_equal(h.n_lengths, 2);
    static const double depth[] = {0, 50, 100}, value[] = {100, 0, 100, 50, 100, 0};
    for (int i = 0; i < 3; i++)
        assert_near(h.depth[i], depth[i], 0);
    for (int i = 0; i < 6; i++)
        assert_near(h.value[i], value[i], 1e-9);
    assert_ints(h.n, 2, 2, 2, 2, 2, 2);
    assert_near(h.mean, 350.0 / 6, 1e-9);
    assert_near(h.unprotected, 62.5, 1e-9); /* 5 of the 8 that are not protected */
    assert_int_equal(h.n_protected, 4);
    eval_map_clear(&h);
    eval_runs_clear(&runs);
}

static void test_map_scores(void **state)
{
    static const char *const right[] = {"score",          "contains",      "partial",
                                        "wordset_recall", "rouge1_recall", "rouge_pkg_1_r",
                                        "rouge_pkg_2_p",  "rouge_pkg",     "fgt"};
    (void)state;
    assert_int_equal(eval_map_check(NULL), APP_OK);
    assert_int_equal(eval_map_check("kl"), APP_BAD_INPUT);
    assert_int_equal(eval_map_check(""), APP_BAD_INPUT);
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        int n = 0;
        assert_int_equal(eval_map_check(right[i]), APP_OK);
        for (int k = 0; k < EVAL_N_MAP_SCORES; k++)
            n += eval_map_shows(right[i], &eval_map_scores[k]);
        assert_int_equal(n, 1);
    }
    for (int k = 0; k < EVAL_N_MAP_SCORES; k++) {
        const struct eval_map_score *s = &eval_map_scores[k];
        assert_true(eval_map_shows(eval_measure_name(s->measure), s));
        if (eval_map_shows("rouge_pkg", s)) /* as `winnow score` has it */
            assert_string_equal(eval_measure_name(s->measure), "rouge_pkg_l_f");
    }
    assert_true(eval_map_shows(NULL, &eval_map_scores[0]));
}

/* A map shows the score that was named, and a task that does not have it has no heading either. "contains" is the own
 * score of needles and a further one of keys. */
static void test_maps_of_a_named_score(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 6; i++) {
        line_of("passkey64", 512, i, 0, "full", "full", 0.0, ",\"depth\":0.5,\"scores\":{\"contains\":1}");
        line_of("niah_grid", 512, i, 0, "full", "full", 1.0,
                ",\"depth\":0.5,\"scores\":{\"rouge1_recall\":0.5,\"rouge_pkg_l_f\":0.25}");
    }
    read_tables(&runs, &t, false);
    struct forms f = make_forms(&runs, &t, "contains");
    assert_contains(f.text.text.s, "passkey64, answers that contain what was hidden");
    assert_contains(f.text.text.s, "niah_grid, answers that contain what was hidden");
    assert_contains(f.text.text.s, "full: mean 100.0 [61.0, 100.0]");
    assert_lacks(f.text.text.s, "mean 0.0");
    clear_forms(&f);
    f = make_forms(&runs, &t, "rouge1_recall");
    assert_contains(f.text.text.s, "full: mean 50.0\n");
    assert_lacks(f.text.text.s, "passkey64, ");
    clear_forms(&f);
    f = make_forms(&runs, &t, "rouge_pkg_l_f");
    assert_contains(f.text.text.s, "full: mean 25.0\n");
    clear_forms(&f);
    clear(&runs, &t);
}

/* Cells as CSV; a run without grids has none. */
static void test_maps_as_csv(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 4; i++)
        line_of("passkey64", 512 << i / 2, i, 0, "full", "full", i % 2,
                ",\"depth\":0.25,\"scores\":{\"partial\":0.5}");
    read_tables(&runs, &t, false);
    struct forms f = make_forms(&runs, &t, NULL);
    assert_string_equal(f.maps.text.s,
                        "model,mode,task,policy,size,kv_type,more,config,score,length,depth,value,n\n"
                        "x,agnostic,passkey64,full,full,f16,,full full,score,512,25,50,2\n"
                        "x,agnostic,passkey64,full,full,f16,,full full,score,1024,25,50,2\n"
                        "x,agnostic,passkey64,full,full,f16,,full full,partial,512,25,50,2\n"
                        "x,agnostic,passkey64,full,full,f16,,full full,partial,1024,25,50,2\n");
    clear_forms(&f);
    clear(&runs, &t);
    begin("{\"model\":\"x\"}");
    line(512, 0, 0, "full", "full", 1.0, ",\"depth\":0.25");
    read_tables(&runs, &t, false);
    f = make_forms(&runs, &t, NULL);
    assert_int_equal(f.maps.text.len, 0);
    clear_forms(&f);
    clear(&runs, &t);
}

/* What stood in for data of a task, without the names of tasks; of any task for means. */
static void test_stand_ins(void **state)
{
    json_t *info =
        json_pack("{s:[s,s]}", "stand_ins", "generated prose in place of essays (niah_single_2, vt)",
                  "our own lists of words in place of wonderwords (niah_single_1, niah_single_2)");
    static const char both[] =
        "generated prose in place of essays; our own lists of words in place of wonderwords";
    static const struct {
        const char *task, *want;
    } rows[] = {{"niah_single_1", "our own lists of words in place of wonderwords"},
                {"niah_single_2", both},
                {"niah_single", ""},
                {"vt", "generated prose in place of essays"},
                {NULL, both}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *text = eval_substitutes_of(json_object_get(info, "stand_ins"), rows[i].task);
        assert_string_equal(json_string_value(text), rows[i].want);
        json_decref(text);
    }
    json_decref(info);
}

struct limit_row {
    const char *name;
    int read, check;
};

static void test_limit(void **state)
{
    const struct limit_row *row = *state;
    struct eval_runs runs;
    struct eval_tables t;
    struct eval_limit limit;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 20; i++) {
        line(512, i, 0, "full", "full", 1.0, "");
        line(512, i, 0, "snapkv", "ratio=0.5", i % 10 < 7, ",\"kl\":0.3"); /* -30 [-50, -10] */
    }
    read_tables(&runs, &t, false);
    assert_int_equal(eval_limit_read(&limit, row->name), row->read);
    if (row->read == APP_OK)
        assert_int_equal(eval_limit_check(&limit, &t, 1), row->check);
    eval_limit_clear(&limit);
    clear(&runs, &t);
}

/* Fewer than six samples have no interval, so that no difference breaks a limit, however large; other numbers do. */
static void test_limit_without_interval(void **state)
{
    static const struct limit_row rows[] = {{"macro_delta<-5", APP_OK, APP_OK},
                                            {"macro_delta>-90", APP_OK, APP_OK},
                                            {"macro<71", APP_OK, EVAL_LIMIT_HIT},
                                            {"kl>0", APP_OK, APP_OK}}; /* nobody has it */
    struct eval_runs runs;
    struct eval_tables t;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 5; i++) {
        line(512, i, 0, "full", "full", 1.0, "");
        line(512, i, 0, "snapkv", "ratio=0.5", i == 0 ? 1.0 : 0.0, "");
    }
    read_tables(&runs, &t, false);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct eval_limit limit;
        assert_int_equal(eval_limit_read(&limit, rows[i].name), rows[i].read);
        assert_int_equal(eval_limit_check(&limit, &t, 1), rows[i].check);
        eval_limit_clear(&limit);
    }
    clear(&runs, &t);
}

static const struct limit_row limits[] = {
    {"macro_delta<-5@r=.5", APP_OK, EVAL_LIMIT_HIT},
    {"macro_delta<-5", APP_OK, EVAL_LIMIT_HIT},
    {"macro_delta<-20", APP_OK, APP_OK}, /* the interval reaches beyond -20 */
    {"macro_delta>-90", APP_OK, EVAL_LIMIT_HIT},
    {"macro<71", APP_OK, EVAL_LIMIT_HIT},
    {"macro<70", APP_OK, APP_OK},
    {"retention<70.1@policy=snapkv,mode=agnostic,kv=f16", APP_OK, EVAL_LIMIT_HIT},
    {"kl>0.25@N=512", APP_OK, EVAL_LIMIT_HIT},
    {"kl>0.25@N=1024", APP_OK, APP_BAD_INPUT}, /* nothing is meant */
    {"macro_delta<-5@r=.75", APP_OK, APP_BAD_INPUT},
    {"macro_delta", APP_BAD_INPUT, 0},
    {"macro_dleta<1", APP_BAD_INPUT, 0},
    {"macro<", APP_BAD_INPUT, 0},
    {"macro<nan", APP_BAD_INPUT, 0},
    {"macro<1@", APP_BAD_INPUT, 0},
    {"macro<1@size=3", APP_BAD_INPUT, 0},
    {"macro<1@r=half", APP_BAD_INPUT, 0},
};

/* ---- Winners ---- */

/* At each size the highest mean comes first, and the others by what they lose against it; the full cache takes no part. */
static void test_winners(void **state)
{
    struct eval_runs runs;
    struct eval_tables t;
    struct eval_winner *winners;
    int32_t n;
    (void)state;
    begin("{\"model\":\"x\"}");
    for (int i = 0; i < 20; i++) {
        line(512, i, 0, "full", "full", 1.0, "");
        line(512, i, 0, "snapkv", "ratio=0.5", i < 10, "");
        line(512, i, 0, "lagkv", "ratio=0.5", i < 18, "");
        line(512, i, 0, "tova", "ratio=0.5", i < 17, "");
        line(512, i, 0, "snapkv", "ratio=0.75", i < 2, "");
    }
    read_tables(&runs, &t, false);
    const struct eval_block *b = eval_tables_all(&t, "agnostic");
    assert_int_equal(eval_winners_make(&winners, &n, &t, b), APP_OK);
    assert_int_equal(n, 2);
    assert_string_equal(runs.run[0].variants[winners[0].best].policy, "lagkv");
    assert_int_equal(winners[0].n_others, 2);
    const struct eval_versus *next = &winners[0].other[0], *last = &winners[0].other[1];
    assert_string_equal(runs.run[0].variants[next->b].policy, "tova");
    assert_near(next->delta.delta, 5.0, 1e-9);
    assert_string_equal(eval_verdict(&next->delta), "~");
    assert_string_equal(runs.run[0].variants[last->b].policy, "snapkv");
    assert_near(last->delta.delta, 40.0, 1e-9);
    assert_string_equal(eval_verdict(&last->delta), "+");
    assert_string_equal(runs.run[0].variants[winners[1].best].size, "ratio=0.75");
    assert_int_equal(winners[1].n_others, 0);
    eval_winners_free(winners, n);
    clear(&runs, &t);
}

/* ---- The papers' numbers ---- */

/* Whether a recipe begins with the name of a preset. */
static bool begins_with_preset(const char *recipe)
{
    const size_t len = strcspn(recipe, ":+");
    wnw_method_info info = wnw_method_info_default();
    for (int32_t i = 0; wnw_method_get(i, &info); i++)
        if (strlen(info.name) == len && strncmp(info.name, recipe, len) == 0 && strstr(info.kind, "preset"))
            return true;
    return false;
}

/* The shipped file can be read, and winnow knows every recipe in it, and each begins with a preset: a method without a preset is a row that
 * nobody can ask for by its name. */
static void test_shipped_papers(void **state)
{
    struct eval_papers p;
    int32_t n_recipes = 0;
    (void)state;
    assert_int_equal(eval_papers_read(&p, WNW_TEST_SOURCE_DIR "/share/papers.csv"), APP_OK);
    assert_true(p.n > 600);
    for (int32_t i = 0; i < p.n; i++) {
        const char *list = p.number[i].field[EVAL_P_RECIPE];
        char recipe[EVAL_MAX_RECIPE];
        while (eval_papers_word(recipe, &list)) {
            wnw_policy *policy = NULL;
            char *shortest = NULL;
            if (wnw_policy_parse(&policy, recipe, NULL) != WNW_OK)
                fail_msg("line %d names '%s', which is no recipe", i + 2, recipe);
            if (!begins_with_preset(recipe))
                fail_msg("line %d names '%s', which begins with no preset", i + 2, recipe);
            /* Answers have the shortest recipe: it must be found where the file names a preset. */
            assert_int_equal(wnw_policy_short(policy, &shortest), WNW_OK);
            char *canonical = eval_recipe_canonical(recipe, NULL),
                 *again = eval_recipe_canonical(shortest, NULL);
            assert_string_equal(canonical, again);
            free(canonical);
            free(again);
            wnw_free(shortest);
            wnw_policy_free(policy);
            n_recipes++;
        }
    }
    assert_true(n_recipes > 600);
    eval_papers_clear(&p);
}

/* A file of one line below the heading. */
struct paper_row {
    const char *name; /* the line */
    int rc;
};

static void test_paper_lines(void **state)
{
    static const char head[] = "paper,table,note,method,column,recipe,mode,metric,task,size,value\n";
    const struct paper_row *row = *state;
    struct eval_papers p;
    char path[128];
    in_folder(path, "run.json");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%s%s", strcmp(row->name, "no head") == 0 ? "" : head, row->name);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(eval_papers_read(&p, path), row->rc);
    if (row->rc == APP_OK) {
        assert_int_equal(p.n, 1);
        assert_string_equal(p.number[0].field[EVAL_P_TABLE], "a, \"b\"");
        assert_string_equal(p.number[0].field[EVAL_P_VALUE], "50.0");
    }
    eval_papers_clear(&p);
}

#define START "P,\"a, \"\"b\"\"\",,m,c,"
static const struct paper_row paper_lines[] = {
    {START "snapkv kvpress-snapkv,agnostic,score,vt,ratio=0.5,50.0\n", APP_OK},
    {START "snapkv,known,auc_one,,,50.0\r\n", APP_OK},
    {START "\"snapkv:window=8,kernel=5\",aware,loss=0.1,,,50.0", APP_OK},
    {START "full,aware_full,score,,,50.0", APP_OK},
    {START ",,,,,50.0\n", APP_OK},
    {START "kvpress-adakv,agnostic,score,,ratio=0.5,50.0\n", APP_BAD_INPUT},
    {START ",agnostic,score,,ratio=0.5,50.0\n", APP_BAD_INPUT}, /* a counterpart of nothing */
    {START "snapkv,agnostik,score,,ratio=0.5,50.0\n", APP_BAD_INPUT},
    {START "snapkv,agnostic,,,ratio=0.5,50.0\n", APP_BAD_INPUT},
    {START "snapkv,agnostic,scores,,ratio=0.5,50.0\n", APP_BAD_INPUT},
    {START "snapkv,agnostic,loss=0.3,,,50.0\n", APP_BAD_INPUT},
    {START "snapkv,agnostic,score,,ratio=1.5,50.0\n", APP_BAD_INPUT},
    {START "snapkv,agnostic,score,,,50.0\n", APP_BAD_INPUT},
    {START "full,agnostic,score,,ratio=0.5,50.0\n", APP_BAD_INPUT},
    {START "snapkv,agnostic,score,,ratio=0.5,50.0 %\n", APP_BAD_INPUT},
    {START "snapkv,agnostic,score,,ratio=0.5,nan\n", APP_BAD_INPUT},
    {START "snapkv,agnostic,score,,ratio=0.5,50.0,1\n", APP_BAD_INPUT},
    {START "snapkv,agnostic,score,,ratio=0.5\n", APP_BAD_INPUT},
    {"P,\"a,,m,c,snapkv,agnostic,score,,ratio=0.5,50.0\n", APP_BAD_INPUT},
    {"P,\"a\"b,,m,c,snapkv,agnostic,score,,ratio=0.5,50.0\n", APP_BAD_INPUT},
    {"P,a,,m,c,snapkv,agnostic,score,,ratio=0.5,\"50.0\"\"", APP_BAD_INPUT},
    {"no head", APP_BAD_INPUT},
};

/* ---- Documents ---- */

struct escape_row {
    const char *name, *want;
};

/* Nothing of JSON in a page can end its element, and no character means anything but itself. */
static void test_page_data(void **state)
{
    const struct escape_row *row = *state;
    struct app_text t = {0};
    assert_true(app_page_data(&t, row->name));
    assert_string_equal(t.s, row->want);
    free(t.s);
}

static const struct escape_row escapes[] = {
    {"[\"plain\",1.5]", "[\"plain\",1.5]"},
    {"</script><!--", "\\u003c/script\\u003e\\u003c!--"},
    {"<", "\\u003c"},
    {"a&amp;b", "a\\u0026amp;b"},
    {"x\xe2\x80\xa8y\xe2\x80\xa9", "x\\u2028y\\u2029"},
    {"\xe2\x80\xa6\xe2\x80", "\xe2\x80\xa6\xe2\x80"},
    {"\\u0000\\\"", "\\u0000\\\""},
    {"", ""},
};

static void test_numbers(void **state)
{
    char text[EVAL_MAX_NUMBER];
    struct eval_doc d = {0};
    (void)state;
    assert_string_equal(eval_format(text, -0.04, 1), "0.0");
    assert_string_equal(eval_format(text, NAN, 1), "-");
    assert_string_equal(eval_format_signed(text, 3.25, 1), "+3.2");
    assert_string_equal(eval_format_signed(text, 0.0, 2), "0.00");
    eval_doc_csv(&d, "a,\"b\"");
    eval_doc_csv(&d, "c");
    assert_string_equal(d.text.s, "\"a,\"\"b\"\"\"c");
    eval_doc_clear(&d);
}

/* Columns of text show members of objects: numbers, intervals and what is shown where there are none; widths are of characters and not of
 * bytes, and no blanks are left where the last columns are empty. */
static void test_sheet(void **state)
{
    static const struct eval_column columns[] = {
        {"mean", "cell", "mean", .width = 6, .decimals = 1},
        {"95 %", "cell", .show = EVAL_SHOW_DELTA, .width = -16, .decimals = 1},
        {"share", .key = "fgt", .show = EVAL_SHOW_SHARE, .width = -12, .decimals = 2},
        {"second", "list", "mean", 1, EVAL_SHOW_SCORE, .width = 9, .decimals = 1, .mark = " u"},
        {"ratio", .key = "e", .show = EVAL_SHOW_ESTIMATE, .width = -1, .decimals = 2, .missing = ""},
    };
    json_t *rows = json_pack("[{s:s,s:b,s:{s:f,s:f,s:f,s:f,s:s},s:f,s:f,s:[{},{s:f,s:s}],s:[f,f,f]},"
                             "{s:s,s:{s:f,s:s},s:[f,n,n]},{s:s,s:[n,n,n]}]",
                             "name", "\xc3\xa4", "off_target", 1, "cell", "mean", 12.34, "delta", -1.0, "lo",
                             -2.0, "hi", 0.5, "spread", "ok", "fgt_lo", 0.25, "fgt_hi", 0.5, "list", "mean",
                             80.0, "verdict", "+", "e", 1.5, 1.0, 2.0, "name", "b", "cell", "delta", 0.0,
                             "spread", "few", "e", 3.0, "name", "c", "e");
    struct eval_doc d = {0};
    const struct eval_sheet sheet = {.title = "NAME",
                                     .label = "name",
                                     .width = 6,
                                     .stars = true,
                                     .rows = rows,
                                     .columns = columns,
                                     .n = sizeof columns / sizeof *columns};
    (void)state;
    assert_non_null(rows);
    eval_sheet_print(&d, &sheet);
    assert_string_equal(d.text.s,
                        "NAME     mean 95 %             share           second ratio\n"
                        "\xc3\xa4    *   12.3 [-2.0, +0.5]     [0.25, 0.50]   80.0+ u 1.50 [1.00, 2.00]\n"
                        "b           - n<6                                -  u 3.00\n"
                        "c           -                                    -  u\n");
    eval_doc_clear(&d);
    json_decref(rows);
}

/* A member is of the first object that has it. */
static void test_csv_members(void **state)
{
    static const char *const keys[] = {"a", "b", "c", "d", "e"};
    json_t *first = json_pack("{s:s,s:b,s:n}", "a", "x,y", "c", 1, "d"),
           *second = json_pack("{s:s,s:f,s:i}", "a", "z", "b", 0.1, "d", 7);
    const json_t *const objects[] = {first, second};
    struct eval_doc d = {0};
    (void)state;
    eval_csv_keys(&d, keys, 2);
    eval_csv_members(&d, keys, 5, objects, 2);
    assert_string_equal(d.text.s, "a,b,\"x,y\",0.1,1,,,");
    eval_doc_clear(&d);
    json_decref(first);
    json_decref(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_task_names),
        cmocka_unit_test(test_row),
        cmocka_unit_test(test_first_tokens),
        cmocka_unit_test(test_no_interval_of_another_mean),
        cmocka_unit_test(test_counts_in_words),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_six_of_ten),
        cmocka_unit_test(test_partners_and_probes),
        cmocka_unit_test(test_unsolved_without_probes),
        cmocka_unit_test(test_strata_weigh_alike),
        cmocka_unit_test(test_domains),
        cmocka_unit_test(test_contexts_are_clusters),
        cmocka_unit_test(test_many_turns),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_texts_are_clusters),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_primary_contrasts),
        cmocka_unit_test(test_contrasts_of_kl),
        cmocka_unit_test(test_contrast_sides),
        cmocka_unit_test(test_contrast_of_rules),
        cmocka_unit_test(test_contrasts_of_rules),
        cmocka_unit_test(test_bad_and_unscored),
        cmocka_unit_test(test_curve),
        cmocka_unit_test(test_short_and_flat_curves),
        cmocka_unit_test(test_two_policies),
        cmocka_unit_test(test_two_names),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_map_scores),
        cmocka_unit_test(test_maps_of_a_named_score),
        cmocka_unit_test(test_maps_as_csv),
        cmocka_unit_test(test_stand_ins),
        cmocka_unit_test(test_limit_without_interval),
        cmocka_unit_test(test_winners),
        cmocka_unit_test(test_shipped_papers),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_sheet),
        cmocka_unit_test(test_csv_members),
    };
    if (make_folder(NULL) != 0)
        return 1;
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL) + run_rows(test_limit, limits) +
                         run_rows(test_page_data, escapes) + run_rows(test_paper_lines, paper_lines) +
                         run_rows(test_contrast_lines, contrast_lines) +
                         run_rows(test_contrast_lists, contrast_lists);
    return remove_folder(NULL) != 0 || n_failed > 0;
}
