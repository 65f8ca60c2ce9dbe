/* SPDX-License-Identifier: MIT */
/* Questions about documents of the user: a JSONL of both (SQuAD, HotpotQA), or a folder. */
#ifndef WNW_EVAL_RECORDS_H
#define WNW_EVAL_RECORDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct eval_question {
    json_t *record;    /* {"question", "answers", ...}, owned */
    int32_t *evidence; /* [n_evidence]: indices of the documents that have the answer, owned */
    int32_t *more;     /* [n_more]: further documents that belong to the question, owned */
    int32_t n_evidence, n_more;
};

struct eval_records {
    json_t **docs; /* [n_docs]: {"id", "text"}, owned */
    int32_t n_docs;
    struct eval_question *questions; /* [n_questions], owned */
    int32_t n_questions;
    char hash[17]; /* of the lines, hexadecimal; "" where no file was read */
};

/* Lines {"type":"doc","id":INT,"text":TEXT} and
 * {"type":"qa","question":TEXT,"answers":[TEXT,...],"gold":[INT,...], "more":[INT,...]}, in any order. The
 * file must have all documents that a question names. Returns an exit code. */
int eval_records_read(struct eval_records *r, const char *path);
/* A folder with a document in each NAME.txt, and questions.jsonl with lines
 * {"document":"NAME.txt","question":TEXT,"answers":[TEXT,...],"id":TEXT or INT}. The document must contain one of the answers, in any case of
 * letters; "id" may be missing. Returns an exit code. */
int eval_records_read_folder(struct eval_records *r, const char *folder);
/* Whether text[len] contains one of the answers of a question. */
bool eval_records_answer(const struct eval_question *q, const char *text, size_t len);
void eval_records_clear(struct eval_records *r);
const char *eval_records_text(const struct eval_records *r, int32_t doc);

#endif
