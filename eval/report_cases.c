/* SPDX-License-Identifier: MIT */
/* Worst cases with their texts: what was asked, what the full cache answered, what the compressed one did. */
#include "eval/report_html.h"

#include "app/console.h"

#include <math.h>
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

/* Adds a text of a line, cut to SHOWN characters. */
static void put_text(struct eval_doc *d, const char *title, const json_t *text)
{
    const char *s = json_string_value(text);
    size_t len = json_string_length(text), n = 0, chars = 0;
    if (!s)
        return;
    for (; n < len; n++) {
        chars += ((unsigned char)s[n] & 0xc0) != 0x80;
        if (chars > SHOWN)
            break;
    }
    eval_html_element(d, "dt", NULL, title);
    eval_doc_put(d, "<dd>");
    eval_doc_xml_n(d, s, n);
    eval_doc_put(d, "%s</dd>", n < len ? " …" : len == 0 ? "(nothing)" : "");
}

static void put_refs(struct eval_doc *d, const json_t *refs)
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
    d->no_memory = d->no_memory || !text;
    put_text(d, "Expected", text);
    json_decref(text);
    free(all.s);
}

static int put_case(struct eval_doc *d, const struct eval_run *run, const struct worst *w)
{
    json_t *comp = NULL, *full = NULL;
    int rc = eval_result_texts(&comp, run, w->comp);
    if (rc == APP_OK)
        rc = eval_result_texts(&full, run, w->full);
    if (rc == APP_OK) {
        eval_doc_put(d, "<details class=\"case\"><summary>");
        eval_doc_xml(d, run->tasks[w->comp->task]);
        eval_doc_put(d, ", N = %d, sample %d", w->comp->n_target, w->comp->index);
        if (w->comp->turn > 0)
            eval_doc_put(d, ", question %d", w->comp->turn + 1);
        eval_doc_put(d, ": ");
        eval_html_label(d, run, &run->variants[w->comp->variant], true);
        eval_doc_put(d, ": %.0f points, full cache %.0f</summary><dl>", 100.0 * w->comp->m[EVAL_M_SCORE],
                     100.0 * w->full->m[EVAL_M_SCORE]);
        const json_t *question = json_object_get(comp, "question");
        put_text(d, "Question", question ? question : json_object_get(full, "question"));
        put_refs(d, json_object_get(comp, "refs"));
        put_text(d, "Full cache", json_object_get(full, "pred"));
        put_text(d, "Compressed", json_object_get(comp, "pred"));
        eval_doc_put(d, "</dl></details>\n");
    }
    json_decref(comp);
    json_decref(full);
    return rc;
}

int eval_html_cases(struct eval_doc *d, const struct eval_tables *t)
{
    const struct eval_run *run = t->run;
    bool any = false;
    int rc = APP_OK;
    for (int32_t i = 0; rc == APP_OK && i < t->n; i++) {
        const struct eval_block *b = &t->blocks[i];
        for (int32_t task = 0; b->n_target == EVAL_ALL_LENGTHS && rc == APP_OK && task < run->n_tasks;
             task++) {
            struct worst list[MOST_CASES] = {{0}};
            for (int32_t k = 0; k < b->n_strata; k++)
                if (b->strata[k].task == task && b->strata[k].informative)
                    find_worst(list, run, b, &b->strata[k]);
            if (list[0].comp && !any)
                eval_doc_put(d,
                             "<h3>Worst cases</h3><p class=\"soft\">Up to %d answers of each task that lost "
                             "most against "
                             "the full cache. They were picked for being bad and are not typical.</p>\n",
                             MOST_CASES);
            any = any || list[0].comp;
            for (int k = 0; rc == APP_OK && k < MOST_CASES && list[k].comp; k++)
                rc = put_case(d, run, &list[k]);
        }
    }
    return rc;
}
