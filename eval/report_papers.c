/* SPDX-License-Identifier: MIT */
/* Tables of the papers with our numbers beside them. */
#include "eval/papers.h"
#include "eval/report_html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The field of a list that begins at `at`, up to one of the separators; *next is NULL after the last. */
struct field {
    const char *s;
    size_t len;
};

static struct field take(const char **next, const char *separators)
{
    const struct field f = {*next, strcspn(*next, separators)};
    *next = f.s[f.len] ? f.s + f.len + 1 : NULL;
    return f;
}

/* Divides "TEXT@KEY" into text and key; the key's length is 0 where there is none. */
static struct field split_key(struct field *f)
{
    const char *at = memchr(f->s, '@', f->len);
    struct field key = {f->s + f->len, 0};
    if (at) {
        key = (struct field){at + 1, f->len - (size_t)(at + 1 - f->s)};
        f->len = (size_t)(at - f->s);
    }
    return key;
}

/* Whether a policy is one of the presets of a field, with whatever options. */
static bool is_one_of(const char *policy, struct field presets)
{
    const size_t len = strcspn(policy, ":");
    for (size_t i = 0; i < presets.len;) {
        const size_t n = strcspn(presets.s + i, " |\n");
        const size_t end = i + n < presets.len ? n : presets.len - i;
        if (end == len && strncmp(presets.s + i, policy, len) == 0)
            return true;
        i += end + 1;
    }
    return false;
}

/* ---- Our numbers ---- */

struct ours {
    const struct eval_tables *t;
    const struct eval_block *b; /* NULL: the run has nothing of the protocol */
    struct eval_curve *curves;
    int32_t n_curves;
};

/* Protocols that a table has columns for: that of the table, and the two in which a question is known. */
enum { OF_TABLE, KNOWN_READ, KNOWN_TOLD, N_OURS };

static bool begins(struct field f, const char *with)
{
    return f.len >= strlen(with) && strncmp(f.s, with, strlen(with)) == 0;
}

/* The size that the presets of a field name, "ratio=0.5"; len 0 if they name none. */
static struct field size_of(struct field presets)
{
    for (struct field word = presets; word.len > 0;) {
        size_t n = 0;
        while (n < word.len && word.s[n] != ' ')
            n++;
        if (memchr(word.s, '=', n))
            return (struct field){word.s, n};
        n += n < word.len;
        word = (struct field){word.s + n, word.len - n};
    }
    return (struct field){presets.s, 0};
}

static bool has_size(const struct eval_variant *v, struct field size)
{
    return v->full || (strlen(v->size) == size.len && strncmp(v->size, size.s, size.len) == 0);
}

/* Mean score of a task over its lengths; NAN where there is none. *kept as in find_ours. */
static double find_task(double *kept, const struct ours *o, const struct eval_row *row, struct field task)
{
    const struct eval_block *b = o->b;
    double mean = 0, full = 0;
    int32_t n = 0;
    for (int32_t k = 0; k < b->n_strata; k++) {
        const char *name = o->t->run->tasks[b->strata[k].task];
        if (!b->strata[k].scored || row->cell[k].n == 0 || strlen(name) != task.len ||
            strncmp(name, task.s, task.len) != 0)
            continue;
        mean += row->cell[k].mean;
        full += row->cell[k].full;
        n++;
    }
    *kept = full > 0 && !o->t->run->variants[row->variant].full ? 100 * mean / full : NAN;
    return n > 0 ? mean / n : NAN;
}

/* The number of ours for a column and a row; NAN where there is none. *kept: share of the full cache's score. *beyond:
 * the loss was never reached, and more could go. */
static double find_ours(double *kept, bool *beyond, const struct ours *o, struct field presets,
                        struct field key)
{
    const struct eval_run *run = o->t->run;
    const bool of_task = begins(key, "task=");
    const struct field size = of_task ? size_of(presets) : key;
    *kept = NAN;
    *beyond = false;
    if (!o->b || key.len == 0 || presets.len == 0)
        return NAN;
    for (int32_t i = 0; i < o->n_curves; i++) {
        const struct eval_curve *c = &o->curves[i];
        if (!c->has_auc || !is_one_of(run->variants[o->b->rows[c->first].variant].policy, presets))
            continue;
        if (begins(key, "auc_one"))
            return c->auc_one;
        for (int k = 0; begins(key, "loss=") && k < EVAL_N_LOSSES; k++)
            if (fabs(strtod(key.s + 5, NULL) - eval_losses[k]) < 1e-9) {
                *beyond = isinf(c->tolerance[k]);
                return 100.0 * (isinf(c->tolerance[k]) ? c->r[c->n - 1] : c->tolerance[k]);
            }
    }
    for (int32_t i = 0; i < o->b->n_rows; i++) {
        const struct eval_row *row = &o->b->rows[i];
        const struct eval_variant *v = &run->variants[row->variant];
        if (!has_size(v, size) || !is_one_of(v->policy, presets) || begins(key, "auc") || begins(key, "loss"))
            continue;
        if (of_task)
            return find_task(kept, o, row, (struct field){key.s + 5, key.len - 5});
        *kept = v->full ? NAN : eval_cell_retention(&row->macro);
        return row->macro.mean;
    }
    return NAN;
}

/* ---- Tables ---- */

static void put_field(struct eval_doc *d, const char *tag, const char *class_name, struct field f)
{
    eval_doc_put(d, class_name ? "<%s class=\"%s\">" : "<%s>", tag, class_name);
    eval_doc_xml_n(d, f.s, f.len);
    eval_doc_put(d, "</%s>", tag);
}

/* A number of ours, with the share of the full cache's score that is kept. Here and below, o[N_OURS] has the numbers of
 * each protocol. Returns whether there is one. */
static bool put_ours(struct eval_doc *d, const struct ours *o, struct field presets, struct field key)
{
    char number[EVAL_MAX_NUMBER], share[EVAL_MAX_NUMBER];
    double kept = NAN;
    bool beyond = false;
    double value;
    if (begins(key, "known:")) {
        const struct field rest = {key.s + 6, key.len - 6};
        value = find_ours(&kept, &beyond, &o[KNOWN_TOLD], presets, rest);
        if (isnan(value))
            value = find_ours(&kept, &beyond, &o[KNOWN_READ], presets, rest);
    } else {
        value = find_ours(&kept, &beyond, &o[OF_TABLE], presets, key);
    }
    if (!isnan(value))
        eval_doc_put(d, "%s%s", beyond ? "≥ " : "", eval_format(number, value, 1));
    if (!isnan(kept))
        eval_doc_put(d, " (kept %s %%)", eval_format(share, kept, 0));
    return !isnan(value);
}

/* A row of the paper and, below it, our numbers for columns that the paper has filled; ours for its empty columns stand
 * in the row itself. Returns whether there are any. */
static bool put_row(struct eval_doc *d, const struct ours *o, const char *columns, struct field row)
{
    struct field method = {row.s, strcspn(row.s, "|\n")};
    const struct field presets = split_key(&method);
    const char *cells = memchr(row.s, '|', row.len), *end = row.s + row.len;
    struct eval_doc below = {0};
    bool in_row = false, in_line = false;
    cells = cells ? cells + 1 : NULL;
    eval_doc_put(d, "<tr>");
    put_field(d, "th", "left", method);
    for (const char *next = columns; next;) {
        struct field column = take(&next, "|");
        const struct field key = split_key(&column);
        if (cells) {
            const struct field cell = {cells, strcspn(cells, "|\n")};
            put_field(d, "td", NULL, cell);
            cells = cell.s + cell.len < end ? cell.s + cell.len + 1 : NULL;
            eval_doc_put(&below, "<td>");
            in_line = put_ours(&below, o, presets, key) || in_line;
            eval_doc_put(&below, "</td>");
        } else {
            eval_doc_put(d, "<td class=\"ours\">");
            in_row = put_ours(d, o, presets, key) || in_row;
            eval_doc_put(d, "</td>");
        }
    }
    eval_doc_put(d, "</tr>\n");
    if (in_line)
        eval_doc_put(d, "<tr class=\"ours\"><th class=\"left\">ours</th>%s</tr>\n", below.text.s);
    d->no_memory = d->no_memory || below.no_memory;
    eval_doc_clear(&below);
    return (in_row || in_line) && !is_one_of("full", presets);
}

/* A table; returns whether it has a number of ours for a method. */
static bool put_table(struct eval_doc *d, const struct eval_paper *p, const struct ours *o)
{
    bool any = false;
    eval_doc_put(d, "<p class=\"caption\"><b>");
    eval_doc_xml(d, p->paper);
    eval_doc_put(d, "</b>: ");
    eval_doc_xml(d, p->what);
    eval_doc_put(d, ". ");
    eval_doc_xml(d, p->note);
    eval_doc_put(d, "</p><div class=\"scroll\"><table><thead><tr><th class=\"left\">Method</th>");
    for (const char *next = p->columns; next;) {
        struct field column = take(&next, "|");
        split_key(&column);
        put_field(d, "th", NULL, column);
    }
    eval_doc_put(d, "</tr></thead><tbody>\n");
    for (const char *next = p->rows; next;) {
        const struct field row = take(&next, "\n");
        any = put_row(d, o, p->columns, row) || any;
    }
    eval_doc_put(d, "</tbody></table></div>\n");
    return any;
}

/* Makes a paper's table with our numbers of the same protocols; returns whether there are any. */
static bool make_table(struct eval_doc *d, const struct eval_paper *p, const struct eval_tables *t)
{
    const char *const modes[N_OURS] = {[OF_TABLE] = p->mode, [KNOWN_READ] = "aware", [KNOWN_TOLD] = "task"};
    struct ours o[N_OURS];
    for (int i = 0; i < N_OURS; i++) {
        o[i] = (struct ours){.t = t, .b = modes[i] ? eval_tables_whole(t, modes[i]) : NULL};
        if (o[i].b && !eval_curves_make(&o[i].curves, &o[i].n_curves, t, o[i].b))
            d->no_memory = true;
    }
    const bool any = put_table(d, p, o);
    for (int i = 0; i < N_OURS; i++)
        free(o[i].curves);
    return any;
}

void eval_html_papers(struct eval_doc *d, const struct eval_tables *t)
{
    struct eval_doc with = {0}, without = {0};
    for (const struct eval_paper *p = eval_papers; p->paper; p++) {
        struct eval_doc one = {0};
        const bool any = make_table(&one, p, t);
        eval_doc_put(any ? &with : &without, "%s", one.text.s ? one.text.s : "");
        d->no_memory = d->no_memory || one.no_memory;
        eval_doc_clear(&one);
    }
    d->no_memory = d->no_memory || with.no_memory || without.no_memory;
    eval_doc_put(d, "<h3>Beside the papers</h3><p class=\"soft\">The papers' models have 7 to 32 billion "
                    "parameters, ours is ");
    eval_doc_xml(d, t->run->model);
    eval_doc_put(
        d,
        ". Tasks, lengths and models differ, so that only orderings and shares of the full cache's score can "
        "be "
        "compared, not the numbers. A number of ours stands under a method if protocol and size agree; it is "
        "the mean over the informative tasks of this run.</p>\n%s",
        with.text.s ? with.text.s
                    : "<p>No method of this run has a counterpart of the same protocol and size.</p>\n");
    if (without.text.s)
        eval_doc_put(d, "<details><summary>Tables without a counterpart in this run</summary>%s</details>\n",
                     without.text.s);
    eval_doc_clear(&with);
    eval_doc_clear(&without);
}
