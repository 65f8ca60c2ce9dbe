/* SPDX-License-Identifier: MIT */
/* Names of tasks. unit_eval_report holds the table to the tasks that there are (eval/tasks/tasks.def). */
#include "eval/base/task_names.h"

#include <string.h>

/* Domains: what kind of ability a task asks for, by RULER (arXiv 2404.06654, section 3) and LongBench (arXiv 2308.14508,
 * table 2). */
static const struct eval_task_name names[] = {
    {.name = "niah_single_1", .domain = "needles"},
    {.name = "niah_single_2", .domain = "needles"},
    {.name = "niah_single_3", .domain = "needles"},
    {.name = "niah_multikey_1", .domain = "needles"},
    {.name = "niah_multikey_2", .domain = "needles"},
    {.name = "niah_multikey_3", .domain = "needles"},
    {.name = "niah_multivalue", .domain = "needles"},
    {.name = "niah_multiquery", .domain = "needles"},
    {.name = "vt", .domain = "tracing"},
    {.name = "cwe", .domain = "aggregation"},
    {.name = "fwe", .domain = "aggregation"},
    {.name = "qa_1", .domain = "QA"},
    {.name = "qa_2", .domain = "QA"},
    {.name = "qa_syn_1", .domain = "QA"},
    {.name = "qa_syn_2", .domain = "QA"},
    {.name = "niah_grid", .on_grid = true, .score_contains = true},
    {.name = "passkey64", .on_grid = true},
    {.name = "passkey7", .on_grid = true},
    {.name = "repeat_syn"},
    {.name = "scb_kv_syn"},
    {.name = "scb_prefix_suffix_syn"},
    {.name = "scb_vt_syn"},
    {.name = "scb_niah_syn"},
    {.name = "scb_mf_syn"},
    {.name = "narrativeqa", .domain = "single-document QA"},
    {.name = "qasper", .domain = "single-document QA"},
    {.name = "multifieldqa_en", .domain = "single-document QA"},
    {.name = "hotpotqa", .domain = "multi-document QA"},
    {.name = "2wikimqa", .domain = "multi-document QA"},
    {.name = "musique", .domain = "multi-document QA"},
    {.name = "gov_report", .domain = "summaries"},
    {.name = "qmsum", .domain = "summaries"},
    {.name = "multi_news", .domain = "summaries"},
    {.name = "trec", .domain = "few-shot"},
    {.name = "triviaqa", .domain = "few-shot"},
    {.name = "samsum", .domain = "few-shot"},
    {.name = "passage_count", .domain = "synthetic"},
    {.name = "passage_retrieval_en", .domain = "synthetic"},
    {.name = "lcc", .domain = "code"},
    {.name = "repobench-p", .domain = "code"},
    {.name = "scb_kv"},
    {.name = "scb_mf"},
    {.name = "scb_qa"},
    {.name = "user"},
    {.name = NULL},
};

const struct eval_task_name *eval_task_name_get(int32_t i)
{
    return names[i].name ? &names[i] : NULL;
}

const struct eval_task_name *eval_task_name_find(const char *name)
{
    const struct eval_task_name *t = names;
    while (t->name && strcmp(t->name, name) != 0)
        t++;
    return t;
}

int eval_task_name_compare(const char *a, const char *b)
{
    const struct eval_task_name *x = eval_task_name_find(a), *y = eval_task_name_find(b);
    return x != y ? (x > y) - (x < y) : strcmp(a, b);
}
