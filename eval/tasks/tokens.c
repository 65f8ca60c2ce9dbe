/* SPDX-License-Identifier: MIT */
/* The model's tokenizer, prompts and conversations. */
#include "eval/tasks/tokens.h"

#include "app/console.h"
#include "eval/base/grow.h"
#include "eval/tasks/grade.h"
#include "winnow_chat.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

static int encode(const struct eval_tokenizer *t, const char *text, size_t len, int32_t **ids, int32_t *n)
{
    *ids = NULL;
    return eval_status_code(wnw_tokenize(t->model, text, len, false, false, ids, n));
}

static int decode(const struct eval_tokenizer *t, const int32_t *ids, int32_t n, char **text)
{
    return eval_status_code(wnw_detokenize(t->model, ids, n, text));
}

/* ---- Chats ---- */

/* Texts are put into the chat byte for byte, and the template's date is fixed. */
static wnw_prompt_params params_of(const char *name)
{
    const bool raw = strcmp(name, "none") == 0;
    return (wnw_prompt_params){WNW_INIT(wnw_prompt_params), .raw = raw, .verbatim = true,
                               .now = WNW_PROMPT_NOW, .chat = raw || strcmp(name, "auto") == 0 ? NULL : name};
}

/* Puts an earlier turn and its answer. Returns a status of the library, like the next two functions. */
static int put_answer(wnw_chat *chat, const struct eval_chat *c, const char *text)
{
    wnw_prompt *before = NULL;
    struct app_text answer = {0};
    int status = wnw_chat_user(&before, chat, NULL, "-", NULL);
    wnw_prompt_free(before);
    if (status == WNW_OK && !app_text_put(&answer, "%s%s", c->blank && (c->raw || *text) ? " " : "", text))
        status = WNW_E_NOMEM;
    if (status == WNW_OK)
        status = wnw_chat_answer_text(chat, answer.s);
    free(answer.s);
    return status;
}

/* The first question begins the chat. */
static int begin_chat(wnw_chat **chat, wnw_prompt **out, const wnw_model *m, const struct eval_chat *c,
                      const struct eval_before *b, const struct eval_asked *a)
{
    const wnw_prompt_params params = params_of(c->name);
    int status = wnw_chat_open(chat, m, &params);
    if (status == WNW_OK && b->answer)
        status = put_answer(*chat, c, b->answer);
    if (status == WNW_OK)
        status = wnw_chat_user(out, *chat, b->answer && !b->apart ? NULL : b->context, a->question, a->begin);
    return status;
}

/* Takes the context's ids from the first prompt, and from `rest` those of its own. */
static int take_prompt(struct eval_prompt *p, const struct eval_prompt *first, const wnw_prompt *rest)
{
    const int32_t n_context = first == p ? 0 : first->n_context;
    int32_t n;
    const int32_t *tokens = wnw_prompt_tokens(rest, &n);
    p->n_context = first == p ? wnw_prompt_n_context(rest) : n_context;
    p->n = n_context + n;
    p->ids = malloc(((size_t)p->n + 1) * sizeof *p->ids);
    if (!p->ids)
        return eval_no_memory("tokens");
    if (n_context > 0)
        memcpy(p->ids, first->ids, (size_t)n_context * sizeof *p->ids);
    memcpy(p->ids + n_context, tokens, (size_t)n * sizeof *p->ids);
    return APP_OK;
}

static int ask(const struct eval_tokenizer *t, const struct eval_chat *c, const struct eval_before *b,
               const struct eval_asked *a, struct eval_prompt *p, int32_t n)
{
    wnw_chat *chat = NULL;
    int rc = APP_OK;
    for (int32_t i = 0; rc == APP_OK && i < n; i++) {
        wnw_prompt *prompt = NULL;
        const int status = i == 0 ? begin_chat(&chat, &prompt, t->model, c, b, a)
                                  : wnw_chat_user(&prompt, chat, NULL, a[i].question, a[i].begin);
        rc = eval_status_code(status);
        if (rc == APP_OK)
            rc = take_prompt(&p[i], &p[0], prompt);
        wnw_prompt_free(prompt);
    }
    wnw_chat_free(chat);
    return rc;
}

/* Whether a text by itself begins with a blank that is not in it. */
static bool puts_blank(const wnw_model *m)
{
    int32_t *ids = NULL, n = 0;
    char *text = NULL;
    const bool puts = wnw_tokenize(m, "a", 1, false, false, &ids, &n) == WNW_OK &&
                      wnw_detokenize(m, ids, n, &text) == WNW_OK && *text == ' ';
    wnw_free(text);
    wnw_free(ids);
    return puts;
}

/* Finds the text around the user's text. If there is none, the model has no template. */
static int take_surroundings(struct eval_chat *c, const wnw_prompt *prompt)
{
    const wnw_prompt_parts p = wnw_prompt_parts_of(prompt);
    const wnw_bytes user = p.plain[p.n_plain - 1];
    c->head = strndup(p.text, user.from);
    c->tail = strdup(p.text + user.to);
    c->suffix = malloc(((size_t)p.n_suffix + 1) * sizeof *c->suffix);
    if (!c->head || !c->tail || !c->suffix)
        return eval_no_memory("the chat template");
    c->raw = !*c->head && !*c->tail;
    c->n_prefix = p.n_prefix;
    c->n_suffix = p.n_suffix;
    if (p.n_suffix > 0)
        memcpy(c->suffix, p.suffix, (size_t)p.n_suffix * sizeof *c->suffix);
    return APP_OK;
}

/* Finds out whether the template takes earlier turns, and whether it writes something itself before an answer. */
static int try_turns(struct eval_chat *c, const wnw_model *m)
{
    const struct eval_before before = {.answer = "-"};
    const struct eval_asked next = {.question = "-"};
    wnw_prompt *prompt = NULL;
    wnw_chat *chat = NULL;
    const int status = begin_chat(&chat, &prompt, m, c, &before, &next);
    const wnw_prompt_parts p = wnw_prompt_parts_of(prompt);
    c->takes_turns = status == WNW_OK;
    c->blank = c->takes_turns && puts_blank(m) &&
               (c->raw || p.plain[p.n_plain - 2].from == p.plain[p.n_plain - 3].to + strlen(c->tail));
    wnw_chat_free(chat);
    wnw_prompt_free(prompt);
    return status == WNW_E_NOMEM ? app_fail_status(status) : APP_OK;
}

int eval_chat_open(struct eval_chat *c, const wnw_model *m, const char *name)
{
    const struct eval_before nothing = {.context = ""};
    const struct eval_asked first = {.question = "########################################"};
    wnw_prompt *prompt = NULL;
    wnw_chat *chat = NULL;
    *c = (struct eval_chat){.name = name};
    const int status = begin_chat(&chat, &prompt, m, c, &nothing, &first);
    int rc = status == WNW_OK ? take_surroundings(c, prompt) : app_fail_status(status);
    if (rc == APP_OK)
        rc = try_turns(c, m);
    wnw_chat_free(chat);
    wnw_prompt_free(prompt);
    if (rc != APP_OK)
        eval_chat_close(c);
    return rc;
}

void eval_chat_close(struct eval_chat *c)
{
    free(c->head);
    free(c->tail);
    wnw_free(c->suffix);
    *c = (struct eval_chat){0};
}

/* ---- Prompts ---- */

/* The text, whose end may have been moved. */
static const char *text_of(const struct app_text *t)
{
    return t->s && t->len > 0 ? t->s : "";
}

/* The question of a turn, which *text gets, with the beginning of its answer. */
static int make_asked(struct eval_asked *a, struct app_text *text, const struct eval_chat *c,
                      const struct eval_turn *turn)
{
    const char *prefix = text_of(&turn->prefix);
    if (!app_text_put(text, "%s%s", text_of(&turn->question), c->prefix_first ? prefix : ""))
        return eval_no_memory("a prompt");
    a->question = text->s;
    a->begin = c->prefix_first ? "" : prefix + (!c->raw && *prefix == ' ');
    return APP_OK;
}

/* Sets n_question to the end of the question, whose text begins after the context: the number of tokens that
 * contain all of its bytes. */
static int find_question(struct eval_prompt *p, const struct eval_tokenizer *t, size_t n_bytes)
{
    int32_t lo = p->n_context, hi = p->n; /* tokens up to lo have fewer bytes, those up to hi have enough */
    int rc = APP_OK;
    if (n_bytes == 0)
        hi = p->n_context;
    while (rc == APP_OK && hi - lo > 1) {
        const int32_t mid = lo + (hi - lo) / 2;
        char *text = NULL;
        rc = t->decode(t, p->ids + p->n_context, mid - p->n_context, &text);
        if (rc == APP_OK && strlen(text) >= n_bytes)
            hi = mid;
        else
            lo = mid;
        wnw_free(text);
    }
    p->n_question = hi;
    return rc;
}

/* Makes the prompts with asked[n_turns], whose texts are texts[n_turns]. */
static int ask_all(struct eval_prompt *p, const struct eval_tokenizer *t, const struct eval_chat *c,
                   const struct eval_sample *s, struct eval_asked *asked, struct app_text *texts)
{
    const struct eval_before before = {.context = text_of(&s->context)};
    for (int32_t i = 0; i < s->n_turns; i++)
        WNW_TRY(make_asked(&asked[i], &texts[i], c, &s->turns[i]));
    WNW_TRY(t->ask(t, c, &before, asked, p, s->n_turns));
    for (int32_t i = 0; i < s->n_turns; i++)
        WNW_TRY(find_question(&p[i], t, s->turns[i].question.len));
    return APP_OK;
}

int eval_prompts_first(struct eval_prompt *p, const struct eval_tokenizer *t, const struct eval_chat *c,
                       const struct eval_sample *s)
{
    const size_t n = (size_t)s->n_turns;
    struct eval_asked *asked = calloc(n, sizeof *asked);
    struct app_text *texts = calloc(n, sizeof *texts);
    const int rc = asked && texts ? ask_all(p, t, c, s, asked, texts) : eval_no_memory("a prompt");
    for (size_t i = 0; texts && i < n; i++)
        free(texts[i].s);
    free(texts);
    free(asked);
    return rc;
}

int eval_prompt_next(struct eval_prompt *p, const struct eval_tokenizer *t, const struct eval_chat *c,
                     const struct eval_sample *s, int32_t turn, const char *answer, bool apart)
{
    const struct eval_before before = {.context = "", .answer = answer, .apart = apart};
    struct eval_asked asked;
    struct app_text text = {0};
    *p = (struct eval_prompt){0};
    if (!c->takes_turns)
        return app_fail(APP_BAD_INPUT,
                        "the chat template takes no earlier turns; use --turns multi_request or "
                        "--chat none");
    int rc = make_asked(&asked, &text, c, &s->turns[turn]);
    if (rc == APP_OK)
        rc = t->ask(t, c, &before, &asked, p, 1);
    free(text.s);
    return rc;
}

void eval_prompt_clear(struct eval_prompt *p)
{
    free(p->ids);
    *p = (struct eval_prompt){0};
}

/* ---- Conversations ---- */

int eval_history_refs(struct app_text *out, const struct eval_chat *c, const struct eval_turn *turn)
{
    const char *prefix = turn->prefix.s ? turn->prefix.s : "";
    if (c->prefix_first) /* the answer opens the model's turn */
        prefix = "\n";
    const bool good = eval_refs_text(out, turn, *prefix ? prefix : "\n");
    return good ? APP_OK : eval_no_memory("the references");
}

/* Tokens from the end of the question of turn - 1, whose answer is `answer`, to the end of the question of `turn`. */
static int count_step(int32_t *n, const struct eval_tokenizer *t, const struct eval_chat *c,
                      const struct eval_sample *s, int32_t turn, const char *answer, bool apart)
{
    struct eval_prompt p = {0};
    const int rc = eval_prompt_next(&p, t, c, s, turn, answer, apart);
    *n = p.n;
    eval_prompt_clear(&p);
    return rc;
}

int eval_timeline_ends(int32_t *end, const struct eval_tokenizer *t, const struct eval_chat *c,
                       const struct eval_sample *s, uint32_t history, bool apart)
{
    int rc = APP_OK;
    for (int32_t turn = 1; rc == APP_OK && turn < s->n_turns; turn++) {
        struct app_text refs = {0};
        int32_t with_refs = 0, with_answer = 0;
        rc = eval_history_refs(&refs, c, &s->turns[turn - 1]);
        if (rc == APP_OK && history & EVAL_HISTORY_REFERENCES)
            rc = count_step(&with_refs, t, c, s, turn, refs.s, apart);
        if (rc == APP_OK && history & EVAL_HISTORY_ANSWERS) {
            rc = count_step(&with_answer, t, c, s, turn, "", apart);
            with_answer += s->max_new;
        }
        end[turn] = end[turn - 1] + (with_refs > with_answer ? with_refs : with_answer);
        free(refs.s);
    }
    return rc;
}

/* ---- The model's tokenizer ---- */

static int32_t find_bos(const wnw_model *m)
{
    int32_t *with = NULL, *without = NULL, n_with = 0, n_without = 0;
    const bool adds = wnw_tokenize(m, "a", 1, true, false, &with, &n_with) == WNW_OK &&
                      wnw_tokenize(m, "a", 1, false, false, &without, &n_without) == WNW_OK &&
                      n_with > n_without && with[0] != without[0];
    const int32_t bos = adds ? with[0] : -1;
    wnw_free(with);
    wnw_free(without);
    return bos;
}

struct eval_tokenizer eval_tokenizer_of(const wnw_model *m)
{
    return (struct eval_tokenizer){
        .encode = encode, .ask = ask, .decode = decode, .model = m, .bos = find_bos(m)};
}

int eval_count_tokens(int32_t *n, const struct eval_tokenizer *t, const char *text, size_t len)
{
    int32_t *ids;
    const int rc = t->encode(t, text, len, &ids, n);
    wnw_free(ids);
    return rc;
}
