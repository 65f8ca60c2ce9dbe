/* SPDX-License-Identifier: MIT */
/* What the commands of a conversation do. */
#include "cli/chat.h"

#include "app/document.h"
#include "app/files.h"

#include <stdlib.h>
#include <string.h>

/* The texts for the next turn and another one, into *all. */
static int join_text(struct app_text *all, const char *so_far, const struct app_text *text, const char *path)
{
    if (so_far && strlen(so_far) + text->len > APP_MAX_TEXT)
        return app_fail(APP_BAD_INPUT, "the texts together are too long: a text has at most %d bytes",
                        APP_MAX_TEXT);
    if ((so_far && (!app_text_add(all, so_far, strlen(so_far)) || !app_text_add(all, "\n\n", 2))) ||
        !app_text_add(all, text->s, text->len))
        return app_fail(APP_FAILED, "out of memory for '%s'", path);
    return APP_OK;
}

/* A text for the next turn; several are joined as documents are. */
static int add_file(struct cli_chat *c, const char *path)
{
    struct app_text text = {0}, remarks = {0}, all = {0};
    if (strcmp(path, "-") == 0)
        return app_fail(APP_BAD_INPUT, "/file reads files; what is typed here is the conversation");
    int rc = app_read_text(&text, path, &remarks);
    app_note_lines("warning: ", remarks.s);
    if (rc == APP_OK)
        rc = join_text(&all, c->file, &text, path);
    if (rc == APP_OK) {
        app_note("'%s', %zu bytes, comes with the next turn", path, text.len);
        free(c->file);
        c->file = all.s;
        all.s = NULL;
    }
    free(all.s);
    free(text.s);
    free(remarks.s);
    return rc;
}

/* Starts over with another system message, if the template supports one. */
static int set_system(struct cli_chat *c, const char *text)
{
    struct app_text remarks = {0};
    char *system = NULL;
    wnw_prompt *trial = NULL;
    int rc = app_argument_clean(&system, text, "the system message", &remarks);
    app_note_lines("warning: ", remarks.s);
    free(remarks.s);
    if (rc != APP_OK)
        return rc;
    wnw_prompt_params layout = c->conversation.layout;
    layout.system = system;
    layout.document = c->job.document;
    layout.question = c->job.document ? NULL : "?";
    const int status = wnw_prompt_build(&trial, c->job.model, &layout);
    if (status != WNW_OK) {
        free(system);
        return app_fail_status(status);
    }
    cli_chat_restart(c);
    if (c->job.document) { /* the document's prompt begins with the new header */
        wnw_prompt_free(c->job.prompt);
        c->job.prompt = trial;
        c->job.keep.run.prompt = trial; /* the next session begins with it */
        c->job.tokens = wnw_prompt_tokens(trial, &c->job.n_tokens);
        c->job.n_context = wnw_prompt_n_context(trial);
    } else {
        wnw_prompt_free(trial);
    }
    free(c->job.system);
    c->job.system = system;
    c->conversation.layout.system = system;
    c->of_file = false;
    c->stale = true;
    cli_conversation_clear(&c->conversation);
    app_note("a new conversation begins");
    return APP_OK;
}

static int set_size(struct cli_chat *c, const char *text)
{
    wnw_size size;
    if (!cli_chat_size(&size, text))
        return app_fail(
            APP_BAD_INPUT,
            "/size '%.40s': give a fraction to remove, 0 to less than 1 (0.5), a number of entries (512) "
            "or bytes (64M)",
            text);
    return cli_chat_change(c, NULL, &size);
}

static int undo(struct cli_chat *c)
{
    if (!cli_chat_undo(c))
        return app_fail(APP_BAD_INPUT, "there is no turn to take back");
    app_note("%d turns are left%s", (int)c->conversation.n, c->stale ? "; the next one reads all again" : "");
    return APP_OK;
}

static int retry(struct cli_chat *c)
{
    if (c->conversation.n == 0)
        return app_fail(APP_BAD_INPUT, "there is no turn to answer again");
    const struct cli_turn *last = &c->conversation.turns[c->conversation.n - 1];
    char *document = last->document ? strdup(last->document) : NULL, *question = strdup(last->question);
    int rc = question && (document || !last->document) ? APP_OK
                                                       : app_fail(APP_FAILED, "out of memory for the turn");
    if (rc == APP_OK) {
        c->tries++;
        cli_chat_undo(c);
        rc = cli_chat_answer(c, document, question);
    }
    free(document);
    free(question);
    return rc;
}

static int reread(struct cli_chat *c)
{
    c->stale = true;
    return cli_chat_catch_up(c);
}

int cli_chat_do(struct cli_chat *c, enum cli_chat_word word, const char *argument, bool *ends)
{
    switch (word) {
    case CHAT_FILE:
        return add_file(c, argument);
    case CHAT_SYSTEM:
        return set_system(c, argument);
    case CHAT_POLICY:
        return cli_chat_change(c, argument, NULL);
    case CHAT_SIZE:
        return set_size(c, argument);
    case CHAT_STATS:
        cli_chat_print_stats(c);
        return APP_OK;
    case CHAT_UNDO:
        return undo(c);
    case CHAT_RETRY:
        return retry(c);
    case CHAT_REREAD:
        return reread(c);
    case CHAT_SAVE:
        return cli_chat_save(c, argument);
    case CHAT_NEW:
        cli_chat_restart(c);
        return APP_OK;
    case CHAT_HELP:
        cli_chat_print_help();
        return APP_OK;
    case CHAT_QUIT:
        *ends = true;
        return APP_OK;
    case CHAT_N_WORDS:
        break;
    }
    return APP_OK;
}
