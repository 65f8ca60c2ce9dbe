/* SPDX-License-Identifier: MIT */
/* Conversations in files: a stored session whose note has the turns (decision 087), and a text to be read. */
#include "cli/chat.h"

#include "base/err.h"
#include "cli/stored.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int no_memory(void)
{
    return app_fail(APP_FAILED, "out of memory for the conversation");
}

/* ---- Opening ---- */

/* Document and template of the file, for the job's prompt. The strings outlive the conversation. */
static int take_text(struct cli_chat *c, const wnw_prompt_params *text, const char *document)
{
    struct app_job *job = &c->job;
    job->document = document ? strdup(document) : NULL;
    job->n_document = document ? strlen(document) : 0;
    job->system = text->system ? strdup(text->system) : NULL;
    job->now = text->now;
    c->args.app.chat = (char *)(uintptr_t)text->chat; /* it is only read */
    c->args.app.raw = text->raw;
    c->args.app.special = text->special;
    if ((document && !job->document) || (text->system && !job->system))
        return no_memory();
    return document ? app_job_prompt(job) : APP_OK;
}

static int load_document(struct cli_chat *c)
{
    wnw_prompt_params text;
    c->of_file = true;
    WNW_TRY(cli_stored_text(&text, c->st, c->args.cache));
    WNW_TRY(take_text(c, &text, text.document));
    return cli_stored_check_prompt(c->st, c->job.prompt, c->args.cache);
}

static int load_turns(struct cli_chat *c)
{
    int32_t n;
    WNW_TRY(cli_conversation_open(&c->conversation, &c->note, &n, c->st, c->args.cache));
    WNW_TRY(take_text(c, &c->conversation.layout, c->conversation.turns[0].document));
    for (int32_t i = 0, n_unread = 0; i < c->conversation.n; i++) {
        struct cli_turn *turn = &c->conversation.turns[i];
        const int32_t n_document = turn->document ? turn->n_context : 0;
        turn->n_before = i > 0 ? turn->n_past - n_unread : n_document;
        n_unread = turn->n_answer - turn->n_read;
    }
    return cli_chat_take_stored(c, n);
}

int cli_chat_load(struct cli_chat *c)
{
    WNW_TRY(app_status_code(wnw_stored_check_model(c->st, c->job.model)));
    wnw_stored_info info = wnw_stored_info_default();
    (void)wnw_stored_get_info(c->st, &info); /* this call does not fail for an open file */
    c->job.kv = (struct app_kv){.type = info.kv_type, .tail = info.kv_tail, .unrotated = info.kv_unrotated};
    return wnw_stored_note(c->st) ? load_turns(c) : load_document(c);
}

/* ---- Saving the session ---- */

/* The tokens that the session has read. The session itself does not know them once kept tokens were renumbered. *tokens is owned
 * by the caller. */
static int all_tokens(int32_t **tokens, int32_t *n, const struct cli_chat *c)
{
    int32_t n_first = 0;
    const int32_t *first = c->n_odd > 0 ? wnw_stored_tokens(c->st, &n_first) : NULL;
    const size_t n_more = (size_t)(c->n_read - c->n_odd);
    *n = n_first + (int32_t)n_more;
    *tokens = malloc(((size_t)*n + 1) * sizeof **tokens);
    if (!*tokens)
        return no_memory();
    if (n_first > 0)
        memcpy(*tokens, first, (size_t)n_first * sizeof **tokens);
    memcpy(*tokens + n_first, c->seen + c->n_odd, n_more * sizeof **tokens);
    return APP_OK;
}

/* Rules that compress while decoding are not stored: a copy without them is. */
static int store(const struct cli_chat *c, const char *path, const wnw_store_params *params)
{
    wnw_session *copy = NULL;
    wnw_run run = c->job.keep.run;
    wnw_run_more more = c->job.keep.more;
    if (run.every == 0)
        return wnw_session_store(c->job.session, path, params);
    run.every = 0;
    more.goes_on = true;
    run.more = &more;
    run.prompt = cli_chat_prompt(c);
    int status = wnw_session_copy(&copy, c->job.session);
    if (status == WNW_OK)
        status = wnw_session_begin(copy, &run);
    if (status == WNW_OK)
        status = wnw_session_store(copy, path, params);
    wnw_session_free(copy);
    return status;
}

static int write_session(int32_t *n_tokens, const struct cli_chat *c, const char *path)
{
    wnw_prompt_params text = c->conversation.layout;
    wnw_store_params params = wnw_store_default_params();
    int32_t *tokens = NULL;
    char *note = NULL;
    params.pieces = c->n_odd > 0;
    text.document = c->job.document;
    int rc = all_tokens(&tokens, &params.n_tokens, c);
    params.tokens = tokens;
    if (rc == APP_OK && c->conversation.n > 0)
        rc = cli_conversation_note(&note, &c->conversation, c->n_read);
    params.note = note;
    params.text = note ? NULL : &text; /* a document without turns can be asked by `winnow ask`, too */
    if (rc == APP_OK)
        rc = app_status_code(store(c, path, &params));
    *n_tokens = params.n_tokens;
    free(tokens);
    free(note);
    return rc;
}

static int save_session(const struct cli_chat *c, const char *path)
{
    struct stat st;
    int32_t n;
    const int rc = write_session(&n, c, path);
    if (rc == APP_OK)
        app_note("'%s': %d turns, %d tokens, %.2f MiB", path, (int)c->conversation.n, (int)n,
                 stat(path, &st) == 0 ? (double)st.st_size / 1048576.0 : 0.0);
    return rc;
}

/* ---- Parking it ---- */

static int write_parked(const char *path, void *user)
{
    int32_t n;
    return write_session(&n, user, path);
}

int cli_chat_park(struct cli_chat *c)
{
    WNW_TRY(cli_chat_catch_up(c));
    if (c->stale)
        return APP_OK;
    WNW_TRY(cli_chat_read_answer(c));
    WNW_TRY(cli_parked_add(&c->parked, write_parked, c, c->resumed, !c->own_rules));
    app_note("parked in '%s' as %llu: %d turns, %d tokens", c->args.state, (unsigned long long)c->parked.most,
             (int)c->conversation.n, (int)c->n_read);
    return APP_OK;
}

/* ---- Saving the text ---- */

/* Every line of the question begins with "> ". */
static bool quote(FILE *f, const char *text)
{
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, "\n");
        if (fprintf(f, "> %.*s\n", (int)n, at) < 0)
            return false;
        at += n + (at[n] == '\n');
    }
    return true;
}

static bool write_turn(FILE *f, const struct cli_turn *turn)
{
    if (turn->document && fprintf(f, "> (a text of %zu bytes)\n", strlen(turn->document)) < 0)
        return false;
    return quote(f, turn->question) && fprintf(f, "\n%s\n\n", turn->said) > 0;
}

static int save_text(const struct cli_chat *c, const char *path)
{
    struct app_out out = {0};
    WNW_TRY(app_out_open(&out, path, &c->job.inputs));
    bool good =
        !c->conversation.layout.system || fprintf(out.f, "system: %s\n\n", c->conversation.layout.system) > 0;
    for (int32_t i = 0; good && i < c->conversation.n; i++)
        good = write_turn(out.f, &c->conversation.turns[i]);
    int rc = app_out_commit(&out); /* which sees what could not be written */
    if (rc == APP_OK)
        app_note("'%s': %d turns as text", path, (int)c->conversation.n);
    return rc;
}

int cli_chat_save(struct cli_chat *c, const char *path)
{
    const size_t n = strlen(path);
    if (n < 4 || strcmp(path + n - 4, ".wkv") != 0)
        return save_text(c, path);
    if (c->devices.sequence)
        return app_fail(APP_BAD_INPUT,
                        "a conversation on --devices is saved as text; give another ending than .wkv");
    /* The file of --resume was checked before it was opened, and is replaced as a whole. */
    const bool resumed = c->args.resume && strcmp(path, c->args.resume) == 0;
    if (!resumed)
        WNW_TRY(app_out_check(path, &c->job.inputs));
    WNW_TRY(cli_chat_catch_up(c));
    if (c->stale)
        return APP_OK;
    if (c->n_read == 0)
        return app_fail(APP_BAD_INPUT, "there is nothing to save yet; ask something first");
    return save_session(c, path);
}
