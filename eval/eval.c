/* SPDX-License-Identifier: MIT */
/* winnow eval: the list of tasks, and their samples. */
#include "app/console.h"
#include "app/json.h"
#include "app/models.h"
#include "eval/args.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"
#include "eval/commands.h"
#include "eval/metrics/metric.h"
#include "eval/report/report.h"
#include "eval/results/versus.h"
#include "eval/run/run_tasks.h"
#include "eval/run/setup.h"
#include "perturb/perturb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *data_of(const struct eval_task *t)
{
    if (t->flags & EVAL_STANDS_IN)
        return "stand-in";
    if (t->flags & (EVAL_WANTS_SQUAD | EVAL_WANTS_HOTPOT | EVAL_WANTS_DOCUMENTS | EVAL_IS_SET))
        return "file";
    if (t->flags & EVAL_HIDES_IN_TEXT)
        return "prose";
    return t->flags & EVAL_OWN_WORDS ? "words" : "generated";
}

static void print_tasks(void)
{
    const struct eval_task *t;
    printf("%-24s %-9s %-18s %6s %6s %-9s %s\n", "TASK", "GROUP", "METRIC", "ANSWER", "LEAST", "DATA",
           "WHAT");
    for (int32_t i = 0; (t = eval_task_get(i)); i++) {
        char least[16] = "-";
        if (t->least > 0)
            snprintf(least, sizeof least, "%d", (int)t->least);
        printf("%-24s %-9s %-18s %6d %6s %-9s %s\n", t->name, t->group, t->metric, (int)t->max_new, least,
               data_of(t), t->about);
    }
    printf("%-24s %-9s %-18s %6s %6d %-9s %s\n", eval_task_text.name, eval_task_text.group, "nll, kl", "-", 2,
           "file", "the second half of pieces of a text (--text), after the compressed first half");
    puts("\nANSWER: tokens that are generated at most; LEAST: shortest useful length in tokens; DATA: "
         "generated as in "
         "the benchmark,\nthe same with words of our own lists (words; tasks with prose have them, too), "
         "hidden in "
         "generated prose where the\nbenchmark has essays (prose, unless --haystack names texts), a "
         "stand-in for the benchmark's own data, or a file of yours.\nA group in --tasks means all of its "
         "tasks; qa_syn_1 and qa_syn_2 stand in for qa_1 and qa_2 where --squad and --hotpot are not "
         "given.\n");
}

static int print_list(const struct eval_suites *all)
{
    const struct eval_metric *m;
    print_tasks();
    printf("%-24s %s\n", "SUITE", "WHAT");
    for (int32_t i = 0; i < all->n; i++)
        if (!all->items[i].study)
            printf("%-24s %s\n", all->items[i].name, all->items[i].about);
    printf("\n%-24s %-18s %s\n", "STUDY", "LENGTHS", "WHAT");
    for (int32_t i = 0; i < all->n; i++)
        if (all->items[i].study)
            printf("%-24s %-18s %s\n", all->items[i].name,
                   all->items[i].perturbs ? "the text's" : all->items[i].lengths, all->items[i].about);
    printf("\n%-24s %s\n", "METRIC", "WHAT");
    for (int32_t i = 0; (m = eval_metric_get(i)); i++)
        printf("%-24s %s\n", m->name, m->about);
    return app_finish_stdout();
}

static int print_sample(const struct eval_sample *s)
{
    json_t *o = eval_sample_json(s);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    int rc = text ? APP_OK : eval_no_memory("a sample");
    if (text) {
        app_put_json(text);
        putchar('\n');
    }
    if (text && ferror(stdout))
        rc = app_stdout_failed();
    free(text);
    json_decref(o);
    return rc;
}

/* Prints sample k of an item; *more becomes false if there is none. */
static int dump_sample(struct eval_setup *s, struct eval_item *item, int32_t k, bool *more, int64_t *n_unmade)
{
    struct eval_sample sample;
    int rc = eval_setup_sample(&sample, more, s, item, k);
    *n_unmade += rc == APP_OK && sample.unmade;
    if (rc == APP_OK && *more && !sample.unmade)
        rc = print_sample(&sample);
    eval_sample_clear(&sample);
    return rc;
}

static int dump_samples(struct eval_setup *s)
{
    /* Every length is tried before the first line is printed, so that an error is one line and nothing
     * else. */
    int64_t n_unmade = 0;
    WNW_TRY(eval_setup_fit(s));
    for (int32_t i = 0; i < s->items.n; i++) {
        struct eval_item *item = &s->items.items[i];
        bool more = true;
        for (int32_t k = 0; more && k < item->n; k++)
            WNW_TRY(dump_sample(s, item, k, &more, &n_unmade));
    }
    if (n_unmade > 0)
        app_note("%lld samples were left out: " EVAL_WHY_UNMADE, (long long)n_unmade);
    return app_finish_stdout();
}

static int print_samples(const struct eval_args *args, const struct eval_suite *suite)
{
    struct eval_setup setup;
    if (suite && suite->perturbs)
        return app_fail(APP_BAD_INPUT, "--study %s has no samples to print; run it with --out", suite->name);
    int rc = eval_setup_open(&setup, args, suite);
    if (rc == APP_OK)
        rc = dump_samples(&setup);
    eval_setup_close(&setup);
    return rc;
}

/* The folder of a run that names none: eval-MODEL-TIME. The caller frees it; NULL if memory runs out. */
static char *folder_now(const char *model)
{
    const time_t now = time(NULL);
    struct tm utc;
    char when[32], *path = NULL, *name = app_model_short(model);
    if (!name || !gmtime_r(&now, &utc) || strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &utc) == 0 ||
        asprintf(&path, "eval-%s-%s", name, when) < 0)
        path = NULL;
    free(name);
    return path;
}

/* Both policies of --compare must be there when the run ends. */
static int check_compared(const struct eval_args *args, const struct eval_configs *configs)
{
    char *names[2];
    if (!args->compare)
        return APP_OK;
    int rc = eval_versus_names(names, args->compare);
    for (int i = 0; rc == APP_OK && i < 2; i++)
        if (!eval_configs_have(configs, names[i]))
            rc = app_fail(APP_BAD_INPUT,
                          "--compare: this run has no policy '%.200s'; name two of "
                          "those that it compares",
                          names[i]);
    free(names[0]);
    free(names[1]);
    return rc;
}

static int check_report(const struct eval_args *args, const struct eval_configs *configs)
{
    WNW_TRY(eval_report_check(args));
    return check_compared(args, configs);
}

static int write_report(const struct eval_args *args)
{
    return eval_report_write(&args->app.out, 1, args, NULL);
}

/* Runs a suite, a study or what the options name, in the folder that they name or a new one. */
static int run(struct eval_args *args, const struct eval_suite *suite)
{
    if (suite && suite->perturbs && args->app.devices)
        return app_fail(APP_BAD_INPUT,
                        "--study %s measures heads of sessions on the CPU; leave out --devices", suite->name);
    static const struct eval_run_report report = {.check = check_report, .write = write_report};
    char *folder = args->app.out ? NULL : folder_now(args->app.model);
    args->app.out = folder ? folder : args->app.out;
    int rc;
    if (!args->app.out)
        rc = eval_no_memory("the folder's name");
    else
        rc = suite && suite->perturbs ? perturb_run(args, suite) : eval_run_tasks(args, suite, &report);
    free(folder);
    return rc;
}

int eval_run(const struct app_args *app)
{
    struct eval_args args = *(const struct eval_args *)app;
    const struct eval_suite *suite = NULL;
    struct eval_suites all;
    if (args.list + args.dump + (args.app.out != NULL) > 1)
        return app_fail(APP_BAD_INPUT,
                        "--list, --dump-samples and --out exclude each other; give one of them");
    int rc = eval_suites_open(&all);
    if (rc == APP_OK && args.list)
        rc = print_list(&all);
    else if (rc == APP_OK && (rc = eval_suite_choose(&suite, &all, &args)) == APP_OK)
        rc = args.dump ? print_samples(&args, suite) : run(&args, suite);
    eval_suites_close(&all);
    return rc;
}

int eval_run_report(const struct app_args *app)
{
    const struct eval_args *args = (const struct eval_args *)app;
    if (app->n_rest == 0)
        return app_fail(APP_BAD_INPUT, "no folder; name the folder that `winnow eval --out` wrote");
    if (app->n_rest == 1 && perturb_is_study(app->rest[0]))
        return perturb_report(app->rest[0], args, app->out);
    return eval_report_write(app->rest, app->n_rest, args, app->out);
}
