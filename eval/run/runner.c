/* SPDX-License-Identifier: MIT */
/*
 * The loop of a run. It takes sample 0 of every task, then sample 1 of every task, and so on. So an interrupted run has equally
 * many samples of each task.
 */
#include "eval/run/runner.h"

#include "app/console.h"
#include "app/stop.h"
#include "eval/base/grow.h"
#include "eval/run/devices.h"
#include "eval/run/manifest.h"
#include "winnow_tools.h"

int eval_run_open_folder(struct eval_run *run, json_t *description)
{
    return eval_manifest_open(&run->journal, run->args->app.out, description);
}

void eval_run_close(struct eval_run *run)
{
    eval_journal_close(&run->journal);
    eval_devices_close(run->runtime.devices);
    eval_runtime_close(&run->runtime);
    eval_configs_close(&run->configs);
    eval_setup_close(&run->setup);
}

int eval_run_add(struct eval_run *run, const json_t *record)
{
    const int status = wnw_model_check_files(run->setup.model);
    const int rc = status == WNW_OK ? eval_journal_add(&run->journal, record) : app_fail_status(status);
    run->n_written += rc == APP_OK;
    return rc;
}

/* ---- The loop ---- */

struct visit {
    struct eval_run *run;
    const struct eval_run_kind *kind;
};

static int count(void *user, struct eval_item *item, int32_t index)
{
    struct eval_run *run = ((struct visit *)user)->run;
    run->progress.n_all++;
    run->progress.work_all += eval_pace_cost(&run->pace, item, index);
    return APP_OK;
}

static int visit(void *user, struct eval_item *item, int32_t index)
{
    const struct visit *v = user;
    struct eval_progress *p = &v->run->progress;
    const double work = eval_pace_cost(&v->run->pace, item, index);
    bool ran = true;
    if (app_stop_asked())
        return APP_INTERRUPTED;
    const int rc = v->kind->visit(v->run, &ran, item, index);
    p->work_ran += ran ? work : 0;
    p->n_done++;
    p->work_done += work;
    return rc;
}

/* Says what was done, and makes of the folder what is to be made of it. */
static int finish(struct eval_run *run, const struct eval_run_kind *kind, bool interrupted)
{
    const size_t n = json_object_size(run->journal.keys);
    if (interrupted)
        app_note("interrupted; the same command goes on");
    if (!run->args->quiet)
        app_note("%zu %s in %s; %lld are new", n, kind->records, run->args->app.out,
                 (long long)run->n_written);
    return n > 0 ? kind->finish(run) : APP_OK;
}

int eval_run_all(struct eval_run *run, const struct eval_run_kind *kind, struct eval_items *items)
{
    struct visit v = {run, kind};
    app_stop_watch();
    (void)eval_shard_each(&run->shard, items, count, &v);
    eval_progress_start(&run->progress, run->args->quiet);
    const int rc = eval_shard_each(&run->shard, items, visit, &v);
    eval_progress_end(&run->progress);
    app_stop_unwatch();
    if (rc != APP_OK && rc != APP_INTERRUPTED)
        return rc;
    const int checked = kind->check ? kind->check(run) : APP_OK;
    if (rc == APP_OK && checked != APP_OK)
        return checked;
    const int finished = finish(run, kind, rc == APP_INTERRUPTED);
    return rc == APP_OK ? finished : rc;
}
