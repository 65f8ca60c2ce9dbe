/* SPDX-License-Identifier: MIT */
#include "calibration/job.h"

#include "app/console.h"
#include "app/files.h"
#include "app/models.h"
#include "app/process.h"
#include "app/profiles.h"
#include "app/share.h"
#include "app/stop.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int no_memory(void)
{
    return app_fail(APP_FAILED, "out of memory");
}

/* ---- Arguments ---- */

static int parse_effort(wnw_effort *out, const char *word)
{
    if (strcmp(word, "quick") == 0)
        *out = WNW_EFFORT_QUICK;
    else if (strcmp(word, "normal") == 0)
        *out = WNW_EFFORT_NORMAL;
    else if (strcmp(word, "paper") == 0)
        *out = WNW_EFFORT_PAPER;
    else
        return app_fail(APP_BAD_INPUT, "--effort '%s' is unknown; choose quick, normal or paper", word);
    return APP_OK;
}

static int set_params(struct calibrate_job *job)
{
    const struct calibrate_args *a = job->args;
    job->params = wnw_calibrate_default_params();
    job->params.options = a->set;
    job->params.seed = (uint32_t)a->app.seed;
    job->params.n_threads = a->app.threads == APP_UNSET ? 0 : (int32_t)a->app.threads;
    const int status = wnw_kv_type_parse(&job->params.kv_type, a->app.kv_type);
    return status == WNW_OK ? parse_effort(&job->params.effort, a->effort) : app_fail_status(status);
}

/* ---- Texts ---- */

static int read_text(struct calibrate_job *job, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *data;
    size_t len;
    WNW_TRY(app_read_file(&data, &len, path));
    app_inputs_add(&job->inputs, path);
    struct app_text name = {0};
    const char *base = slash ? slash + 1 : path;
    wnw_calibration_text *grown = realloc(job->texts, (size_t)(job->n_texts + 1) * sizeof *grown);
    if (grown)
        job->texts = grown;
    if (!grown || !app_text_add_utf8(&name, base, strlen(base)) || !app_text_add(&name, "", 0)) {
        free(data);
        free(name.s);
        return no_memory();
    }
    grown[job->n_texts++] = (wnw_calibration_text){.name = name.s, .text = data, .len = len};
    return APP_OK;
}

/* A text, or all texts of a folder. */
static int read_path(struct calibrate_job *job, const char *path)
{
    struct stat st;
    char **paths = NULL;
    int n = 0;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return read_text(job, path);
    int rc = app_list_texts(&paths, &n, path);
    for (int i = 0; rc == APP_OK && i < n; i++)
        rc = read_text(job, paths[i]);
    app_free_paths(paths, n);
    return rc;
}

static int read_shipped(struct calibrate_job *job, const char *tail)
{
    char *path;
    int rc = app_share_find(&path, tail, "-f");
    if (rc == APP_OK)
        rc = read_path(job, path);
    free(path);
    return rc;
}

static int read_texts(struct calibrate_job *job)
{
    if (job->args->app.file)
        return read_path(job, job->args->app.file);
    const int rc = read_shipped(job, APP_TEXT_CALIBRATION);
    return rc == APP_OK && job->all_kinds ? read_shipped(job, APP_TEXT_KINDS) : rc;
}

/* ---- Where results go ---- */

/* Without -o profiles go to the folder in which methods look for them; it is made when it is needed. */
static int find_target(struct calibrate_job *job)
{
    const char *out = job->args->app.out;
    struct stat st;
    if (!out) {
        const int rc = app_profile_folder(&job->folder, job->model_path);
        if (rc != APP_OK)
            return rc;
    } else if (stat(out, &st) == 0 && S_ISDIR(st.st_mode)) {
        job->folder = strdup(out);
    } else {
        const int rc = app_out_check(out, &job->inputs);
        if (rc != APP_OK)
            return rc;
        job->file = strdup(out);
    }
    if ((!job->folder && !job->file) ||
        asprintf(&job->journal, "%s%s%s.journal", job->folder ? job->folder : job->file,
                 job->folder ? "/" : "", job->folder ? job->kind : "") < 0) {
        job->journal = NULL;
        return no_memory();
    }
    return APP_OK;
}

/* Checks that the outputs other than the profile are writable and are different files. */
static int check_outputs(struct calibrate_job *job)
{
    const char *paths[CALIBRATE_MAX_OUTPUTS + 2] = {job->file, job->args->map};
    int rc = APP_OK;
    for (int i = 0; job->outputs[i].name; i++)
        paths[i + 2] = job->outputs[i].path;
    for (int i = 0; rc == APP_OK && i < CALIBRATE_MAX_OUTPUTS + 2; i++) {
        if (!paths[i])
            continue;
        rc = app_out_check(paths[i], &job->inputs);
        for (int k = 0; rc == APP_OK && k < i; k++)
            if (paths[k] && app_out_same(paths[k], paths[i]))
                rc = app_fail(APP_BAD_INPUT,
                              "'%s' is named by two options, of which one would replace the other's file; "
                              "name another file",
                              paths[i]);
    }
    return rc;
}

int calibrate_job_open(struct calibrate_job *job)
{
    WNW_TRY(set_params(job));
    WNW_TRY(app_model_path(&job->model_path, job->args->app.model));
    app_inputs_add(&job->inputs, job->model_path);
    WNW_TRY(read_texts(job));
    WNW_TRY(find_target(job));
    WNW_TRY(check_outputs(job));
    return app_status_code(app_model_open(&job->model, job->model_path, NULL, NULL));
}

/* ---- The work ---- */

/* One line about how far it is. What was done before this run began does not count for the rate. */
struct watch {
    double start_ms, last_ms;
    int64_t first;
    bool started, terminal, shown;
};

static void show(struct watch *w, int64_t done, int64_t total, const char *what)
{
    const double now = app_now_ms(), spent_s = (now - w->start_ms) * 1e-3;
    if (!w->terminal || done <= w->first || spent_s < 2 || (w->shown && now - w->last_ms < 200))
        return;
    const int64_t left_s = (int64_t)(spent_s * (double)(total - done) / (double)(done - w->first));
    fprintf(stderr, "\r\033[K%.0f %%, %lld:%02lld:%02lld left, %s", 100.0 * (double)done / (double)total,
            (long long)(left_s / 3600), (long long)(left_s / 60 % 60), (long long)(left_s % 60), what);
    fflush(stderr);
    w->shown = true;
    w->last_ms = now;
}

static bool on_progress(int64_t done, int64_t total, const char *what, void *user)
{
    struct watch *w = user;
    if (!w->started || (done == 0 && !w->shown)) {
        w->started = true;
        w->first = done;
        w->start_ms = app_now_ms();
    }
    show(w, done, total, what);
    return !app_stop_asked();
}

static int failed(const struct calibrate_job *job, int status)
{
    if (status != WNW_E_CANCELLED)
        return app_fail(app_write_code(job->journal, status), "%s", wnw_last_error());
    return app_fail(APP_INTERRUPTED, "interrupted; the same command goes on from '%s'", job->journal);
}

int calibrate_job_run(struct calibrate_job *job)
{
    const char *names[CALIBRATE_MAX_OUTPUTS];
    struct watch w = {.terminal = isatty(STDERR_FILENO) == 1};
    int n = 0;
    for (int i = 0; job->outputs[i].name; i++)
        if (job->outputs[i].path)
            names[n++] = job->outputs[i].name;
    job->params.outputs = names;
    job->params.n_outputs = n;
    job->params.texts = job->texts;
    job->params.n_texts = job->n_texts;
    job->params.journal = job->journal;
    job->params.progress = on_progress;
    job->params.progress_user = &w;
    const int made = job->args->app.out ? APP_OK : app_make_folders(job->folder);
    if (made != APP_OK)
        return made;
    app_stop_watch();
    const int status = wnw_calibrate(&job->result, job->model, job->kind, &job->params);
    if (w.shown)
        fputs("\r\033[K", stderr);
    return status == WNW_OK ? APP_OK : failed(job, status);
}

/* ---- Writing ---- */

int calibrate_write(const char *path, const char *text, const struct app_inputs *inputs)
{
    struct app_out out;
    WNW_TRY(app_out_open(&out, path, inputs));
    fputs(text, out.f);
    return app_out_commit(&out);
}

static int write_profile(const struct calibrate_job *job, const char *name, const char *text)
{
    char *path = NULL;
    if (job->file)
        return calibrate_write(job->file, text, &job->inputs);
    if (asprintf(&path, "%s/%s", job->folder, name) < 0)
        return no_memory();
    const int rc = calibrate_write(path, text, &job->inputs);
    if (rc == APP_OK)
        app_note("wrote %s", path);
    free(path);
    return rc;
}

int calibrate_job_write(struct calibrate_job *job)
{
    const char *name, *text;
    int rc = APP_OK;
    for (int i = 0; rc == APP_OK && job->outputs[i].name; i++) {
        text = wnw_calibration_output(job->result, job->outputs[i].name);
        if (job->outputs[i].path && text)
            rc = calibrate_write(job->outputs[i].path, text, &job->inputs);
    }
    for (int32_t i = 0; rc == APP_OK && (text = wnw_calibration_profile(job->result, i, &name)); i++)
        rc = job->file && i > 0 ? app_fail(APP_BAD_INPUT,
                                           "there are several profiles to write, and '%s' is "
                                           "one file; name a folder with -o",
                                           job->file)
                                : write_profile(job, name, text);
    if (rc != APP_OK)
        return rc;
    unlink(job->journal);
    text = wnw_calibration_output(job->result, "report");
    fputs(text ? text : "", stdout);
    return app_finish_stdout();
}

void calibrate_job_close(struct calibrate_job *job)
{
    for (int32_t i = 0; i < job->n_texts; i++) {
        free((char *)job->texts[i].name);
        free((char *)job->texts[i].text);
    }
    free(job->texts);
    wnw_calibration_free(job->result);
    wnw_model_free(job->model);
    free(job->model_path);
    free(job->folder);
    free(job->file);
    free(job->journal);
}

int calibrate_job(struct calibrate_job *job)
{
    int rc = calibrate_job_open(job);
    if (rc == APP_OK)
        rc = calibrate_job_run(job);
    if (rc == APP_OK)
        rc = calibrate_job_write(job);
    calibrate_job_close(job);
    return rc;
}
