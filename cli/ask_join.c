/* SPDX-License-Identifier: MIT */
/*
 * Several stored documents, one after the other: each is taken as it was stored, at the positions that follow. The first tokens of later ones are
 * read again, so that they know what comes before. A server does the same with lists of documents (serve/join_cells.c).
 */
#include "app/console.h"
#include "app/output.h"
#include "base/err.h"
#include "cli/ask.h"
#include "cli/slot_of.h"
#include "cli/stored.h"
#include "winnow_batch.h"
#include "winnow_chat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    return app_fail(APP_FAILED, "out of memory for the tokens of several documents");
}

/* ---- What they are ---- */

static const wnw_stored *document(const struct ask *ask, int32_t i)
{
    return i == 0 ? ask->st : ask->join.later[i - 1];
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Whether one prompt can have both. Control tokens in a text that was read as plain text stay plain. */
static bool same_layout(const wnw_prompt_params *a, const wnw_prompt_params *b)
{
    return same_text(a->system, b->system) && same_text(a->chat, b->chat) && same_text(a->jinja, b->jinja) &&
           a->raw == b->raw && a->special == b->special && a->verbatim == b->verbatim;
}

/* Opens document i and compares how it was laid out with the first one. */
static int open_one(struct ask *ask, const struct cli_args *args, int32_t i)
{
    const char *path = args->caches.s[i];
    wnw_prompt_params text, first;
    for (int32_t k = 0; k < i; k++)
        if (app_out_same(args->caches.s[k], path))
            return app_fail(APP_BAD_INPUT, "'%s' is named twice", path);
    if (i > 0)
        WNW_TRY(cli_stored_open(&ask->join.later[i - 1], path));
    if (wnw_stored_note(document(ask, i)))
        return app_fail(APP_BAD_INPUT,
                        "'%s' is a conversation; several -c are documents of `winnow compress`", path);
    WNW_TRY(app_status_code(wnw_stored_check_model(document(ask, i), ask->job.model)));
    WNW_TRY(cli_stored_text(&text, document(ask, i), path));
    WNW_TRY(cli_stored_text(&first, ask->st, args->caches.s[0]));
    if (same_layout(&text, &first))
        return APP_OK;
    return app_fail(
        APP_BAD_INPUT,
        "'%s' and '%s' were stored with different system messages, templates, --raw or --special, "
        "and a prompt has one of each; store them alike",
        args->caches.s[0], path);
}

/* ---- Where their tokens go ---- */

/* Tokens of a document, but for those that its own template has written. */
static struct app_join_source source_of(const struct ask *ask, int32_t i)
{
    wnw_stored_info info = wnw_stored_info_default();
    struct app_join_source of;
    (void)wnw_stored_get_info(document(ask, i), &info); /* this call does not fail for an open file */
    of.ids = wnw_stored_tokens(document(ask, i), &of.n);
    const int32_t n_begin = cli_slot_n_begin(ask->job.model, of.ids, of.n);
    of.n_header = info.n_prefix > n_begin ? info.n_prefix : n_begin;
    return of;
}

/* The texts of all documents, an empty line between two; NULL: no memory. */
static char *texts_of(const struct ask *ask, const struct cli_args *args)
{
    char *all = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&all, &size);
    bool good = f != NULL;
    for (int32_t i = 0; good && i < ask->join.n; i++) {
        wnw_prompt_params text;
        good = cli_stored_text(&text, document(ask, i), args->caches.s[i]) == APP_OK &&
               fprintf(f, "%s%s", i > 0 ? "\n\n" : "", text.document) >= 0;
    }
    if (f && fclose(f) != 0)
        good = false;
    if (good)
        return all;
    free(all);
    return NULL;
}

/* Takes the tokens of a text that has all documents, as the chat's template writes it. */
static int take_tokens(struct ask_join *j, wnw_chat *chat, const char *text)
{
    wnw_prompt *prompt;
    WNW_TRY(app_status_code(wnw_chat_user(&prompt, chat, text, "?", NULL)));
    j->n_tokens = wnw_prompt_n_context(prompt);
    j->tokens = malloc(((size_t)j->n_tokens + 1) * sizeof *j->tokens);
    if (j->tokens)
        memcpy(j->tokens, wnw_prompt_tokens(prompt, NULL), (size_t)j->n_tokens * sizeof *j->tokens);
    wnw_prompt_free(prompt);
    return j->tokens ? APP_OK : no_memory();
}

static int lay_out(struct ask *ask, const struct cli_args *args)
{
    wnw_prompt_params layout;
    wnw_chat *chat = NULL;
    WNW_TRY(cli_stored_text(&layout, ask->st, args->caches.s[0]));
    char *text = texts_of(ask, args);
    int rc = text ? app_status_code(wnw_chat_open(&chat, ask->job.model, &layout)) : no_memory();
    if (rc == APP_OK)
        rc = take_tokens(&ask->join, chat, text);
    wnw_chat_free(chat);
    free(text);
    return rc;
}

static int plan(struct ask *ask, const struct cli_args *args)
{
    struct ask_join *j = &ask->join;
    const double share = isnan(args->reread) ? APP_JOIN_SHARE : args->reread;
    struct app_join_source *of = malloc((size_t)j->n * sizeof *of);
    int32_t total, wrong;
    for (int32_t i = 0; of && i < j->n; i++)
        of[i] = source_of(ask, i);
    int rc = of ? lay_out(ask, args) : no_memory();
    if (rc == APP_OK && !app_join_plan(j->part, of, j->n, j->tokens, j->n_tokens, share, &total, &wrong))
        rc = app_fail(
            APP_BAD_INPUT,
            "'%s' is not in a prompt with all documents as it was stored: it had another template, was for "
            "another day, or has documents that were added one by one",
            args->caches.s[wrong]);
    free(of);
    return rc;
}

int cli_ask_join_open(struct ask *ask, const struct cli_args *args)
{
    struct ask_join *j = &ask->join;
    j->later = calloc((size_t)args->caches.n, sizeof *j->later);
    j->part = calloc((size_t)args->caches.n, sizeof *j->part);
    if (!j->later || !j->part)
        return no_memory();
    j->n = args->caches.n;
    for (int32_t i = 0; i < j->n; i++)
        WNW_TRY(open_one(ask, args, i));
    WNW_TRY(plan(ask, args));
    ask->n_past = ask->job.n_context = ask->job.n_tokens = j->n_tokens;
    return APP_OK;
}

/* ---- Reading ---- */

/* Reads the tokens up to number `to` of all. */
static int read_to(const struct ask_join *j, int32_t *n_read, int32_t from, int32_t to)
{
    *n_read += to - from;
    return to > from
               ? app_status_code(wnw_session_prefill(j->session, j->tokens + from, to - from, NULL, NULL))
               : APP_OK;
}

int cli_ask_join_read(struct ask *ask)
{
    struct ask_join *j = &ask->join;
    const wnw_session_params how = {WNW_INIT(wnw_session_params), .kv_type = ask->job.kv.type,
                                    .kv_tail = ask->job.kv.tail, .kv_unrotated = ask->job.kv.unrotated};
    int32_t n_read = 0, n_moved = 0, end = 0;
    WNW_TRY(app_status_code(wnw_session_new_on(&j->session, ask->job.engine, &how)));
    for (int32_t i = 0; i < j->n; i++) {
        const struct app_join_part *p = &j->part[i];
        WNW_TRY(read_to(j, &n_read, end, p->at));
        if (p->n > 0)
            WNW_TRY(app_status_code(wnw_session_append(j->session, document(ask, i), p->from, p->n)));
        end = p->at + p->n;
        n_moved += i > 0 ? p->n : 0;
    }
    WNW_TRY(read_to(j, &n_read, end, j->n_tokens));
    app_note("%d documents: %d tokens of later ones are read again, and %d are taken as they were stored",
             (int)j->n, (int)n_read, (int)n_moved);
    return APP_OK;
}

int cli_ask_join_session(wnw_session **s, const struct ask *ask)
{
    return app_status_code(wnw_session_copy(s, ask->join.session));
}

void cli_ask_join_end(struct ask_join *j)
{
    wnw_session_free(j->session);
    for (int32_t i = 0; j->later && i < j->n - 1; i++)
        wnw_stored_free(j->later[i]);
    free(j->later);
    free(j->part);
    free(j->tokens);
    *j = (struct ask_join){0};
}
