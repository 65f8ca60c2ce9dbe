/* SPDX-License-Identifier: MIT */
/* The list of kinds, and one run from checked parameters to results. */
#include "calibrate/calibrate.h"

#include "base/err.h"
#include "base/journal.h"
#include "base/opt.h"
#include "base/strings.h"
#include "model/model.h"
#include "winnow_method.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIND(x) extern const struct wnw__calibrate_type wnw__calibrate_##x;
#include "calibrate/kinds.def"
#undef KIND

static const struct wnw__calibrate_type *const types[] = {
#define KIND(x) &wnw__calibrate_##x,
#include "calibrate/kinds.def"
#undef KIND
    NULL};

const struct wnw__calibrate_type *wnw__calibrate_type_get(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof types / sizeof *types ? types[i] : NULL;
}

static int find_type(const struct wnw__calibrate_type **out, const char *kind)
{
    struct wnw__guess guess = {.word = kind, .len = strlen(kind)};
    for (int32_t i = 0; (*out = wnw__calibrate_type_get(i)); i++) {
        if (strcmp((*out)->name, kind) == 0)
            return WNW_OK;
        wnw__guess_name(&guess, (*out)->name);
    }
    return wnw__fail(WNW_E_ARG, "there is no calibration \"%.40s\"%s%s%s", kind,
                     guess.best ? "; did you mean " : "", guess.best ? guess.best : "",
                     guess.best ? "?" : "");
}

/* ---- Options ---- */

static int parse_one(const struct wnw__calibrate_type *t, void *opts, const char *text, size_t len,
                     uint64_t *seen)
{
    const char *eq = memchr(text, '=', len);
    const size_t n_name = eq ? (size_t)(eq - text) : len;
    const int i = wnw__opt_find(t->options, text, n_name);
    const int n_shown = (int)(n_name > 40 ? 40 : n_name);
    if (i < 0) {
        struct wnw__guess guess = {.word = text, .len = n_name};
        for (const wnw_option *o = t->options; o && o->name; o++)
            wnw__guess_name(&guess, o->name);
        return wnw__fail(WNW_E_ARG, "%s has no option \"%.*s\"%s%s%s", t->name, n_shown, text,
                         guess.best ? "; did you mean " : "", guess.best ? guess.best : "",
                         guess.best ? "?" : "");
    }
    if (!eq)
        return wnw__fail(WNW_E_ARG, "%s: option %s has no value; give %s=VALUE", t->name, t->options[i].name,
                         t->options[i].name);
    if (*seen >> i & 1u)
        return wnw__fail(WNW_E_ARG, "%s: option %s is given twice", t->name, t->options[i].name);
    *seen |= UINT64_C(1) << i;
    return wnw__opt_parse(&t->options[i], opts, t->name, eq + 1, len - n_name - 1);
}

static int parse_options(const struct wnw__calibrate_type *t, void *opts, const char *text)
{
    uint64_t seen = 0;
    wnw__opt_defaults(t->options, opts);
    while (text && *text) {
        const size_t len = strcspn(text, ",");
        WNW_TRY(parse_one(t, opts, text, len, &seen));
        text += len + (text[len] == ',');
    }
    return WNW_OK;
}

static json_t *option_value(const wnw_option *o, const void *opts)
{
    const void *at = (const char *)opts + o->offset;
    double real;
    int32_t whole;
    if (o->type == WNW_OPT_REAL) {
        memcpy(&real, at, sizeof real);
        return json_real(real);
    }
    memcpy(&whole, at, sizeof whole);
    if (o->type == WNW_OPT_BOOL)
        return json_boolean(whole);
    return o->type == WNW_OPT_ENUM ? json_string(o->choices[whole]) : json_integer(whole);
}

/* ---- A run ---- */

/* Whether the arrays are there that counts tell of. */
static int check_arrays(const wnw_calibrate_params *p)
{
    if (p->n_texts < 0 || p->n_budgets < 0 || p->n_outputs < 0 || p->n_threads < 0)
        return wnw__fail(WNW_E_RANGE, "a number of texts, budgets, outputs or threads is negative");
    if ((p->n_texts > 0 && !p->texts) || (p->n_budgets > 0 && !p->budgets) ||
        (p->n_outputs > 0 && !p->outputs))
        return wnw__fail(WNW_E_ARG, "there are to be texts, budgets or outputs, and their array is NULL");
    return WNW_OK;
}

/* JSON has no other text. */
static bool is_utf8(const char *s)
{
    size_t n;
    for (size_t i = 0, len = strlen(s); i < len; i += n)
        if (wnw__utf8_scan(s + i, len - i, &n) != WNW_UTF8_WHOLE)
            return false;
    return true;
}

static int check_text(const wnw_calibration_text *t, int32_t i)
{
    if (!t->name || !t->text)
        return wnw__fail(WNW_E_ARG, "text %d has no name or no contents", (int)i);
    return is_utf8(t->name) ? WNW_OK : wnw__fail(WNW_E_ARG, "the name of text %d is not UTF-8", (int)i + 1);
}

static int check_params(const wnw_calibration *c)
{
    const wnw_calibrate_params *p = &c->params;
    if (p->effort > WNW_EFFORT_PAPER)
        return wnw__fail(WNW_E_ARG, "effort %d is not known", (int)p->effort);
    WNW_TRY(check_arrays(p));
    if (c->type->reads_text && p->n_texts == 0)
        return wnw__fail(WNW_E_ARG, "calibration %s reads a text, and none is given", c->type->name);
    for (int32_t i = 0; i < p->n_texts; i++)
        WNW_TRY(check_text(&p->texts[i], i));
    for (int32_t i = 0; i < p->n_budgets; i++)
        if (p->budgets[i] < 1)
            return wnw__fail(WNW_E_RANGE, "budget %d; give at least 1", (int)p->budgets[i]);
    return WNW_OK;
}

/* Settings that every kind has, then its options. */
static int set_all(wnw_calibration *c, const void *opts)
{
    static const char *const efforts[] = {"normal", "quick", "paper"};
    const wnw_calibrate_params *p = &c->params;
    WNW_TRY(wnw__calibrate_set(c, "effort", json_string(efforts[p->effort])));
    WNW_TRY(wnw__calibrate_set(c, "seed", json_integer(p->seed)));
    WNW_TRY(wnw__calibrate_set(c, "kv_type", json_string(wnw_kv_type_name(p->kv_type))));
    for (const wnw_option *o = c->type->options; o && o->name; o++)
        WNW_TRY(wnw__calibrate_set(c, o->name, option_value(o, opts)));
    return WNW_OK;
}

static int run_with(wnw_calibration *c, void *opts)
{
    WNW_TRY(parse_options(c->type, opts, c->params.options));
    WNW_TRY(set_all(c, opts));
    WNW_TRY(c->type->run(c, opts));
    return wnw__calibrate_finish(c);
}

static int run(wnw_calibration *c)
{
    const size_t size = c->type->options_size;
    WNW_TRY(check_params(c));
    void *opts = calloc(1, size ? size : 1);
    if (!opts)
        return wnw__fail(WNW_E_NOMEM, "no memory for the options of %s", c->type->name);
    const int rc = run_with(c, opts);
    free(opts);
    return rc;
}

int wnw_calibrate(wnw_calibration **out, const wnw_model *m, const char *kind,
                  const wnw_calibrate_params *params)
{
    const struct wnw__calibrate_type *type;
    wnw_calibrate_params own = wnw_calibrate_default_params();
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(m);
    WNW_REQUIRE(kind);
    WNW_TRY(find_type(&type, kind));
    WNW_TRY(WNW_SIZED_TAKE(wnw_calibrate_params, &own, params));
    wnw_calibration *c = calloc(1, sizeof *c);
    if (!c)
        return wnw__fail(WNW_E_NOMEM, "no memory for a calibration");
    *c = (wnw_calibration){
        .m = m, .shape = wnw__model_shape(m), .type = type, .params = own, .info = wnw_model_info_default()};
    c->params.n_threads = own.n_threads ? own.n_threads : wnw_usable_cores();
    c->settings = json_object();
    int rc = c->settings ? wnw_model_get_info(m, &c->info) : wnw__fail(WNW_E_NOMEM, "no memory for settings");
    if (rc == WNW_OK)
        rc = run(c);
    /* A run that goes on from this journal would fail in the same way. */
    if (c->journal && (rc == WNW_E_UNSUPPORTED || rc == WNW_E_RANGE || rc == WNW_E_NOT_FINITE))
        unlink(c->params.journal);
    wnw__journal_close(c->journal);
    c->journal = NULL;
    if (rc != WNW_OK) {
        wnw_calibration_free(c);
        return rc;
    }
    *out = c;
    return WNW_OK;
}

static void free_texts(struct wnw__calibrate_text *list, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (list[i].f)
            fclose(list[i].f);
        free(list[i].name);
        free(list[i].text);
    }
    free(list);
}

void wnw_calibration_free(wnw_calibration *c)
{
    if (!c)
        return;
    free_texts(c->profiles, c->n_profiles);
    free_texts(c->outputs, c->n_outputs);
    json_decref(c->settings);
    json_decref(c->data);
    free(c);
}

const char *wnw_calibration_profile(const wnw_calibration *c, int32_t i, const char **name)
{
    const bool there = c && i >= 0 && i < c->n_profiles;
    if (name)
        *name = there ? c->profiles[i].name : NULL;
    return there ? c->profiles[i].text : NULL;
}

const char *wnw_calibration_output(const wnw_calibration *c, const char *name)
{
    for (int32_t i = 0; c && name && i < c->n_outputs; i++)
        if (strcmp(c->outputs[i].name, name) == 0)
            return c->outputs[i].text;
    return NULL;
}
