/* SPDX-License-Identifier: MIT */
/* Names of variants in the report's JSON. */
#include "eval/report/report_impl.h"

#include "app/json.h"

#include <stdlib.h>

json_t *eval_label_json(const struct eval_run *run, const struct eval_variant *v, bool size)
{
    struct app_text label = {0};
    json_t *text = eval_variant_label(&label, run, v, size) ? json_stringn(label.s, label.len) : NULL;
    free(label.s);
    return text;
}

json_t *eval_asked_for(const struct eval_run *run, const struct eval_variant *v)
{
    const char *asked = json_string_value(json_object_get(json_object_get(run->info, "recipes"), v->policy));
    return app_json_text(asked ? asked : v->policy);
}
