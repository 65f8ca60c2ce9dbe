/* SPDX-License-Identifier: MIT */
/*
 * A piece of the text is read once with the full cache. Copies of that cache are compressed by several policies,
 * and the text that really follows is read on each. Its likelihood shows what was lost. Both sides of a comparison
 * keep the same number of entries. The last comparison is an exception: its sizes agree only on the prompts that
 * the calibration used. The comparisons are
 *
 *     heads      every layer keeps the budget; learned head weights against ones;
 *     pooled     the layers share the budget; learned tables against ones and one threshold of 1;
 *     elastic    the preset `compilerkv`, which keeps what clears its thresholds, against ones that keep in
 *                every layer the mean of what it kept in this piece;
 *     constant   the same preset against one threshold for all prompts, the profile's tau_constant.
 *
 * Differences are paired by piece; their interval is the bootstrap's of the evaluation.
 */
#include "calibration/commands.h"

#include "app/console.h"
#include "app/json.h"
#include "app/likelihood.h"
#include "app/stop.h"
#include "base/err.h"
#include "base/random.h"
#include "eval/base/stats.h"
#include "winnow_batch.h"
#include "winnow_method.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEARNED, NEUTRAL, N_SIDE };
enum { HEADS, POOLED, ELASTIC, CONSTANT, N_ROW };

/* Options of the scorer and of the gate of both sides, after the window. */
static const struct row {
    const char *name, *scorer[N_SIDE], *gate[N_SIDE];
} rows[N_ROW] = {
    [HEADS] = {"heads", {"", ",table=none"}, {",mode=strict", ",mode=strict"}},
    [POOLED] = {"pooled", {"", ",table=none"}, {",mode=pooled", ",mode=pooled,tau=1"}},
    [ELASTIC] = {"elastic", {"", ",table=none"}, {",mode=elastic", ",mode=strict"}},
    [CONSTANT] = {"constant", {"", ""}, {",mode=elastic", ",mode=elastic,table=constant"}},
};

/* What one side of a comparison showed, in one piece or on the mean of all. */
struct side {
    double nll, kept; /* nats per token of what follows, entries per head */
};

struct verify {
    const struct calibrate_job *job;
    int32_t budget, window, length, next; /* of the tables, and what they were tried on */
    wnw_model_info info;
    wnw_profile *profile;
    wnw_policy *policy[N_ROW][N_SIDE];
    wnw_engine *engine;
    int32_t *tokens, *prompt;
    int32_t n_tokens, bos; /* bos: in front of every piece, -1 = none */
    int32_t n_pieces;
    double full;  /* nats per token with the full cache, mean over the pieces */
    double *gain; /* [N_ROW][n_pieces] of the learned side */
    struct side mean[N_ROW][N_SIDE];
    struct eval_paired paired[N_ROW];
};

/* A status of the library as an exit code, with its sentence. */
static int told(int status)
{
    return status == WNW_OK ? APP_OK : app_fail_status(status);
}

/* ---- The profile ---- */

/* Whether the text is one of those that the tables were made from. */
static bool has_read(const json_t *root, const wnw_calibration_text *text)
{
    char hash[17];
    size_t i;
    const json_t *of;
    snprintf(hash, sizeof hash, "%016" PRIx64, wnw__hash_of(text->text, text->len));
    json_array_foreach(json_object_get(json_object_get(root, "data"), "texts"), i, of)
    {
        const char *theirs = json_string_value(json_object_get(of, "hash"));
        if (theirs && strcmp(theirs, hash) == 0)
            return true;
    }
    return false;
}

/* A whole number of the settings, or the first of an array; `def` where it is no number from 1 on. */
static int32_t setting(const json_t *settings, const char *key, int32_t def)
{
    const json_t *v = json_object_get(settings, key);
    const json_int_t n = json_integer_value(json_is_array(v) ? json_array_get(v, 0) : v);
    return n >= 1 && n <= INT32_MAX / 4 ? (int32_t)n : def;
}

static int read_settings(struct verify *v, const json_t *root, const char *path)
{
    const json_t *settings = json_object_get(root, "settings");
    const char *kind = json_string_value(json_object_get(root, "kind"));
    v->budget = setting(settings, "budget", 0);
    v->window = setting(settings, "window", 0);
    v->length = setting(settings, "length", 1024);
    v->next = setting(settings, "next", 64);
    if (!kind || strcmp(kind, "compiler") != 0 || v->budget == 0 || v->window == 0)
        return app_fail(APP_BAD_INPUT, "'%s' is no profile of kind compiler with a budget and a window",
                        path);
    for (int32_t i = 0; i < v->job->n_texts; i++)
        if (has_read(root, &v->job->texts[i]))
            return app_fail(APP_BAD_INPUT,
                            "the tables of '%s' were made from '%s', which therefore tells nothing about "
                            "them; give another text",
                            path, v->job->texts[i].name);
    return APP_OK;
}

/* Opens the profile and the policies of its window. */
static int open_profile(struct verify *v, const char *path)
{
    json_error_t error;
    char recipe[128];
    if (access(path, R_OK) != 0)
        return app_fail(app_errno_code(errno), "cannot read '%s': %s", path, strerror(errno));
    WNW_TRY(told(wnw_profile_new(&v->profile, v->job->model)));
    WNW_TRY(told(wnw_profile_add_file(v->profile, path))); /* refuses what is no regular file, or too large */
    json_t *root = json_load_file(path, 0, &error);
    const int rc = root ? read_settings(v, root, path)
                        : app_fail(APP_BAD_INPUT, "cannot read '%s': %s", path, error.text);
    json_decref(root);
    WNW_TRY(rc);
    for (int i = 0; i < N_ROW * N_SIDE; i++) {
        const struct row *row = &rows[i / N_SIDE];
        snprintf(recipe, sizeof recipe, "compilerkv:window=%d%s+gate:window=%d%s", (int)v->window,
                 row->scorer[i % N_SIDE], (int)v->window, row->gate[i % N_SIDE]);
        WNW_TRY(told(wnw_policy_parse(&v->policy[i / N_SIDE][i % N_SIDE], recipe, NULL)));
    }
    return APP_OK;
}

/* ---- The text ---- */

static int read_tokens(struct verify *v)
{
    const wnw_calibration_text *text = &v->job->texts[0];
    const int64_t needed = (int64_t)v->n_pieces * (v->length + v->next);
    int32_t *bos = NULL, n_bos = 0;
    if (v->job->n_texts != 1)
        return app_fail(APP_BAD_INPUT, "--verify reads one text, and -f names %d", (int)v->job->n_texts);
    WNW_TRY(told(wnw_tokenize(v->job->model, text->text, text->len, false, false, &v->tokens, &v->n_tokens)));
    WNW_TRY(told(wnw_tokenize(v->job->model, "", 0, true, false, &bos, &n_bos)));
    v->bos = n_bos > 0 ? bos[0] : -1;
    wnw_free(bos);
    if (v->length + v->next > v->info.n_ctx_train)
        return app_fail(APP_BAD_INPUT,
                        "pieces of %d tokens and the %d after them do not fit the context of %d",
                        (int)v->length, (int)v->next, (int)v->info.n_ctx_train);
    if (v->n_tokens < needed)
        return app_fail(APP_BAD_INPUT,
                        "'%s' has %d tokens; %d pieces of %d and the %d after each need %lld: give a longer "
                        "text or fewer --pieces",
                        text->name, (int)v->n_tokens, (int)v->n_pieces, (int)v->length, (int)v->next,
                        (long long)needed);
    return APP_OK;
}

/* The prompt of piece i and what follows it, [length + next]. */
static const int32_t *piece_tokens(struct verify *v, int32_t i)
{
    const int32_t n_bos = v->bos >= 0, n = v->length + v->next - n_bos;
    const int64_t at = (int64_t)(v->n_tokens - n) * i / (v->n_pieces > 1 ? v->n_pieces - 1 : 1);
    if (n_bos)
        v->prompt[0] = v->bos;
    memcpy(v->prompt + n_bos, v->tokens + at, (size_t)n * sizeof *v->prompt);
    return v->prompt;
}

/* ---- One piece ---- */

struct follow {
    const int32_t *next; /* the token that each row of logits predicts */
    int32_t n_vocab;
    double sum;
};

static bool on_logits(int32_t i, const float *logits, void *user)
{
    struct follow *f = user;
    f->sum += app_token_nll(logits, f->n_vocab, f->next[i]);
    return true;
}

/* Sets the nats per token of the following text, on a copy of the cache that keeps the plan's entries (NULL: all). */
static int follow(const struct verify *v, const wnw_session *full, const wnw_plan *plan, const int32_t *next,
                  double *nll)
{
    wnw_session *s;
    WNW_TRY(told(wnw_session_copy(&s, full)));
    struct follow f = {.next = next + 1, .n_vocab = v->info.n_vocab};
    f.sum = app_token_nll(wnw_session_logits(s), v->info.n_vocab, next[0]);
    int status = plan ? wnw_session_apply(s, plan, NULL) : WNW_OK;
    if (status == WNW_OK && v->next > 1)
        status = wnw_session_prefill(s, next, v->next - 1, on_logits, &f);
    wnw_session_free(s);
    *nll = f.sum / v->next;
    return told(status);
}

/* Sets sides[N_SIDE] of one comparison. */
static int compare_row(const struct verify *v, wnw_session *full, int row, const int32_t *next,
                       struct side *sides)
{
    for (int side = 0; side < N_SIDE; side++) {
        wnw_report report = wnw_report_default();
        wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = v->budget};
        wnw_plan *plan;
        if (row == ELASTIC && side == NEUTRAL)
            size.budget = (int64_t)nearbyint(sides[LEARNED].kept);
        WNW_TRY(told(wnw_session_plan(full, v->policy[row][side], &size, &plan, &report)));
        sides[side].kept = report.kept_mean;
        const int rc = follow(v, full, plan, next, &sides[side].nll);
        wnw_plan_free(plan);
        WNW_TRY(rc);
    }
    return APP_OK;
}

/* Reads piece i and adds what all comparisons show. */
static int compare_on(struct verify *v, wnw_session *full, int32_t i)
{
    const int32_t *tokens = piece_tokens(v, i), *next = tokens + v->length;
    const wnw_run_more more = {WNW_INIT(wnw_run_more),
                               .policies = (const wnw_policy *const *)&v->policy[0][0],
                               .n_policies = N_ROW * N_SIDE};
    double nll;
    WNW_TRY(
        told(wnw_session_begin(full, &(wnw_run){WNW_INIT(wnw_run), .profile = v->profile, .more = &more})));
    WNW_TRY(told(wnw_session_prefill(full, tokens, v->length, NULL, NULL)));
    WNW_TRY(follow(v, full, NULL, next, &nll));
    v->full += nll / v->n_pieces;
    for (int row = 0; row < N_ROW; row++) {
        struct side sides[N_SIDE];
        WNW_TRY(compare_row(v, full, row, next, sides));
        v->gain[row * v->n_pieces + i] = sides[NEUTRAL].nll - sides[LEARNED].nll;
        for (int side = 0; side < N_SIDE; side++) {
            v->mean[row][side].nll += sides[side].nll / v->n_pieces;
            v->mean[row][side].kept += sides[side].kept / v->n_pieces;
        }
    }
    return APP_OK;
}

static int compare_all(struct verify *v)
{
    const wnw_session_params params = {WNW_INIT(wnw_session_params), .n_ctx = v->length + v->next,
                                       .kv_type = v->job->params.kv_type};
    struct app_progress progress;
    int rc = APP_OK;
    app_progress_start(&progress, "comparing", "pieces");
    app_stop_watch();
    for (int32_t i = 0; rc == APP_OK && i < v->n_pieces; i++) {
        wnw_session *full = NULL;
        rc = told(wnw_session_new_on(&full, v->engine, &params));
        if (rc == APP_OK)
            rc = compare_on(v, full, i);
        wnw_session_free(full);
        app_progress_step(i + 1, v->n_pieces, &progress);
        if (rc == APP_OK && app_stop_asked())
            rc = APP_INTERRUPTED;
    }
    app_progress_end(&progress);
    return rc == APP_INTERRUPTED ? app_fail(rc, "interrupted") : rc;
}

/* ---- The result ---- */

static int print_json(const struct verify *v)
{
    json_t *list = json_array();
    for (int row = 0; row < N_ROW; row++) {
        const struct side *of = v->mean[row];
        const struct eval_paired *gain = &v->paired[row];
        app_json_append(&list, json_pack("{s:s, s:f, s:f, s:f, s:f, s:o, s:o, s:o}", "name", rows[row].name,
                                         "nll", of[LEARNED].nll, "nll_neutral", of[NEUTRAL].nll, "kept",
                                         of[LEARNED].kept, "kept_neutral", of[NEUTRAL].kept, "gain",
                                         app_json_number(gain->delta), "low", app_json_number(gain->over.lo),
                                         "high", app_json_number(gain->over.hi)));
    }
    return app_print_json(list ? json_pack("{s:i, s:i, s:i, s:i, s:f, s:o}", "budget", (int)v->budget,
                                           "pieces", (int)v->n_pieces, "length", (int)v->length, "next",
                                           (int)v->next, "nll_full", v->full, "rows", list)
                               : NULL);
}

static int print_text(const struct verify *v)
{
    printf("%d pieces of %d tokens, %d tokens after each; full cache %.4f nats per token\n"
           "gain: what the tables take off, at as many entries (95 %% interval, paired by piece); constant: "
           "against one\n"
           "threshold for all prompts, which keeps another number of entries where these prompts differ\n\n",
           (int)v->n_pieces, (int)v->length, (int)v->next, v->full);
    printf("%-8s %9s %9s %9s %22s %8s %8s\n", "", "learned", "neutral", "gain", "interval", "kept", "kept");
    for (int row = 0; row < N_ROW; row++) {
        const struct side *of = v->mean[row];
        const struct eval_paired *gain = &v->paired[row];
        char over[32] = "n<6";
        if (isfinite(gain->over.lo))
            snprintf(over, sizeof over, "[%.4f, %.4f]", gain->over.lo, gain->over.hi);
        printf("%-8s %9.4f %9.4f %9.4f %20s %s %8.1f %8.1f\n", rows[row].name, of[LEARNED].nll,
               of[NEUTRAL].nll, gain->delta, over, eval_verdict(gain), of[LEARNED].kept, of[NEUTRAL].kept);
    }
    return app_finish_stdout();
}

static int verify(struct verify *v, const char *path)
{
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params), .n_threads = v->job->params.n_threads};
    WNW_TRY(told(wnw_model_get_info(v->job->model, &v->info)));
    WNW_TRY(open_profile(v, path));
    WNW_TRY(read_tokens(v));
    WNW_TRY(told(wnw_engine_new(&v->engine, v->job->model, &params)));
    v->prompt = malloc((size_t)(v->length + v->next) * sizeof *v->prompt);
    v->gain = calloc((size_t)v->n_pieces * N_ROW, sizeof *v->gain);
    if (!v->prompt || !v->gain)
        return app_fail(APP_FAILED, "out of memory");
    WNW_TRY(compare_all(v));
    for (int row = 0; row < N_ROW; row++) {
        char key[96];
        eval_boot_key(key, sizeof key, "compiler", v->n_pieces, rows[row].name, v->job->params.seed);
        struct eval_random r = eval_random_key(key);
        const struct eval_pairs pairs = {.d = v->gain + row * v->n_pieces, .n = (size_t)v->n_pieces};
        if (!eval_bootstrap(&v->paired[row], &pairs, &r))
            return app_fail(APP_FAILED, "out of memory");
    }
    return v->job->args->app.json ? print_json(v) : print_text(v);
}

int calibrate_verify(const struct calibrate_job *job, const char *path, int32_t n_pieces)
{
    struct verify v = {.job = job, .n_pieces = n_pieces, .info = wnw_model_info_default()};
    const int rc = verify(&v, path);
    for (int i = 0; i < N_ROW * N_SIDE; i++)
        wnw_policy_free(v.policy[i / N_SIDE][i % N_SIDE]);
    free(v.gain);
    wnw_engine_free(v.engine);
    wnw_profile_free(v.profile);
    wnw_free(v.tokens);
    free(v.prompt);
    return rc;
}
