/* SPDX-License-Identifier: MIT */
/* Studies. */
#include "eval/study.h"

#include "app/console.h"
#include "app/values.h"

#include <stddef.h>
#include <string.h>

/* KVCompose, tables 2 to 4: RULER at 4096 tokens over nine shares. */
static const struct eval_suite_item kvcompose[] = {{"ruler", 4096, 20, 1}, {.tasks = NULL}};

static const struct eval_part of_kvcompose[] = {
    {.policies = "kvcompose,tova,duoattention-prompt,snapkv,pyramidkv,streaming_llm,expected_attention,"
                 "kvcompose-unstructured,kvzip,adakv-expected_attention,adakv",
     .modes = "agnostic,aware",
     .ratios = "auc9"},
    {.policies = "kvcompose-aware", .modes = "task", .ratios = "auc9"},
    {.policies = NULL}};

static const struct eval_study studies[] = {
    {.suite = {"kvcompose",
               "scores over the share removed: composite tokens against heads on their own; told the "
               "question or not",
               kvcompose, of_kvcompose, "lin10", "4096", false, 4}},
};

const struct eval_study *eval_study_get(int32_t i)
{
    return i >= 0 && i < (int32_t)(sizeof studies / sizeof *studies) ? &studies[i] : NULL;
}

enum { MAX_NAMES = 16 };

/* Refuses a name of --OPTION and says which one was probably meant, or all of them. */
static int unknown(const char *option, const char *given, const char *names[MAX_NAMES + 1])
{
    const char *near = app_nearest(given, names);
    return near ? app_fail(APP_BAD_INPUT, "--%s '%s' is unknown; did you mean %s?", option, given, near)
                : app_fail(APP_BAD_INPUT, "--%s '%s' is unknown; `winnow eval --list` lists them", option,
                           given);
}

int eval_study_find(const struct eval_study **study, const struct eval_args *args)
{
    const char *names[MAX_NAMES + 1];
    const struct eval_study *s;
    int32_t i = 0;
    *study = NULL;
    if (!args->study)
        return APP_OK;
    for (; i < MAX_NAMES && (s = eval_study_get(i)); i++) {
        if (strcmp(s->suite.name, args->study) == 0)
            *study = s;
        names[i] = s->suite.name;
    }
    names[i] = NULL;
    return *study ? APP_OK : unknown("study", args->study, names);
}

static int find_suite(const struct eval_suite **suite, const char *name)
{
    const char *names[MAX_NAMES + 1];
    const struct eval_suite *s;
    int32_t i = 0;
    *suite = eval_suite_find(name);
    for (; i < MAX_NAMES && (s = eval_suite_get(i)); i++)
        names[i] = s->name;
    names[i] = NULL;
    return *suite ? APP_OK : unknown("suite", name, names);
}

int eval_suite_choose(const struct eval_suite **suite, const struct eval_args *args)
{
    const struct eval_study *study;
    int rc = eval_study_find(&study, args);
    *suite = study && !study->run ? &study->suite : NULL;
    if (rc == APP_OK && args->suite && args->study)
        rc = app_fail(APP_BAD_INPUT, "--suite and --study exclude each other; give one of them");
    else if (rc == APP_OK && args->suite)
        rc = find_suite(suite, args->suite);
    return rc;
}
