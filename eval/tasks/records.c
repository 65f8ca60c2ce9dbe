/* SPDX-License-Identifier: MIT */
/* Questions about documents. */
#include "eval/tasks/records.h"

#include "app/console.h"
#include "app/files.h"
#include "base/random.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"
#include "eval/base/jsonl.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(const struct eval_jsonl *j)
{
    return app_fail(APP_FAILED, "out of memory for '%s'", j->path);
}

/* An id as the name of a member; "" where it is no whole number, which no document has. */
static const char *name_id(char out[24], const json_t *id)
{
    *out = '\0';
    if (json_is_integer(id))
        snprintf(out, 24, "%lld", (long long)json_integer_value(id));
    return out;
}

static int add_doc(struct eval_records *r, const struct eval_jsonl *j, json_t *o)
{
    const json_t *text, *id = json_object_get(o, "id");
    WNW_TRY(eval_jsonl_text(&text, j, o, "text"));
    if (!json_is_integer(id))
        return eval_jsonl_bad(j, "no whole number \"id\"");
    if (!eval_grow(&r->docs, (size_t)r->n_docs, sizeof *r->docs))
        return no_memory(j);
    r->docs[r->n_docs++] = json_incref(o);
    return APP_OK;
}

static int add_question(struct eval_records *r, const struct eval_jsonl *j, json_t *o)
{
    const json_t *text, *answers;
    WNW_TRY(eval_jsonl_text(&text, j, o, "question"));
    WNW_TRY(eval_jsonl_texts(&answers, j, o, "answers", 1));
    if (!eval_grow(&r->questions, (size_t)r->n_questions, sizeof *r->questions))
        return no_memory(j);
    r->questions[r->n_questions++] = (struct eval_question){.record = json_incref(o)};
    return APP_OK;
}

/* ---- From ids to indices ---- */

/* Finds the documents that the record lists under key. places: their indices, by id. */
static int find_docs(int32_t **out, int32_t *n, const json_t *places, const struct eval_question *q,
                     const char *key, const char *path)
{
    const json_t *list = json_object_get(q->record, key);
    const char *question = json_string_value(json_object_get(q->record, "question"));
    char id[24];
    *n = 0;
    if (list && !json_is_array(list))
        return app_fail(APP_BAD_INPUT, "'%s': \"%s\" of the question '%.80s' is no list", path, key,
                        question);
    *out = calloc(json_array_size(list) + 1, sizeof **out);
    if (!*out)
        return app_fail(APP_FAILED, "out of memory for '%s'", path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *place = json_object_get(places, name_id(id, json_array_get(list, i)));
        if (!place)
            return app_fail(APP_BAD_INPUT, "'%s': the question '%.80s' names a document that is not there",
                            path, question);
        (*out)[(*n)++] = (int32_t)json_integer_value(place);
    }
    return APP_OK;
}

static int link_question(struct eval_question *q, const json_t *places, const char *path)
{
    WNW_TRY(find_docs(&q->evidence, &q->n_evidence, places, q, "gold", path));
    if (q->n_evidence == 0)
        return app_fail(APP_BAD_INPUT, "'%s': the question '%.80s' has no \"gold\"", path,
                        json_string_value(json_object_get(q->record, "question")));
    return find_docs(&q->more, &q->n_more, places, q, "more", path);
}

static int link_questions(struct eval_records *r, const char *path)
{
    char id[24];
    int rc = APP_OK;
    if (r->n_docs == 0 || r->n_questions == 0)
        return app_fail(APP_BAD_INPUT, "'%s' has no %s", path, r->n_docs == 0 ? "documents" : "questions");
    json_t *places = json_object();
    for (int32_t i = 0; rc == APP_OK && i < r->n_docs; i++) {
        name_id(id, json_object_get(r->docs[i], "id"));
        if (json_object_get(places, id))
            rc = app_fail(APP_BAD_INPUT, "'%s': two documents have the id %s", path, id);
        else if (json_object_set_new(places, id, json_integer(i)) != 0)
            rc = app_fail(APP_FAILED, "out of memory for '%s'", path);
    }
    for (int32_t i = 0; rc == APP_OK && i < r->n_questions; i++)
        rc = link_question(&r->questions[i], places, path);
    json_decref(places);
    return rc;
}

static int add_line(struct eval_records *r, const struct eval_jsonl *j, json_t *o)
{
    const char *type = json_string_value(json_object_get(o, "type"));
    WNW_TRY(eval_jsonl_no_nul(j, o));
    if (type && strcmp(type, "doc") == 0)
        return add_doc(r, j, o);
    if (type && strcmp(type, "qa") == 0)
        return add_question(r, j, o);
    return eval_jsonl_bad(j, "\"type\" is neither \"doc\" nor \"qa\"");
}

int eval_records_read(struct eval_records *r, const char *path)
{
    struct eval_jsonl j;
    json_t *o;
    uint64_t hash = WNW_HASH_START;
    *r = (struct eval_records){.n_docs = 0};
    int rc = eval_jsonl_open(&j, path);
    while (rc == APP_OK && (rc = eval_jsonl_next(&j, &o)) == APP_OK && o) {
        hash = wnw__hash_join(hash, j.line.s, j.line.len);
        rc = add_line(r, &j, o);
        json_decref(o);
    }
    eval_jsonl_close(&j);
    eval_hash_text(r->hash, hash);
    if (rc == APP_OK)
        rc = link_questions(r, path);
    if (rc != APP_OK)
        eval_records_clear(r);
    return rc;
}

/* ---- A folder ---- */

/* Adds the text in a file; its id is the file's name. */
static int add_file(struct eval_records *r, json_t *places, uint64_t *hash, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *text;
    size_t len;
    WNW_TRY(app_read_regular(&text, &len, path));
    json_t *o = eval_jsonl_is_blank(text) ? NULL : json_pack("{s:s, s:s}", "id", name, "text", text);
    int rc = APP_OK;
    if (eval_jsonl_is_blank(text))
        rc = app_fail(APP_BAD_INPUT, "'%s' is empty", path);
    else if (!o)
        rc = app_fail(APP_BAD_INPUT, "'%s' has a name that is not UTF-8", path);
    else if (json_object_set_new(places, name, json_integer(r->n_docs)) != 0 ||
             !eval_grow(&r->docs, (size_t)r->n_docs, sizeof *r->docs))
        rc = app_fail(APP_FAILED, "out of memory for '%s'", path);
    if (rc == APP_OK) {
        r->docs[r->n_docs++] = json_incref(o);
        *hash = wnw__hash_join(*hash, name, strlen(name));
        *hash = wnw__hash_join(*hash, text, len);
    }
    json_decref(o);
    free(text);
    return rc;
}

static int add_files(struct eval_records *r, json_t *places, uint64_t *hash, const char *folder)
{
    char **paths;
    int n, rc = app_list_texts(&paths, &n, folder);
    for (int i = 0; rc == APP_OK && i < n; i++)
        rc = add_file(r, places, hash, paths[i]);
    app_free_paths(paths, n);
    return rc;
}

/* Adds a question that names its document. */
static int add_named_question(struct eval_records *r, const json_t *places, const struct eval_jsonl *j,
                              json_t *o)
{
    const json_t *name, *answers, *id;
    WNW_TRY(eval_jsonl_no_nul(j, o));
    WNW_TRY(eval_jsonl_text(&name, j, o, "document"));
    const json_t *place = json_object_get(places, json_string_value(name));
    if (!place)
        return eval_jsonl_bad(j, "there is no document '%.100s' in the folder", json_string_value(name));
    WNW_TRY(eval_jsonl_answers(&answers, j, o));
    WNW_TRY(eval_jsonl_id(&id, j, o));
    WNW_TRY(add_question(r, j, o));
    struct eval_question *q = &r->questions[r->n_questions - 1];
    q->evidence = malloc(sizeof *q->evidence);
    if (!q->evidence)
        return no_memory(j);
    q->evidence[q->n_evidence++] = (int32_t)json_integer_value(place);
    const char *text = eval_records_text(r, q->evidence[0]);
    return eval_records_answer(q, text, strlen(text))
               ? APP_OK
               : eval_jsonl_bad(j, "'%.100s' has none of the answers", json_string_value(name));
}

static int add_questions(struct eval_records *r, const json_t *places, uint64_t *hash, const char *folder)
{
    char *path = app_in_folder(folder, "questions.jsonl");
    struct eval_jsonl j;
    json_t *o;
    if (!path)
        return app_fail(APP_FAILED, "out of memory for '%s'", folder);
    int rc = eval_jsonl_open_regular(&j, path);
    while (rc == APP_OK && (rc = eval_jsonl_next(&j, &o)) == APP_OK && o) {
        *hash = wnw__hash_join(*hash, j.line.s, j.line.len);
        rc = add_named_question(r, places, &j, o);
        json_decref(o);
    }
    if (rc == APP_OK && r->n_questions == 0)
        rc = app_fail(APP_BAD_INPUT, "'%s' has no questions", path);
    eval_jsonl_close(&j);
    free(path);
    return rc;
}

int eval_records_read_folder(struct eval_records *r, const char *folder)
{
    uint64_t hash = WNW_HASH_START;
    json_t *places = json_object(); /* indices of documents, by name */
    *r = (struct eval_records){.n_docs = 0};
    int rc =
        places ? add_files(r, places, &hash, folder) : app_fail(APP_FAILED, "out of memory for '%s'", folder);
    if (rc == APP_OK)
        rc = add_questions(r, places, &hash, folder);
    eval_hash_text(r->hash, hash);
    json_decref(places);
    if (rc != APP_OK)
        eval_records_clear(r);
    return rc;
}

bool eval_records_answer(const struct eval_question *q, const char *text, size_t len)
{
    const json_t *answers = json_object_get(q->record, "answers");
    for (size_t i = 0; i < json_array_size(answers); i++) {
        const char *answer = json_string_value(json_array_get(answers, i)), *found = strcasestr(text, answer);
        if (found && found + strlen(answer) <= text + len)
            return true;
    }
    return false;
}

void eval_records_clear(struct eval_records *r)
{
    for (int32_t i = 0; i < r->n_docs; i++)
        json_decref(r->docs[i]);
    for (int32_t i = 0; i < r->n_questions; i++) {
        json_decref(r->questions[i].record);
        free(r->questions[i].evidence);
        free(r->questions[i].more);
    }
    free(r->docs);
    free(r->questions);
    *r = (struct eval_records){0};
}

const char *eval_records_text(const struct eval_records *r, int32_t doc)
{
    return json_string_value(json_object_get(r->docs[doc], "text"));
}
