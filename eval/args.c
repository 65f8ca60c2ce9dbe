/* SPDX-License-Identifier: MIT */
/* Options of the evaluation's sub-commands. */
#include "eval/args.h"

#define AT(field) offsetof(struct eval_args, field)

static const struct app_option score_options[] = {
    {"metric", 0, APP_TEXT, "NAME", NULL, "none, must be given", "metric; a wrong name lists them",
     AT(metric), 0, 0, NULL},
    {"input", 'i', APP_TEXT, "FILE", NULL, "none, must be given",
     "JSONL with \"pred\", \"refs\" and, for classification, \"classes\"", AT(input), 0, 0, NULL},
    {"json", 0, APP_FLAG, NULL, NULL, "off", "print one JSON object", AT(app.json), 0, 0, NULL},
};
APP_GROUP(eval_group_score, "Options", score_options);
