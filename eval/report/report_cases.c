/* SPDX-License-Identifier: MIT */
/* Worst cases with their texts: what was asked, what the full cache answered, what the compressed one did. */
#include "eval/report/report_impl.h"

#include "app/console.h"
#include "app/json.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CASES = 3, SHOWN = 300 }; /* of a task; characters of a text */

struct worst {
    const struct eval_result *comp, *full;
    double loss;
};

/* ---- Which ---- */

/* Keeps the worst cases in order: a greater loss first, then the earlier line. */
static void keep(struct worst list[MOST_CASES], const struct eval_result *comp,
                 const struct eval_result *full)
{
    const double loss = full->m[EVAL_M_SCORE] - comp->m[EVAL_M_SCORE];
    int i = MOST_CASES;
    while (i > 0 && (!list[i - 1].comp || list[i - 1].loss < loss))
        i--;
    if (!(loss > 0) || i == MOST_CASES)
        return;
    memmove(list + i + 1, list + i, (size_t)(MOST_CASES - 1 - i) * sizeof *list);
    list[i] = (struct worst){comp, full, loss};
}

/* Worst cases of a stratum. Of one sample only the worst method counts, so that the cases differ. */
static void find_worst(struct worst list[MOST_CASES], const struct eval_run *run, const struct eval_block *b,
                       const struct eval_stratum *s)
{
    for (size_t i = s->begin, end; i < s->end; i = end) {
        const struct eval_result *full = NULL, *comp = NULL;
        const struct eval_result *first = &run->results[i];
        for (end = i;
             end < s->end && run->results[end].index == first->index && run->results[end].turn == first->turn;
             end++) {
            const struct eval_result *r = &run->results[end];
            if (r->variant == b->baseline)
                full = r;
            else if (strcmp(run->variants[r->variant].mode, b->mode) == 0 &&
                     (!comp || r->m[EVAL_M_SCORE] < comp->m[EVAL_M_SCORE]))
                comp = r;
        }
        if (full && comp)
            keep(list, comp, full);
    }
}

/* ---- Texts ---- */

/* Sets a text of a line, cut to SHOWN characters with " …" after them. */
static void set_text(json_t **o, const char *key, const json_t *text)
{
    const char *s = json_string_value(text);
    const size_t len = json_string_length(text);
    struct app_text cut = {0};
    size_t n = 0, chars = 0;
    if (!s)
        return;
    for (; n < len; n++) {
        chars += ((unsigned char)s[n] & 0xc0) != 0x80;
        if (chars > SHOWN)
            break;
    }
    const bool good = app_text_add(&cut, s, n) && (n == len || app_text_add(&cut, " …", strlen(" …")));
    app_json_set(o, key, good ? json_stringn(cut.s, cut.len) : NULL);
    free(cut.s);
}

static void set_refs(json_t **o, const json_t *refs)
{
    struct app_text all = {0};
    bool good = app_text_add(&all, "", 0);
    for (size_t i = 0; i < json_array_size(refs); i++) {
        const json_t *ref = json_array_get(refs, i);
        good = good && app_text_add(&all, "; ", i > 0 ? 2 : 0) &&
               (!json_is_string(ref) ||
                app_text_add_utf8(&all, json_string_value(ref), json_string_length(ref)));
    }
    json_t *text = good ? json_stringn(all.s, all.len) : NULL;
    if (text)
        set_text(o, "expected", text);
    else
        app_json_set(o, "expected", NULL);
    json_decref(text);
    free(all.s);
}

static int add_case(json_t **list, const struct eval_run *run, const struct worst *w)
{
    json_t *comp = NULL, *full = NULL;
    int rc = eval_result_texts(&comp, run, w->comp);
    if (rc == APP_OK)
        rc = eval_result_texts(&full, run, w->full);
    if (rc == APP_OK) {
        const json_t *question = json_object_get(comp, "question");
        json_t *o = json_pack("{s:s,s:i,s:i,s:i,s:s,s:f,s:f}", "task", run->tasks[w->comp->task], "N",
                              (int)w->comp->n_target, "index", (int)w->comp->index, "turn",
                              (int)w->comp->turn, "config", run->variants[w->comp->variant].id, "score",
                              100.0 * w->comp->m[EVAL_M_SCORE], "full", 100.0 * w->full->m[EVAL_M_SCORE]);
        set_text(&o, "question", question ? question : json_object_get(full, "question"));
        set_refs(&o, json_object_get(comp, "refs"));
        set_text(&o, "of_full", json_object_get(full, "pred"));
        set_text(&o, "of_method", json_object_get(comp, "pred"));
        app_json_append(list, o);
    }
    json_decref(comp);
    json_decref(full);
    return rc;
}

int eval_cases_json(json_t **out, const struct eval_tables *t, const struct eval_block *b)
{
    const struct eval_run *run = t->run;
    int rc = APP_OK;
    *out = json_array();
    for (int32_t task = 0; rc == APP_OK && task < run->n_tasks; task++) {
        struct worst list[MOST_CASES] = {{0}};
        for (int32_t k = 0; k < b->n_strata; k++)
            if (b->strata[k].task == task && b->strata[k].informative)
                find_worst(list, run, b, &b->strata[k]);
        for (int k = 0; rc == APP_OK && k < MOST_CASES && list[k].comp; k++)
            rc = add_case(out, run, &list[k]);
    }
    return rc;
}
