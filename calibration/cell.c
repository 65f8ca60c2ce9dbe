/* SPDX-License-Identifier: MIT */
/*
 * A prompt is read once with the full cache: that gives entropy, perplexity and the cell of the table. What the cell's
 * thresholds keep at a budget is counted from the same reading, for any number of budgets.
 */
#include "calibration/cell.h"

#include "app/console.h"
#include "app/json.h"
#include "app/stop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A prompt, and what the thresholds do to it. */
struct prompt {
    int32_t text, first, length;
    wnw_risk_cell cell;
    wnw_risk_size *size; /* [n_sizes of cells] */
};

struct cells {
    const struct calibrate_job *job;
    const struct calibrate_cells *what;
    wnw_model_info info;
    wnw_profile *profile;
    int32_t n_sizes;
    struct prompt *prompts;
    int32_t n_prompts;
    struct app_progress progress;
};

static int no_memory(void)
{
    return app_fail(APP_FAILED, "out of memory");
}

static int open_profile(struct cells *c)
{
    const char *path = c->what->path;
    if (access(path, R_OK) != 0)
        return app_fail(app_errno_code(errno), "cannot read '%s': %s", path, strerror(errno));
    int status = wnw_profile_new(&c->profile, c->job->model);
    if (status == WNW_OK)
        status = wnw_profile_add_file(c->profile, path);
    if (status != WNW_OK)
        return app_fail_status(status);
    if (!(wnw_profile_kinds(c->profile) >> WNW_PROFILE_COMPILER & 1u))
        return app_fail(APP_BAD_INPUT, "'%s' is no profile of kind compiler", path);
    return APP_OK;
}

/* ---- Reading ---- */

static int read_size(struct cells *c, wnw_risk *risk, int32_t i, wnw_risk_size *out)
{
    *out = wnw_risk_size_default();
    const int status = wnw_risk_get_size(risk, c->what->n_budgets > 0 ? c->what->budgets[i] : 0, out);
    return status == WNW_OK ? APP_OK : app_fail_status(status);
}

static int read_prompt(struct cells *c, const int32_t *tokens, const struct prompt *place)
{
    wnw_risk_params params = wnw_risk_default_params();
    struct prompt *p = &c->prompts[c->n_prompts];
    wnw_risk *risk;
    *p = *place;
    p->cell = wnw_risk_cell_default();
    p->size = calloc((size_t)c->n_sizes, sizeof *p->size);
    if (!p->size)
        return no_memory();
    c->n_prompts++; /* from here on it is released with the others */
    params.profile = c->profile;
    params.kv_type = c->job->params.kv_type;
    params.n_threads = c->job->params.n_threads;
    int status = wnw_risk_read(&risk, c->job->model, tokens + p->first, p->length, &params);
    if (status != WNW_OK)
        return app_fail_status(status);
    status = wnw_risk_get_cell(risk, &p->cell);
    int rc = status == WNW_OK ? APP_OK : app_fail_status(status);
    for (int32_t i = 0; rc == APP_OK && i < c->n_sizes; i++)
        rc = read_size(c, risk, i, &p->size[i]);
    wnw_risk_free(risk);
    return rc;
}

/* Reads the pieces of one length; n_tokens of the text. */
static int read_length(struct cells *c, int32_t text, const int32_t *tokens, int32_t n_tokens, int32_t length)
{
    const int32_t n = c->what->n_pieces;
    int rc = APP_OK;
    if ((int64_t)length * n > n_tokens)
        return app_fail(
            APP_BAD_INPUT,
            "'%s' has %d tokens; %d pieces of %d need %lld: give a longer text, fewer --pieces or "
            "shorter --lengths",
            c->job->texts[text].name, (int)n_tokens, (int)n, (int)length, (long long)length * n);
    for (int32_t i = 0; rc == APP_OK && i < n; i++) {
        const struct prompt place = {
            .text = text,
            .first = (int32_t)((int64_t)(n_tokens - length) * i / (n > 1 ? n - 1 : 1)),
            .length = length,
        };
        rc = read_prompt(c, tokens, &place);
        app_progress_step(c->n_prompts,
                          n * c->job->n_texts * (c->what->n_lengths > 0 ? c->what->n_lengths : 1),
                          &c->progress);
        if (rc == APP_OK && app_stop_asked())
            return APP_INTERRUPTED;
    }
    return rc;
}

/* Without --lengths: the whole text, or as much as the context and the number of pieces let it be. */
static int32_t whole(const struct cells *c, int32_t text, int32_t n_tokens)
{
    const int32_t part = n_tokens / c->what->n_pieces;
    if (part <= c->info.n_ctx_train)
        return part;
    app_note("warning: '%s' is longer than the context: prompts have %d tokens", c->job->texts[text].name,
             (int)c->info.n_ctx_train);
    return c->info.n_ctx_train;
}

static int read_text(struct cells *c, int32_t text)
{
    const wnw_calibration_text *t = &c->job->texts[text];
    int32_t *tokens = NULL, n = 0;
    const int status = wnw_tokenize(c->job->model, t->text, t->len, true, false, &tokens, &n);
    int rc = status == WNW_OK ? APP_OK : app_fail_status(status);
    if (rc == APP_OK && c->what->n_lengths == 0)
        rc = read_length(c, text, tokens, n, whole(c, text, n));
    for (int32_t i = 0; rc == APP_OK && i < c->what->n_lengths; i++)
        rc = read_length(c, text, tokens, n, c->what->lengths[i]);
    wnw_free(tokens);
    return rc;
}

static int read_all(struct cells *c)
{
    int rc = APP_OK;
    app_progress_start(&c->progress, "reading", "prompts");
    app_stop_watch();
    for (int32_t i = 0; rc == APP_OK && i < c->job->n_texts; i++)
        rc = read_text(c, i);
    app_progress_end(&c->progress);
    return rc == APP_INTERRUPTED ? app_fail(APP_INTERRUPTED, "interrupted") : rc;
}

/* ---- How often the thresholds bind ---- */

/* One length and budget, over all prompts that have them. */
struct share {
    int32_t length, n;
    wnw_risk_size size;     /* of one of them */
    double clear, kept;     /* means */
    double layers, prompts; /* share of layers where a threshold binds; share of prompts with such a layer */
};

/* Sums prompt p up with those of its length; false if an earlier prompt has begun that. */
static bool sum_up(const struct cells *c, int32_t p, int32_t i, struct share *out)
{
    const int32_t length = c->prompts[p].length;
    *out = (struct share){.length = length, .size = c->prompts[p].size[i]};
    for (int32_t k = 0; k < p; k++)
        if (c->prompts[k].length == length)
            return false;
    for (int32_t k = p; k < c->n_prompts; k++)
        out->n += c->prompts[k].length == length;
    for (int32_t k = p; k < c->n_prompts; k++) {
        const wnw_risk_size *s = &c->prompts[k].size[i];
        if (c->prompts[k].length != length)
            continue;
        out->clear += s->clear / out->n;
        out->kept += s->kept / out->n;
        out->layers += (double)s->n_bound / s->n_layer / out->n;
        out->prompts += (double)(s->n_bound > 0) / out->n;
    }
    return true;
}

/* ---- The result ---- */

static json_t *prompt_json(const struct cells *c, const struct prompt *p)
{
    return json_pack("{s:o, s:i, s:i, s:i, s:f, s:f, s:i, s:i, s:i, s:i, s:f, s:f, s:f}", "text",
                     app_json_text(c->job->texts[p->text].name), "first", (int)p->first, "tokens",
                     (int)p->length, "window", (int)p->cell.window, "entropy", p->cell.entropy, "perplexity",
                     p->cell.perplexity, "entropy_bin", (int)p->cell.entropy_bin, "entropy_bins",
                     (int)p->cell.n_entropy, "ppl_bin", (int)p->cell.ppl_bin, "ppl_bins", (int)p->cell.n_ppl,
                     "tau_least", p->cell.least_tau, "tau_mean", p->cell.mean_tau, "tau_most",
                     p->cell.most_tau);
}

static int print_json(const struct cells *c)
{
    json_t *prompts = json_array(), *sizes = json_array();
    for (int32_t p = 0; p < c->n_prompts; p++)
        app_json_append(&prompts, prompt_json(c, &c->prompts[p]));
    for (int32_t p = 0; p < c->n_prompts; p++)
        for (int32_t i = 0; i < c->n_sizes; i++) {
            struct share s;
            if (sum_up(c, p, i, &s))
                app_json_append(&sizes,
                                json_pack("{s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f}", "tokens", (int)s.length,
                                          "budget", (int)s.size.budget, "room", (int)s.size.room, "prompts",
                                          (int)s.n, "clear", s.clear, "kept", s.kept, "bound_layers",
                                          s.layers, "bound_prompts", s.prompts));
        }
    return app_print_json(json_pack("{s:o, s:o}", "prompts", prompts, "sizes", sizes));
}

static int print_text(const struct cells *c)
{
    printf("%-20s %8s %7s %8s %11s %13s %18s\n", "text", "from", "tokens", "entropy", "perplexity", "cell",
           "thresholds");
    for (int32_t k = 0; k < c->n_prompts; k++) {
        const struct prompt *p = &c->prompts[k];
        printf("%-20s %8d %7d %8.3f %11.2f %2d/%-3d %2d/%-3d %5.2f (%.2f to %.2f)\n",
               c->job->texts[p->text].name, (int)p->first, (int)p->length, p->cell.entropy,
               p->cell.perplexity, (int)p->cell.entropy_bin + 1, (int)p->cell.n_entropy,
               (int)p->cell.ppl_bin + 1, (int)p->cell.n_ppl, p->cell.mean_tau, p->cell.least_tau,
               p->cell.most_tau);
    }
    printf("\ncell: bin of entropy, bin of perplexity, 1 = the lowest; thresholds: mean over the layers "
           "(range)\n\n"
           "%7s %7s %6s %9s %9s %13s %14s\n",
           "tokens", "budget", "room", "clear it", "kept", "bind: layers", "bind: prompts");
    for (int32_t p = 0; p < c->n_prompts; p++)
        for (int32_t i = 0; i < c->n_sizes; i++) {
            struct share s;
            if (sum_up(c, p, i, &s))
                printf("%7d %7d %6d %9.1f %9.1f %11.0f %% %9.0f %% of %d\n", (int)s.length,
                       (int)s.size.budget, (int)s.size.room, s.clear, s.kept, 100 * s.layers, 100 * s.prompts,
                       (int)s.n);
        }
    printf("\nThresholds bind in a layer that they make keep another number of entries than the budget.\n");
    return app_finish_stdout();
}

int calibrate_cell(const struct calibrate_job *job, const struct calibrate_cells *what)
{
    struct cells c = {.job = job,
                      .what = what,
                      .info = wnw_model_info_default(),
                      .n_sizes = what->n_budgets > 0 ? what->n_budgets : 1};
    const int status = wnw_model_get_info(job->model, &c.info);
    const int64_t n = (int64_t)job->n_texts * what->n_pieces * (what->n_lengths > 0 ? what->n_lengths : 1);
    int rc = status == WNW_OK ? open_profile(&c) : app_fail_status(status);
    c.prompts = calloc((size_t)n, sizeof *c.prompts);
    if (rc == APP_OK && !c.prompts)
        rc = no_memory();
    if (rc == APP_OK)
        rc = read_all(&c);
    if (rc == APP_OK)
        rc = job->args->app.json ? print_json(&c) : print_text(&c);
    for (int32_t i = 0; i < c.n_prompts; i++)
        free(c.prompts[i].size);
    free(c.prompts);
    wnw_profile_free(c.profile);
    return rc;
}
