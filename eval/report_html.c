/* SPDX-License-Identifier: MIT */
/* The report as one HTML file, which is well-formed XML and refers to nothing outside itself. */
#include "eval/report_html.h"

#include "app/console.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void eval_html_element(struct eval_doc *d, const char *tag, const char *class_name, const char *text)
{
    eval_doc_put(d, class_name ? "<%s class=\"%s\">" : "<%s>", tag, class_name);
    eval_doc_xml(d, text);
    eval_doc_put(d, "</%s>", tag);
}

void eval_html_label(struct eval_doc *d, const struct eval_run *run, const struct eval_variant *v, bool size)
{
    struct app_text label = {0};
    if (!eval_variant_label(&label, run, v, size))
        d->no_memory = true;
    else
        eval_doc_xml_n(d, label.s, label.len);
    free(label.s);
}

void eval_html_text(struct eval_doc *d, const char *number)
{
    /* A minus is as wide as a plus, which a hyphen is not. */
    if (*number == '-' && !number[1])
        eval_doc_put(d, "–");
    else
        eval_doc_put(d, "%s%s", *number == '-' ? "−" : "", number + (*number == '-'));
}

void eval_html_number(struct eval_doc *d, double value, int decimals)
{
    char text[EVAL_MAX_NUMBER];
    eval_doc_put(d, "<td>");
    eval_html_text(d, eval_format(text, value, decimals));
    eval_doc_put(d, "</td>");
}

void eval_html_first(struct eval_doc *d, const struct eval_cell *c)
{
    char number[EVAL_MAX_NUMBER], share[EVAL_MAX_INTERVAL];
    const struct eval_interval over = {100.0 * c->first.lo, 100.0 * c->first.hi};
    eval_doc_put(d, "<td>%s",
                 isnan(c->m[EVAL_M_FGT]) ? "–" : eval_format(number, 100.0 * c->m[EVAL_M_FGT], 1));
    eval_doc_put(d, " <span class=\"even\">%s</span></td>", eval_words_share(share, over, 1));
}

enum { MOST_LINES = 10 };

bool eval_html_is_drawn(const struct eval_tables *t, const struct eval_block *b, int32_t i)
{
    const struct eval_variant *v = &t->run->variants[b->rows[i].variant];
    const struct eval_variant *next = i + 1 < b->n_rows ? &t->run->variants[b->rows[i + 1].variant] : NULL;
    return b->n_rows <= MOST_LINES || b->rows[i].variant == b->baseline || !next ||
           strcmp(v->policy, next->policy) != 0;
}

const char *eval_html_drawn(const struct eval_block *b)
{
    return b->n_rows <= MOST_LINES ? "" : " (each method at its last size)";
}

/* ---- How the run was made ---- */

/* Adds a row for each value of run.json; members of objects are joined by dots. */
static void put_info(struct eval_doc *d, const char *name, const json_t *value)
{
    const char *key;
    json_t *item;
    if (json_is_object(value) && strlen(name) < 200) {
        json_object_foreach((json_t *)(uintptr_t)value, key, item)
        {
            char path[512];
            snprintf(path, sizeof path, "%s%s%.200s", name, *name ? "." : "", key);
            if (strcmp(path, "configs") != 0) /* the tables list them */
                put_info(d, path, item);
        }
        return;
    }
    char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    eval_doc_put(d, "<tr>");
    eval_html_element(d, "th", "left", name);
    eval_doc_put(d, "<td class=\"wrap\">");
    if (json_is_string(value))
        eval_doc_xml_n(d, json_string_value(value), json_string_length(value));
    else if (text)
        eval_doc_xml(d, text);
    else
        d->no_memory = true;
    eval_doc_put(d, "</td></tr>\n");
    free(text);
}

static void put_how(struct eval_doc *d, const struct eval_run *run)
{
    eval_doc_put(d, "<h3>How it was run</h3><details><summary>run.json");
    if (run->n_folders > 1)
        eval_doc_put(d, " of the first of %d shards", run->n_folders);
    eval_doc_put(d, "</summary><div class=\"scroll\"><table><tbody>");
    put_info(d, "", run->info);
    eval_doc_put(d, "</tbody></table></div></details>\n");
}

/* ---- A run ---- */

/* Notes are sentences, one per line. */
static void put_notes(struct eval_doc *d, const struct eval_tables *t)
{
    struct eval_doc notes = {0};
    eval_words_notes(&notes, t);
    d->no_memory = d->no_memory || notes.no_memory;
    eval_doc_put(d, "<ul>");
    for (const char *at = notes.text.s; at && *at;) {
        const size_t len = strcspn(at, "\n");
        eval_doc_put(d, "<li>");
        eval_doc_xml_n(d, at, len);
        eval_doc_put(d, "</li>");
        at += len + (at[len] == '\n');
    }
    eval_doc_put(
        d,
        "<li>Scores are points of 100. Δ is the difference from the full cache on the same samples, with its "
        "paired 95 %% bootstrap interval: <span class=\"plus\">+</span> better, <span "
        "class=\"minus\">−</span> worse, ~ not told apart.</li></ul>\n");
    eval_doc_clear(&notes);
}

static int put_run(struct eval_doc *d, struct eval_charts *charts, const struct eval_report *r, int32_t i)
{
    const struct eval_tables *t = &r->tables[i];
    eval_doc_put(d, "<h2 id=\"run%d\">", i + 1);
    eval_doc_xml(d, t->run->model);
    eval_doc_put(d, "</h2><p class=\"soft\">%zu answers", t->run->n);
    for (int32_t k = 0; k < t->run->n_folders; k++) {
        eval_doc_put(d, "%s", k == 0 ? " in " : ", ");
        eval_html_element(d, "code", NULL, t->run->folders[k]);
    }
    eval_doc_put(d, "</p>\n");
    put_notes(d, t);
    eval_html_curves(d, charts, t);
    eval_html_tables(d, t);
    eval_html_predictions(d, t);
    eval_html_versus(d, r, i);
    eval_html_turns(d, charts, t);
    eval_html_heat(d, t, r->options->niah_score);
    eval_html_costs(d, charts, t);
    eval_html_papers(d, t);
    const int rc = eval_html_cases(d, t);
    put_how(d, t->run);
    return rc;
}

static void put_head(struct eval_doc *d, const struct eval_report *r)
{
    eval_doc_put(d,
                 "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head><meta "
                 "charset=\"utf-8\"/>"
                 "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"
                 "<meta name=\"generator\" content=\"winnow %s\"/><title>",
                 wnw_version());
    eval_doc_xml(d, r->runs.n > 0 ? r->runs.run[0].model : "");
    eval_doc_put(d, ": answers from a compressed KV cache</title><style>\n%s</style></head><body>\n",
                 eval_html_style);
    eval_doc_put(d, "<h1>Answers from a compressed KV cache</h1>\n<nav>");
    for (int32_t i = 0; i < r->runs.n; i++) {
        eval_doc_put(d, "<a href=\"#run%d\">", i + 1);
        eval_doc_xml(d, r->runs.run[i].model);
        eval_doc_put(d, "</a>");
    }
    eval_doc_put(d, "</nav>\n");
}

int eval_report_html(struct eval_doc *d, const struct eval_report *r)
{
    struct eval_charts charts = {0};
    int rc = APP_OK;
    put_head(d, r);
    eval_html_side_by_side(d, r);
    for (int32_t i = 0; rc == APP_OK && i < r->runs.n; i++)
        rc = put_run(d, &charts, r, i);
    if (charts.missing)
        eval_doc_put(d, "<p class=\"soft\">There are no charts, because the program gnuplot was not found; "
                        "the tables have "
                        "the same numbers.</p>\n");
    else if (charts.failed)
        eval_doc_put(d,
                     "<p class=\"soft\">gnuplot could not make some of the charts; the tables have the same "
                     "numbers.</p>\n");
    eval_doc_put(d, "<p class=\"soft\">Made by winnow %s.</p>\n</body></html>\n", wnw_version());
    if (charts.missing)
        app_note(
            "the report has no charts: install gnuplot (Debian: gnuplot-nox) and run `winnow report` again");
    else if (charts.failed)
        app_note("gnuplot could not make some of the report's charts");
    return rc;
}
