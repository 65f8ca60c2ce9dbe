/* SPDX-License-Identifier: MIT */
/* The papers' numbers from a CSV file. */
#include "eval/report/papers.h"

#include "app/console.h"
#include "app/files.h"
#include "app/values.h"
#include "eval/base/grow.h"
#include "eval/results/curve.h"
#include "winnow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const columns[EVAL_P_FIELDS] = {"paper", "table",  "note", "method", "column", "recipe",
                                                   "mode",  "metric", "task", "size",   "value"};

/* Takes the field at *next, with quotation marks around it or not, which is unescaped in place. Returns what ended it: ',', a
 * line break, 0 at the end of the file, or -1 for a mark that is never closed or is followed by something else. */
static int take_field(const char **out, char **next)
{
    char *from = *next, *to = *next;
    const bool quoted = *from == '"';
    bool closed = !quoted;
    *out = to;
    for (from += quoted; *from && *from != '\n' && (quoted || *from != ','); *to++ = *from++)
        if (quoted && *from == '"' && *++from != '"') {
            closed = true;
            break;
        }
    if (to > *out && to[-1] == '\r' && !quoted)
        to--;
    from += quoted && *from == '\r' && from[1] == '\n';
    const int end = *from;
    if (!closed || (end && end != ',' && end != '\n'))
        return -1;
    *next = from + (end != 0);
    *to = '\0';
    return end;
}

/* Takes a line of fields; bad input if it has another number of them. */
static int take_line(struct eval_paper_number *out, char **next, const char *path, int32_t line)
{
    int end = ',';
    int32_t n = 0;
    for (; end == ',' && n < EVAL_P_FIELDS; n++)
        end = take_field(&out->field[n], next);
    if (end != '\n' && end != 0)
        return app_fail(APP_BAD_INPUT, "'%s' line %d: %s", path, line,
                        end < 0 ? "a quotation mark is not closed before the next comma"
                                : "it has more fields than the first line");
    return n == EVAL_P_FIELDS ? APP_OK
                              : app_fail(APP_BAD_INPUT, "'%s' line %d has %d fields; there are %d columns",
                                         path, line, n, EVAL_P_FIELDS);
}

/* ---- What a line may say ---- */

int eval_papers_word(char out[EVAL_MAX_RECIPE], const char **next)
{
    const char *s = *next + strspn(*next, " ");
    const size_t len = strcspn(s, " ");
    *next = s + len;
    if (len == 0 || len >= EVAL_MAX_RECIPE)
        return 0;
    memcpy(out, s, len);
    out[len] = '\0';
    return 1;
}

/* Whether a list is one of recipes. */
static int read_recipes(bool *good, const char *list)
{
    char recipe[EVAL_MAX_RECIPE];
    *good = true;
    while (*good && eval_papers_word(recipe, &list)) {
        wnw_policy *policy = NULL;
        const int status = wnw_policy_parse(&policy, recipe, NULL);
        if (status == WNW_E_NOMEM)
            return app_status_code(status);
        *good = status == WNW_OK;
        wnw_policy_free(policy);
    }
    *good = *good && list[strspn(list, " ")] == '\0';
    return APP_OK;
}

static bool is_metric(const char *s)
{
    double loss;
    bool known = strcmp(s, "score") == 0 || strcmp(s, "auc_one") == 0;
    for (int i = 0; strncmp(s, "loss=", 5) == 0 && app_parse_real(&loss, s + 5) && i < EVAL_N_LOSSES; i++)
        known = known || fabs(loss - eval_losses[i]) < 1e-9;
    return known;
}

static bool is_mode(const char *s)
{
    static const char *const modes[] = {"agnostic", "task", "aware", "aware_full", "known"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(s, modes[i]) == 0)
            return true;
    return false;
}

static bool is_size(const char *s)
{
    double value;
    if (strncmp(s, "ratio=", 6) == 0)
        return app_parse_real(&value, s + 6) && value >= 0 && value <= 1;
    return strncmp(s, "budget=", 7) == 0 && app_parse_real(&value, s + 7) && value >= 1;
}

/* What is wrong with a line: a field, and what it must be; -1 if nothing is. */
static int find_fault(const char **wanted, const struct eval_paper_number *p, bool has_recipes)
{
    const char *const *f = p->field;
    double value;
    const bool ours = *f[EVAL_P_METRIC], full = strcmp(f[EVAL_P_RECIPE], "full") == 0;
    const bool of_size = ours && strcmp(f[EVAL_P_METRIC], "score") == 0 && !full;
    const struct {
        int field;
        bool good;
        const char *wanted;
    } rules[] = {
        {EVAL_P_PAPER, *f[EVAL_P_PAPER] != '\0', "a name"},
        {EVAL_P_TABLE, *f[EVAL_P_TABLE] != '\0', "what was measured"},
        {EVAL_P_METHOD, *f[EVAL_P_METHOD] != '\0', "a name"},
        {EVAL_P_COLUMN, *f[EVAL_P_COLUMN] != '\0', "a name"},
        {EVAL_P_RECIPE, has_recipes && (!ours || *f[EVAL_P_RECIPE]), "recipes of winnow"},
        {EVAL_P_METRIC, !ours || is_metric(f[EVAL_P_METRIC]), "score, auc_one or loss=0.01, 0.05, 0.1, 0.2"},
        {EVAL_P_MODE, ours ? is_mode(f[EVAL_P_MODE]) : !*f[EVAL_P_MODE],
         "agnostic, task, aware, aware_full or known, and empty without a metric"},
        {EVAL_P_SIZE, of_size ? is_size(f[EVAL_P_SIZE]) : !*f[EVAL_P_SIZE],
         "ratio=R or budget=N, and empty for the full cache, areas and losses"},
        {EVAL_P_VALUE, app_parse_real(&value, f[EVAL_P_VALUE]) && isfinite(value), "a number"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!rules[i].good) {
            *wanted = rules[i].wanted;
            return rules[i].field;
        }
    return -1;
}

static int check_line(const struct eval_paper_number *p, const char *path, int32_t line)
{
    const char *wanted = "";
    bool has_recipes;
    WNW_TRY(read_recipes(&has_recipes, p->field[EVAL_P_RECIPE]));
    const int field = find_fault(&wanted, p, has_recipes);
    if (field < 0)
        return APP_OK;
    return app_fail(APP_BAD_INPUT, "'%s' line %d: %s is '%.100s'; it must be %s", path, line, columns[field],
                    p->field[field], wanted);
}

/* ---- The file ---- */

static int check_head(char **next, const char *path)
{
    struct eval_paper_number head;
    WNW_TRY(take_line(&head, next, path, 1));
    for (int i = 0; i < EVAL_P_FIELDS; i++)
        if (strcmp(head.field[i], columns[i]) != 0)
            return app_fail(APP_BAD_INPUT, "'%s': column %d is '%.100s', not '%s'", path, i + 1,
                            head.field[i], columns[i]);
    return APP_OK;
}

int eval_papers_read(struct eval_papers *out, const char *path)
{
    size_t len, n_lines = 1;
    *out = (struct eval_papers){0};
    WNW_TRY(app_read_file(&out->data, &len, path));
    for (size_t i = 0; i < len; i++)
        n_lines += out->data[i] == '\n';
    out->number = malloc(n_lines * sizeof *out->number);
    if (!out->number)
        return app_fail(APP_FAILED, "out of memory for '%s'", path);
    char *next = out->data;
    WNW_TRY(check_head(&next, path));
    for (; *next; out->n++) {
        struct eval_paper_number *p = &out->number[out->n];
        WNW_TRY(take_line(p, &next, path, out->n + 2));
        WNW_TRY(check_line(p, path, out->n + 2));
    }
    return APP_OK;
}

void eval_papers_clear(struct eval_papers *papers)
{
    free(papers->data);
    free(papers->number);
    *papers = (struct eval_papers){0};
}
