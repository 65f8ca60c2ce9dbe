/* SPDX-License-Identifier: MIT */
/* Settings, units of work, and the sessions that do it. */
#include "calibrate/calibrate.h"

#include "base/journal.h"
#include "base/json.h"
#include "base/random.h"
#include "base/strings.h"
#include "text/tokens_marked.h"
#include "winnow_tools.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int wnw__calibrate_set(wnw_calibration *c, const char *key, json_t *v)
{
    if (v && json_object_set_new(c->settings, key, v) == 0)
        return WNW_OK;
    return wnw__fail(WNW_E_NOMEM, "no memory for the setting %s", key);
}

/* ---- The header of the journal ---- */

static json_t *describe_text(const wnw_calibration_text *t)
{
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, wnw__hash_of(t->text, t->len));
    return json_pack("{s:s, s:I, s:s}", "name", t->name, "bytes", (json_int_t)t->len, "hash", hash);
}

static int describe_data(wnw_calibration *c)
{
    json_t *texts = json_array();
    bool good = texts != NULL;
    for (int32_t i = 0; good && i < c->params.n_texts; i++)
        good = json_array_append_new(texts, describe_text(&c->params.texts[i])) == 0;
    c->data = json_pack("{s:o}", "texts", texts);
    return good && c->data ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the names of texts");
}

json_t *wnw__calibrate_model(const wnw_calibration *c)
{
    char fingerprint[WNW_FINGERPRINT_SIZE];
    wnw_model_fingerprint(c->m, fingerprint);
    return json_pack("{s:s, s:i, s:i, s:i, s:i}", "fingerprint", fingerprint, "n_layer", c->info.n_layer,
                     "n_head", c->info.n_head, "n_head_kv", c->info.n_head_kv, "n_embd_head",
                     c->info.n_embd_head);
}

static int set_params(wnw_calibration *c)
{
    const wnw_calibrate_params *p = &c->params;
    if (p->n_budgets > 0)
        WNW_TRY(wnw__calibrate_set(c, "budgets", wnw__json_i32s(p->budgets, p->n_budgets)));
    return p->recipe ? wnw__calibrate_set(c, "recipe", json_string(p->recipe)) : WNW_OK;
}

int wnw__calibrate_begin(wnw_calibration *c, int64_t total)
{
    c->total = total;
    WNW_TRY(set_params(c));
    WNW_TRY(describe_data(c));
    json_t *header =
        json_pack("{s:s, s:s, s:o, s:O, s:O}", "format", "winnow-journal-1", "kind", c->type->name, "model",
                  wnw__calibrate_model(c), "settings", c->settings, "data", c->data);
    int rc = header ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the header of a journal");
    if (rc == WNW_OK && c->params.journal)
        rc = wnw__journal_open(&c->journal, c->params.journal,
                               &(struct wnw__journal_params){.header = header});
    json_decref(header);
    return rc == WNW_OK ? wnw__calibrate_progress(c, 0) : rc;
}

/* ---- Units ---- */

int wnw__calibrate_next(struct wnw__journal *j, const char *unit, json_t **result)
{
    json_t *v;
    *result = NULL;
    WNW_TRY(wnw__journal_next(j, &v));
    if (!v)
        return WNW_OK;
    const char *name = json_string_value(json_object_get(v, "unit"));
    const bool same = name && strcmp(name, unit) == 0;
    *result = same ? json_incref(json_object_get(v, "result")) : NULL;
    json_decref(v);
    if (*result)
        return WNW_OK;
    return wnw__journal_damaged(j, "is not what was expected there; remove the file to begin again");
}

int wnw__calibrate_add(struct wnw__journal *j, const char *unit, const json_t *result)
{
    char *text;
    size_t len;
    json_t *v = json_pack("{s:s, s:O}", "unit", unit, "result", (json_t *)result);
    int rc = wnw__json_text(&text, &len, v, false);
    json_decref(v);
    WNW_TRY(rc);
    rc = wnw__journal_add(j, text, len);
    free(text);
    return rc;
}

int wnw__calibrate_progress(wnw_calibration *c, double share)
{
    const wnw_calibrate_params *p = &c->params;
    const int64_t here = (int64_t)((double)c->cost * (c->progress_from + c->progress_size * share));
    if (p->progress && !p->progress(c->done + here, c->total, c->what ? c->what : "", p->progress_user))
        return wnw__fail(WNW_E_CANCELLED, "stopped on request");
    return WNW_OK;
}

void wnw__calibrate_progress_in(wnw_calibration *c, double from, double size)
{
    c->progress_from = from;
    c->progress_size = size;
}

static int make_result(wnw_calibration *c, const struct wnw__calibrate_unit *unit, json_t **result)
{
    WNW_TRY(unit->run(c, unit->user, result));
    if (!*result)
        return wnw__fail(WNW_E_NOMEM, "no memory for the result of %s", unit->name);
    WNW_TRY(wnw_model_check_files(c->m));
    return c->journal ? wnw__calibrate_add(c->journal, unit->name, *result) : WNW_OK;
}

static int run_unit(wnw_calibration *c, const struct wnw__calibrate_unit *unit, json_t **result)
{
    WNW_TRY(wnw__calibrate_progress(c, 0));
    const int rc = make_result(c, unit, result);
    if (rc != WNW_OK) {
        json_decref(*result);
        *result = NULL;
    }
    return rc;
}

int wnw__calibrate_unit(wnw_calibration *c, const struct wnw__calibrate_unit *unit, json_t **result)
{
    *result = NULL;
    c->what = unit->name;
    c->cost = unit->cost;
    wnw__calibrate_progress_in(c, 0, 1);
    if (c->journal)
        WNW_TRY(wnw__calibrate_next(c->journal, unit->name, result));
    const int rc = *result ? WNW_OK : run_unit(c, unit, result);
    c->cost = 0;
    c->done += rc == WNW_OK ? unit->cost : 0;
    c->what = NULL; /* the caller may release the unit's name now */
    return rc;
}

int wnw__calibrate_damaged(const wnw_calibration *c, const char *unit)
{
    return wnw__fail(WNW_E_FORMAT,
                     "the journal '%.200s' has a result of %.60s that cannot be used; remove it "
                     "to begin again",
                     c->params.journal ? c->params.journal : "", unit);
}

/* ---- What the units work with ---- */

static bool session_progress(int32_t done, int32_t total, void *user)
{
    return wnw__calibrate_progress(user, total > 0 ? (double)done / total : 0) == WNW_OK;
}

int wnw__calibrate_session(wnw_session **out, wnw_calibration *c, int32_t n_ctx)
{
    wnw_session_params p = wnw_session_default_params();
    p.n_ctx = n_ctx;
    p.n_threads = c->params.n_threads;
    p.kv_type = c->params.kv_type;
    p.progress = session_progress;
    p.progress_user = c;
    return wnw_session_new(out, c->m, &p);
}

int wnw__calibrate_bos(const wnw_calibration *c, int32_t *bos)
{
    int32_t *first = NULL, n = 0;
    WNW_TRY(wnw_tokenize(c->m, "", 0, true, false, &first, &n));
    *bos = n > 0 ? first[0] : -1;
    wnw_free(first);
    return WNW_OK;
}

int wnw__calibrate_tokens_of_texts(const wnw_calibration *c, int32_t n_most, int32_t **tokens, int32_t *end)
{
    int32_t *all = NULL, n = 0;
    *tokens = NULL;
    for (int32_t i = 0; i < c->params.n_texts; i++) {
        end[i] = n;
        if (n >= n_most)
            continue;
        const wnw_calibration_text *t = &c->params.texts[i];
        int32_t *more, n_more;
        size_t len;
        wnw_text_exceeds(c->m, t->text, t->len, n_most - n, &len);
        len = wnw__utf8_end(t->text, len);
        int rc = wnw__tokenize_plain(c->m, t->text, len, n > 0 ? &all[n - 1] : NULL, &more, &n_more);
        n_more = rc == WNW_OK && n_more > n_most - n ? n_most - n : n_more;
        int32_t *grown = rc == WNW_OK ? realloc(all, (size_t)(n + n_more + 1) * sizeof *all) : NULL;
        if (grown)
            memcpy(grown + n, more, (size_t)n_more * sizeof *grown);
        wnw_free(more);
        if (!grown) {
            free(all);
            return rc != WNW_OK ? rc : wnw__fail(WNW_E_NOMEM, "no memory for the tokens of a text");
        }
        all = grown;
        n += n_more;
        end[i] = n;
    }
    *tokens = all;
    return WNW_OK;
}

int wnw__calibrate_tokens(const wnw_calibration *c, int32_t n_most, int32_t **tokens, int32_t *n_tokens)
{
    int32_t *end = calloc((size_t)c->params.n_texts + 1, sizeof *end);
    *tokens = NULL;
    *n_tokens = 0;
    const int rc = end ? wnw__calibrate_tokens_of_texts(c, n_most, tokens, end)
                       : wnw__fail(WNW_E_NOMEM, "no memory for the tokens of a text");
    if (rc == WNW_OK && c->params.n_texts > 0)
        *n_tokens = end[c->params.n_texts - 1];
    free(end);
    return rc;
}
