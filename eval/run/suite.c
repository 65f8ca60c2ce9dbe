/* SPDX-License-Identifier: MIT */
/* Suites. */
#include "eval/run/suite.h"

#include <stddef.h>
#include <string.h>

static const struct eval_suite_item tiny_ci[] = {
    {"niah_single_1", 512, 1, 1}, {"fwe", 512, 1, 1}, {"scb_kv_syn", 768, 1, 1}, {.tasks = NULL}};

static const struct eval_suite_item smoke[] = {{"niah_single_1", 512, 2, 1},
                                               {"niah_single_2", 512, 2, 1},
                                               {"niah_multikey_1", 512, 2, 1},
                                               {"fwe", 512, 2, 1},
                                               {"passkey64", 512, 2, 1},
                                               {"scb_kv_syn", 768, 2, 1},
                                               {.tasks = NULL}};

static const struct eval_suite_item small[] = {{"niah_single_1", 1024, 8, 1},
                                               {"niah_single_2", 1024, 8, 1},
                                               {"niah_single_3", 1024, 8, 1},
                                               {"niah_multikey_1", 1024, 8, 1},
                                               {"niah_multikey_2", 1024, 8, 1},
                                               {"niah_multivalue", 1024, 8, 1},
                                               {"niah_multiquery", 1024, 8, 1},
                                               {"vt", 1024, 8, 1},
                                               {"fwe", 1024, 8, 1},
                                               {"niah_single_2", 2048, 4, 1},
                                               {"niah_multikey_1", 2048, 4, 1},
                                               {"vt", 2048, 4, 1},
                                               {"cwe", 2048, 4, 1},
                                               {"qa_syn_1", 2048, 4, 1},
                                               {"niah_grid", 1024, 0, 1},
                                               {"niah_grid", 2048, 0, 1},
                                               {"passkey64", 1024, 0, 1},
                                               {"passkey64", 2048, 0, 1},
                                               {"scb_kv_syn", 1536, 2, 1},
                                               {"scb_niah_syn", 1536, 2, 1},
                                               {"scb_mf_syn", 1536, 2, 1},
                                               {.tasks = NULL}};

static const struct eval_suite_item full[] = {{"ruler", 4096, 50, 1}, {"ruler", 8192, 50, 1},
                                              {"niah_grid", 0, 0, 1}, {"passkey64", 0, 0, 3},
                                              {"scb", 8192, 20, 1},   {.tasks = NULL}};

static const struct eval_part of_smoke[] = {{.policies = "full,snapkv"}, {.policies = NULL}};
static const struct eval_part of_small[] = {{.policies = "full,snapkv,lagkv", .ratios = "0.5,0.75"},
                                            {.policies = NULL}};
static const struct eval_part of_full[] = {
    {.policies = "full,snapkv,lagkv", .modes = "agnostic,aware", .ratios = "auc9"}, {.policies = NULL}};

static const struct eval_suite suites[] = {
    {.name = "tiny-ci",
     .about = "three tasks of 512 to 768 tokens with one sample each, for tests",
     .items = tiny_ci,
     .parts = of_smoke,
     .depths = "lin5",
     .lengths = "512",
     .short_answers = true},
    {.name = "smoke",
     .about = "six tasks of 512 to 768 tokens with two samples each: whether anything is broken",
     .items = smoke,
     .parts = of_smoke,
     .depths = "25,75",
     .lengths = "512",
     .short_answers = true},
    {.name = "small",
     .about = "RULER's style, grids and several turns at 1024 to 2048 tokens: sees collapses",
     .items = small,
     .parts = of_small,
     .depths = "lin5",
     .lengths = "1024",
     .short_answers = true,
     .n_probes = 4},
    {.name = "full",
     .about = "RULER's style at 4096 and 8192 tokens with 50 samples, grids up to the context: sees what "
              "papers see",
     .items = full,
     .parts = of_full,
     .depths = "lin10",
     .lengths = "c32",
     .n_probes = 10},
};

const struct eval_suite *eval_suite_get(int32_t i)
{
    return i >= 0 && i < (int32_t)(sizeof suites / sizeof *suites) ? &suites[i] : NULL;
}

const struct eval_suite *eval_suite_find(const char *name)
{
    const struct eval_suite *s;
    for (int32_t i = 0; (s = eval_suite_get(i)); i++)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

int32_t eval_suite_answer(const char *task)
{
    static const struct {
        const char *task;
        int32_t n;
    } caps[] = {{"niah_single_1", 32},
                {"niah_single_2", 32},
                {"niah_single_3", 64},
                {"niah_multikey_1", 32},
                {"niah_multikey_2", 32},
                {"niah_multikey_3", 64},
                {"niah_multivalue", 80},
                {"niah_multiquery", 80},
                {"scb_niah_syn", 32},
                {"passkey64", 96},
                {"passkey7", 32},
                {"scb_kv_syn", 64},
                {"scb_prefix_suffix_syn", 64}};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++)
        if (strcmp(caps[i].task, task) == 0)
            return caps[i].n;
    return 0;
}
