/* SPDX-License-Identifier: MIT */
#include "session/timeline/state.h"

#include <stdlib.h>
#include <string.h>

int wnw__session_get_state(struct wnw__session_state *out, const wnw_session *s)
{
    const struct wnw__rules *r = &s->rules;
    *out = (struct wnw__session_state){0};
    if (s->n_past == 0)
        return wnw__fail(WNW_E_ARG, "nothing to store: no tokens were read");
    if (s->masks.head)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "a session with masked heads is not stored: end masking with no heads");
    if (r->ev.every > 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "a session that compresses every %d generated tokens is not stored, because that "
                         "needs what was observed; begin without `every`",
                         (int)r->ev.every);
    *out = (struct wnw__session_state){.n_past = s->n_past,
                                       .n_prefix = s->n_prefix,
                                       .n_renumbered = s->n_renumbered,
                                       .n_judged = s->n_judged,
                                       .n_question = s->n_question,
                                       .n_ambiguous = s->token_log.n_ambiguous,
                                       .pos_shift = s->pos_shift,
                                       .ids = s->token_log.tokens,
                                       .rules = r->ev,
                                       .n_uncounted = r->n_uncounted,
                                       .n_keep = r->n_keep,
                                       .is_over = r->is_over,
                                       .slide_counts = r->slide_counts,
                                       .n_slide_counts = r->slide_counts ? r->n_slide_counts : 0};
    return wnw__recurrent_get(s->recurrent, &out->recurrent, &out->n_recurrent);
}

static bool within(int64_t x, int64_t least, int64_t most)
{
    return x >= least && x <= most;
}

static int check_ids(const struct wnw__session_state *state, int32_t n_vocab)
{
    for (int32_t i = 0; i < state->n_past; i++)
        if (!within(state->ids[i], i < state->n_ambiguous ? -1 : 0, n_vocab - 1))
            return wnw__fail(WNW_E_FORMAT, "token %d is %d, the vocabulary has 0 to %d", (int)i,
                             (int)state->ids[i], (int)n_vocab - 1);
    return WNW_OK;
}

static int other_token(const struct wnw__session_state *state, int32_t i)
{
    return wnw__fail(WNW_E_FORMAT, "the tokens are not those that were read: position %d has token %d",
                     (int)i, (int)state->ids[i]);
}

/* Tokens that got new positions are some of those that were read before, in their order. All that came later are there. */
static int check_same(const struct wnw__session_state *state, const int32_t *tokens)
{
    const int32_t n_moved = state->pos_shift > 0 ? state->n_renumbered : 0;
    int64_t at = 0;
    for (int32_t i = 0; i < state->n_past; i++) {
        const int64_t last = i + state->pos_shift;
        if (i >= n_moved && tokens[last] != state->ids[i])
            return other_token(state, i);
        if (i >= n_moved || state->ids[i] < 0)
            continue;
        while (at <= last && tokens[at] != state->ids[i])
            at++;
        if (at++ > last)
            return other_token(state, i);
    }
    return WNW_OK;
}

int wnw__session_check_read(const struct wnw__session_state *state, const int32_t *tokens, int32_t n,
                            int32_t n_vocab)
{
    for (int32_t i = 0; i < n; i++)
        if (!within(tokens[i], 0, n_vocab - 1))
            return wnw__fail(WNW_E_FORMAT, "token %d is %d, the vocabulary has 0 to %d", (int)i,
                             (int)tokens[i], (int)n_vocab - 1);
    WNW_TRY(check_ids(state, n_vocab));
    return check_same(state, tokens);
}

int wnw__session_check_state(const struct wnw__session_state *state, const wnw_session *s)
{
    const int32_t n = state->n_past;
    if (!within(n, 1, s->params.n_ctx))
        return wnw__fail(WNW_E_FORMAT, "%d tokens were read, and the context has %d", (int)n,
                         (int)s->params.n_ctx);
    if (!within(state->n_prefix, 0, n) || !within(state->n_renumbered, 0, n) ||
        !within(state->n_judged, 0, n) || !within(state->n_question, 0, n) ||
        !within(state->n_ambiguous, 0, n) || !within(state->pos_shift, 0, INT64_MAX / 2) ||
        !within(state->n_keep, 0, INT32_MAX))
        return wnw__fail(WNW_E_FORMAT, "a count of the session is out of range for %d tokens", (int)n);
    const int32_t n_head = s->cache.n_layer * s->cache.n_head_kv;
    if (state->slide_counts && state->n_slide_counts != n_head)
        return wnw__fail(WNW_E_FORMAT, "counts of %d heads, the model has %d", (int)state->n_slide_counts,
                         (int)n_head);
    for (int32_t i = 0; state->slide_counts && i < n_head; i++)
        if (!within(state->slide_counts[i], 0, n))
            return wnw__fail(WNW_E_FORMAT, "head %d is to hold %d entries of %d", (int)i,
                             (int)state->slide_counts[i], (int)n);
    if ((state->recurrent != NULL) != (s->recurrent != NULL))
        return wnw__fail(WNW_E_FORMAT, "the state of recurrent layers is %s",
                         s->recurrent ? "missing" : "there, and the model has none");
    return check_ids(state, s->m->hp.n_vocab);
}

void wnw__session_resume_rules(wnw_session *s, const struct wnw__session_state *state)
{
    s->rules.n_uncounted = state->n_uncounted;
    s->rules.n_keep = state->n_keep;
}

int wnw__session_take(wnw_session *s, const int32_t *tokens, int32_t n)
{
    WNW_TRY(wnw__session_check_tokens(s, tokens, n));
    WNW_TRY(wnw__token_log_reserve(&s->token_log, 0, n));
    wnw__token_log_add(&s->token_log, 0, tokens, n);
    s->n_past = s->n_judged = n;
    s->rules.is_over = s->rules.ev.once;
    s->has_logits = false;
    return WNW_OK;
}

int wnw__session_set_state(wnw_session *s, const struct wnw__session_state *state)
{
    int32_t *slide_counts =
        state->slide_counts ? malloc((size_t)state->n_slide_counts * sizeof *slide_counts) : NULL;
    if (state->slide_counts && !slide_counts)
        return wnw__fail(WNW_E_NOMEM, "no memory for the counts of %d heads", (int)state->n_slide_counts);
    if (slide_counts)
        memcpy(slide_counts, state->slide_counts, (size_t)state->n_slide_counts * sizeof *slide_counts);
    wnw__rules_free(&s->rules);
    s->rules = (struct wnw__rules){.ev = state->rules,
                                   .n_uncounted = state->n_uncounted,
                                   .n_keep = state->n_keep,
                                   .is_over = state->is_over,
                                   .slide_counts = slide_counts,
                                   .n_slide_counts = slide_counts ? state->n_slide_counts : 0};
    WNW_TRY(wnw__token_log_reserve(&s->token_log, 0, state->n_past));
    wnw__token_log_add(&s->token_log, 0, state->ids, state->n_past);
    s->token_log.n_ambiguous = state->n_ambiguous;
    s->n_past = state->n_past;
    s->n_prefix = state->n_prefix;
    s->n_renumbered = state->n_renumbered;
    s->n_judged = state->n_judged;
    s->n_question = state->n_question;
    s->pos_shift = state->pos_shift;
    s->n_run = 0;
    s->has_logits = false;
    return wnw__recurrent_set(s->recurrent, state->recurrent, state->n_recurrent, state->n_past);
}
