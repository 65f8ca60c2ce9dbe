/* SPDX-License-Identifier: MIT */
/* winnow eval: the list of tasks, and their samples. */
#include "app/console.h"
#include "eval/args.h"
#include "eval/commands.h"
#include "eval/metric.h"
#include "eval/setup.h"

#include <stdio.h>
#include <stdlib.h>

static int print_list(void)
{
    const struct eval_task *t;
    const struct eval_metric *m;
    const struct eval_set *set;
    printf("%-24s %-9s %-18s %6s %6s  %s\n", "TASK", "GROUP", "METRIC", "ANSWER", "LEAST", "WHAT");
    for (int32_t i = 0; (t = eval_task_get(i)); i++)
        printf("%-24s %-9s %-18s %6d %6d  %s\n", t->name, t->group, t->metric, t->max_new, t->least,
               t->about);
    for (int32_t i = 0; (set = eval_set_get(i)); i++)
        printf("%-24s %-9s %-18s %6d %6s  %s\n", set->name, set->group, set->metric, set->max_new, "-",
               set->about);
    puts("\nANSWER: tokens that are generated at most; LEAST: shortest useful length in tokens. A group in "
         "--tasks means all "
         "of its\ntasks; qa_syn_1 and qa_syn_2 stand in for qa_1 and qa_2 where --squad and --hotpot are not "
         "given.\n");
    printf("%-24s %s\n", "METRIC", "WHAT");
    for (int32_t i = 0; (m = eval_metric_get(i)); i++)
        printf("%-24s %s\n", m->name, m->about);
    return app_finish_stdout();
}

static int print_sample(const struct eval_sample *s)
{
    json_t *o = eval_sample_json(s);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    int rc = text ? APP_OK : app_fail(APP_FAILED, "out of memory for a sample");
    if (text && (puts(text) == EOF || ferror(stdout)))
        rc = app_stdout_failed();
    free(text);
    json_decref(o);
    return rc;
}

/* Prints the samples of a file, as many as the options ask for. */
static int dump_set(const struct eval_setup *s, const struct eval_set *set)
{
    struct eval_set_reader r;
    bool more = true;
    int rc = eval_setup_open_set(&r, s, set);
    for (int64_t i = 0; rc == APP_OK && more && i < s->args->samples; i++) {
        struct eval_sample sample;
        rc = eval_set_next(&r, &sample, &more);
        if (rc == APP_OK && more)
            rc = print_sample(&sample);
        eval_sample_clear(&sample);
    }
    eval_set_close(&r);
    return rc;
}

static int dump_samples(struct eval_setup *s)
{
    struct eval_fit *fits = calloc((size_t)s->n_tasks * (size_t)s->n_lengths, sizeof *fits), *fit = fits;
    int rc = fits ? APP_OK : app_fail(APP_FAILED, "out of memory");
    /* Every length is tried before the first line is printed, so that an error is one line and nothing
     * else. */
    for (int32_t t = 0; t < s->n_tasks; t++)
        for (int32_t l = 0; rc == APP_OK && l < s->n_lengths; l++)
            rc = eval_task_fit(fit++, &s->world, s->tasks[t], s->lengths[l]);
    fit = fits;
    for (int32_t t = 0; t < s->n_tasks; t++)
        for (int32_t l = 0; rc == APP_OK && l < s->n_lengths; l++, fit++)
            for (int32_t i = 0; rc == APP_OK && i < eval_setup_n_samples(s, s->tasks[t]); i++) {
                struct eval_sample sample;
                rc = eval_task_sample(&sample, &s->world, s->tasks[t], fit, s->lengths[l], i);
                if (rc == APP_OK)
                    rc = print_sample(&sample);
                eval_sample_clear(&sample);
            }
    free(fits);
    for (int32_t i = 0; rc == APP_OK && i < s->n_sets; i++)
        rc = dump_set(s, s->sets[i]);
    return rc == APP_OK ? app_finish_stdout() : rc;
}

int eval_run(const struct app_args *app)
{
    const struct eval_args *args = (const struct eval_args *)app;
    struct eval_setup setup;
    if (args->list == args->dump)
        return app_fail(APP_BAD_INPUT, "give one of --list and --dump-samples");
    if (args->list)
        return print_list();
    int rc = eval_setup_open(&setup, args);
    if (rc == APP_OK)
        rc = dump_samples(&setup);
    eval_setup_close(&setup);
    return rc;
}
