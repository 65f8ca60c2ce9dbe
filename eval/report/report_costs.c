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

bool eval_costs_are_separate(const struct eval_run *run)
{
    return json_is_true(json_object_get(run->info, "alone"));
}

json_t *eval_costs_json(const struct eval_run *run, const struct eval_block *b, const struct eval_row *row)
{
    const double compress = mean_of(b, row, EVAL_M_COMPRESS), question = mean_of(b, row, EVAL_M_QUESTION);
    /* The first token of an answer costs no step, and the one that ends it costs one but is not part of it; answers
     * of a given length have no such end. */
    const double steps = mean_of(b, row, EVAL_M_GENERATED) - !!json_object_get(run->info, "answer_tokens");
    const double first = mean_of(b, row, EVAL_M_PREFILL) + (isnan(compress) ? 0.0 : compress) +
                         (isnan(question) ? 0.0 : question);
    const double per_token = steps > 0 ? mean_of(b, row, EVAL_M_DECODE) / steps : NAN;
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "context_tokens",
                     app_json_number(mean_of(b, row, EVAL_M_CONTEXT)), "first_token_s",
                     app_json_number(1e-3 * first), "compress_ms", app_json_number(compress), "ms_per_token",
                     app_json_number(per_token), "kept_mib",
                     app_json_number(mean_of(b, row, EVAL_M_BYTES) / 1048576.0), "peak_mib",
                     app_json_number(mean_of(b, row, EVAL_M_PEAK) / 1048576.0));
}
