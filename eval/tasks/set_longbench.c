/* SPDX-License-Identifier: MIT */
/* LongBench's 16 English and code sets: templates and settings as its own program has them. */
#include "eval/tasks/set.h"

#include "app/console.h"
#include "eval/base/bucket.h"

#include <stdlib.h>
#include <string.h>

struct set {
    const char *context, *question, *prefix;
    const char *suffix; /* removed from the end of the input, because the prefix repeats it; NULL = none */
};

static const struct set set_narrativeqa = {
    .context = "You are given a story, which can be either a novel or a movie script, and a "
               "question. Answer the question as concisely as you can, using a single phrase if "
               "possible. Do not provide any explanation.\n\nStory: {context}\n\nNow, answer the "
               "question based on the story as concisely as you can, using a single phrase if "
               "possible. Do not provide any explanation.\n\n",
    .question = "Question: {input}\n\n",
    .prefix = "Answer:",
};
static const struct set set_qasper = {
    .context = "You are given a scientific article and a question. Answer the question as concisely "
               "as you can, using a single phrase or sentence if possible. If the question cannot "
               "be answered based on the information in the article, write \"unanswerable\". If the "
               "question is a yes/no question, answer \"yes\", \"no\", or \"unanswerable\". Do not "
               "provide any explanation.\n\nArticle: {context}\n\n Answer the question based on the "
               "above article as concisely as you can, using a single phrase or sentence if "
               "possible. If the question cannot be answered based on the information in the "
               "article, write \"unanswerable\". If the question is a yes/no question, answer "
               "\"yes\", \"no\", or \"unanswerable\". Do not provide any explanation.\n\n",
    .question = "Question: {input}\n\n",
    .prefix = "Answer:",
};
static const struct set set_multifieldqa_en = {
    .context = "Read the following text and answer briefly.\n\n{context}\n\nNow, answer the "
               "following question based on the above text, only give me the answer and do not "
               "output any other words.\n\n",
    .question = "Question: {input}\n",
    .prefix = "Answer:",
};
static const struct set set_multi_doc = {
    .context = "Answer the question based on the given passages. Only give me the answer and do not "
               "output any other words.\n\nThe following are given passages.\n{context}\n\nAnswer "
               "the question based on the given passages. Only give me the answer and do not output "
               "any other words.\n\n",
    .question = "Question: {input}\n",
    .prefix = "Answer:",
};
static const struct set set_gov_report = {
    .context = "You are given a report by a government agency. Write a one-page summary of the "
               "report.\n\nReport:\n{context}\n\n",
    .question = "Now, write a one-page summary of the report.\n\n",
    .prefix = "Summary:",
};
static const struct set set_qmsum = {
    .context = "You are given a meeting transcript and a query containing a question or "
               "instruction. Answer the query in one or more "
               "sentences.\n\nTranscript:\n{context}\n\nNow, answer the query based on the above "
               "meeting transcript in one or more sentences.\n\n",
    .question = "Query: {input}\n",
    .prefix = "Answer:",
};
static const struct set set_multi_news = {
    .context = "You are given several news passages. Write a one-page summary of all news. "
               "\n\nNews:\n{context}\n\n",
    .question = "Now, write a one-page summary of all the news.\n\n",
    .prefix = "Summary:",
};
static const struct set set_trec = {
    .context = "Please determine the type of the question below. Here are some examples of "
               "questions.\n\n{context}\n",
    .question = "{input}",
    .prefix = "Type:",
    .suffix = "Type:",
};
static const struct set set_triviaqa = {
    .context = "Answer the question based on the given passage. Only give me the answer and do not "
               "output any other words. The following are some examples.\n\n{context}\n\n",
    .question = "{input}",
    .prefix = "Answer:",
    .suffix = "Answer:",
};
static const struct set set_samsum = {
    .context = "Summarize the dialogue into a few short sentences. The following are some "
               "examples.\n\n{context}\n\n",
    .question = "{input}",
    .prefix = "Summary:",
    .suffix = "Summary:",
};
static const struct set set_passage_count = {
    .context = "There are some paragraphs below sourced from Wikipedia. Some of them may be "
               "duplicates. Please carefully read these paragraphs and determine how many unique "
               "paragraphs there are after removing duplicates. In other words, how many "
               "non-repeating paragraphs are there in total?\n\n{context}\n\n",
    .question = "Please enter the final count of unique paragraphs after removing duplicates. The "
                "output format should only contain the number, such as 1, 2, 3, and so on.\n\n",
    .prefix = "The final answer is: ",
};
static const struct set set_passage_retrieval_en = {
    .context = "Here are 30 paragraphs from Wikipedia, along with an abstract. Please determine "
               "which paragraph the abstract is from.\n\n{context}\n\nThe following is an "
               "abstract.\n\n",
    .question = "{input}\n\nPlease enter the number of the paragraph that the abstract is from. The "
                "answer format must be like \"Paragraph 1\", \"Paragraph 2\", etc.\n\n",
    .prefix = "The answer is: ",
};
static const struct set set_lcc = {
    .context = "Please complete the code given below. \n{context}",
    .question = "",
    .prefix = "Next line of code:\n",
};
static const struct set set_repobench_p = {
    .context = "Please complete the code given below. \n{context}",
    .question = "{input}",
    .prefix = "Next line of code:\n",
};

static int make(struct eval_sample *s, const struct eval_set *set, const struct eval_jsonl *j,
                const json_t *o)
{
    const struct set *p = set->params;
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
    const size_t n_suffix = p->suffix ? strlen(p->suffix) : 0, n_input = json_string_length(input);
    const char *text = json_string_value(input);
    const bool ends =
        n_suffix > 0 && n_input >= n_suffix && strcmp(text + n_input - n_suffix, p->suffix) == 0;
    char *asked = strndup(text, ends ? n_input - n_suffix : n_input);
    const char *const values[] = {"context", json_string_value(context), "input", asked ? asked : "", NULL};
    struct eval_turn *turn = eval_add_turn(s);
    eval_put_template(s, &s->context, p->context, values);
    eval_put_template(s, turn ? &turn->question : NULL, p->question, values);
    eval_put_template(s, turn ? &turn->prefix : NULL, p->prefix, values);
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

const struct eval_set eval_sets_longbench[] = {
    {"narrativeqa", "longbench", "single-doc QA", "narrativeqa", "qa_f1", 128, 0, make, &set_narrativeqa},
    {"qasper", "longbench", "single-doc QA", "qasper", "qa_f1", 128, 0, make, &set_qasper},
    {"multifieldqa_en", "longbench", "single-doc QA", "multifieldqa_en", "qa_f1", 64, 0, make,
     &set_multifieldqa_en},
    {"hotpotqa", "longbench", "multi-doc QA", "hotpotqa", "qa_f1", 32, 0, make, &set_multi_doc},
    {"2wikimqa", "longbench", "multi-doc QA", "2wikimqa", "qa_f1", 32, 0, make, &set_multi_doc},
    {"musique", "longbench", "multi-doc QA", "musique", "qa_f1", 32, 0, make, &set_multi_doc},
    {"gov_report", "longbench", "summarisation", "gov_report", "rouge_l", 512, 0, make, &set_gov_report},
    {"qmsum", "longbench", "summarisation", "qmsum", "rouge_l", 512, 0, make, &set_qmsum},
    {"multi_news", "longbench", "summarisation", "multi_news", "rouge_l", 512, 0, make, &set_multi_news},
    {"trec", "longbench", "few-shot", "trec", "classification", 64, EVAL_NO_CHAT | EVAL_FIRST_LINE, make,
     &set_trec},
    {"triviaqa", "longbench", "few-shot", "triviaqa", "qa_f1", 32, EVAL_NO_CHAT | EVAL_FIRST_LINE, make,
     &set_triviaqa},
    {"samsum", "longbench", "few-shot", "samsum", "rouge_l", 128,
     EVAL_NO_CHAT | EVAL_FIRST_LINE | EVAL_STOP_AT_LINE, make, &set_samsum},
    {"passage_count", "longbench", "synthetic", "passage_count", "count", 32, 0, make, &set_passage_count},
    {"passage_retrieval_en", "longbench", "synthetic", "passage_retrieval_en", "retrieval", 32, 0, make,
     &set_passage_retrieval_en},
    {"lcc", "longbench", "code", "lcc", "code_sim", 64, EVAL_NO_CHAT, make, &set_lcc},
    {"repobench-p", "longbench", "code", "repobench-p", "code_sim", 64, EVAL_NO_CHAT, make, &set_repobench_p},
    {.name = NULL},
};
