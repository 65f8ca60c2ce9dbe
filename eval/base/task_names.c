/* SPDX-License-Identifier: MIT */
/* Names of tasks. unit_eval_report holds the table to the tasks that there are (eval/tasks/tasks.def). */
#include "eval/base/task_names.h"

#include <string.h>

/* Domains: what kind of ability a task asks for, by RULER (arXiv 2404.06654, section 3) and LongBench (arXiv 2308.14508,
 * table 2). */
static const struct eval_task_name names[] = {
    {.name = "niah_single_1", .domain = "needles", .answer = EVAL_ANSWER_SHORT},
    {.name = "niah_single_2", .domain = "needles", .answer = EVAL_ANSWER_SHORT},
    {.name = "niah_single_3", .domain = "needles", .answer = EVAL_ANSWER_COPY},
    {.name = "niah_multikey_1", .domain = "needles", .answer = EVAL_ANSWER_SHORT},
    {.name = "niah_multikey_2", .domain = "needles", .answer = EVAL_ANSWER_SHORT},
    {.name = "niah_multikey_3", .domain = "needles", .answer = EVAL_ANSWER_COPY},
    {.name = "niah_multivalue", .domain = "needles", .answer = EVAL_ANSWER_SHORT},
    {.name = "niah_multiquery", .domain = "needles", .answer = EVAL_ANSWER_SHORT},
    {.name = "vt", .domain = "tracing", .answer = EVAL_ANSWER_SHORT},
    {.name = "cwe", .domain = "aggregation", .answer = EVAL_ANSWER_SHORT},
    {.name = "fwe", .domain = "aggregation", .answer = EVAL_ANSWER_SHORT},
    {.name = "qa_1", .domain = "QA", .answer = EVAL_ANSWER_SHORT},
    {.name = "qa_2", .domain = "QA", .answer = EVAL_ANSWER_SHORT},
    {.name = "qa_syn_1", .domain = "QA", .answer = EVAL_ANSWER_SHORT},
    {.name = "qa_syn_2", .domain = "QA", .answer = EVAL_ANSWER_SHORT},
    {.name = "niah_grid", .on_grid = true, .score_contains = true, .answer = EVAL_ANSWER_SHORT},
    {.name = "passkey64", .on_grid = true, .answer = EVAL_ANSWER_COPY},
    {.name = "passkey7", .on_grid = true, .answer = EVAL_ANSWER_SHORT},
    {.name = "repeat_syn", .answer = EVAL_ANSWER_COPY},
    {.name = "scb_kv_syn", .answer = EVAL_ANSWER_COPY},
    {.name = "scb_prefix_suffix_syn", .answer = EVAL_ANSWER_COPY},
    {.name = "scb_vt_syn", .answer = EVAL_ANSWER_SHORT},
    {.name = "scb_niah_syn", .answer = EVAL_ANSWER_SHORT},
    {.name = "scb_mf_syn", .answer = EVAL_ANSWER_SHORT},
    {.name = "narrativeqa", .domain = "single-document QA", .answer = EVAL_ANSWER_SHORT},
    {.name = "qasper", .domain = "single-document QA", .answer = EVAL_ANSWER_SHORT},
    {.name = "multifieldqa_en", .domain = "single-document QA", .answer = EVAL_ANSWER_SHORT},
    {.name = "hotpotqa", .domain = "multi-document QA", .answer = EVAL_ANSWER_SHORT},
    {.name = "2wikimqa", .domain = "multi-document QA", .answer = EVAL_ANSWER_SHORT},
    {.name = "musique", .domain = "multi-document QA", .answer = EVAL_ANSWER_SHORT},
    {.name = "gov_report", .domain = "summaries"},
    {.name = "qmsum", .domain = "summaries"},
    {.name = "multi_news", .domain = "summaries"},
    {.name = "trec", .domain = "few-shot", .answer = EVAL_ANSWER_SHORT},
    {.name = "triviaqa", .domain = "few-shot", .answer = EVAL_ANSWER_SHORT},
    {.name = "samsum", .domain = "few-shot"},
    {.name = "passage_count", .domain = "synthetic", .answer = EVAL_ANSWER_SHORT},
    {.name = "passage_retrieval_en", .domain = "synthetic", .answer = EVAL_ANSWER_SHORT},
    {.name = "lcc", .domain = "code"},
    {.name = "repobench-p", .domain = "code"},
    {.name = "scb_kv", .answer = EVAL_ANSWER_COPY},
    {.name = "scb_mf", .answer = EVAL_ANSWER_SHORT},
    {.name = "scb_qa", .answer = EVAL_ANSWER_SHORT},
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
