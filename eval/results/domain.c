/* SPDX-License-Identifier: MIT */
/* Domains of RULER (arXiv 2404.06654, section 3) and of LongBench (arXiv 2308.14508, table 2). */
#include "eval/results/domain.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *domain;
    const char *tasks[9]; /* NULL after the last */
} domains[] = {
    {"needles",
     {"niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2",
      "niah_multikey_3", "niah_multivalue", "niah_multiquery", NULL}},
    {"tracing", {"vt", NULL}},
    {"aggregation", {"cwe", "fwe", NULL}},
    {"QA", {"qa_1", "qa_2", "qa_syn_1", "qa_syn_2", NULL}},
    {"single-document QA", {"narrativeqa", "qasper", "multifieldqa_en", NULL}},
    {"multi-document QA", {"hotpotqa", "2wikimqa", "musique", NULL}},
    {"summaries", {"gov_report", "qmsum", "multi_news", NULL}},
    {"few-shot", {"trec", "triviaqa", "samsum", NULL}},
    {"synthetic", {"passage_count", "passage_retrieval_en", NULL}},
    {"code", {"lcc", "repobench-p", NULL}},
};

const char *eval_domain_of(const char *task)
{
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++)
        for (int k = 0; domains[i].tasks[k]; k++)
            if (strcmp(domains[i].tasks[k], task) == 0)
                return domains[i].domain;
    return NULL;
}
