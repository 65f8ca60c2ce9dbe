/* SPDX-License-Identifier: MIT */
/* winnow chat: a conversation, line by line. */
#include "cli/chat.h"

#include "app/clean.h"
#include "app/output.h"
#include "app/stop.h"
#include "app/values.h"
#include "base/err.h"
#include "cli/chat_line.h"
#include "cli/commands.h"
#include "cli/store_use.h"
#include "cli/stored.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Beginning ---- */

/* What the file of -c says cannot be given once more. */
static int check_arguments(const struct cli_args *args)
{
    const struct app_args *a = &args->app;
    const char *given = APP_FIRST_GIVEN({a->documents.n > 0, "-f"}, {a->system, "--system"},
                                        {a->chat, "--chat"}, {a->raw, "--raw"}, {a->special, "--special"},
                                        {args->store, "--store"}, {true, cli_stored_option(a)});
    for (int i = 0; i < a->documents.n; i++)
        if (strcmp(a->documents.s[i], "-") == 0)
            return app_fail(APP_BAD_INPUT, "-f - would read the conversation as a document; name a file");
    if (!args->cache || !given)
        return APP_OK;
    return app_fail(APP_BAD_INPUT,
                    "%s goes on with a stored document under its template and in its cache; leave out %s "
                    "(/file adds a text)",
                    args->resume ? "--resume" : "-c", given);
}

/* Takes the conversation that --resume names, if it is there. */
static int take_resumed(struct cli_chat *c, bool *ends)
{
    struct cli_args *args = &c->args;
    const size_t n = args->resume ? strlen(args->resume) : 0;
    if (args->api_key_file && !args->state)
        return app_fail(
            APP_BAD_INPUT,
            "--api-key-file says whose parked conversations are meant; name a folder with --state");
    if (args->state)
        return cli_chat_take_parked(c, ends);
    if (!args->resume)
        return APP_OK;
    if (args->cache)
        return app_fail(APP_BAD_INPUT, "-c and --resume exclude each other; give one of them");
    if (args->app.devices)
        return app_fail(APP_BAD_INPUT,
                        "--resume saves a session on the CPU; leave out --resume or --devices");
    if (n < 4 || strcmp(args->resume + n - 4, ".wkv") != 0)
        return app_fail(
            APP_BAD_INPUT,
            "--resume %s: a session is saved in a file whose name ends with .wkv; of a server's folder, "
            "name that with --state",
            args->resume);
    const int rc = app_out_check(args->resume, NULL);
    if (rc == APP_OK && access(args->resume, F_OK) == 0)
        args->cache = args->resume;
    return rc;
}

/* What conversations on --devices lack. */
static int check_devices(const struct cli_chat *c)
{
    const int rc = cli_on_devices_check(&c->args);
    if (rc != APP_OK || !c->args.app.devices)
        return rc;
    if (c->args.cache)
        return app_fail(APP_BAD_INPUT, "-c goes on with a session on the CPU; leave out -c or --devices");
    if (cli_chat_wants_endless(c))
        return app_fail(
            APP_BAD_INPUT,
            "--context endless is for sessions on the CPU; give a number, or leave out --devices");
    return APP_OK;
}

/* An endless context has a policy that renumbers kept tokens. */
static int take_endless_policy(struct cli_chat *c)
{
    char *recipe;
    WNW_TRY(cli_chat_endless_policy(&recipe, &c->args.app));
    free(c->policy);
    c->args.app.policy = c->policy = recipe;
    return APP_OK;
}

/* Everything that can be refused without the model. */
static int check(struct cli_chat *c, bool *ends)
{
    struct app_args *a = &c->args.app;
    struct cli_args for_store = c->args;
    WNW_TRY(take_resumed(c, ends));
    if (*ends)
        return APP_OK;
    WNW_TRY(check_arguments(&c->args));
    if (c->args.cache && !c->st)
        WNW_TRY(cli_stored_open(&c->st, c->args.cache));
    if (c->st)
        WNW_TRY(cli_chat_take_rules(c));
    if (cli_chat_wants_endless(c))
        WNW_TRY(take_endless_policy(c));
    WNW_TRY(app_job_check_conversation(&c->job, a));
    WNW_TRY(check_devices(c));
    for_store.app.evict_every = cli_chat_wants_endless(c) ? NULL : a->evict_every;
    if (cli_store_use_given(&c->args))
        WNW_TRY(cli_store_use_check(&for_store));
    if (c->args.store && a->documents.n == 0)
        return app_fail(APP_BAD_INPUT, "--store keeps documents; give one with -f");
    return APP_OK;
}

/* A conversation of its own, with a document or without. */
static int begin_new(struct cli_chat *c)
{
    struct app_job *job = &c->job;
    app_job_date(job);
    return job->document ? app_job_prompt(job) : APP_OK;
}

static int check_fits(const struct cli_chat *c)
{
    if (c->endless || c->job.n_context < c->n_ctx)
        return APP_OK;
    return app_fail(APP_BAD_INPUT,
                    "the document has %d tokens and the context has %d; shorten it, or use --context endless",
                    c->job.n_context, c->n_ctx);
}

static int begin(struct cli_chat *c, bool *ends)
{
    struct app_job *job = &c->job;
    WNW_TRY(check(c, ends));
    if (*ends)
        return APP_OK;
    WNW_TRY(app_job_open(job));
    c->parked.model = job->model;
    c->conversation.model = job->model;
    WNW_TRY(cli_chat_context(c));
    if (c->args.app.devices && !c->args.chat_context && c->n_ctx > CHAT_ON_DEVICES)
        c->n_ctx = CHAT_ON_DEVICES;
    WNW_TRY(c->st ? cli_chat_load(c) : begin_new(c));
    WNW_TRY(check_fits(c));
    c->conversation.layout = (wnw_prompt_params){WNW_INIT(wnw_prompt_params),    .system = job->system,
                                                 .chat = c->args.app.chat,       .raw = c->args.app.raw,
                                                 .special = c->args.app.special, .now = job->now};
    if (c->args.app.devices && !job->session)
        WNW_TRY(cli_on_devices_begin(&c->devices, job, &c->args, c->n_ctx - job->n_tokens));
    return job->session ? APP_OK : cli_chat_open(c);
}

/* ---- Turns ---- */

/* The text that comes with the turn: of a first one the document, and after it what /file has read. *text is owned by the
 * caller. */
static int document_of(char **text, const struct cli_chat *c)
{
    const char *first = c->conversation.n == 0 && c->job.document ? c->job.document : NULL, *second = c->file;
    *text = NULL;
    if (!first && !second)
        return APP_OK;
    if (asprintf(text, "%s%s%s", first ? first : "", first && second ? "\n\n" : "", second ? second : "") >=
        0)
        return APP_OK;
    *text = NULL;
    return app_fail(APP_FAILED, "out of memory for the turn");
}

static int say(struct cli_chat *c, const struct app_text *line)
{
    struct app_text text = {0}, remarks = {0};
    char *document = NULL;
    int rc = app_text_add(&text, line->s, line->len) ? app_text_clean(&text, "the line", &remarks)
                                                     : app_fail(APP_FAILED, "out of memory for a line");
    app_note_lines("warning: ", remarks.s);
    if (rc == APP_OK)
        rc = document_of(&document, c);
    if (rc == APP_OK) {
        const int32_t n = c->conversation.n;
        c->tries = 0;
        rc = cli_chat_answer(c, document, text.s);
        if (c->conversation.n > n) { /* the text went with it */
            free(c->file);
            c->file = NULL;
        }
    }
    free(document);
    free(text.s);
    free(remarks.s);
    return rc;
}

/* Does what a line says. A line that begins with two slashes is a text that begins with one. */
static int take(struct cli_chat *c, struct app_text *line, bool *ends)
{
    enum cli_chat_word word;
    const char *argument;
    if (strspn(line->s, " \t\n") == line->len)
        return APP_OK;
    if (line->s[0] != '/')
        return say(c, line);
    if (line->s[1] == '/') {
        line->len--;
        memmove(line->s, line->s + 1, line->len + 1);
        return say(c, line);
    }
    WNW_TRY(cli_chat_parse(&word, &argument, line->s));
    return cli_chat_do(c, word, argument, ends);
}

/* Whether nobody reads the answers any more. */
static bool is_over(const struct cli_chat *c)
{
    return ferror(stdout) || (c->terminal && app_stop_signal() == SIGTERM);
}

/* Without a terminal the first fault is the exit code, though the conversation goes on. */
static int converse(struct cli_chat *c, struct cli_line *lines)
{
    enum cli_line_got got = CLI_LINE_TEXT;
    bool ends = false;
    int first = APP_OK;
    while (!ends && (got == CLI_LINE_TEXT || got == CLI_LINE_CLEARED)) {
        struct app_text line;
        got = cli_line_read(lines, &line);
        if (got != CLI_LINE_TEXT)
            continue;
        const int rc = line.s ? take(c, &line, &ends) : APP_OK;
        free(line.s);
        first = first != APP_OK || (c->terminal && !ferror(stdout)) ? first : rc;
        ends = ends || is_over(c);
    }
    if (c->terminal && app_stop_signal() == SIGTERM)
        return APP_INTERRUPTED;
    return got == CLI_LINE_FAILED ? APP_FAILED : first;
}

/* Saves the conversation that --resume names, or parks it; the first fault is the exit code. */
static int save_resumed(struct cli_chat *c, int rc)
{
    const bool parks = c->args.state && c->n_answered > 0 && c->conversation.n > 0;
    const bool saves = !c->args.state && c->args.resume && c->conversation.n > 0;
    int saved = APP_OK;
    if (parks)
        saved = cli_chat_park(c);
    else if (saves)
        saved = cli_chat_save(c, c->args.resume);
    return rc != APP_OK ? rc : saved;
}

static void end(struct cli_chat *c)
{
    cli_chat_close_session(c);
    cli_on_devices_end(&c->devices);
    cli_conversation_clear(&c->conversation);
    app_job_close(&c->job);
    wnw_stored_free(c->st);
    cli_parked_close(&c->parked);
    json_decref(c->note);
    free(c->seen);
    free(c->file);
    free(c->policy);
    free(c->evict);
}

/* From the first line to the last one. */
static int talk(struct cli_chat *c)
{
    struct cli_line *lines;
    app_job_notes(&c->job);
    if (c->terminal) {
        cli_chat_print_start(c);
        app_stop_watch_each();
    }
    int rc = cli_line_open(&lines, c->terminal, !c->args.no_history);
    if (rc == APP_OK)
        rc = save_resumed(c, converse(c, lines));
    cli_line_close(lines);
    app_stop_unwatch();
    return rc;
}

int cli_chat(const struct app_args *args)
{
    struct cli_chat c = {.args = *(const struct cli_args *)args};
    c.args.app.context_only = true; /* what is compressed first is the document */
    c.terminal = isatty(STDIN_FILENO) == 1;
    bool ends = false;
    int rc = begin(&c, &ends);
    if (rc == APP_OK && !ends)
        rc = talk(&c);
    end(&c);
    return rc;
}
