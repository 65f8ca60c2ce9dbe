/* SPDX-License-Identifier: MIT */
/* Studies. */
#include "eval/run/study.h"

#include "app/console.h"
#include "base/nearest.h"

#include <stddef.h>
#include <string.h>

/* ---- CompressKV (arXiv 2508.02401): budgets, needles, the ablation of its parts, masked heads. Its 16 sets of LongBench
 * are the user's files, and questions about made-up documents stand in for them. ---- */

static const struct eval_suite_item compresskv[] = {{"qa_syn_1", 4096, 20, 1},
                                                    {"qa_syn_2", 4096, 20, 1},
                                                    {"niah_single_2", 4096, 20, 1},
                                                    {"niah_grid", 0, 0, 1},
                                                    {.tasks = NULL}};
static const struct eval_part of_compresskv[] = {
    {.policies = "paper-compresskv-streaming_llm,paper-compresskv-snapkv,paper-compresskv-pyramidkv,"
                 "paper-compresskv-cake,paper-compresskv",
     .modes = "aware_full",
     .budgets = "abs"},
    {.policies = "paper-compresskv+uniform,paper-compresskv-traditional,paper-compresskv:heads=all+uniform,"
                 "paper-compresskv:heads=random+uniform,paper-compresskv:k=2+uniform,"
                 "paper-compresskv:k=6+uniform,paper-compresskv:k=12+uniform,paper-compresskv:k=24+uniform",
     .modes = "aware_full",
     .budgets = "256"},
    {.policies = "full",
     .modes = "aware_full",
     .masks = "srh:top10/srh:top20/srh:top30/trad:top10/trad:top20/trad:top30/random:30:1:100",
     .mask_phase = "decode"},
    {.policies = NULL}};

/* ---- KVCompose (arXiv 2509.05165), tables 2 to 4: RULER at 4096 tokens over nine shares. DuoAttention is judged from
 * the prompt, so that the study needs no profile. ---- */

static const struct eval_suite_item kvcompose[] = {{"ruler", 4096, 20, 1}, {.tasks = NULL}};
static const struct eval_part of_kvcompose[] = {
    {.policies = "kvcompose,tova,duoattention-prompt,snapkv,pyramidkv,streaming_llm,expected_attention,"
                 "kvcompose-unstructured,kvzip,adakv-expected_attention,adakv",
     .ratios = "auc9"},
    {.policies = "tova,duoattention-prompt,snapkv,pyramidkv,streaming_llm,expected_attention",
     .modes = "aware",
     .ratios = "auc9"},
    {.policies = "kvcompose-aware", .modes = "task", .ratios = "auc9"},
    {.policies = NULL}};

/* ---- CompilerKV (arXiv 2602.08686): its comparison at 512 and 128 entries, the sweep of budgets, the ablation. ---- */

static const struct eval_suite_item compilerkv[] = {{"qa_syn_1", 4096, 20, 1},
                                                    {"qa_syn_2", 4096, 20, 1},
                                                    {"niah_single_2", 4096, 20, 1},
                                                    {"niah_grid", 0, 0, 1},
                                                    {.tasks = NULL}};
static const struct eval_part of_compilerkv[] = {
    {.policies = "paper-compilerkv-streaming_llm,paper-compilerkv-h2o,paper-compilerkv-snapkv,"
                 "paper-compilerkv-pyramidkv,zigzagkv,paper-compilerkv-dynamickv",
     .modes = "aware_full",
     .budgets = "512,128"},
    {.policies = "compilerkv,compilerkv-strict", .modes = "aware_full", .budgets = "1024,512,256,128"},
    {.policies = "paper-compilerkv-no_heads,paper-compilerkv-no_risk,paper-compilerkv-raw",
     .modes = "aware_full",
     .budgets = "512"},
    {.policies = NULL}};

/* ---- LagKV (arXiv 2504.04704): 64-digit keys by depth and length; blocks of 1024, 512 and 128 tokens of which a half to
 * an eighth survives; its variants; reading in chunks, where the first token shows what was lost; a quantised cache. ---- */

static const struct eval_suite_item lagkv[] = {{"passkey64", 0, 0, 3}, {.tasks = NULL}};
/* first: a recipe up to the option that follows */
#define RETAIN(first) \
    first "retain=0.5," first "retain=0.25," first "retain=0.166666667," first "retain=0.125"
static const struct eval_part of_lagkv[] = {
    {.policies = RETAIN("lagkv:lag=1024,") "," RETAIN("lagkv:lag=512,") "," RETAIN("lagkv:lag=128,"),
     .modes = "aware_full",
     .ratios = "own"},
    {.policies = RETAIN("paper-lagkv-localkv:") "," RETAIN("paper-lagkv-l2norm:"),
     .modes = "aware_full",
     .ratios = "own"},
    {.policies = "paper-lagkv:retain=0.5,paper-lagkv:retain=0.125",
     .modes = "aware_full",
     .ratios = "own",
     .evict = "chunk:1024"},
    {.policies = "lagkv:lag=128,retain=0.5,lagkv:lag=1024,retain=0.25",
     .modes = "aware_full",
     .ratios = "own",
     .kv_types = "q8_0,q4_0,q4_0:1024"},
    {.policies = NULL}};

/* ---- CriticalKV (arXiv 2502.03805): each allocation with and without it when the context alone is compressed; the
 * question compressed too; the share of stage 1; the norm; several turns; reading in chunks. ---- */

static const struct eval_suite_item criticalkv[] = {
    {"ruler", 4096, 20, 1}, {"scb_kv_syn", 4096, 10, 1}, {"scb_mf_syn", 4096, 10, 1}, {.tasks = NULL}};
static const struct eval_part of_criticalkv[] = {
    {.policies = "paper-criticalkv+topk,paper-criticalkv,paper-criticalkv-adakv+topk,paper-criticalkv-adakv,"
                 "paper-criticalkv-headkv+topk,paper-criticalkv-headkv",
     .ratios = "crit"},
    {.policies = "paper-criticalkv-adakv+topk,paper-criticalkv-adakv",
     .modes = "aware_full",
     .ratios = "0.6,0.8,0.9,0.95"},
    {.policies = "paper-criticalkv-adakv:alpha=0,paper-criticalkv-adakv:alpha=0.3,"
                 "paper-criticalkv-adakv:alpha=0.4,paper-criticalkv-adakv:alpha=0.6,"
                 "paper-criticalkv-adakv:alpha=0.7,paper-criticalkv-adakv:norm=l2",
     .ratios = "0.8,0.9"},
    {.policies = "paper-criticalkv-adakv+topk,paper-criticalkv-adakv",
     .ratios = "0.5",
     .evict = "chunk:1024"},
    {.policies = NULL}};

/* ---- What heads are for, by switching them off: CompressKV's ablation, while answers are generated as in its code, and
 * while everything is read. ---- */

static const struct eval_suite_item head_masking[] = {
    {"niah_single_2", 1024, 50, 1}, {"qa_syn_1", 1024, 50, 1}, {.tasks = NULL}};
#define BY_SCORE(n) "srh:top" #n "/trad:top" #n "/random:" #n ":1:100/random:" #n ":2:100/random:" #n ":3:100"
static const struct eval_part of_head_masking[] = {
    {.policies = "full", .masks = BY_SCORE(10) "/" BY_SCORE(20) "/" BY_SCORE(30), .mask_phase = "decode"},
    {.policies = "full", .masks = "srh:top20/trad:top20/random:20:1:100"},
    {.policies = NULL}};

/* ---- Time and memory by length: CompressKV's figures (1024 entries kept, 4K to 128K tokens) and CompilerKV's table, with
 * this project's other methods. ---- */

static const struct eval_suite_item costs[] = {{"niah_single_2", 0, 3, 1}, {.tasks = NULL}};
static const struct eval_part of_costs[] = {
    {.policies = "paper-compresskv-streaming_llm,paper-compresskv-snapkv,paper-compresskv-pyramidkv,"
                 "paper-compresskv-cake,paper-compresskv,compilerkv,h2o,criticalkv-adakv,lagkv,kvcompose",
     .modes = "aware_full",
     .budgets = "1024"},
    {.policies = NULL}};

/* ---- CriticalKV's section 5: what eviction changes of outputs, by head, layer and size. ---- */

static const struct eval_part of_perturbation[] = {
    {.policies = "paper-criticalkv+topk,paper-criticalkv", .ratios = "0.8,0.6,0.7,0.9,0.95,0.975"},
    {.policies = NULL}};

static const struct eval_study studies[] = {
    {.suite = {.name = "compresskv",
               .about = "budgets of 128 to 2048 entries, which heads choose and how many, needles by depth, "
                        "masked heads",
               .items = compresskv,
               .parts = of_compresskv,
               .depths = "lin10",
               .lengths = "2048,4096,8192",
               .short_answers = true,
               .n_probes = 4}},
    {.suite = {.name = "kvcompose",
               .about = "scores over the share removed: one length per layer against heads on their own; "
                        "told the question or not",
               .items = kvcompose,
               .parts = of_kvcompose,
               .depths = "lin10",
               .lengths = "4096",
               .short_answers = true,
               .n_probes = 4}},
    {.suite = {.name = "compilerkv",
               .about = "comparison at equal budgets; without head weights, risk, or value norms",
               .items = compilerkv,
               .parts = of_compilerkv,
               .depths = "lin10",
               .lengths = "2048,4096",
               .short_answers = true,
               .n_probes = 4}},
    {.suite = {.name = "lagkv",
               .about = "64-digit keys by depth and length: size of blocks, share that survives, variants, "
                        "chunks, quantised",
               .items = lagkv,
               .parts = of_lagkv,
               .depths = "lin10",
               .lengths = "2432,3072,3712,4352,4992,5632,6272,6912,7552,8192",
               .short_answers = true,
               .n_probes = 4}},
    {.suite = {.name = "criticalkv",
               .about = "with and without CriticalKV under three allocations; its share and norm; question "
                        "known; turns; chunks",
               .items = criticalkv,
               .parts = of_criticalkv,
               .depths = "lin10",
               .lengths = "4096",
               .short_answers = true,
               .n_probes = 4}},
    {.suite = {.name = "head_masking",
               .about = "answers with retrieval heads, or heads at random, switched off",
               .items = head_masking,
               .parts = of_head_masking,
               .depths = "lin10",
               .lengths = "1024",
               .short_answers = true,
               .n_probes = 10}},
    {.suite = {.name = "costs",
               .about = "time to the first token, time of a token and bytes by length, each method by itself "
                        "(CompressKV, CompilerKV)",
               .items = costs,
               .parts = of_costs,
               .depths = "lin10",
               .lengths = "2048,4096,8192,16384,32768",
               .alone = true,
               .answer_tokens = 64}},
    {.suite = {.name = "perturbation",
               .about = "how far evicting entries moves the output of every head, and the bounds that "
                        "explain it (CriticalKV)",
               .parts = of_perturbation,
               .depths = "lin10",
               .lengths = "2560"},
     .perturbs = true},
};

const struct eval_study *eval_study_get(int32_t i)
{
    return i >= 0 && i < (int32_t)(sizeof studies / sizeof *studies) ? &studies[i] : NULL;
}

enum { MAX_NAMES = 16 };

/* Refuses a name of --OPTION and says which one was probably meant, or all of them. */
static int unknown(const char *option, const char *given, const char *names[MAX_NAMES + 1])
{
    const char *near = wnw__nearest(given, names);
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
    *suite = study && !study->perturbs ? &study->suite : NULL;
    if (rc == APP_OK && args->suite && args->study)
        rc = app_fail(APP_BAD_INPUT, "--suite and --study exclude each other; give one of them");
    else if (rc == APP_OK && args->suite)
        rc = find_suite(suite, args->suite);
    return rc;
}

bool eval_is_alone(const struct eval_args *args, const struct eval_suite *suite)
{
    return args->alone || (suite && suite->alone);
}

bool eval_recompresses(const struct eval_args *args)
{
    return args->recompress && strcmp(args->recompress, "each-turn") == 0;
}

int32_t eval_answer_tokens(const struct eval_args *args, const struct eval_suite *suite)
{
    return args->answer_tokens != APP_UNSET ? (int32_t)args->answer_tokens : suite ? suite->answer_tokens : 0;
}
