/* SPDX-License-Identifier: MIT */
/*
 * The turns of a parked chat. The template writes two turns with marks in place of questions and answers. The text between the marks
 * is also between the turns of the chat. Whether they were found is checked where the conversation is opened: its tokens are laid out again and
 * compared.
 */
#include "app/console.h"
#include "base/err.h"
#include "cli/parked.h"

#include <stdlib.h>
#include <string.h>

static const char mark_system[] = "SystemMark", mark_question[] = "QuestionMark",
                  mark_answer[] = "AnswerMark", mark_second[] = "SecondMark";

/* What the template writes. */
struct frame {
    char *text;           /* of the two turns, owned */
    const char *parts[3]; /* before the first question, between it and its answer, before the next question */
};

static void clear_frame(struct frame *f)
{
    free(f->text);
    *f = (struct frame){0};
}

/* Lays out two turns with marks in place of questions and answer. Returns a status. */
static int lay_out_marks(wnw_chat *chat)
{
    wnw_prompt *turn;
    WNW_TRY(wnw_chat_user(&turn, chat, "", mark_question, NULL));
    wnw_prompt_free(turn);
    WNW_TRY(wnw_chat_answer_text(chat, mark_answer));
    WNW_TRY(wnw_chat_user(&turn, chat, "", mark_second, NULL));
    wnw_prompt_free(turn);
    return WNW_OK;
}

/* The text of two turns as the template writes them. NULL: it cannot, or memory ran out. */
static char *write_turns(const struct cli_conversation *of, const char *system)
{
    wnw_prompt_params layout = of->layout;
    wnw_chat *chat = NULL;
    char *text = NULL;
    int32_t n;
    layout.system = system;
    if (wnw_chat_open(&chat, of->model, &layout) == WNW_OK && lay_out_marks(chat) == WNW_OK) {
        const int32_t *tokens = wnw_chat_tokens(chat, &n);
        text = cli_slot_text(of->model, tokens, n, NULL);
    }
    wnw_chat_free(chat);
    return text;
}

/* Ends a string at the first mark in it and returns what follows the mark; NULL where it is not there. */
static char *cut(char *text, const char *mark)
{
    char *at = text ? strstr(text, mark) : NULL;
    if (!at)
        return NULL;
    *at = '\0';
    return at + strlen(mark);
}

/* system: whether the text has a system message; its mark stays in parts[0]. */
static bool make_frame(struct frame *f, const struct cli_conversation *of, bool system)
{
    *f = (struct frame){.text = write_turns(of, system ? mark_system : NULL)};
    f->parts[0] = f->text;
    f->parts[1] = cut(f->text, mark_question);
    f->parts[2] = cut((char *)(uintptr_t)f->parts[1], mark_answer);
    return f->parts[2] && cut((char *)(uintptr_t)f->parts[2], mark_second) && *f->parts[1] && *f->parts[2];
}

/* Where the first question begins in a text; NULL: not as in this frame. *system: the system message, owned by the caller. */
static const char *after_header(char **system, const struct frame *f, const char *text)
{
    const char *mark = strstr(f->parts[0], mark_system);
    const size_t n = mark ? (size_t)(mark - f->parts[0]) : strlen(f->parts[0]);
    if (strncmp(text, f->parts[0], n) != 0)
        return NULL;
    if (!mark)
        return text + n;
    const char *rest = mark + strlen(mark_system), *end = *rest ? strstr(text + n, rest) : NULL;
    *system = end ? strndup(text + n, (size_t)(end - text) - n) : NULL;
    return *system ? end + strlen(rest) : NULL;
}

/* ---- Turns ---- */

/* A text with the places of its tokens. */
struct laid {
    const char *text;
    const size_t *at; /* [n + 1] */
    const int32_t *tokens;
    int32_t n;
};

/* The token that begins at a byte, or the one after it. */
static int32_t token_at(const struct laid *l, size_t byte)
{
    int32_t i = 0;
    while (i < l->n && l->at[i] < byte)
        i++;
    return i;
}

static bool set_turn(struct cli_turn *turn, const struct laid *l, const char *question, const char *asked,
                     const char *answer, const char *said)
{
    const int32_t from = token_at(l, (size_t)(answer - l->text)), to = token_at(l, (size_t)(said - l->text));
    const int32_t n = to > from ? to - from : 0;
    *turn = (struct cli_turn){.question = strndup(question, (size_t)(asked - question)),
                              .said = strndup(answer, (size_t)(said - answer)),
                              .answer = malloc(((size_t)n + 1) * sizeof *turn->answer),
                              .n_answer = n,
                              .n_read = n};
    if (n > 0 && turn->answer)
        memcpy(turn->answer, l->tokens + from, (size_t)n * sizeof *turn->answer);
    return turn->question && turn->said && turn->answer;
}

/* Room for a turn more; NULL without memory. */
static struct cli_turn *more(struct cli_conversation *t)
{
    if (t->n == t->cap) {
        const int32_t cap = 2 * t->cap + 8;
        struct cli_turn *turns = realloc(t->turns, (size_t)cap * sizeof *turns);
        if (!turns)
            return NULL;
        t->turns = turns;
        t->cap = cap;
    }
    t->turns[t->n] = (struct cli_turn){0};
    return &t->turns[t->n++];
}

/* Where the answer to the question at a text begins; *asked: where the question ends. A template may write a blank before answers. One that was
 * generated there, as the last one, follows without it. NULL: there is no answer. */
static const char *find_answer(const char **asked, const struct frame *f, const char *at, bool generated)
{
    char *bare = strdup(f->parts[1]);
    const size_t n = bare ? strlen(bare) : 0;
    const bool blank = generated && n > 1 && bare[n - 1] == ' ';
    if (blank)
        bare[n - 1] = '\0';
    *asked = bare ? strstr(at, bare) : NULL;
    const char *answer = *asked ? *asked + n - blank : NULL;
    free(bare);
    if (!blank || !answer || !strstr(answer, f->parts[2]))
        return answer;
    return find_answer(asked, f, at, false);
}

/* Splits the text from the first question on. False: it is no chat, or memory ran out. */
static bool split(struct cli_conversation *t, const struct frame *f, const struct laid *l, const char *at,
                  bool generated)
{
    while (at) {
        const char *asked, *answer = find_answer(&asked, f, at, generated);
        if (!answer)
            return false;
        const char *said = strstr(answer, f->parts[2]);
        struct cli_turn *turn = more(t);
        if (!turn || !set_turn(turn, l, at, asked, answer, said ? said : answer + strlen(answer)))
            return false;
        at = said ? said + strlen(f->parts[2]) : NULL;
    }
    return true;
}

static void forget(struct cli_conversation *t, char **system)
{
    cli_conversation_clear(t);
    free(*system);
    *system = NULL;
    t->layout.system = NULL;
}

static bool find_turns(struct cli_conversation *t, char **system, const struct laid *l, bool generated)
{
    for (int with = 0; with < 2; with++) {
        struct frame f;
        const char *at = make_frame(&f, t, with != 0) ? after_header(system, &f, l->text) : NULL;
        const bool found = at && split(t, &f, l, at, generated);
        clear_frame(&f);
        if (found)
            return true;
        forget(t, system);
    }
    return false;
}

/* Notes how many tokens of the last answer were generated and not read. False: there are more than it has. */
static bool set_unread(struct cli_conversation *t, int32_t n)
{
    struct cli_turn *last = &t->turns[t->n - 1];
    last->n_read = last->n_answer - n;
    return last->n_read >= 0;
}

/* Whether the turns, laid out again, are these tokens. */
static bool are_these(struct cli_conversation *t, const int32_t *tokens, int32_t n)
{
    int32_t n_laid = 0;
    if (cli_conversation_lay_out(t) != APP_OK)
        return false;
    const int32_t *laid = wnw_chat_tokens(t->chat, &n_laid);
    return n <= n_laid && memcmp(laid, tokens, (size_t)n * sizeof *laid) == 0;
}

int cli_parked_turns(struct cli_conversation *t, char **system, const int32_t *tokens, int32_t n,
                     int32_t n_read)
{
    size_t *at = malloc(((size_t)n + 1) * sizeof *at);
    char *text = at ? cli_slot_text(t->model, tokens, n, at) : NULL;
    const struct laid l = {.text = text, .at = at, .tokens = tokens, .n = n};
    bool found = false;
    for (int generated = 0; text && !found && generated < 2; generated++) {
        if (!find_turns(t, system, &l, generated != 0))
            continue;
        t->layout.system = *system;
        found = set_unread(t, n - n_read) && are_these(t, tokens, n);
        if (!found && generated == 0)
            forget(t, system);
    }
    int rc = text ? APP_OK : app_fail(APP_FAILED, "out of memory for the text of a conversation");
    free(text);
    free(at);
    if (rc == APP_OK && !found)
        rc = app_fail(
            APP_BAD_INPUT,
            "it is no plain chat of the model's template (with tools, another template or a date, only "
            "the program that asked goes on with it)");
    return rc;
}
