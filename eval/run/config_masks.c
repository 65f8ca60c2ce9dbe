/* SPDX-License-Identifier: MIT */
/* Masked heads of a model, and the hash of the calibration results that name them. */
#include "eval/run/config.h"

#include "base/random.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"
#include "winnow_calibrate.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

bool eval_profile_hash(uint64_t *out, const wnw_profile *p)
{
    wnw_profile_table t = wnw_profile_table_default();
    *out = WNW_HASH_START;
    for (int32_t i = 0; wnw_profile_get_table(p, i, &t); i++) {
        int64_t n = 1;
        for (int32_t k = 0; k < t.n_dim; k++)
            n *= t.shape[k];
        double *value = calloc((size_t)n + 1, sizeof *value);
        const bool good = value && wnw_profile_get_values(value, n, p, t.name) == WNW_OK;
        if (good) {
            *out = wnw__hash_join(*out, t.name, strlen(t.name));
            *out = wnw__hash_join(*out, t.shape, (size_t)t.n_dim * sizeof *t.shape);
            *out = wnw__hash_join(*out, value, (size_t)n * sizeof *value);
        }
        free(value);
        if (!good)
            return false;
    }
    return true;
}

int eval_masks_open(struct eval_configs *c, const wnw_model *m, const wnw_profile *p)
{
    c->masks_profiled = p != NULL;
    if (p && !eval_profile_hash(&c->mask_profile, p))
        return eval_no_memory("the scores of heads");
    int status = WNW_OK;
    for (int32_t i = 1; status == WNW_OK && i < c->n_masks; i++)
        status = wnw_heads_parse(&c->masks[i].heads, &c->masks[i].n, c->masks[i].text, m, p);
    return eval_status_code(status);
}
