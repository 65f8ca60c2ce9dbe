/* SPDX-License-Identifier: MIT */
/* Questions about documents. */
#include "eval/tasks/records.h"

#include "app/console.h"
#include "base/random.h"
#include "base/vectors.h"
#include "eval/base/grow.h"
#include "eval/base/jsonl.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(const struct eval_jsonl *j)
{
    return app_fail(APP_FAILED, "out of memory for '%s'", j->path);
}

static int add_doc(struct eval_records *r, const struct eval_jsonl *j, json_t *o)
{
    const json_t *text, *id = json_object_get(o, "id");
    const int rc = eval_jsonl_text(&text, j, o, "text");
    if (rc != APP_OK)
        return rc;
    if (!json_is_integer(id))
        return eval_jsonl_bad(j, "no whole number \"id\"");
    if (!eval_grow(&r->docs, (size_t)r->n_docs, sizeof *r->docs) ||
        !eval_grow(&r->ids, (size_t)r->n_docs, sizeof *r->ids))
        return no_memory(j);
    r->ids[r->n_docs] = json_integer_value(id);
    r->docs[r->n_docs++] = json_incref(o);
    return APP_OK;
}

static int add_question(struct eval_records *r, const struct eval_jsonl *j, json_t *o)
{
    const json_t *text, *answers;
    int rc = eval_jsonl_text(&text, j, o, "question");
    if (rc == APP_OK)
        rc = eval_jsonl_texts(&answers, j, o, "answers", 1);
    if (rc != APP_OK)
        return rc;
    if (!eval_grow(&r->questions, (size_t)r->n_questions, sizeof *r->questions))
        return no_memory(j);
    r->questions[r->n_questions++] = (struct eval_question){.record = json_incref(o)};
    return APP_OK;
}

/* ---- From ids to indices ---- */

struct entry {
    int64_t id;
    int32_t index;
};

/* Finds the documents that the record lists under key. */
static int find_docs(int32_t **out, int32_t *n, const struct entry *sorted, int32_t n_docs,
                     const struct eval_question *q, const char *key, const char *path)
{
    const json_t *list = json_object_get(q->record, key);
    const char *question = json_string_value(json_object_get(q->record, "question"));
    *n = 0;
    if (list && !json_is_array(list))
        return app_fail(APP_BAD_INPUT, "'%s': \"%s\" of the question '%.80s' is no list", path, key,
                        question);
    *out = calloc(json_array_size(list) + 1, sizeof **out);
    if (!*out)
        return app_fail(APP_FAILED, "out of memory for '%s'", path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        const struct entry key_entry = {.id = json_integer_value(id)};
        const struct entry *found = json_is_integer(id) ? bsearch(&key_entry, sorted, (size_t)n_docs,
                                                                  sizeof *sorted, wnw__ascending_i64)
                                                        : NULL;
        if (!found)
            return app_fail(APP_BAD_INPUT, "'%s': the question '%.80s' names a document that is not there",
                            path, question);
        (*out)[(*n)++] = found->index;
    }
    return APP_OK;
}

static int link_questions(struct eval_records *r, const char *path)
{
    struct entry *sorted = malloc(((size_t)r->n_docs + 1) * sizeof *sorted);
    int rc = sorted ? APP_OK : app_fail(APP_FAILED, "out of memory for '%s'", path);
    for (int32_t i = 0; sorted && i < r->n_docs; i++)
        sorted[i] = (struct entry){r->ids[i], i};
    if (sorted && r->n_docs > 1)
        qsort(sorted, (size_t)r->n_docs, sizeof *sorted, wnw__ascending_i64);
    for (int32_t i = 1; rc == APP_OK && i < r->n_docs; i++)
        if (sorted[i].id == sorted[i - 1].id)
            rc = app_fail(APP_BAD_INPUT, "'%s': two documents have the id %lld", path,
                          (long long)sorted[i].id);
    for (int32_t i = 0; rc == APP_OK && i < r->n_questions; i++) {
        struct eval_question *q = &r->questions[i];
        rc = find_docs(&q->gold, &q->n_gold, sorted, r->n_docs, q, "gold", path);
        if (rc == APP_OK && q->n_gold == 0)
            rc = app_fail(APP_BAD_INPUT, "'%s': the question '%.80s' has no \"gold\"", path,
                          json_string_value(json_object_get(q->record, "question")));
        if (rc == APP_OK)
            rc = find_docs(&q->more, &q->n_more, sorted, r->n_docs, q, "more", path);
    }
    free(sorted);
    return rc;
}

int eval_records_read(struct eval_records *r, const char *path)
{
    struct eval_jsonl j;
    json_t *o;
    *r = (struct eval_records){.hash = WNW_HASH_START};
    int rc = eval_jsonl_open(&j, path);
    while (rc == APP_OK && (rc = eval_jsonl_next(&j, &o)) == APP_OK && o) {
        const char *type = json_string_value(json_object_get(o, "type"));
        r->hash = wnw__hash_join(r->hash, j.line.s, j.line.len);
        rc = eval_jsonl_no_nul(&j, o);
        if (rc != APP_OK) {
            json_decref(o);
            break;
        }
        if (type && strcmp(type, "doc") == 0)
            rc = add_doc(r, &j, o);
        else if (type && strcmp(type, "qa") == 0)
            rc = add_question(r, &j, o);
        else
            rc = eval_jsonl_bad(&j, "\"type\" is neither \"doc\" nor \"qa\"");
        json_decref(o);
    }
    eval_jsonl_close(&j);
    if (rc == APP_OK && (r->n_docs == 0 || r->n_questions == 0))
        rc = app_fail(APP_BAD_INPUT, "'%s' has no %s", path, r->n_docs == 0 ? "documents" : "questions");
    if (rc == APP_OK)
        rc = link_questions(r, path);
    if (rc != APP_OK)
        eval_records_clear(r);
    return rc;
}

void eval_records_clear(struct eval_records *r)
{
    for (int32_t i = 0; i < r->n_docs; i++)
        json_decref(r->docs[i]);
    for (int32_t i = 0; i < r->n_questions; i++) {
        json_decref(r->questions[i].record);
        free(r->questions[i].gold);
        free(r->questions[i].more);
    }
    free(r->docs);
    free(r->ids);
    free(r->questions);
    *r = (struct eval_records){0};
}

const char *eval_records_text(const struct eval_records *r, int32_t doc)
{
    return json_string_value(json_object_get(r->docs[doc], "text"));
}
