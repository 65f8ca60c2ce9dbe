/* SPDX-License-Identifier: MIT */
/* Data sets that the user brings as JSONL. */
#include "eval/tasks/set.h"

#include "app/console.h"
#include "base/err.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RESERVE = 64 };

/* The path FOLDER/FILE.jsonl, or FOLDER/FILE_e.jsonl if only that file exists; `folder` itself if it is the file.
 * The caller frees it; NULL if memory runs out. */
static char *path_of(const struct eval_task *set, const char *folder)
{
    char *plain, *even;
    if (set->flags & EVAL_OWN_FILE)
        return strdup(folder);
    if (asprintf(&plain, "%s/%s.jsonl", folder, set->file) < 0)
        return NULL;
    if (access(plain, F_OK) == 0 || !eval_task_is_of(set, "longbench"))
        return plain;
    if (asprintf(&even, "%s/%s_e.jsonl", folder, set->file) < 0)
        even = NULL;
    if (!even || access(even, F_OK) != 0) {
        free(even);
        return plain; /* the name for messages */
    }
    free(plain);
    return even;
}

bool eval_set_exists(const struct eval_task *set, const char *folder)
{
    char *path = path_of(set, folder);
    const bool there = path && access(path, F_OK) == 0;
    free(path);
    return there;
}

int32_t eval_set_max_new(const struct eval_set_reader *r)
{
    const int32_t own = r->set->max_new + r->extra_new;
    return own > r->least_new ? own : r->least_new;
}

int32_t eval_set_max_prompt(int32_t n_ctx, int32_t max_new, int32_t overhead)
{
    const int32_t room = n_ctx - max_new - overhead - RESERVE;
    int32_t paper = room;
    if (n_ctx == 32768)
        paper = 31500;
    else if (n_ctx == 131072)
        paper = 127500;
    return paper < room ? paper : room;
}

int eval_set_open(struct eval_set_reader *r, const struct eval_task *set, const char *folder)
{
    *r = (struct eval_set_reader){.set = set, .path = path_of(set, folder)};
    if (!r->path)
        return app_fail(APP_FAILED, "out of memory");
    const int rc = eval_jsonl_open_regular(&r->file, r->path);
    r->file.quiet = true; /* the check has told of it */
    return rc;
}

void eval_set_close(struct eval_set_reader *r)
{
    eval_jsonl_close(&r->file);
    free(r->path);
    r->path = NULL;
}

/* The text around the context, in tokens. */
struct around {
    int32_t first, longest, all; /* a question with the beginning of its answer; all of them together */
    int32_t answers;             /* all answers, each as long as what may stay after its question */
};

/* Shortens the context to a number of tokens. It removes the middle of the whole prompt, as LongBench's program does. The two halves
 * have equal length, and the question belongs to the second one. */
static int cut_middle(struct eval_sample *s, const struct eval_set_reader *r, const int32_t *ids, int32_t n,
                      int32_t keep, int32_t n_question)
{
    char *head = NULL, *tail = NULL;
    const int32_t half = (keep + n_question) / 2, n_head = half < keep ? half : keep;
    const int32_t n_tail = half > n_question ? half - n_question : 0;
    int rc = r->tokenizer->decode(r->tokenizer, ids, n_head, &head);
    if (rc == APP_OK)
        rc = r->tokenizer->decode(r->tokenizer, ids + n - n_tail, n_tail, &tail);
    if (rc == APP_OK) {
        s->context.len = 0;
        /* A cut may go through a character. */
        if (!app_text_add_utf8(&s->context, head, strlen(head)) ||
            !app_text_add_utf8(&s->context, tail, strlen(tail)))
            s->no_memory = true;
    }
    wnw_free(head);
    wnw_free(tail);
    return rc;
}

static int count_refs(int32_t *n, const struct eval_set_reader *r, const struct eval_turn *t)
{
    struct app_text refs = {0};
    int rc = eval_history_refs(&refs, r->chat, t);
    if (rc == APP_OK)
        rc = eval_count_tokens(n, r->tokenizer, refs.s, refs.len);
    free(refs.s);
    return rc;
}

/* Counts a question with the beginning of its answer, and where a conversation is counted its answer: the model's or, where
 * they are longer, the references that stay in its place. */
static int count_turn(struct around *b, const struct eval_sample *s, const struct eval_set_reader *r,
                      int32_t turn)
{
    const struct eval_turn *t = &s->turns[turn];
    int32_t n_question = 0, n_prefix = 0, n_refs = 0;
    WNW_TRY(
        eval_count_tokens(&n_question, r->tokenizer, t->question.s ? t->question.s : "", t->question.len));
    WNW_TRY(eval_count_tokens(&n_prefix, r->tokenizer, t->prefix.s ? t->prefix.s : "", t->prefix.len));
    if (r->n_ctx > 0 && turn + 1 < s->n_turns)
        WNW_TRY(count_refs(&n_refs, r, t));
    const int32_t n = n_question + n_prefix;
    b->first = turn == 0 ? n : b->first;
    b->longest = n > b->longest ? n : b->longest;
    b->all += n;
    b->answers += n_refs > s->max_new ? n_refs : s->max_new;
    return APP_OK;
}

/* The most tokens of the context. SCBench's program leaves room for answers and 1000 tokens, which several long questions, or
 * references that are longer than answers, do not fit. */
static int32_t most_context(const struct eval_sample *s, const struct eval_set_reader *r,
                            const struct around *b)
{
    int32_t keep = r->max_prompt > 0 ? r->max_prompt - b->longest : INT32_MAX;
    if (r->n_ctx > 0) {
        const int32_t benchmark = r->n_ctx - s->max_new * s->n_turns - 1000 - b->longest;
        const int32_t room = r->n_ctx - b->all - b->answers - s->n_turns * r->overhead - RESERVE;
        keep = benchmark < keep ? benchmark : keep;
        keep = room < keep ? room : keep;
    }
    return keep;
}

/* Cuts the context, which is ids[n], to what max_prompt and n_ctx allow after the questions are subtracted. */
static int cut_context(struct eval_sample *s, const struct eval_set_reader *r, const int32_t *ids, int32_t n)
{
    struct around b = {0};
    for (int32_t i = 0; i < s->n_turns; i++)
        WNW_TRY(count_turn(&b, s, r, i));
    const int32_t keep = most_context(s, r, &b);
    if (keep < 2)
        return r->n_ctx > 0 ? eval_jsonl_bad(&r->file, "%d questions of %d tokens do not fit a context of %d",
                                             (int)s->n_turns, b.all, r->n_ctx)
                            : eval_jsonl_bad(&r->file, "a question of %d tokens does not fit a prompt of %d",
                                             b.longest, r->max_prompt);
    eval_set_meta(s, "truncated", json_boolean(n > keep));
    eval_set_meta(s, "context_tokens", json_integer(n));
    return n > keep ? cut_middle(s, r, ids, n, keep, b.first) : APP_OK;
}

static int fit_prompt(struct eval_sample *s, const struct eval_set_reader *r)
{
    int32_t *ids = NULL, n = 0;
    int rc = r->tokenizer->encode(r->tokenizer, s->context.s, s->context.len, &ids, &n);
    if (rc == APP_OK)
        rc = cut_context(s, r, ids, n);
    wnw_free(ids);
    return rc;
}

static int make_sample(struct eval_sample *s, const struct eval_set_reader *r, json_t *o)
{
    WNW_TRY(eval_jsonl_no_nul(&r->file, o));
    WNW_TRY(r->set->make(s, &(struct eval_draft){.task = r->set, .file = &r->file, .line = o}));
    s->text = wnw__hash_of(s->context.s ? s->context.s : "", s->context.len);
    eval_set_meta(s, "chat", json_boolean(r->chat_always || !(r->set->flags & EVAL_NO_CHAT)));
    if (r->set->flags & EVAL_FIRST_LINE)
        eval_set_meta(s, "first_line", json_true());
    if (r->set->flags & EVAL_STOP_AT_LINE)
        eval_set_meta(s, "stop_at_line", json_true());
    if ((r->max_prompt > 0 || r->n_ctx > 0) && !s->no_memory)
        WNW_TRY(fit_prompt(s, r));
    return s->no_memory ? app_fail(APP_FAILED, "out of memory for '%s'", r->path) : APP_OK;
}

int eval_set_next(struct eval_set_reader *r, struct eval_sample *s, bool *more)
{
    json_t *o;
    *s = (struct eval_sample){
        .task = r->set->name, .metric = r->set->metric, .max_new = eval_set_max_new(r), .index = r->index};
    int rc = eval_jsonl_next(&r->file, &o);
    *more = rc == APP_OK && o;
    if (!*more)
        return rc;
    rc = make_sample(s, r, o);
    json_decref(o);
    r->index++;
    return rc;
}

int eval_set_check(int32_t *n, uint64_t *hash, const struct eval_task *set, const char *folder)
{
    struct eval_set_reader r;
    bool more = true;
    int rc = eval_set_open(&r, set, folder);
    r.file.quiet = false;
    *n = 0;
    *hash = WNW_HASH_START;
    while (rc == APP_OK && more) {
        struct eval_sample s;
        rc = eval_set_next(&r, &s, &more);
        if (rc == APP_OK && more) {
            (*n)++;
            *hash = wnw__hash_join(*hash, r.file.line.s, r.file.line.len);
        }
        eval_sample_clear(&s);
    }
    if (rc == APP_OK && *n == 0)
        rc = app_fail(APP_BAD_INPUT, "'%s' is empty; it has no samples", r.path);
    eval_set_close(&r);
    return rc;
}
