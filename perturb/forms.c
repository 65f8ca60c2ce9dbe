/* SPDX-License-Identifier: MIT */
/* Text, CSV, JSON and page of the perturbation study. */
#include "perturb/forms.h"

#include "app/console.h"
#include "app/json.h"
#include "app/page.h"
#include "eval/base/grow.h"

#include <math.h>

static const char *const level_words[] = {"query heads", "KV groups", "layers", "hidden states"};

/* Mean share of entries that stay, in per cent. */
static double kept(const struct perturb_numbers *p, int32_t size, int32_t policy)
{
    return p->n_texts > 0 ? 100 * p->kept[size * p->n_policies + policy] / p->n_texts : NAN;
}

/* The numbers of a policy next to the base; a document that lacks memory for them says so. */
static struct perturb_beside_base against_base(struct eval_doc *d, const struct perturb_study *s,
                                               enum perturb_level level, int32_t size, int32_t policy)
{
    struct perturb_beside_base b;
    if (!perturb_beside(&b, s->numbers, level, size, policy, s->seed))
        d->no_memory = true;
    return b;
}

/* ---- Text ---- */

static void put_interval(struct eval_doc *d, const struct eval_interval *over)
{
    if (isnan(over->lo))
        eval_doc_put(d, " %-16s", "n<6");
    else
        eval_doc_put(d, " [%6.1f, %6.1f]", 100 * over->lo, 100 * over->hi);
}

static void put_level(struct eval_doc *d, const struct perturb_study *s, enum perturb_level level,
                      int32_t policy)
{
    const struct perturb_numbers *p = s->numbers;
    eval_doc_put(d, "\n%s\n  %-14s %7s %11s %11s %8s %-16s %10s %-16s  %s\n", level_words[level], "size",
                 "kept %", "base", "other", "change %", "(95 %)", "geometric", "(95 %)",
                 "lower in % of them (95 %)");
    for (int32_t i = 0; i < p->n_sizes; i++) {
        const struct perturb_beside_base b = against_base(d, s, level, i, policy);
        eval_doc_put(d, "  %-14s %7.1f %11.5g %11.5g %+8.1f", s->sizes[i], kept(p, i, policy), b.base,
                     b.other, b.base > 0 ? 100 * (b.other / b.base - 1) : 0.0);
        put_interval(d, &b.over.change);
        eval_doc_put(d, " %+10.1f", 100 * (b.geo_other / b.geo_base - 1));
        put_interval(d, &b.over.geometric);
        eval_doc_put(d, "  %5.1f", b.n > 0 ? 100.0 * b.n_lower / b.n : 0.0);
        put_interval(d, &b.over.lower);
        eval_doc_put(d, "  %d of %d\n", (int)b.n_lower, (int)b.n);
    }
}

static void put_last_state(struct eval_doc *d, const struct perturb_study *s, int32_t policy)
{
    const struct perturb_numbers *p = s->numbers;
    eval_doc_put(d, "\nhidden state after the last layer\n  %-14s %19s %11s %8s\n", "size", "base", "other",
                 "change %");
    for (int32_t i = 0; i < p->n_sizes; i++) {
        const double base = perturb_mean(p, PERTURB_STATES, i, 0, p->n_layer - 1);
        const double other = perturb_mean(p, PERTURB_STATES, i, policy, p->n_layer - 1);
        eval_doc_put(d, "  %-14s %19.5g %11.5g %+8.1f\n", s->sizes[i], base, other,
                     base > 0 ? 100 * (other / base - 1) : 0.0);
    }
}

/* What the policy's own first stage reached of the token's attention, and what it changed there. */
static void put_stages(struct eval_doc *d, const struct perturb_study *s, int32_t policy)
{
    const struct perturb_numbers *p = s->numbers;
    if (p->n_sizes == 0 || perturb_stage(p, 0, policy).n == 0)
        return;
    eval_doc_put(d,
                 "\nquery heads by the share of the token's attention in what the policy's first stage took\n"
                 "  %-14s %12s %8s %11s %11s %8s %10s  %s\n",
                 "size", "share", "% of all", "base", "other", "change %", "geometric", "lower in %");
    for (int32_t i = 0; i < p->n_sizes; i++) {
        const struct perturb_stage t = perturb_stage(p, i, policy);
        for (int k = 0; k < PERTURB_N_STRATA; k++) {
            const struct perturb_stratum *o = &t.of[k];
            if (o->n > 0)
                eval_doc_put(d, "  %-14s  %4.1f to %3.1f %8.1f %11.5g %11.5g %+8.1f %+10.1f  %5.1f\n",
                             s->sizes[i], perturb_strata[k], perturb_strata[k + 1],
                             100 * (double)o->n / (double)t.n, o->base, o->other,
                             o->base > 0 ? 100 * (o->other / o->base - 1) : 0.0, 100 * (o->ratio - 1),
                             100 * (double)o->n_lower / (double)o->n);
        }
        eval_doc_put(d, "  %-14s above 0.5, as the bounds assume: %.1f %%; after layer 0: %.1f %%\n",
                     s->sizes[i], 100 * t.holds, 100 * t.holds_behind_0);
    }
}

static void put_bounds(struct eval_doc *d, const struct perturb_study *s)
{
    eval_doc_put(d,
                 "\nBounds per query head, where entries are chosen by the token's own attention A: half of "
                 "them by A,\n"
                 "the others by A nu (theta_hat) or by A (theta_relax). Means over texts and heads in which "
                 "the first\n"
                 "half has more than half of the attention, as the bounds assume\n"
                 "  %-14s %10s %14s %9s %10s %12s %8s\n",
                 "size", "assumed %", "after layer 0", "L_p", "theta_hat", "theta_relax", "ratio %");
    for (int32_t i = 0; i < s->numbers->n_sizes; i++) {
        const struct perturb_tightness t = perturb_tightness(s->numbers, i);
        const double hat = t.mean[PERTURB_B_THETA_HAT], relax = t.mean[PERTURB_B_THETA_RELAX];
        eval_doc_put(d, "  %-14s %10.1f %14.1f %9.4g %10.4g %12.4g %8.1f\n", s->sizes[i], 100 * t.holds,
                     100 * t.holds_behind_0, t.mean[PERTURB_B_CHANGE], hat, relax, 100 * hat / relax);
    }
}

void perturb_text(struct eval_doc *d, const struct perturb_study *s)
{
    const struct perturb_numbers *p = s->numbers;
    eval_doc_put(d, "Perturbation study, %s: %d texts of %d tokens,\n", s->model, (int)p->n_texts,
                 (int)s->n_tokens);
    if (s->n_of_file == p->n_texts)
        eval_doc_put(d, "all of them pieces of a file.");
    else
        eval_doc_put(d, "%d of them pieces of a file, the others generated prose.", (int)s->n_of_file);
    eval_doc_put(
        d,
        " Each is read whole; the token that the model\n"
        "continues it with is read after the whole cache and after what each policy keeps. No question is\n"
        "known. Changes are L1 norms after the output projection, with entries gone in one layer alone; of\n"
        "hidden states, mean absolute changes with entries gone in all layers.\n\nbase: %s\n",
        s->policies[0]);
    for (int32_t i = 1; i < p->n_policies; i++) {
        eval_doc_put(d, "other: %s\n", s->policies[i]);
        for (int k = 0; k < PERTURB_N_LEVELS; k++)
            put_level(d, s, (enum perturb_level)k, i);
        put_last_state(d, s, i);
        put_stages(d, s, i);
    }
    put_bounds(d, s);
    eval_doc_put(d,
                 "\nIntervals: the texts are drawn again %d times. Lower: the mean over the texts is. Change "
                 "%%: of the "
                 "arithmetic\nmean over heads, which a few with large outputs decide; geometric: of the "
                 "geometric mean, in "
                 "which every head\ncounts alike.\n",
                 EVAL_BOOT_ROUNDS);
}

/* ---- CSV ---- */

/* A line of the unit's mean over the texts. */
static void put_line(struct eval_doc *d, const char *what, const char *size, const char *policy, int32_t il,
                     int32_t ih, double mean)
{
    eval_doc_csv(d, what);
    eval_doc_put(d, ",");
    eval_doc_csv(d, size);
    eval_doc_put(d, ",");
    eval_doc_csv(d, policy);
    if (ih >= 0)
        eval_doc_put(d, ",%d,%d,%.6g\n", (int)il, (int)ih, mean);
    else
        eval_doc_put(d, ",%d,,%.6g\n", (int)il, mean);
}

static void put_changes(struct eval_doc *d, const struct perturb_study *s, int32_t size, int32_t policy)
{
    const struct perturb_numbers *p = s->numbers;
    for (int k = 0; k < PERTURB_N_LEVELS; k++) {
        const enum perturb_level level = (enum perturb_level)k;
        const int32_t n = perturb_level_units(p, level), per_layer = n / p->n_layer;
        for (int32_t u = 0; u < n; u++)
            if (perturb_counts(p, level, u))
                put_line(d, perturb_level_name(level), s->sizes[size], s->policies[policy], u / per_layer,
                         per_layer > 1 ? u % per_layer : -1, perturb_mean(p, level, size, policy, u));
    }
}

/* Means over all texts; `guaranteed` is the share of texts with more than half of the attention in stage 1. */
static void put_bound_lines(struct eval_doc *d, const struct perturb_study *s, int32_t size)
{
    const struct perturb_numbers *p = s->numbers;
    for (int32_t u = 0; u < perturb_level_units(p, PERTURB_HEADS); u++) {
        double sum[PERTURB_N_BOUNDS] = {0}, n_holds = 0;
        if (!perturb_counts(p, PERTURB_HEADS, u))
            continue;
        for (int32_t i = 0; i < p->n_texts; i++) {
            for (int k = 0; k < PERTURB_N_BOUNDS; k++)
                sum[k] += perturb_bounds(p, (enum perturb_bound)k, size, i)[u];
            n_holds += perturb_bounds(p, PERTURB_B_SIGMA, size, i)[u] > 0.5;
        }
        for (int k = 0; k < PERTURB_N_BOUNDS; k++)
            put_line(d, perturb_bound_name((enum perturb_bound)k), s->sizes[size], "", u / p->n_head,
                     u % p->n_head, sum[k] / p->n_texts);
        put_line(d, "guaranteed", s->sizes[size], "", u / p->n_head, u % p->n_head, n_holds / p->n_texts);
    }
}

void perturb_csv(struct eval_doc *d, const struct perturb_study *s)
{
    eval_doc_put(d, "what,size,policy,layer,head,mean\n");
    for (int32_t i = 0; i < s->numbers->n_sizes; i++) {
        for (int32_t k = 0; k < s->numbers->n_policies; k++)
            put_changes(d, s, i, k);
        put_bound_lines(d, s, i);
    }
}

/* ---- JSON ---- */

/* What the policy's own first stage reached. */
static json_t *stage_json(const struct perturb_stage *t)
{
    json_t *strata = json_array();
    for (int k = 0; k < PERTURB_N_STRATA; k++)
        app_json_append(
            &strata, json_pack("{s:f, s:f, s:I, s:I, s:o, s:o, s:o}", "above", perturb_strata[k], "to",
                               perturb_strata[k + 1], "n", (json_int_t)t->of[k].n, "lower",
                               (json_int_t)t->of[k].n_lower, "base", app_json_number(t->of[k].base), "other",
                               app_json_number(t->of[k].other), "ratio", app_json_number(t->of[k].ratio)));
    return json_pack("{s:o, s:o, s:o}", "holds", app_json_number(t->holds), "holds_behind_layer_0",
                     app_json_number(t->holds_behind_0), "strata", strata);
}

/* Sets NAME_lo and NAME_hi. */
static void set_interval(json_t **o, const char *name, const struct eval_interval *over)
{
    char key[32];
    snprintf(key, sizeof key, "%s_lo", name);
    app_json_set(o, key, app_json_number(over->lo));
    snprintf(key, sizeof key, "%s_hi", name);
    app_json_set(o, key, app_json_number(over->hi));
}

static json_t *beside_json(struct eval_doc *d, const struct perturb_study *s, int32_t size, int32_t policy)
{
    json_t *o = json_pack("{s:s, s:s, s:o}", "size", s->sizes[size], "policy", s->policies[policy], "kept",
                          app_json_number(kept(s->numbers, size, policy) / 100));
    for (int k = 0; k < PERTURB_N_LEVELS; k++) {
        const struct perturb_beside_base b = against_base(d, s, (enum perturb_level)k, size, policy);
        json_t *level = json_pack(
            "{s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:o}", "base", app_json_number(b.base), "other",
            app_json_number(b.other), "geometric_base", app_json_number(b.geo_base), "geometric_other",
            app_json_number(b.geo_other), "change", app_json_number(b.other / b.base - 1), "geometric",
            app_json_number(b.geo_other / b.geo_base - 1), "lower", (int)b.n_lower, "n", (int)b.n,
            "lower_share", app_json_number((double)b.n_lower / b.n));
        set_interval(&level, "lower_share", &b.over.lower);
        set_interval(&level, "change", &b.over.change);
        set_interval(&level, "geometric", &b.over.geometric);
        app_json_set(&o, perturb_level_name((enum perturb_level)k), level);
    }
    const int32_t last = s->numbers->n_layer - 1;
    const double last_base = perturb_mean(s->numbers, PERTURB_STATES, size, 0, last),
                 last_other = perturb_mean(s->numbers, PERTURB_STATES, size, policy, last);
    app_json_set(&o, "last_state",
                 json_pack("{s:o, s:o, s:o}", "base", app_json_number(last_base), "other",
                           app_json_number(last_other), "change",
                           app_json_number(last_other / last_base - 1)));
    const struct perturb_stage t = perturb_stage(s->numbers, size, policy);
    if (t.n > 0)
        app_json_set(&o, "first_stage", stage_json(&t));
    return o;
}

static json_t *tightness_json(const struct perturb_study *s, int32_t size)
{
    const struct perturb_tightness t = perturb_tightness(s->numbers, size);
    json_t *o = json_pack("{s:s, s:o, s:o}", "size", s->sizes[size], "guaranteed", app_json_number(t.holds),
                          "guaranteed_behind_layer_0", app_json_number(t.holds_behind_0));
    app_json_set(&o, "tightness",
                 app_json_number(t.mean[PERTURB_B_THETA_HAT] / t.mean[PERTURB_B_THETA_RELAX]));
    for (int k = 0; k < PERTURB_N_BOUNDS; k++)
        app_json_set(&o, perturb_bound_name((enum perturb_bound)k), app_json_number(t.mean[k]));
    return o;
}

/* A level's means at the first size, [policy][layer] or [policy][layer][head]; null where a unit says nothing. */
static json_t *means_json(const struct perturb_numbers *p, enum perturb_level level)
{
    const int32_t per_layer = perturb_level_units(p, level) / p->n_layer;
    json_t *policies = json_array();
    for (int32_t k = 0; k < p->n_policies && p->n_sizes > 0; k++) {
        json_t *layers = json_array();
        for (int32_t il = 0; il < p->n_layer; il++) {
            json_t *heads = json_array();
            for (int32_t i = 0; i < per_layer; i++) {
                const int32_t unit = il * per_layer + i;
                json_t *mean = perturb_counts(p, level, unit)
                                   ? app_json_number(perturb_mean(p, level, 0, k, unit))
                                   : json_null();
                app_json_append(per_layer > 1 ? &heads : &layers, mean);
            }
            if (per_layer > 1)
                app_json_append(&layers, heads);
            else
                json_decref(heads);
        }
        app_json_append(&policies, layers);
    }
    return policies;
}

/* The base policy's share of kept entries at each size; the pairs have those of the others. */
static json_t *base_kept_json(const struct perturb_study *s)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < s->numbers->n_sizes; i++)
        app_json_append(&list, app_json_number(kept(s->numbers, i, 0) / 100));
    return list;
}

static json_t *names_json(const char *const *names, int32_t n)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < n; i++)
        app_json_append(&list, app_json_text(names[i]));
    return list;
}

json_t *perturb_json(const struct perturb_study *s)
{
    struct eval_doc d = {0};
    json_t *pairs = json_array(), *bounds = json_array();
    for (int32_t k = 1; k < s->numbers->n_policies; k++)
        for (int32_t i = 0; i < s->numbers->n_sizes; i++)
            app_json_append(&pairs, beside_json(&d, s, i, k));
    for (int32_t i = 0; i < s->numbers->n_sizes; i++)
        app_json_append(&bounds, tightness_json(s, i));
    json_t *o =
        json_pack("{s:i, s:o, s:i, s:i, s:i, s:s, s:o, s:o}", "v", 1, "model", app_json_text(s->model),
                  "texts", (int)s->numbers->n_texts, "tokens", (int)s->n_tokens, "of_file", (int)s->n_of_file,
                  "base", s->policies[0], "pairs", pairs, "bounds", bounds);
    app_json_set(&o, "policies", names_json(s->policies, s->numbers->n_policies));
    app_json_set(&o, "sizes", names_json(s->sizes, s->numbers->n_sizes));
    app_json_set(&o, "base_kept", base_kept_json(s));
    app_json_set(&o, "by_head", means_json(s->numbers, PERTURB_HEADS));
    app_json_set(&o, "by_layer", means_json(s->numbers, PERTURB_LAYERS));
    app_json_set(&o, "by_state", means_json(s->numbers, PERTURB_STATES));
    if (d.no_memory) {
        json_decref(o);
        o = NULL;
    }
    return o;
}

int perturb_page(struct eval_doc *d, const struct perturb_study *s, json_t *numbers,
                 const struct eval_doc *text)
{
    json_t *study = json_copy(numbers), *data = json_object();
    app_json_set(&study, "summary", text->no_memory ? NULL : json_stringn(text->text.s, text->text.len));
    app_json_set(&data, "v", json_integer(1));
    app_json_set(&data, "winnow", json_string(wnw_version()));
    app_json_set(&data, "command", s->command ? app_page_without_paths(s->command) : json_null());
    app_json_set(&data, "perturbation", study);
    const int rc =
        data ? app_page_make(&d->text, "pages/report.html", data) : eval_no_memory("the page of the study");
    json_decref(data);
    return rc;
}
