/* SPDX-License-Identifier: MIT */
/* LongBench's 16 English and code sets: templates and settings as its own program has them. */
#include "eval/tasks/set.h"

#include "app/console.h"
#include "eval/base/record.h"

#include <stdlib.h>
#include <string.h>

static int make(struct eval_sample *s, const struct eval_set *set, const struct eval_jsonl *j,
                const json_t *o)
{
    const char *const *texts = eval_set_texts(set);
    const json_t *context, *answers, *classes = NULL, *input = json_object_get(o, "input"),
                                     *length = json_object_get(o, "length");
    int rc = eval_jsonl_text(&context, j, o, "context");
    if (rc == APP_OK)
        rc = eval_jsonl_texts(&answers, j, o, "answers", 1);
    if (rc == APP_OK && strcmp(set->metric, "classification") == 0)
        rc = eval_jsonl_texts(&classes, j, o, "all_classes", 1);
    if (rc == APP_OK && !json_is_string(input))
        rc = eval_jsonl_bad(j, "no text \"input\" (an empty one is fine)");
    if (rc != APP_OK)
        return rc;
    const size_t n_prefix = strlen(texts[2]), n_input = json_string_length(input);
    const char *text = json_string_value(input);
    const bool ends = set->flags & EVAL_ENDS_WITH_PREFIX && n_input >= n_prefix &&
                      strcmp(text + n_input - n_prefix, texts[2]) == 0;
    char *asked = strndup(text, ends ? n_input - n_prefix : n_input);
    const char *const values[] = {"context", json_string_value(context), "input", asked ? asked : "", NULL};
    struct eval_turn *turn = eval_add_turn(s);
    eval_put_template(s, &s->context, texts[0], values);
    eval_put_template(s, &turn->question, texts[1], values);
    eval_put_template(s, &turn->prefix, texts[2], values);
    s->no_memory = s->no_memory || !asked;
    free(asked);
    for (size_t i = 0; i < json_array_size(answers); i++)
        eval_add_ref(s, turn, json_string_value(json_array_get(answers, i)));
    if (classes)
        eval_set_meta(s, "classes", json_deep_copy(classes));
    if (json_is_integer(length)) {
        eval_set_meta(s, "words", json_integer(json_integer_value(length)));
        eval_set_meta(s, "bucket", json_string(eval_bucket_name(eval_bucket_of(json_integer_value(length)))));
    }
    return APP_OK;
}

/* The file and the task have one name. */
#define SET(name, about, metric, max_new, flags, form)                                 \
    {                                                                                  \
        name, "longbench", about, name, metric, max_new, flags, make, EVAL_FORM_##form \
    }
enum { FEW_SHOT = EVAL_NO_CHAT | EVAL_FIRST_LINE | EVAL_ENDS_WITH_PREFIX };

const struct eval_set eval_sets_longbench[] = {
    SET("narrativeqa", "single-doc QA", "qa_f1", 128, 0, NARRATIVEQA),
    SET("qasper", "single-doc QA", "qa_f1", 128, 0, QASPER),
    SET("multifieldqa_en", "single-doc QA", "qa_f1", 64, 0, MULTIFIELDQA),
    SET("hotpotqa", "multi-doc QA", "qa_f1", 32, 0, MULTI_DOC),
    SET("2wikimqa", "multi-doc QA", "qa_f1", 32, 0, MULTI_DOC),
    SET("musique", "multi-doc QA", "qa_f1", 32, 0, MULTI_DOC),
    SET("gov_report", "summarisation", "rouge_l", 512, 0, GOV_REPORT),
    SET("qmsum", "summarisation", "rouge_l", 512, 0, QMSUM),
    SET("multi_news", "summarisation", "rouge_l", 512, 0, MULTI_NEWS),
    SET("trec", "few-shot", "classification", 64, FEW_SHOT, TREC),
    SET("triviaqa", "few-shot", "qa_f1", 32, FEW_SHOT, TRIVIAQA),
    SET("samsum", "few-shot", "rouge_l", 128, FEW_SHOT | EVAL_STOP_AT_LINE, SAMSUM),
    SET("passage_count", "synthetic", "count", 32, 0, PASSAGE_COUNT),
    SET("passage_retrieval_en", "synthetic", "retrieval", 32, 0, PASSAGE_RETRIEVAL),
    SET("lcc", "code", "code_sim", 64, EVAL_NO_CHAT, LCC),
    SET("repobench-p", "code", "code_sim", 64, EVAL_NO_CHAT, REPOBENCH),
    {.name = NULL},
};
