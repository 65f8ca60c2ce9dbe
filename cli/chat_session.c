/* SPDX-License-Identifier: MIT */
/*
 * Brings the session up to the conversation's last turn. The session has read the tokens `seen`. If a turn's tokens begin with
 * them, the rest is read. They may differ: a turn was undone, or the template writes earlier turns in another form. Then the
 * session is rewound to the common beginning, or reads again from the document on.
 */
#include "cli/chat.h"

#include "app/process.h"
#include "app/stop.h"
#include "base/err.h"
#include "base/prefix.h"
#include "cli/stored.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>

/* STOPPED: reading that a signal has ended; no exit code of a program is like it. PIECE: tokens of one pass of a session. */
enum { STOPPED = -1, PIECE = 512 };

/* ---- Tokens that were read ---- */

static int note_seen(struct cli_chat *c, const int32_t *tokens, int32_t n)
{
    if (c->cap - c->n_read < n) {
        const int32_t cap = c->n_read + n + 1024;
        int32_t *more = realloc(c->seen, (size_t)cap * sizeof *more);
        if (!more) {
            c->stale = true; /* the session has read what the list lacks */
            return app_fail(APP_FAILED, "out of memory for %d tokens", cap);
        }
        c->seen = more;
        c->cap = cap;
    }
    if (n > 0)
        memcpy(c->seen + c->n_read, tokens, (size_t)n * sizeof *tokens);
    c->n_read += n;
    c->n_since += n;
    return APP_OK;
}

static int32_t common(const struct cli_chat *c, const int32_t *tokens, int32_t n)
{
    return wnw__common_tokens(c->seen, c->n_read, tokens, n);
}

static bool was_renumbered(const struct cli_chat *c)
{
    return c->job.session && wnw_session_n_past(c->job.session) < c->n_read;
}

const wnw_prompt *cli_chat_prompt(const struct cli_chat *c)
{
    const wnw_prompt *p = c->job.prompt ? c->job.prompt : c->conversation.header;
    return (c->job.session || c->devices.sequence) && !was_renumbered(c) ? p : NULL;
}

/* Sets the session's rules again, and keeps its counts. follow: false ends observing. Returns a status. */
static int set_rules(struct cli_chat *c, bool follow)
{
    wnw_run run = wnw_run_default();
    wnw_run_more more = wnw_run_more_default();
    if (follow) {
        run = c->job.keep.run;
        more = c->job.keep.more;
    }
    if (c->devices.sequence) /* it has no rules */
        return WNW_OK;
    more.goes_on = true;
    run.more = &more;
    run.prompt = follow ? cli_chat_prompt(c) : NULL;
    return wnw_session_begin(c->job.session, &run);
}

/* ---- Beginning ---- */

void cli_chat_close_session(struct cli_chat *c)
{
    app_job_end_session(&c->job);
    cli_store_use_end(&c->use);
    c->n_read = c->n_since = c->n_odd = 0;
}

/* A session of the file of -c, which has read these tokens. */
static int take_session(struct cli_chat *c, const int32_t *tokens, int32_t n)
{
    wnw_stored_info info = wnw_stored_info_default();
    (void)wnw_stored_get_info(c->st, &info); /* this call does not fail for an open file */
    WNW_TRY(cli_stored_engine(&c->job));
    WNW_TRY(cli_stored_session(&c->job.session, c->st, c->job.engine, c->args.app.n + CHAT_STEP));
    WNW_TRY(note_seen(c, tokens, n));
    c->n_odd = info.pieces ? n : 0;
    c->n_since = 0;
    return APP_OK;
}

/* One that has read the document, which the store may have. Its rules count no decoded tokens yet, which no store takes. */
static int open_kept(struct cli_chat *c)
{
    const int32_t every = c->job.keep.run.every;
    c->job.keep.run.every = 0;
    int rc = cli_store_use_begin(&c->use, &c->job, &c->args);
    if (rc == APP_OK)
        rc = cli_store_use_read(&c->use, &c->job);
    c->job.keep.run.every = every;
    return rc == APP_OK ? note_seen(c, c->job.tokens, c->job.n_context) : rc;
}

/* The same on --devices, where the sequence stays and begins again. */
static int open_on_devices(struct cli_chat *c, bool reads)
{
    WNW_TRY(app_status_code(app_sequence_rewind(c->devices.sequence, 0)));
    if (!reads)
        return APP_OK;
    WNW_TRY(cli_on_devices_read_first(&c->devices, &c->job, c->job.n_context));
    return note_seen(c, c->job.tokens, c->job.n_context);
}

static int open_new(struct cli_chat *c, bool reads)
{
    if (c->devices.sequence)
        return open_on_devices(c, reads);
    WNW_TRY(app_job_session(&c->job));
    if (!reads)
        return APP_OK;
    WNW_TRY(app_job_read_first(&c->job, c->job.n_context));
    return note_seen(c, c->job.tokens, c->job.n_context);
}

/* Does not set the rules of a session that was stored. */
static int begin_session(struct cli_chat *c, bool reads)
{
    WNW_TRY(app_job_prepare(&c->job));
    if (reads && c->of_file)
        return take_session(c, c->job.tokens, c->job.n_context);
    if (reads && c->args.store)
        return open_kept(c);
    return open_new(c, reads);
}

/* Makes a session that has read the document, or, where the turns begin otherwise, nothing. */
static int open_base(struct cli_chat *c, bool with_document)
{
    const bool reads = with_document && c->job.prompt;
    cli_chat_close_session(c);
    c->job.keep.was_read = reads && c->of_file;
    c->job.no_profiles = c->args.store;
    const int rc = begin_session(c, reads);
    c->job.progress = (struct app_progress){0}; /* turns have one of their own */
    c->n_since = 0;
    if (rc != APP_OK || !reads || (!c->of_file && !c->args.store))
        return rc;
    return app_status_code(set_rules(c, true));
}

int cli_chat_open(struct cli_chat *c)
{
    return open_base(c, true);
}

int cli_chat_take_stored(struct cli_chat *c, int32_t n)
{
    const int32_t *tokens = wnw_chat_tokens(c->conversation.chat, NULL);
    c->job.keep.was_read = true;
    WNW_TRY(app_job_prepare(&c->job));
    WNW_TRY(take_session(c, tokens, n));
    return app_status_code(set_rules(c, true));
}

/* ---- Going back ---- */

/* Takes back all but the first n tokens. False: the session is not what it was after them. */
static bool rewind_to(struct cli_chat *c, int32_t n)
{
    wnw_session *s = c->job.session;
    if (c->devices.sequence) {
        const bool went = app_sequence_rewind(c->devices.sequence, n) == WNW_OK;
        c->n_read = went ? n : c->n_read;
        return went;
    }
    const int32_t n_past = wnw_session_n_past(s) - (c->n_read - n);
    if (n == c->n_read)
        return true;
    if ((n > 0 && n_past < 1) || n < c->n_odd)
        return false;
    bool done = (n > 0 ? wnw_session_rewind(s, n_past) : wnw_session_reset(s)) == WNW_OK;
    /* What a policy has noted of tokens that go would be missing for those before them; rules that begin here need none of
     * it. */
    if (!done && set_rules(c, false) == WNW_OK) {
        done = wnw_session_rewind(s, n_past) == WNW_OK;
        done = set_rules(c, true) == WNW_OK && done;
    }
    if (done)
        c->n_read = n;
    return done;
}

/* Has the session read exactly tokens[k] of the conversation's, or fewer where it must begin again. */
static int go_back(struct cli_chat *c, const int32_t *tokens, int32_t k)
{
    const int32_t *document = wnw_prompt_tokens(c->job.prompt, NULL);
    if (rewind_to(c, k))
        return APP_OK;
    const bool same = document && c->job.n_context <= k &&
                      memcmp(document, tokens, (size_t)c->job.n_context * sizeof *tokens) == 0;
    return open_base(c, same);
}

/* ---- Reading ---- */

/* Tells of a warning, but not of the same one turn after turn. */
static void warn(struct cli_chat *c, const char *warning)
{
    if (!*warning || strcmp(warning, c->warning) == 0)
        return;
    snprintf(c->warning, sizeof c->warning, "%s", warning);
    app_note("warning: %s", warning);
}

/* Reads tokens up to number `to` without compressing, in pieces between which a signal ends it. */
static int read_plain(struct cli_chat *c, const int32_t *tokens, int32_t to, struct app_progress *progress)
{
    const int32_t from = c->n_read;
    while (c->n_read < to) {
        const int32_t n = to - c->n_read < PIECE ? to - c->n_read : PIECE;
        if (c->terminal && app_stop_asked())
            return STOPPED;
        const int status = c->devices.sequence
                               ? app_sequence_read(c->devices.sequence, tokens + c->n_read, n, NULL, NULL)
                               : wnw_session_prefill(c->job.session, tokens + c->n_read, n, NULL, NULL);
        if (status != WNW_OK)
            return app_fail_status(status);
        WNW_TRY(note_seen(c, tokens + c->n_read, n));
        app_progress_step(c->n_read - from, to - from, progress);
    }
    return APP_OK;
}

/* The same, and compresses all on --devices. */
static int read_on_devices(struct cli_chat *c, const int32_t *tokens, int32_t to,
                           struct app_progress *progress)
{
    const wnw_prompt *p = cli_chat_prompt(c);
    WNW_TRY(read_plain(c, tokens, to, progress));
    const int rc = app_status_code(
        app_sequence_compress(c->devices.sequence, &c->job.keep.size, wnw_prompt_parts_of(p).n_prefix));
    c->n_since = rc == APP_OK ? 0 : c->n_since;
    return rc;
}

/* Reads tokens up to number `to` and compresses under the rules. */
static int read_ruled(struct cli_chat *c, const int32_t *tokens, int32_t to, struct app_progress *progress)
{
    wnw_report report = wnw_report_default();
    int rc = APP_OK;
    if (c->devices.sequence)
        return read_on_devices(c, tokens, to, progress);
    if (c->job.keep.run.phase == WNW_PHASE_END) /* all but the last piece, as a session cuts them */
        rc = read_plain(c, tokens, to - (to - c->n_read - 1) % PIECE - 1, progress);
    if (rc != APP_OK || c->n_read == to)
        return rc;
    const int32_t n = to - c->n_read;
    const int status = wnw_session_read(c->job.session, tokens + c->n_read, n, &report);
    if (status != WNW_OK)
        return app_fail_status(status);
    warn(c, report.warning);
    rc = note_seen(c, tokens + c->n_read, n);
    c->n_since = 0;
    return rc;
}

/* Positions that are left when n more tokens were read and compressed nothing. */
static int64_t room_after(const struct cli_chat *c, int32_t n)
{
    const int32_t n_past =
        c->devices.sequence ? app_sequence_n_read(c->devices.sequence) : wnw_session_n_past(c->job.session);
    return (int64_t)c->n_ctx - n_past - n;
}

static int check_room(const struct cli_chat *c, int32_t n)
{
    const int64_t room = room_after(c, 1);
    if (c->endless || n <= room)
        return APP_OK;
    return app_fail(
        APP_BAD_INPUT,
        "this has %d tokens, and the context of %d has room for %lld; take turns back with /undo, "
        "start again with /new, or start with --context endless",
        n, c->n_ctx, (long long)(room > 0 ? room : 0));
}

/* Whether the policy judges by what the end of a prompt attends to, so that the question is to be read before. */
static bool judges_by_end(const wnw_policy *policy)
{
    return wnw_policy_needs(policy).flags & WNW_NEED_WINDOW_ATTN;
}

/* Reads the last turn, whose question begins at token number `border` of all n. */
static int read_turn(struct cli_chat *c, const int32_t *tokens, int32_t n, int32_t border,
                     struct app_progress *progress)
{
    const bool document = c->conversation.turns[c->conversation.n_laid].document && border > c->n_read,
               keeps_all = wnw_policy_is_full(c->job.keep.policy);
    const bool tight = c->endless && room_after(c, n - c->n_read) < c->step;
    const bool due = !keeps_all && (c->n_since + n - c->n_read >= c->step || tight);
    WNW_TRY(check_room(c, n - c->n_read));
    /* A document is compressed before its question is read, and what is old before a new question; but a policy that looks
     * at the end of what was read is to see the question there. */
    if (!keeps_all && border > c->n_read && (document || (due && !judges_by_end(c->job.keep.policy))))
        WNW_TRY(read_ruled(c, tokens, border, progress));
    else if (due)
        WNW_TRY(read_ruled(c, tokens, n, progress));
    if (c->n_read == n)
        return APP_OK;
    if (c->endless && room_after(c, n - c->n_read) < c->step)
        return read_ruled(c, tokens, n, progress);
    return read_plain(c, tokens, n, progress);
}

/* Has the session read the turn that was laid out last. */
static int follow(struct cli_chat *c, const wnw_prompt *turn)
{
    struct cli_turn *t = &c->conversation.turns[c->conversation.n_laid];
    struct app_progress progress;
    int32_t n;
    const int32_t *tokens = wnw_chat_tokens(c->conversation.chat, &n);
    const int32_t k = common(c, tokens, n - 1); /* at least one token is read, to get logits */
    t->n_before = INT32_MAX;
    int rc = k < c->n_read ? go_back(c, tokens, k) : APP_OK;
    if (rc != APP_OK)
        return rc;
    if (wnw_prompt_n_past(turn) == 0 && !c->job.prompt) /* the header is known only now */
        rc = app_status_code(set_rules(c, true));
    t->n_before = c->n_read;
    t->n_since = c->n_since;
    const double start = app_now_ms();
    const int32_t before = c->n_read;
    app_progress_start(&progress, "prefill", "tokens");
    if (rc == APP_OK)
        rc = read_turn(c, tokens, n, wnw_prompt_n_past(turn) + wnw_prompt_n_context(turn), &progress);
    app_progress_end(&progress);
    c->read_ms = app_now_ms() - start;
    c->n_turn_read = c->n_read - before;
    return rc;
}

/* ---- Reading all again ---- */

/* Has the session read a token as one that was generated. */
static int read_generated(struct cli_chat *c, int32_t token)
{
    const int status = c->devices.sequence ? app_sequence_read(c->devices.sequence, &token, 1, NULL, NULL)
                                           : wnw_session_decode(c->job.session, token);
    return status == WNW_OK ? note_seen(c, &token, 1) : app_fail_status(status);
}

/* Has the session read an answer as it was generated. */
static int repeat_answer(struct cli_chat *c, const struct cli_turn *turn)
{
    for (int32_t i = 0; i < turn->n_read; i++)
        WNW_TRY(read_generated(c, turn->answer[i]));
    return APP_OK;
}

int cli_chat_read_answer(struct cli_chat *c)
{
    struct cli_turn *last = &c->conversation.turns[c->conversation.n - 1];
    for (; last->n_read < last->n_answer && room_after(c, 1) >= 0; last->n_read++)
        WNW_TRY(read_generated(c, last->answer[last->n_read]));
    return APP_OK;
}

/* Has the session read the next turn up to its answer. */
static int read_next(struct cli_chat *c)
{
    wnw_prompt *turn = NULL;
    int rc = cli_conversation_next(&turn, &c->conversation);
    if (rc == APP_OK)
        rc = follow(c, turn);
    wnw_prompt_free(turn);
    return rc;
}

static int read_again(struct cli_chat *c)
{
    WNW_TRY(open_base(c, true));
    WNW_TRY(cli_conversation_restart(&c->conversation));
    while (c->conversation.n_laid < c->conversation.n) {
        WNW_TRY(read_next(c));
        WNW_TRY(repeat_answer(c, &c->conversation.turns[c->conversation.n_laid]));
        WNW_TRY(cli_conversation_close(&c->conversation));
    }
    return APP_OK;
}

int cli_chat_catch_up(struct cli_chat *c)
{
    if (!c->stale)
        return APP_OK;
    const int rc = read_again(c);
    c->stale = rc != APP_OK;
    return rc == STOPPED ? APP_OK : rc;
}

/* ---- Turns ---- */

/* Takes the last turn out of the conversation, and of the session, where it can go back. */
static void drop_turn(struct cli_chat *c)
{
    const struct cli_turn turn = c->conversation.turns[c->conversation.n - 1];
    cli_conversation_drop(&c->conversation);
    if (!c->stale && (c->job.session || c->devices.sequence) && turn.n_before <= c->n_read &&
        rewind_to(c, turn.n_before))
        c->n_since = turn.n_since;
    else
        c->stale = true;
}

bool cli_chat_undo(struct cli_chat *c)
{
    if (c->conversation.n == 0)
        return false;
    drop_turn(c);
    return true;
}

void cli_chat_restart(struct cli_chat *c)
{
    while (cli_chat_undo(c))
        continue;
}

/* Prints why an answer ends that the model did not end. */
static void print_ending(const struct cli_chat *c, const struct cli_answer *a)
{
    if (a->looped)
        app_note("the answer ends here because it repeats itself; --repeat-penalty 1.1 avoids that");
    if (a->said.end != WNW_END_LIMIT)
        return;
    if (a->said.n_tokens < c->args.app.n)
        app_note("the context of %d tokens is full, the answer ends here", c->n_ctx);
    else
        app_note("the answer ends after %d tokens; -n says how many it may have", (int)a->said.n_tokens);
}

/* Generates the answer and adds it. Each turn has a sampler of its own, so that a turn that was taken back leaves no trace. */
static int generate(struct cli_chat *c)
{
    struct cli_args args = c->args;
    struct cli_answer a;
    args.app.seed =
        (args.app.seed + c->conversation.n - 1 + (int64_t)c->tries * 1000003) % ((int64_t)UINT32_MAX + 1);
    WNW_TRY(cli_answer_begin(&a, &args));
    const int64_t room = c->endless ? INT32_MAX : room_after(c, -1);
    a.sequence = c->devices.sequence;
    a.most = a.most < room ? a.most : (int32_t)room;
    a.stoppable = c->terminal;
    a.ends_loops = true;
    c->job.start_ms = app_now_ms();
    int rc = cli_answer_generate(&a, &c->job);
    c->answer_ms = a.decode_ms;
    c->n_answered = a.said.n_tokens;
    c->n_answer_read = a.said.n_read;
    if (a.said.n_text == 0 || a.said.text[a.said.n_text - 1] != '\n')
        putchar('\n');
    const int printed = rc == APP_OK ? app_finish_stdout() : rc;
    if (a.said.n_read > 0 && note_seen(c, a.said.tokens, a.said.n_read) != APP_OK)
        rc = APP_FAILED;
    /* An answer that was broken off stays as far as it came. */
    const int added = cli_conversation_answer(&c->conversation, &a.said);
    print_ending(c, &a);
    cli_answer_clear(&a);
    if (rc != APP_OK)
        return rc;
    if (printed != APP_OK)
        return printed;
    return added;
}

int cli_chat_answer(struct cli_chat *c, const char *document, const char *question)
{
    wnw_prompt *turn = NULL;
    WNW_TRY(cli_chat_catch_up(c));
    if (c->stale)
        return APP_OK;
    WNW_TRY(cli_conversation_ask(&turn, &c->conversation, document, question));
    int rc = follow(c, turn);
    wnw_prompt_free(turn);
    if (rc == APP_OK && !(c->terminal && app_stop_asked()))
        rc = generate(c);
    else if (rc == APP_OK)
        rc = STOPPED;
    if (c->conversation.n_laid < c->conversation.n) /* it has no answer */
        drop_turn(c);
    return rc == STOPPED ? APP_OK : rc;
}
