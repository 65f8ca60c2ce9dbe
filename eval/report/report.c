/* SPDX-License-Identifier: MIT */
/* winnow report: reads folders of results and writes every form of the report. */
#include "eval/report/report_impl.h"

#include "app/console.h"
#include "app/files.h"
#include "app/json.h"
#include "app/output.h"
#include "app/page.h"
#include "app/share.h"
#include "eval/base/grow.h"
#include "eval/results/limit.h"
#include "eval/results/map.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- From results to tables ---- */

static int make_tables(struct eval_report *r)
{
    const size_t n = (size_t)r->runs.n;
    r->tables = calloc(n + 1, sizeof *r->tables);
    r->versus = calloc(n + 1, sizeof *r->versus);
    r->n_versus = calloc(n + 1, sizeof *r->n_versus);
    r->maps = calloc(n + 1, sizeof *r->maps);
    if (!r->tables || !r->versus || !r->n_versus || !r->maps)
        return eval_no_memory("the report");
    for (size_t i = 0; r->names[0] && i < n; i++)
        WNW_TRY(eval_versus_check(&r->runs.run[i], r->names));
    for (size_t i = 0; i < n; i++) {
        WNW_TRY(eval_tables_make(&r->tables[i], &r->runs.run[i], r->args->no_gate));
        if (r->names[0])
            WNW_TRY(eval_versus_make(&r->versus[i], &r->n_versus[i], &r->tables[i], r->names));
        if (!eval_maps_make(&r->maps[i], &r->tables[i]))
            return eval_no_memory("the maps");
    }
    return APP_OK;
}

static void clear(struct eval_report *r)
{
    for (int32_t i = 0; i < r->runs.n; i++) {
        if (r->tables)
            eval_tables_clear(&r->tables[i]);
        if (r->versus)
            free(r->versus[i]);
        if (r->maps)
            eval_maps_clear(&r->maps[i]);
    }
    free(r->tables);
    free(r->versus);
    free(r->n_versus);
    free(r->maps);
    free(r->names[0]);
    free(r->names[1]);
    eval_papers_clear(&r->papers);
    eval_runs_clear(&r->runs);
}

/* ---- Files ---- */

enum form { HTML, TEXT, CSV, MAPS, N_FORMS };

/* Where the forms go; NULL: that form is not written. */
struct places {
    char *of[N_FORMS]; /* owned */
};

/* One folder gets all forms next to its results; otherwise there is the HTML file alone. */
static int find_places(struct places *p, char *const *folders, int32_t n, const char *out,
                       const struct app_inputs *inputs)
{
    static const char *const names[N_FORMS] = {"report.html", "summary.txt", "summary.csv", "maps.csv"};
    const bool in_folder = n == 1 && !out;
    int rc = APP_OK;
    for (int i = 0; rc == APP_OK && i < (in_folder ? N_FORMS : 1); i++) {
        const char *alone = out ? out : names[i];
        p->of[i] = in_folder ? app_in_folder(folders[0], names[i]) : strdup(alone);
        rc = p->of[i] ? app_out_check(p->of[i], inputs) : eval_no_memory("the report");
    }
    return rc;
}

void eval_report_inputs(struct app_inputs *inputs, char *const *folders, int32_t n)
{
    static const char *const names[] = {"results.jsonl", "results.jsonl.gz", "run.json"};
    for (int32_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++) {
            char *path = app_in_folder(folders[i], names[k]);
            app_inputs_add(inputs, path);
            free(path);
        }
}

static int read_papers(struct eval_papers *papers)
{
    char *path;
    WNW_TRY(app_share_find(&path, "papers.csv", NULL));
    const int rc = eval_papers_read(papers, path);
    free(path);
    return rc;
}

static int make_page(struct eval_doc *page, json_t *json)
{
    json_t *shown = eval_report_page_json(json);
    const int rc =
        shown ? app_page_make(&page->text, "pages/report.html", shown) : eval_no_memory("the report");
    json_decref(shown);
    return rc;
}

/* Makes all forms in memory, so that nothing is written if one cannot be made. The caller clears them in any case. */
static int make_forms(struct eval_doc forms[N_FORMS], json_t **json, const struct eval_report *r)
{
    bool complete = true;
    WNW_TRY(eval_report_json(json, r));
    WNW_TRY(make_page(&forms[HTML], *json));
    eval_report_text(&forms[TEXT], r, *json);
    eval_doc_hide_controls(&forms[TEXT]);
    eval_report_csv(&forms[CSV], *json);
    eval_report_maps(&forms[MAPS], r);
    for (int i = 0; i < N_FORMS; i++)
        complete = complete && !forms[i].no_memory;
    return complete ? APP_OK : eval_no_memory("the report");
}

static int print(const struct eval_report *r, json_t *json, const struct eval_doc *text, const char *html)
{
    if (r->args->app.json)
        return app_print_json(json_incref(json));
    fwrite(text->text.s, 1, text->text.len, stdout);
    const int rc = app_finish_stdout();
    if (rc == APP_OK)
        app_note("the report is '%s'", html);
    return rc;
}

static int write_report(struct eval_report *r, const struct places *p, const struct app_inputs *inputs)
{
    struct eval_doc forms[N_FORMS] = {{.no_memory = false}};
    json_t *json = NULL;
    int rc = make_forms(forms, &json, r);
    /* The page comes last: where it is there, the others are. A run without maps has no file of them. */
    for (int i = N_FORMS - 1; rc == APP_OK && i >= 0; i--)
        if (p->of[i] && forms[i].text.len > 0)
            rc = eval_doc_write(&forms[i], p->of[i], inputs);
    if (rc == APP_OK)
        rc = print(r, json, &forms[TEXT], p->of[HTML]);
    for (int i = 0; i < N_FORMS; i++)
        eval_doc_clear(&forms[i]);
    json_decref(json);
    return rc;
}

/* What takes long begins once the results are read and their report may be written where it is to go. */
static int read_and_write(struct eval_report *r, struct places *p, const struct eval_limit *limit,
                          char *const *folders, int32_t n)
{
    struct app_inputs inputs = {.n = 0};
    eval_report_inputs(&inputs, folders, n);
    WNW_TRY(eval_runs_read(&r->runs, folders, n));
    WNW_TRY(find_places(p, folders, n, r->out, &inputs));
    WNW_TRY(make_tables(r));
    if (r->args->fail_if)
        WNW_TRY(eval_limit_find(limit, r->tables, r->runs.n));
    WNW_TRY(read_papers(&r->papers));
    return write_report(r, p, &inputs);
}

static int make_report(struct eval_report *r, const struct eval_limit *limit, char *const *folders, int32_t n)
{
    struct places p = {{NULL}};
    const int rc = read_and_write(r, &p, limit, folders, n);
    for (int i = 0; i < N_FORMS; i++)
        free(p.of[i]);
    return rc;
}

/* ---- Entry points ---- */

/* Reads the options that are texts. The caller frees the names and clears the limit in any case. */
static int read_options(char *names[2], struct eval_limit *limit, const struct eval_args *args)
{
    names[0] = names[1] = NULL;
    *limit = (struct eval_limit){0};
    if (args->compare)
        WNW_TRY(eval_versus_names(names, args->compare));
    if (args->fail_if)
        WNW_TRY(eval_limit_read(limit, args->fail_if));
    return eval_map_check(args->niah_score);
}

int eval_report_check(const struct eval_args *args)
{
    char *names[2];
    struct eval_limit limit;
    const int rc = read_options(names, &limit, args);
    free(names[0]);
    free(names[1]);
    eval_limit_clear(&limit);
    return rc;
}

int eval_report_write(char *const *folders, int32_t n, const struct eval_args *args, const char *out)
{
    struct eval_report r = {.args = args, .out = out};
    struct eval_limit limit;
    int rc = read_options(r.names, &limit, args);
    if (rc == APP_OK)
        rc = make_report(&r, &limit, folders, n);
    if (rc == APP_OK && args->fail_if)
        rc = eval_limit_check(&limit, r.tables, r.runs.n);
    eval_limit_clear(&limit);
    clear(&r);
    return rc;
}
