/* SPDX-License-Identifier: MIT */
#include "cli/conversation.h"

#include "app/console.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    return app_fail(APP_FAILED, "out of memory for the conversation");
}

static void clear_turn(struct cli_turn *turn)
{
    free(turn->document);
    free(turn->question);
    free(turn->said);
    free(turn->answer);
    *turn = (struct cli_turn){0};
}

static void close_chat(struct cli_conversation *t)
{
    wnw_chat_free(t->chat);
    t->chat = NULL;
    t->n_laid = 0;
}

/* ---- Going through the turns ---- */

int cli_conversation_restart(struct cli_conversation *t)
{
    close_chat(t);
    return app_status_code(wnw_chat_open(&t->chat, t->model, &t->layout));
}

static int take_header(struct cli_conversation *t, const wnw_prompt *first)
{
    const wnw_prompt_parts of = wnw_prompt_parts_of(first);
    wnw_prompt_free(t->header);
    const int status =
        wnw_prompt_new(&t->header, &(wnw_prompt_parts){WNW_INIT(wnw_prompt_parts), .n_prefix = of.n_prefix,
                                                       .suffix = of.suffix, .n_suffix = of.n_suffix});
    return app_status_code(status);
}

int cli_conversation_next(wnw_prompt **out, struct cli_conversation *t)
{
    struct cli_turn *turn = &t->turns[t->n_laid];
    /* An empty document separates the question from the text before it. */
    const int status =
        wnw_chat_user(out, t->chat, turn->document ? turn->document : "", turn->question, NULL);
    if (status != WNW_OK)
        return app_fail_status(status);
    turn->n_past = wnw_prompt_n_past(*out);
    turn->n_context = wnw_prompt_n_context(*out);
    const int rc = t->n_laid == 0 ? take_header(t, *out) : APP_OK;
    if (rc != APP_OK) {
        wnw_prompt_free(*out);
        *out = NULL;
    }
    return rc;
}

int cli_conversation_close(struct cli_conversation *t)
{
    const struct cli_turn *turn = &t->turns[t->n_laid];
    const int status = wnw_chat_answer(t->chat, turn->answer, turn->n_answer);
    t->n_laid += status == WNW_OK;
    return app_status_code(status);
}

int cli_conversation_lay_out(struct cli_conversation *t)
{
    int rc = t->chat ? APP_OK : cli_conversation_restart(t);
    while (rc == APP_OK && t->n_laid < t->n) {
        wnw_prompt *prompt = NULL;
        rc = cli_conversation_next(&prompt, t);
        wnw_prompt_free(prompt);
        if (rc == APP_OK)
            rc = cli_conversation_close(t);
    }
    if (rc != APP_OK)
        close_chat(t);
    return rc;
}

/* ---- A turn more ---- */

static int add_turn(struct cli_conversation *t, const char *document, const char *question)
{
    if (t->n == t->cap) {
        const int32_t cap = 2 * t->cap + 8;
        struct cli_turn *more = realloc(t->turns, (size_t)cap * sizeof *more);
        if (!more)
            return no_memory();
        t->turns = more;
        t->cap = cap;
    }
    struct cli_turn turn = {.document = document ? strdup(document) : NULL, .question = strdup(question)};
    if (!turn.question || (document && !turn.document)) {
        clear_turn(&turn);
        return no_memory();
    }
    t->turns[t->n++] = turn;
    return APP_OK;
}

int cli_conversation_ask(wnw_prompt **out, struct cli_conversation *t, const char *document,
                         const char *question)
{
    WNW_TRY(cli_conversation_lay_out(t));
    WNW_TRY(add_turn(t, document, question));
    const int rc = cli_conversation_next(out, t);
    if (rc != APP_OK)
        cli_conversation_drop(t);
    return rc;
}

int cli_conversation_answer(struct cli_conversation *t, const wnw_generated *said)
{
    struct cli_turn *turn = &t->turns[t->n - 1];
    turn->said = strdup(said->text ? said->text : "");
    turn->answer = malloc(((size_t)said->n_tokens + 1) * sizeof *turn->answer);
    if (!turn->said || !turn->answer)
        return no_memory();
    if (said->n_tokens > 0)
        memcpy(turn->answer, said->tokens, (size_t)said->n_tokens * sizeof *turn->answer);
    turn->n_answer = said->n_tokens;
    turn->n_read = said->n_read;
    return cli_conversation_close(t);
}

void cli_conversation_drop(struct cli_conversation *t)
{
    if (t->n == 0)
        return;
    clear_turn(&t->turns[--t->n]);
    close_chat(t);
}

void cli_conversation_clear(struct cli_conversation *t)
{
    while (t->n > 0)
        cli_conversation_drop(t);
    close_chat(t);
    wnw_prompt_free(t->header);
    t->header = NULL;
    free(t->turns);
    t->turns = NULL;
    t->cap = 0;
}
