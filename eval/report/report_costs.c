/* SPDX-License-Identifier: MIT */
/* What a method costs at a length: time and memory. */
#include "eval/report/report_impl.h"

#include "app/json.h"

#include <math.h>

/* ---- What a row costs at a length ---- */

/* Mean of a number over all strata of a row: costs do not depend on whether a task is informative. */
static double mean_of(const struct eval_block *b, const struct eval_row *row, enum eval_measure m)
{
    double sum = 0.0;
    size_t n = 0;
    for (int32_t i = 0; i < b->n_strata; i++)
        if (!isnan(row->cell[i].m[m])) {
            sum += row->cell[i].m[m] * (double)row->cell[i].n;
            n += row->cell[i].n;
        }
    return n > 0 ? sum / (double)n : NAN;
}

static double tokens(const struct eval_block *b, const struct eval_row *row)
{
    return mean_of(b, row, EVAL_M_CONTEXT);
}

static const struct {
    const char *key; /* in JSON */
    int decimals;
    const char *column; /* of the table in text */
} costs[] = {{"first_token_s", 3, "first s"},
             {"compress_ms", 1, "compress ms"},
             {"ms_per_token", 2, "ms/token"},
             {"kept_mib", 2, "kept MiB"},
             {"peak_mib", 2, "peak MiB"}};
enum { N_COSTS = sizeof costs / sizeof *costs };

/* Fills in what a row costs, in the order of `costs`; NaN where nothing was measured. */
static void find_costs(double out[N_COSTS], const struct eval_run *run, const struct eval_block *b,
                       const struct eval_row *row)
{
    const double compress = mean_of(b, row, EVAL_M_COMPRESS), question = mean_of(b, row, EVAL_M_QUESTION);
    /* The first token of an answer costs no step, and the one that ends it costs one but is not part of it; answers
     * of a given length have no such end. */
    const double steps = mean_of(b, row, EVAL_M_GENERATED) - !!json_object_get(run->info, "answer_tokens");
    out[0] = 1e-3 * (mean_of(b, row, EVAL_M_PREFILL) + (isnan(compress) ? 0.0 : compress) +
                     (isnan(question) ? 0.0 : question));
    out[1] = compress;
    out[2] = steps > 0 ? mean_of(b, row, EVAL_M_DECODE) / steps : NAN;
    out[3] = mean_of(b, row, EVAL_M_BYTES) / 1048576.0;
    out[4] = mean_of(b, row, EVAL_M_PEAK) / 1048576.0;
}

bool eval_costs_are_alone(const struct eval_run *run)
{
    return json_is_true(json_object_get(run->info, "alone"));
}

json_t *eval_costs_json(const struct eval_run *run, const struct eval_block *b, const struct eval_row *row)
{
    double cost[N_COSTS];
    json_t *o = json_object();
    find_costs(cost, run, b, row);
    const double context = tokens(b, row);
    app_json_set(&o, "context_tokens", app_json_number(context));
    for (int k = 0; k < N_COSTS; k++)
        app_json_set(&o, costs[k].key, app_json_number(cost[k]));
    return o;
}

void eval_text_costs(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b, int width)
{
    if (!eval_costs_are_alone(t->run) || b->n_target == EVAL_ALL_LENGTHS)
        return;
    eval_doc_put(d, "\n%-*s %8s", width + 1, "COSTS, each by itself", "context");
    for (int k = 0; k < N_COSTS; k++)
        eval_doc_put(d, " %12s", costs[k].column);
    eval_doc_put(d, "\n");
    for (int32_t i = 0; i < b->n_rows; i++) {
        char text[EVAL_MAX_NUMBER];
        double cost[N_COSTS];
        find_costs(cost, t->run, b, &b->rows[i]);
        eval_text_label(d, t->run, &t->run->variants[b->rows[i].variant], true, width + 1);
        eval_doc_put(d, " %8s", eval_format(text, tokens(b, &b->rows[i]), 0));
        for (int k = 0; k < N_COSTS; k++)
            eval_doc_put(d, " %12s", eval_format(text, cost[k], costs[k].decimals));
        eval_doc_put(d, "\n");
    }
}
