/* SPDX-License-Identifier: MIT */
/* The summary as text for a terminal, printed from the report's object. */
#include "eval/report/report_impl.h"
#include "eval/report/sheet.h"
#include "eval/results/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_LABEL = 6, LEAST_SCORE = 9 }; /* widths: of the heading METHOD; of a score with its marks */
#define MIB        (1.0 / 1048576.0)
#define N_OF(list) ((int32_t)(sizeof(list) / sizeof *(list)))

/* "N = 1024" of an object's length; returns out. */
static const char *length_of(char out[32], const json_t *o)
{
    const json_t *n = json_object_get(o, "N");
    return eval_words_length(out, json_is_string(n) ? EVAL_ALL_LENGTHS : (int32_t)json_integer_value(n));
}

/* ---- The methods of a block ---- */

static double removed_of(const json_t *row)
{
    return json_is_true(json_object_get(row, "full")) ? NAN : eval_member_number(row, "removed");
}

/* Tokens of an answer in a second. */
static double rate_of(const json_t *row)
{
    const json_t *c = json_object_get(row, "macro");
    const double ms = eval_member_number(c, "decode_ms");
    return ms > 0 ? 1000.0 * eval_member_number(c, "gen_tokens") / ms : NAN;
}

const char *eval_words_counts(char out[EVAL_MAX_COUNTS], const json_t *cell)
{
    static const struct eval_column wilson = {.key = "wilson", .show = EVAL_SHOW_SHARE, .decimals = 1};
    char share[EVAL_MAX_SHOWN], against[80] = "";
    if (isnan(eval_member_number(cell, "wilson_lo")))
        return strcpy(out, "");
    if (!isnan(eval_member_number(cell, "p")))
        snprintf(against, sizeof against, ", lost %.0f, gained %.0f, p = %.2g",
                 eval_member_number(cell, "lost"), eval_member_number(cell, "gained"),
                 eval_member_number(cell, "p"));
    snprintf(out, EVAL_MAX_COUNTS, "Wilson %.60s%s%s", eval_column_show(share, &wilson, cell), against,
             eval_member_number(cell, "clusters") < eval_member_number(cell, "n")
                 ? "; answers of one text or context count one by one"
                 : "");
    return out;
}

/* Where all differences are equal, the counts of answers tell more than the interval. */
static void put_counts(struct eval_doc *d, const json_t *row)
{
    const json_t *c = json_object_get(row, "macro");
    char counts[EVAL_MAX_COUNTS];
    if (strcmp(eval_member_text(c, "spread"), "none") == 0 && *eval_words_counts(counts, c))
        eval_doc_put(d, "  %s", counts);
}

static const struct eval_column of_methods[] = {
    {"n", "macro", "n", .width = 5},
    {"mean", "macro", "mean", .width = 6, .decimals = 1},
    {"full", "macro", "full", .width = 6, .decimals = 1},
    {"delta", "macro", "delta", .show = EVAL_SHOW_SIGNED, .width = 6, .decimals = 1},
    {"95 % interval", "macro", .show = EVAL_SHOW_DELTA, .width = -26, .decimals = 1},
    {"", "macro", .show = EVAL_SHOW_VERDICT, .width = -2},
    {"95 % over tasks", "macro", "tasks", .show = EVAL_SHOW_SHARE, .width = -15, .decimals = 1},
    {"short", "answers", "mean", .index = 0, .width = 5, .decimals = 1},
    {"copies", "answers", "mean", .index = 1, .width = 6, .decimals = 1},
    {"% full", "macro", "retention", .width = 6, .decimals = 1},
    {"first", "macro", "fgt", .width = 5, .decimals = 2},
    {"95 %", "macro", "fgt", .show = EVAL_SHOW_SHARE, .width = -12, .decimals = 2},
    {"kl", "macro", "kl", .width = 6, .decimals = 3},
    {"95 %", "macro", "kl", .show = EVAL_SHOW_SHARE, .width = -15, .decimals = 3},
    {"removed", .of = removed_of, .width = 7, .decimals = 3},
    {"KV MiB", "macro", "kv_bytes", .width = 8, .decimals = 2, .times = MIB},
    {"ms", "macro", "compress_ms", .width = 8, .decimals = 1},
    {"tok/s", .of = rate_of, .width = 7, .decimals = 1},
};

/* Scores, or divergences from the full cache: a row for each method, a column for each task, domain or bucket. gate: the objects that
 * say whether a column counts in means; NULL = all do. */
static void put_scores(struct eval_doc *d, struct eval_sheet sheet, const char *in, const char *key,
                       const json_t *gate, bool kl)
{
    const json_t *cells = json_object_get(json_array_get(sheet.rows, 0), in);
    struct eval_column *columns = calloc(json_array_size(cells) + 1, sizeof *columns);
    for (size_t i = 0; columns && i < json_array_size(cells); i++) {
        const char *name = eval_member_text(json_array_get(cells, i), key);
        const bool grey = json_is_false(json_object_get(json_array_get(gate, i), "informative"));
        const int width = eval_text_width(name);
        columns[sheet.n++] = (struct eval_column){.heading = name,
                                                  .in = in,
                                                  .key = kl ? "kl" : "mean",
                                                  .index = (int32_t)i,
                                                  .show = kl ? EVAL_SHOW_NUMBER : EVAL_SHOW_SCORE,
                                                  .width = width > LEAST_SCORE ? width : LEAST_SCORE,
                                                  .decimals = kl ? 3 : 1,
                                                  .mark = grey ? " u" : NULL};
    }
    sheet.columns = columns;
    d->no_memory = d->no_memory || !columns;
    if (sheet.n > 0) {
        eval_doc_put(d, "\n");
        eval_sheet_print(d, &sheet);
    }
    free(columns);
}

/* ---- Predictions and costs ---- */

#define GAP                                   \
    {                                         \
        "", .key = "", .show = EVAL_SHOW_TEXT \
    }

/* Adds what a task without informative scores shows; `index` is its number in the block. */
static void put_prediction(struct eval_doc *d, struct eval_sheet sheet, const json_t *prediction,
                           int32_t index)
{
    const struct eval_column of_scored[] = {
        {"n", "tasks", "n", index, .width = 5},
        GAP,
        {"KL to the full cache", "tasks", "kl", index, .width = -26, .decimals = 4},
        {"agree %", "tasks", "agree", index, .width = 7, .decimals = 1, .times = 100},
        {"first %", "tasks", "fgt", index, .width = 7, .decimals = 1, .times = 100},
        {"95 %", "tasks", "fgt", index, EVAL_SHOW_SHARE, .width = -14, .decimals = 1, .times = 100},
        {"dnll", "tasks", "dnll", index, EVAL_SHOW_SIGNED, .width = 8, .decimals = 3},
    };
    static const struct eval_column of_texts[] = {
        {"n", .key = "n", .width = 5},
        GAP,
        {"KL to the full cache", .key = "kl", .show = EVAL_SHOW_ESTIMATE, .width = -26, .decimals = 4},
        {"perplexity", .key = "perplexity", .show = EVAL_SHOW_ESTIMATE, .width = -32, .decimals = 2},
        {"over the full cache's", .key = "over_full", .show = EVAL_SHOW_ESTIMATE, .decimals = 3,
         .missing = ""},
    };
    const bool scored = json_is_true(json_object_get(prediction, "scored"));
    sheet.title = eval_member_text(prediction, "task");
    sheet.labels = sheet.rows;
    sheet.rows = scored ? sheet.rows : json_object_get(prediction, "rows");
    sheet.columns = scored ? of_scored : of_texts;
    sheet.n = scored ? N_OF(of_scored) : N_OF(of_texts);
    eval_doc_put(d, "\n");
    eval_sheet_print(d, &sheet);
}

static void put_predictions(struct eval_doc *d, const struct eval_sheet *sheet, const json_t *block)
{
    const json_t *tasks = json_object_get(block, "tasks"), *list = json_object_get(block, "predictions");
    for (size_t k = 0, i = 0; k < json_array_size(tasks) && i < json_array_size(list); k++)
        if (json_is_false(json_object_get(json_array_get(tasks, k), "informative")))
            put_prediction(d, *sheet, json_array_get(list, i++), (int32_t)k);
}

static void put_costs(struct eval_doc *d, struct eval_sheet sheet)
{
    static const struct eval_column columns[] = {
        {"context", "costs", "context_tokens", .width = 8},
        {"first s", "costs", "first_token_s", .width = 12, .decimals = 3},
        {"compress ms", "costs", "compress_ms", .width = 12, .decimals = 1},
        {"ms/token", "costs", "ms_per_token", .width = 12, .decimals = 2},
        {"kept MiB", "costs", "kept_mib", .width = 12, .decimals = 2},
        {"peak MiB", "costs", "peak_mib", .width = 12, .decimals = 2},
    };
    sheet.title = "COSTS, each by itself";
    sheet.columns = columns;
    sheet.n = N_OF(columns);
    eval_doc_put(d, "\n");
    eval_sheet_print(d, &sheet);
}

/* ---- Curves ---- */

static void put_tolerance(struct eval_doc *d, const json_t *curve)
{
    const json_t *list = json_object_get(curve, "tolerance"), *points = json_object_get(curve, "points");
    const size_t n = json_array_size(points);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *at = json_array_get(list, i);
        char text[EVAL_MAX_NUMBER];
        eval_doc_put(d, "  %s%s", json_is_true(json_object_get(at, "or_more")) ? ">=" : "",
                     eval_format(text, eval_member_number(at, "removed"), 3));
    }
    eval_doc_put(d, "  r = 0 to %.3g, %zu points",
                 json_number_value(json_array_get(json_array_get(points, n - 1), 0)), n);
}

static void put_curves(struct eval_doc *d, const json_t *block, int width)
{
    static const struct eval_column columns[] = {
        {"AUC", .key = "auc", .width = 7, .decimals = 2},
        {"AUC %", .key = "auc_rel", .width = 7, .decimals = 2},
        {"AUC0", .key = "auc_one", .width = 7, .decimals = 2},
    };
    const struct eval_sheet sheet = {.title = "CURVE",
                                     .label = "name",
                                     .width = width,
                                     .rows = json_object_get(block, "curves"),
                                     .columns = columns,
                                     .n = N_OF(columns),
                                     .tail = "  share that can go at a loss of 1, 5, 10, 20 %",
                                     .put_tail = put_tolerance};
    if (json_array_size(sheet.rows) == 0)
        return;
    eval_doc_put(d, "\n");
    eval_sheet_print(d, &sheet);
}

/* ---- Questions and maps ---- */

/* What the first question has over the last one shown. */
static double fall_of(const json_t *row)
{
    const json_t *scores = json_object_get(row, "scores");
    const json_t *first = json_array_get(scores, 0),
                 *last = json_array_get(scores, json_array_size(scores) - 1);
    return json_is_number(first) && json_is_number(last) ? json_number_value(first) - json_number_value(last)
                                                         : NAN;
}

static void put_turns(struct eval_doc *d, struct eval_sheet sheet, const json_t *block, const json_t *turns)
{
    const json_t *rows = json_object_get(turns, "rows");
    const int32_t n = (int32_t)json_array_size(json_object_get(json_array_get(rows, 0), "scores"));
    struct eval_column columns[EVAL_MAX_TURNS + 1];
    char headings[EVAL_MAX_TURNS][12];
    eval_doc_put(d, "\n%s, %s, by question", eval_member_text(block, "mode"),
                 eval_member_text(turns, "task"));
    if (n < eval_member_number(turns, "n"))
        eval_doc_put(d, " (the first %d of %.0f)", n, eval_member_number(turns, "n"));
    eval_doc_put(d, "\n");
    for (int32_t i = 0; i < n; i++) {
        snprintf(headings[i], sizeof headings[i], "%d", i + 1);
        columns[i] = (struct eval_column){headings[i], "scores", .index = i, .width = 6, .decimals = 1};
    }
    columns[n] = (struct eval_column){"first - last", .of = fall_of, .show = EVAL_SHOW_SIGNED, .width = 13,
                                      .decimals = 1};
    sheet.labels = sheet.rows;
    sheet.rows = rows;
    sheet.columns = columns;
    sheet.n = n + 1;
    eval_sheet_print(d, &sheet);
}

/* One character for a cell: tens of points, # for 100, a blank for none. */
static char shade(double value)
{
    if (isnan(value))
        return ' ';
    if (value > 99.5)
        return '#';
    return (char)('0' + (int)(value / 10.0));
}

/* partial: the map of the same answers by partial match; NULL = they have none, or it is the map itself. */
static void put_map(struct eval_doc *d, const char *label, const struct eval_map *m,
                    const struct eval_map *partial)
{
    char mean[EVAL_MAX_NUMBER], lo[EVAL_MAX_NUMBER], hi[EVAL_MAX_NUMBER];
    eval_doc_put(d, "%s: mean %s", label, eval_format(mean, m->mean, 1));
    if (m->binary)
        eval_doc_put(d, " [%s, %s]", eval_format(lo, m->wilson.lo, 1), eval_format(hi, m->wilson.hi, 1));
    if (m->has_protected)
        eval_doc_put(d, ", floor %d of %d in what is never dropped, unprotected %s", (int)m->n_protected,
                     (int)m->n_all, eval_format(mean, m->unprotected, 1));
    if (partial)
        eval_doc_put(d, ", partial match %s", eval_format(mean, partial->mean, 1));
    eval_doc_put(d, "\n");
    for (int32_t i = 0; i < m->n_depths; i++) {
        eval_doc_put(d, "  %3.0f %% ", m->depth[i]);
        for (int32_t k = 0; k < m->n_lengths; k++)
            eval_doc_put(d, "%c", shade(m->value[i * m->n_lengths + k]));
        eval_doc_put(d, "\n");
    }
}

/* The map of a row by partial match; NULL = its task has none. */
static const struct eval_map *partial_of(const struct eval_map *map, int32_t n, int32_t row)
{
    for (int32_t i = 0; i < n; i++)
        if (map[i].row == row && map[i].score->measure == EVAL_M_PARTIAL)
            return &map[i];
    return NULL;
}

/* Adds the maps of a task that show a score, if there are such; map[n] are all of the task. */
static void put_maps(struct eval_doc *d, const json_t *block, const char *task, const struct eval_map *map,
                     int32_t n, const struct eval_map_score *score)
{
    const json_t *tasks = json_object_get(block, "tasks"), *rows = json_object_get(block, "rows");
    bool any = false;
    for (int32_t i = 0; i < n; i++) {
        if (map[i].score != score)
            continue;
        if (!any) {
            eval_doc_put(d,
                         "\n%s, %s, %s by depth (rows) and length (columns:", eval_member_text(block, "mode"),
                         task, score->about);
            for (size_t k = 0; k < json_array_size(tasks); k++)
                if (strcmp(eval_member_text(json_array_get(tasks, k), "task"), task) == 0)
                    eval_doc_put(d, " %.0f", eval_member_number(json_array_get(tasks, k), "N"));
            eval_doc_put(d, "); 0 to 9: tens of points, #: 100\n");
        }
        any = true;
        put_map(d, eval_member_text(json_array_get(rows, (size_t)map[i].row), "label"), &map[i],
                score->measure == EVAL_M_PARTIAL ? NULL : partial_of(map, n, map[i].row));
    }
}

static void put_questions(struct eval_doc *d, const struct eval_sheet *sheet, const json_t *block,
                          const struct eval_report *r, int32_t run, int32_t b)
{
    const json_t *turns = json_object_get(block, "turns");
    const char *shown = r->args->niah_score ? r->args->niah_score : "score";
    size_t turn = 0;
    for (int32_t task = 0; task < r->runs.run[run].n_tasks; task++) {
        const char *name = r->runs.run[run].tasks[task];
        const json_t *of = json_array_get(turns, turn);
        int32_t n;
        const struct eval_map *map = eval_maps_of(&n, &r->maps[run], b, task);
        if (strcmp(eval_member_text(of, "task"), name) == 0) {
            put_turns(d, *sheet, block, of);
            turn++;
        }
        for (int k = 0; k < EVAL_N_MAP_SCORES; k++)
            if (eval_map_shows(shown, &eval_map_scores[k]))
                put_maps(d, block, name, map, n, &eval_map_scores[k]);
    }
}

/* ---- Blocks and runs ---- */

static void put_block(struct eval_doc *d, struct eval_sheet sheet, const json_t *block, bool separate)
{
    const json_t *tasks = json_object_get(block, "tasks");
    const bool whole = json_is_string(json_object_get(block, "N"));
    int n_informative = 0;
    char length[32];
    for (size_t k = 0; k < json_array_size(tasks); k++)
        n_informative += json_is_true(json_object_get(json_array_get(tasks, k), "informative"));
    eval_doc_put(d, "\n%s, %s: %zu tasks, %d of them informative\n", eval_member_text(block, "mode"),
                 length_of(length, block), json_array_size(tasks), n_informative);
    struct eval_sheet methods = sheet;
    methods.columns = of_methods;
    methods.n = N_OF(of_methods);
    methods.stars = true;
    methods.put_tail = put_counts;
    eval_sheet_print(d, &methods);
    sheet.title = "BY TASK";
    if (!whole)
        put_scores(d, sheet, "tasks", "task", tasks, false);
    sheet.title = "KL";
    if (!whole)
        put_scores(d, sheet, "tasks", "task", NULL, true);
    sheet.title = "BY ANSWER";
    put_scores(d, sheet, "answers", "answer", NULL, false);
    sheet.title = "BY DOMAIN";
    put_scores(d, sheet, "domains", "domain", NULL, false);
    sheet.title = "BY WORDS OF THE CONTEXT";
    put_scores(d, sheet, "buckets", "bucket", NULL, false);
    put_predictions(d, &sheet, block);
    if (separate && !whole)
        put_costs(d, sheet);
}

static void put_versus(struct eval_doc *d, const json_t *names, const json_t *list)
{
    static const struct eval_column interval = {.show = EVAL_SHOW_DELTA, .decimals = 1},
                                    told = {.show = EVAL_SHOW_VERDICT};
    eval_doc_put(d, "\n%s minus %s, on the same samples\n", json_string_value(json_array_get(names, 0)),
                 json_string_value(json_array_get(names, 1)));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        char length[32], a[EVAL_MAX_NUMBER], b[EVAL_MAX_NUMBER], delta[EVAL_MAX_NUMBER], over[EVAL_MAX_SHOWN],
            verdict[EVAL_MAX_SHOWN];
        eval_doc_put(d, "%-12s %-24s %-16s %-6s n = %.0f %6s %6s %6s %s %s\n", eval_member_text(v, "mode"),
                     length_of(length, v), eval_member_text(v, "size"), eval_member_text(v, "kv_type"),
                     eval_member_number(v, "n"), eval_format(a, eval_member_number(v, "mean_a"), 1),
                     eval_format(b, eval_member_number(v, "mean_b"), 1),
                     eval_format_signed(delta, eval_member_number(v, "delta"), 1),
                     eval_column_show(over, &interval, v), eval_column_show(verdict, &told, v));
    }
    if (json_array_size(list) == 0)
        eval_doc_put(d, "no size, protocol and type of cache that both have\n");
}

/* What both sides of a contrast have in common, or what each has. */
static void put_both(struct eval_doc *d, const json_t *contrast, const char *of_a, const char *of_b)
{
    const char *a = eval_member_text(contrast, of_a), *b = eval_member_text(contrast, of_b);
    eval_doc_put(d, ", %s", a);
    if (strcmp(a, b) != 0)
        eval_doc_put(d, " and %s", b);
}

/* Contrasts that were listed before the run. */
static void put_contrasts(struct eval_doc *d, const json_t *list)
{
    if (json_array_size(list) > 0)
        eval_doc_put(d, "\nprimary contrasts, listed before the run; p for all of them together (Holm)\n");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        const bool kl = strcmp(eval_member_text(c, "of"), "kl") == 0;
        const struct eval_column interval = {.show = EVAL_SHOW_DELTA, .decimals = kl ? 4 : 1};
        char length[32], delta[EVAL_MAX_NUMBER], over[EVAL_MAX_SHOWN];
        eval_doc_put(d, "%s minus %s, %s", eval_member_text(c, "a"), eval_member_text(c, "b"),
                     eval_member_text(c, "mode"));
        put_both(d, c, "size", "size_b");
        put_both(d, c, "kv_type", "kv_type_b");
        if (json_is_string(json_object_get(c, "evict")))
            put_both(d, c, "evict", "evict_b");
        if (json_is_string(json_object_get(c, "every")))
            put_both(d, c, "every", "every_b");
        eval_doc_put(d, ", %s%s: ", length_of(length, c), kl ? ", KL" : "");
        if (json_is_true(json_object_get(c, "measured")))
            eval_doc_put(d, "n = %.0f, %s %s, p = %.2g %s\n", eval_member_number(c, "n"),
                         eval_format_signed(delta, eval_member_number(c, "delta"), interval.decimals),
                         eval_column_show(over, &interval, c), eval_member_number(c, "p_holm"),
                         eval_member_text(c, "verdict"));
        else
            eval_doc_put(d, "not measured\n");
    }
}

/* The widest label of a run, at least as wide as the heading. */
static int label_width(const json_t *blocks)
{
    int widest = LEAST_LABEL;
    for (size_t k = 0; k < json_array_size(blocks); k++) {
        const json_t *rows = json_object_get(json_array_get(blocks, k), "rows");
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const int width = eval_text_width(eval_member_text(json_array_get(rows, i), "label"));
            widest = width > widest ? width : widest;
        }
    }
    return widest;
}

static void put_run(struct eval_doc *d, const struct eval_report *r, const json_t *object, int32_t i)
{
    const json_t *run = json_array_get(json_object_get(object, "runs"), (size_t)i);
    const json_t *folders = json_object_get(run, "folders"), *blocks = json_object_get(run, "blocks"),
                 *notes = json_object_get(run, "notes"), *versus = json_object_get(run, "compare");
    const int width = label_width(blocks) + 1;
    eval_doc_put(d, "%s%s: %.0f answers", i > 0 ? "\n" : "", eval_member_text(run, "model"),
                 eval_member_number(run, "answers"));
    for (size_t k = 0; k < json_array_size(folders); k++)
        eval_doc_put(d, "%s%s", k == 0 ? " in " : ", ", json_string_value(json_array_get(folders, k)));
    eval_doc_put(d, "\n");
    for (size_t k = 0; k < json_array_size(blocks); k++) {
        const json_t *block = json_array_get(blocks, k);
        const struct eval_sheet sheet = {
            .title = "METHOD", .label = "label", .width = width, .rows = json_object_get(block, "rows")};
        if (json_is_false(json_object_get(block, "repeats")))
            put_block(d, sheet, block, json_is_true(json_object_get(run, "alone")));
        if (json_is_string(json_object_get(block, "N"))) {
            put_curves(d, block, width);
            put_questions(d, &sheet, block, r, i, (int32_t)k);
        }
    }
    put_contrasts(d, json_object_get(run, "contrasts"));
    if (versus)
        put_versus(d, json_object_get(object, "compared"), versus);
    eval_doc_put(d, "\n");
    for (size_t k = 0; k < json_array_size(notes); k++)
        eval_doc_put(d, "%s\n", json_string_value(json_array_get(notes, k)));
}

void eval_report_text(struct eval_doc *d, const struct eval_report *r, const json_t *object)
{
    for (int32_t i = 0; i < r->runs.n; i++)
        put_run(d, r, object, i);
    eval_doc_put(
        d,
        "\nScores are points of 100.\n"
        "delta: difference from the full cache on the same samples, with a paired 95 %% bootstrap interval. "
        "+ better, - worse,\n~ no difference shown, = the whole interval is within %d points. If nothing "
        "varies, the interval is of what so few contexts\nmay have missed.\n"
        "95 %% over tasks: the interval for other tasks of the kind, from six tasks on.\n"
        "short, copies: means of tasks whose answers are a few tokens, and of tasks whose answers repeat a "
        "long text.\n"
        "%% full: share of the full cache's score.\n"
        "first: share of first tokens that are the full cache's, with Wilson's 95 %% interval if tasks have "
        "equally many answers.\n"
        "kl: divergence of predictions from the full cache's, nats. u: uninformative task.\n",
        EVAL_MARGIN_POINTS);
}
