/* SPDX-License-Identifier: MIT */
/* winnow ask: questions about stored documents. */
#include "cli/ask.h"
#include "app/args.h"
#include "app/console.h"
#include "app/document.h"
#include "app/files.h"
#include "app/job.h"
#include "app/json.h"
#include "app/models.h"
#include "app/process.h"
#include "base/err.h"
#include "cli/answer.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/store_use.h"
#include "cli/stored.h"
#include "winnow_store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Questions ---- */

static int add_question(struct ask *ask, const char *text, size_t n)
{
    struct ask_question *more = realloc(ask->questions, ((size_t)ask->n + 1) * sizeof *more);
    char *copy = strndup(text, n);
    if (more)
        ask->questions = more;
    if (!more || !copy) {
        free(copy);
        return app_fail(APP_FAILED, "out of memory for the questions");
    }
    ask->questions[ask->n++] =
        (struct ask_question){.text = copy, .answer = {.said = wnw_generated_default()}};
    return APP_OK;
}

/* A question a line; lines without text do not count. */
static int read_questions(struct ask *ask, const char *path, struct app_text *remarks)
{
    struct app_text all;
    int rc = app_read_text(&all, path, remarks);
    for (const char *at = all.s; rc == APP_OK && at && *at;) {
        size_t n = strcspn(at, "\n");
        const char *next = at + n + (at[n] == '\n');
        while (n > 0 && at[n - 1] == '\r')
            n--;
        if (strspn(at, " \t") < n)
            rc = add_question(ask, at, n);
        at = next;
    }
    free(all.s);
    return rc == APP_OK && ask->n == 0 ? app_fail(APP_BAD_INPUT, "'%s' has no question", path) : rc;
}

/* What says how a document is read, without one. */
static const char *find_reading(const struct cli_args *args)
{
    const struct app_args *a = &args->app;
    const char *size = app_keep_size_option(a);
    if (a->documents.n > 0)
        return "-f";
    if (a->policy)
        return "--policy";
    if (size)
        return size;
    if (a->evict_every)
        return "--evict-every";
    if (a->profile)
        return "--profile";
    if (a->system)
        return "--system";
    if (a->raw)
        return "--raw";
    if (a->chat)
        return "--chat";
    if (a->special)
        return "--special";
    return cli_stored_option(a);
}

/* The document is one of -f, under the options of `run`, or one that was stored, with its own. */
static int check_document(struct ask *ask, const struct cli_args *args)
{
    const char *given = args->store ? NULL : find_reading(args);
    if (args->cache && args->store)
        return app_fail(APP_BAD_INPUT,
                        "-c names a stored document, --store a folder of them; give one of the two");
    if (args->caches.n > 1 && args->app.devices)
        return app_fail(APP_BAD_INPUT, "several documents are joined in sessions of the CPU; leave out "
                                       "--devices, or give one -c");
    if (!isnan(args->reread) && args->caches.n < 2)
        return app_fail(APP_BAD_INPUT, "--reread is for several documents; give each with a -c of its own");
    if (given && args->cache)
        return app_fail(APP_BAD_INPUT,
                        "a stored document was read and compressed already; leave out %s, or give --store",
                        given);
    if (!args->cache && !args->store)
        return app_fail(APP_BAD_INPUT,
                        "about which document? Name a stored one with -c, or a folder with --store");
    if (!args->store)
        return cli_store_use_given(args) ? cli_store_use_check(args) : app_job_attention(&ask->job);
    if (args->app.documents.n == 0)
        return app_fail(APP_BAD_INPUT, "which document of the folder? Give its text with -f");
    ask->reading = *args;
    ask->reading.app.question = NULL;
    WNW_TRY(app_job_check(&ask->job, &ask->reading.app));
    return cli_store_use_check(&ask->reading);
}

static int check_arguments(struct ask *ask, const struct cli_args *args)
{
    const bool one = args->app.question && *args->app.question;
    struct app_job *job = &ask->job;
    WNW_TRY(cli_on_devices_check(args));
    if (args->app.question && args->questions)
        return app_fail(APP_BAD_INPUT, "-p and --questions exclude each other; give one of them");
    if (!one && !args->questions)
        return app_fail(APP_BAD_INPUT, "no question; give one with -p, or a file of them with --questions");
    WNW_TRY(check_document(ask, args));
    if (one)
        WNW_TRY(app_argument_clean(&job->question, args->app.question, "the question (-p)", &job->remarks));
    WNW_TRY(one ? add_question(ask, job->question, strlen(job->question))
                : read_questions(ask, args->questions, &job->remarks));
    return job->model_path ? APP_OK : app_model_path(&job->model_path, args->app.model);
}

static int take_tokens(struct ask_question *q, const int32_t *tokens, int32_t n)
{
    q->n_tokens = n;
    q->tokens = malloc(((size_t)n + 1) * sizeof *q->tokens);
    if (!q->tokens)
        return app_fail(APP_FAILED, "out of memory for %d tokens", n);
    memcpy(q->tokens, tokens, (size_t)n * sizeof *tokens);
    return APP_OK;
}

/* Takes the tokens of the prompt's second piece. */
static int take_question(struct ask_question *q, const wnw_prompt *prompt)
{
    int32_t n;
    const int32_t *tokens = wnw_prompt_tokens(prompt, &n), first = wnw_prompt_n_context(prompt);
    return take_tokens(q, tokens + first, n - first);
}

/* Lays out a question after the document and takes the tokens after it. */
static int lay_out(struct ask *ask, struct ask_question *q, wnw_chat *chat, const char *document)
{
    wnw_prompt *prompt = NULL;
    int rc = app_status_code(wnw_chat_user(&prompt, chat, document, q->text, NULL));
    if (rc == APP_OK && document)
        rc = cli_stored_check_prompt(ask->st, prompt, ask->path);
    if (rc == APP_OK)
        rc = take_question(q, prompt);
    wnw_prompt_free(prompt);
    return rc;
}

/* The same after the turns of a conversation, of whose tokens the session has read n_read. */
static int lay_out_turn(struct ask_question *q, const struct cli_conversation *conversation, int32_t n_read,
                        bool first)
{
    wnw_prompt *prompt = NULL;
    const int status = wnw_chat_user(&prompt, conversation->chat, first ? "" : NULL, q->text, NULL);
    wnw_prompt_free(prompt);
    if (status != WNW_OK)
        return app_fail_status(status);
    int32_t n;
    const int32_t *tokens = wnw_chat_tokens(conversation->chat, &n);
    return take_tokens(q, tokens + n_read, n - n_read);
}

static int check_length(const struct ask *ask, int32_t i)
{
    const int32_t left = ask->job.info.n_ctx_train - ask->n_past, n = ask->questions[i].n_tokens;
    if (n <= left)
        return APP_OK;
    return app_fail(
        APP_BAD_INPUT,
        "question %d has %d tokens, and the context has room for %d after the document; shorten it",
        (int)i + 1, n, left > 0 ? left : 0);
}

static int lay_out_document(struct ask *ask)
{
    wnw_prompt_params text;
    wnw_chat *chat = NULL;
    WNW_TRY(cli_stored_text(&text, ask->st, ask->path));
    int rc = app_status_code(wnw_chat_open(&chat, ask->job.model, &text));
    for (int32_t i = 0; rc == APP_OK && i < ask->n; i++) {
        rc = lay_out(ask, &ask->questions[i], chat, i == 0 ? text.document : NULL);
        if (rc == APP_OK)
            rc = check_length(ask, i);
    }
    wnw_chat_free(chat);
    return rc;
}

static int lay_out_conversation(struct ask *ask)
{
    struct cli_conversation conversation = {.model = ask->job.model};
    json_t *note = NULL;
    int32_t n_read;
    int rc = cli_conversation_open(&conversation, &note, &n_read, ask->st, ask->path);
    for (int32_t i = 0; rc == APP_OK && i < ask->n; i++) {
        rc = lay_out_turn(&ask->questions[i], &conversation, n_read, i == 0);
        if (rc == APP_OK)
            rc = check_length(ask, i);
    }
    cli_conversation_clear(&conversation);
    json_decref(note);
    return rc;
}

/* All questions are laid out and measured before the first is answered. */
static int lay_out_all(struct ask *ask)
{
    wnw_set_log(app_note_warning, &ask->job.remarks);
    const int rc = wnw_stored_note(ask->st) ? lay_out_conversation(ask) : lay_out_document(ask);
    wnw_set_log(NULL, NULL);
    return rc;
}

/* ---- Answers ---- */

/* A session of the file that has read the question. */
static int begin_question(struct ask *ask, struct ask_question *q)
{
    struct app_job *job = &ask->job;
    q->start_ms = app_now_ms();
    WNW_TRY(ask->join.session
                ? cli_ask_join_session(&q->session, ask)
                : cli_stored_session(&q->session, ask->st, job->engine, q->n_tokens + job->args->n));
    job->session = q->session;
    app_job_measure(job);
    q->answer.n_prefill = q->n_tokens;
    const double start = app_now_ms();
    const int status =
        q->n_tokens > 0 ? wnw_session_prefill(q->session, q->tokens, q->n_tokens, NULL, NULL) : WNW_OK;
    q->prefill_ms = app_now_ms() - start;
    job->session = NULL;
    return app_status_code(status);
}

/* Sets the job to one question, for what prints its answer. */
static void set_job(struct ask *ask, const struct ask_question *q)
{
    ask->job.session = q->session;
    ask->job.start_ms = q->start_ms;
    ask->job.prefill_ms = q->prefill_ms;
    ask->job.n_tokens = ask->job.n_context + q->n_tokens;
}

static int print_line(struct ask *ask, const struct ask_question *q)
{
    set_job(ask, q);
    json_t *o = cli_answer_json(&q->answer, &ask->job);
    const bool good = app_json_set(&o, "question", o ? app_json_text(q->text) : NULL);
    ask->job.session = NULL;
    return good ? app_print_json(o) : app_fail(APP_FAILED, "out of memory");
}

static int answer_alone(struct ask *ask, struct ask_question *q, bool line)
{
    WNW_TRY(begin_question(ask, q));
    set_job(ask, q);
    int rc = cli_answer_generate(&q->answer, &ask->job);
    if (rc == APP_OK)
        rc = line ? print_line(ask, q) : cli_answer_print(&q->answer, &ask->job);
    ask->job.session = NULL;
    return rc;
}

/* Prints a line for each of these questions, whose sessions stay open. */
static int answer_lines(struct ask *ask, int32_t from, int32_t n)
{
    if (n == 1)
        return answer_alone(ask, &ask->questions[from], true);
    for (int32_t i = from; i < from + n; i++)
        WNW_TRY(begin_question(ask, &ask->questions[i]));
    WNW_TRY(cli_ask_together(ask, from, n));
    for (int32_t i = from; i < from + n; i++)
        WNW_TRY(print_line(ask, &ask->questions[i]));
    return APP_OK;
}

static void end_sessions(struct ask *ask, int32_t from, int32_t n)
{
    for (int32_t i = from; i < from + n; i++) {
        wnw_session_free(ask->questions[i].session);
        ask->questions[i].session = NULL;
    }
}

/* The document on --devices, with room for the longest question and its answer. */
static int open_on_devices(struct ask *ask, const struct cli_args *args)
{
    wnw_stored_info info = wnw_stored_info_default();
    uint8_t *state = NULL;
    size_t n;
    int32_t longest = 0;
    (void)wnw_stored_get_info(ask->st, &info); /* this call does not fail for an open file */
    for (int32_t i = 0; i < ask->n; i++)
        longest = ask->questions[i].n_tokens > longest ? ask->questions[i].n_tokens : longest;
    /* before the model is opened */
    WNW_TRY(app_status_code(wnw_stored_sequence(ask->st, NULL, &n)));
    WNW_TRY(
        cli_on_devices_open(&ask->devices, &ask->job, args, info.n_past + longest + args->app.n + 1, NULL));
    int status = wnw_stored_sequence(ask->st, &state, &n);
    if (status == WNW_OK)
        status = app_sequence_load(ask->devices.sequence, state, n, info.n_past);
    wnw_free(state);
    return app_status_code(status);
}

/* Reads a question after the document, whose last one is taken back, and answers it. */
static int answer_on_devices(struct ask *ask, struct ask_question *q, int32_t n_document, bool line)
{
    struct app_sequence *s = ask->devices.sequence;
    q->start_ms = app_now_ms();
    q->answer.n_prefill = q->n_tokens;
    q->answer.sequence = s;
    WNW_TRY(app_status_code(app_sequence_rewind(s, n_document)));
    if (q->n_tokens > 0)
        WNW_TRY(app_status_code(app_sequence_read(s, q->tokens, q->n_tokens, NULL, NULL)));
    q->prefill_ms = app_now_ms() - q->start_ms;
    set_job(ask, q);
    cli_on_devices_measure(&ask->devices, &ask->job);
    ask->job.kept_mean -= q->n_tokens; /* every head has the question */
    WNW_TRY(cli_answer_generate(&q->answer, &ask->job));
    return line ? print_line(ask, q) : cli_answer_print(&q->answer, &ask->job);
}

static int answer_all_on_devices(struct ask *ask, const struct cli_args *args)
{
    const int32_t n_document = app_sequence_n_read(ask->devices.sequence);
    for (int32_t i = 0; i < ask->n; i++)
        WNW_TRY(answer_on_devices(ask, &ask->questions[i], n_document, args->questions != NULL));
    return APP_OK;
}

/* Every question has a sampler of its own, so that its answer does not depend on the others. */
static int make_samplers(struct ask *ask, const struct cli_args *args)
{
    for (int32_t i = 0; i < ask->n; i++)
        WNW_TRY(cli_answer_begin(&ask->questions[i].answer, args));
    return APP_OK;
}

static int answer_all(struct ask *ask, const struct cli_args *args)
{
    const int32_t batch = (int32_t)args->batch;
    int rc = APP_OK;
    if (args->app.devices)
        return answer_all_on_devices(ask, args);
    if (!args->questions)
        return answer_alone(ask, &ask->questions[0], false);
    for (int32_t i = 0; rc == APP_OK && i < ask->n; i += batch) {
        const int32_t n = ask->n - i < batch ? ask->n - i : batch;
        rc = answer_lines(ask, i, n);
        end_sessions(ask, i, n);
    }
    return rc;
}

/* Finds the document in the folder, or reads it and puts it there. */
static int find_kept(struct ask *ask, struct cli_store_use *use)
{
    struct app_job *job = &ask->job;
    app_job_date(job);
    WNW_TRY(app_job_open(job));
    WNW_TRY(app_job_prompt(job));
    WNW_TRY(cli_store_use_begin(use, job, &ask->reading));
    WNW_TRY(cli_store_use_read(use, job));
    return cli_store_use_find(&ask->st, use, job);
}

static int open_kept(struct ask *ask, const struct cli_args *args)
{
    struct cli_store_use use = {.required = true};
    const int rc = find_kept(ask, &use);
    app_job_end_session(&ask->job);
    cli_store_use_end(&use);
    ask->job.args = &args->app;
    return rc;
}

/* What is known of the documents, once the first one and the model are open. */
static int open_documents(struct ask *ask, const struct cli_args *args)
{
    wnw_stored_info info = wnw_stored_info_default();
    (void)wnw_stored_get_info(ask->st, &info); /* this call does not fail for an open file */
    ask->n_past = info.n_past;
    WNW_TRY(app_status_code(wnw_stored_check_model(ask->st, ask->job.model)));
    WNW_TRY(cli_stored_describe(&ask->job, ask->st));
    return args->caches.n > 1 ? cli_ask_join_open(ask, args) : APP_OK;
}

static int open_all(struct ask *ask, const struct cli_args *args)
{
    WNW_TRY(args->store ? open_kept(ask, args) : cli_stored_open(&ask->st, args->cache));
    if (!args->store)
        WNW_TRY(app_job_open(&ask->job));
    WNW_TRY(open_documents(ask, args));
    WNW_TRY(lay_out_all(ask));
    WNW_TRY(args->app.devices ? open_on_devices(ask, args) : cli_stored_engine(&ask->job));
    return ask->join.n > 0 ? cli_ask_join_read(ask) : APP_OK;
}

static void close_all(struct ask *ask)
{
    for (int32_t i = 0; i < ask->n; i++) {
        struct ask_question *q = &ask->questions[i];
        wnw_session_free(q->session);
        cli_answer_clear(&q->answer);
        free(q->text);
        free(q->tokens);
    }
    free(ask->questions);
    cli_ask_join_end(&ask->join);
    cli_on_devices_end(&ask->devices);
    app_job_close(&ask->job);
    wnw_stored_free(ask->st);
}

static int answer_questions(struct ask *ask, const struct cli_args *args)
{
    WNW_TRY(check_arguments(ask, args));
    WNW_TRY(make_samplers(ask, args));
    WNW_TRY(open_all(ask, args));
    app_job_notes(&ask->job);
    return answer_all(ask, args);
}

int cli_ask(const struct app_args *args)
{
    struct cli_args own = *(const struct cli_args *)args;
    own.app.context_only = true; /* what was compressed is the document */
    own.app.json = own.app.json || own.questions;
    own.cache = own.caches.n > 0 ? own.caches.s[0] : NULL;
    struct ask ask = {.path = own.store ? own.store : own.cache,
                      .job = {.args = &own.app, .keep.run = wnw_run_default()}};
    const int rc = answer_questions(&ask, &own);
    close_all(&ask);
    return rc;
}
