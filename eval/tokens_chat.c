/* SPDX-License-Identifier: MIT */
/* What a chat template puts around the user's text. */
#include "eval/tokens.h"

#include "app/console.h"

#include <stdlib.h>
#include <string.h>

/* Stands for the user's text when the template is rendered. */
static const char sentinel[] = "########################################";
/* Stand for an earlier question and its answer. */
static const char first_text[] = "&&&&&&&&&&&&&&&&&&&&", answer_text[] = "@@@@@@@@@@@@@@@@@@@@";

/* The whole text of a prompt, including control tokens. The caller frees it; NULL if memory runs out. */
static char *prompt_text(const wnw_model *m, const wnw_prompt *p)
{
    struct app_text text = {0};
    bool good = app_text_add(&text, "", 0);
    for (int32_t i = 0; good && i < p->n_tokens; i++) {
        char *piece = NULL;
        good =
            wnw_token_piece(m, p->tokens[i], &piece) == WNW_OK && app_text_add(&text, piece, strlen(piece));
        wnw_free(piece);
    }
    if (!good) {
        free(text.s);
        return NULL;
    }
    return text.s;
}

/* Cuts a rendered prompt at the sentinel. If nothing surrounds the sentinel, the model has no template. */
static int cut_template(struct eval_chat *c, const char *text)
{
    const char *at = strstr(text, sentinel);
    if (!at)
        return app_fail(APP_BAD_INPUT, "the chat template changes the user's text; use --chat none");
    const char *behind = at + strlen(sentinel);
    c->head = strndup(text, (size_t)(at - text));
    c->tail = strdup(behind);
    if (!c->head || !c->tail)
        return app_fail(APP_FAILED, "out of memory for the chat template");
    c->raw = *behind == '\0';
    if (c->raw)
        *c->head = '\0'; /* a BOS, which plain texts get as a token */
    return APP_OK;
}

/* Text of a prompt of the template with up to two earlier turns. The caller frees it and clears the prompt. */
static int render(char **text, wnw_prompt *prompt, const wnw_model *m, const char *name, bool turns)
{
    const bool raw = strcmp(name, "none") == 0;
    const wnw_chat_message earlier[] = {{"user", first_text}, {"assistant", answer_text}};
    const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params),
                                      .question = sentinel,
                                      .messages = turns ? earlier : NULL,
                                      .n_messages = turns ? 2 : 0,
                                      .chat = raw || strcmp(name, "auto") == 0 ? NULL : name,
                                      .raw = raw};
    *text = NULL;
    *prompt = wnw_prompt_default();
    const int status = wnw_prompt_build(prompt, m, &params);
    if (status != WNW_OK)
        return status;
    *text = prompt_text(m, prompt);
    return *text ? WNW_OK : WNW_E_NOMEM;
}

/* Finds what stands between an answer and the next question. Templates that refuse earlier turns leave it
 * NULL, and samples of several turns are refused then. */
static int find_between(struct eval_chat *c, const wnw_model *m, const char *name)
{
    wnw_prompt prompt;
    char *text;
    if (c->raw) {
        c->between = strdup("\n\n");
        return c->between ? APP_OK : app_fail(APP_FAILED, "out of memory for the chat template");
    }
    const int status = render(&text, &prompt, m, name, true);
    char *from = text ? strstr(text, answer_text) : NULL;
    const char *to = from ? strstr(from, sentinel) : NULL;
    if (to) {
        from += strlen(answer_text);
        c->between = strndup(from, (size_t)(to - from));
    }
    free(text);
    wnw_prompt_clear(&prompt);
    return status == WNW_E_NOMEM || (to && !c->between)
               ? app_fail(APP_FAILED, "out of memory for the chat template")
               : APP_OK;
}

int eval_chat_open(struct eval_chat *c, const wnw_model *m, const char *name)
{
    wnw_prompt prompt;
    char *text;
    *c = (struct eval_chat){0};
    const int status = render(&text, &prompt, m, name, false);
    int rc = status == WNW_OK ? cut_template(c, text) : app_fail_status(status);
    if (rc == APP_OK && !c->raw) {
        c->n_prefix = prompt.n_prefix;
        c->suffix = prompt.suffix; /* taken over */
        c->n_suffix = prompt.n_suffix;
        prompt.suffix = NULL;
    }
    free(text);
    wnw_prompt_clear(&prompt);
    if (rc == APP_OK)
        rc = find_between(c, m, name);
    if (rc != APP_OK)
        eval_chat_close(c);
    return rc;
}

void eval_chat_close(struct eval_chat *c)
{
    free(c->head);
    free(c->tail);
    free(c->between);
    wnw_free(c->suffix);
    *c = (struct eval_chat){0};
}
