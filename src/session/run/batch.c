/* SPDX-License-Identifier: MIT */
/* Decoding: the next token of one session, or of several in one pass over the weights. */
#include "session/rules/rules.h"
#include "session/session.h"
#include "session/timeline/feed.h"

#include <stdio.h>

/* The first failure of a batch, which later failures must not replace. */
struct failure {
    int rc;
    char text[512];
};

/* Keeps a failure of session i of n, unless there is one already. With n = 1 the text names no session. */
static void note(struct failure *f, int rc, int32_t i, int32_t n)
{
    if (rc == WNW_OK || f->rc != WNW_OK)
        return;
    f->rc = rc;
    if (n > 1)
        snprintf(f->text, sizeof f->text, "session %d of the batch: %s", (int)i, wnw_last_error());
    else
        snprintf(f->text, sizeof f->text, "%s", wnw_last_error());
}

static int raise_failure(const struct failure *f)
{
    return f->rc == WNW_OK ? WNW_OK : wnw__fail(f->rc, "%s", f->text);
}

static int check_session(const wnw_engine *e, const wnw_session *s, int32_t token, int32_t i)
{
    if (!s)
        return wnw__fail(WNW_E_ARG, "session %d of the batch is NULL", (int)i);
    if (s->engine != e)
        return wnw__fail(WNW_E_ARG,
                         "session %d of the batch uses another engine; make it with wnw_session_new_on",
                         (int)i);
    if (s->in_batch)
        return wnw__fail(WNW_E_ARG, "session %d of the batch is in it twice; a session reads one token",
                         (int)i);
    struct failure f = {0};
    note(&f, wnw__session_check_tokens(s, &token, 1), i, INT32_MAX);
    return raise_failure(&f);
}

static int check_batch(const wnw_engine *e, wnw_session *const *sessions, const int32_t *tokens, int32_t n)
{
    const int32_t most = wnw__engine_params(e)->n_ubatch;
    int rc = WNW_OK;
    int32_t n_seen = 0;
    if (n < 1 || n > most)
        return wnw__fail(WNW_E_RANGE, "a batch of %d sessions: this engine takes 1 to %d (its n_ubatch)",
                         (int)n, (int)most);
    for (; rc == WNW_OK && n_seen < n; n_seen++) {
        rc = check_session(e, sessions[n_seen], tokens[n_seen], n_seen);
        if (rc != WNW_OK)
            break;
        sessions[n_seen]->in_batch = true;
    }
    while (n_seen > 0)
        sessions[--n_seen]->in_batch = false;
    return rc;
}

/* The rules of a session run last, so that its token is read even if they fail. */
static int decode(wnw_engine *e, wnw_session *const *sessions, const int32_t *tokens, int32_t n)
{
    struct failure f = {0};
    WNW_TRY(wnw__feed_step(e, sessions, tokens, n));
    for (int32_t i = 0; i < n; i++)
        note(&f, wnw__feed_step_logits(sessions[i], i), i, n);
    for (int32_t i = 0; i < n; i++)
        if (sessions[i]->has_logits)
            note(&f, wnw__rules_after_decode(sessions[i]), i, n);
    return raise_failure(&f);
}

int wnw_decode_batch(wnw_engine *e, wnw_session *const *sessions, const int32_t *tokens, int32_t n)
{
    WNW_REQUIRE(e);
    WNW_REQUIRE(sessions);
    WNW_REQUIRE(tokens);
    WNW_TRY(check_batch(e, sessions, tokens, n));
    return decode(e, sessions, tokens, n);
}

int wnw_session_decode(wnw_session *s, int32_t token)
{
    WNW_REQUIRE(s);
    WNW_TRY(wnw__session_check_tokens(s, &token, 1));
    return decode(s->engine, &s, &token, 1);
}
