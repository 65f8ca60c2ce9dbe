/* SPDX-License-Identifier: MIT */
/* What gnuplot writes as SVG, made fit to stand in a page with others: ids of its own, no tooltips, nothing superfluous. */
#include "eval/chart_svg.h"

#include <string.h>

/* Attributes that say what holds anyway. */
static const char *const superfluous[] = {" stroke-linecap=\"butt\"", " stroke-linejoin=\"miter\"",
                                          " stroke-width=\"1.00\"", " font-family=\"sans-serif\""};
/* What comes before an id or a reference to one. */
static const char *const before_ids[] = {"id=\"", "id='", "href='#", "href=\"#", "url(#"};

/* Length of the one of list[n] that stands at `at`, 0 if none does. */
static size_t match(const char *at, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(at, list[i], strlen(list[i])) == 0)
            return strlen(list[i]);
    return 0;
}

/* Length of a title, or of a group of nothing but white space; 0 if `at` is neither. */
static size_t skipped(const char *at)
{
    if (strncmp(at, "<title>", 7) == 0) {
        const char *end = strstr(at, "</title>");
        return end ? (size_t)(end + 8 - at) : 0;
    }
    const char *end = strncmp(at, "<g ", 3) == 0 ? strchr(at, '>') : NULL;
    if (!end)
        return 0;
    end += 1 + strspn(end + 1, " \t\n");
    return strncmp(end, "</g>", 4) == 0 ? (size_t)(end + 4 - at) : 0;
}

void eval_svg_add(struct eval_doc *d, const char *svg, int number)
{
    const char *done = strstr(svg, "<svg");
    for (const char *at = done; at && *at;) {
        const size_t id = match(at, before_ids, sizeof before_ids / sizeof *before_ids);
        size_t drop = match(at, superfluous, sizeof superfluous / sizeof *superfluous);
        drop = drop > 0 ? drop : skipped(at);
        if (drop == 0 && (*at == '\n' || *at == '\t'))
            drop = strspn(at, "\n\t");
        if (id == 0 && drop == 0) {
            at++;
            continue;
        }
        /* A line break between attributes stands for the blank between them. */
        eval_doc_put(d, "%.*s", (int)(at + id - done), done);
        if (id > 0)
            eval_doc_put(d, "c%d-", number);
        else if (*at == '\n' || *at == '\t')
            eval_doc_put(d, " ");
        at += id + drop;
        done = at;
    }
    eval_doc_put(d, "%s", done ? done : "");
}
