/* SPDX-License-Identifier: MIT */
/* Generating an answer: picking tokens, decoding them, and the text that may be shown. */
#include "base/err.h"
#include "session/session.h"
#include "text/text.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

struct answer {
    const wnw_decoder *by;
    wnw_sampler *sampler;
    const wnw_generate_params *params;
    struct wnw__stream stream;
    wnw_generated out;
    int32_t cap;
    size_t n_shown; /* bytes of the text */
};

static int check_params(const wnw_generate_params *p)
{
    if (p->n_max < 0 || p->n_stop < 0)
        return wnw__fail(WNW_E_RANGE,
                         "generating at most %d tokens with %d stop strings: neither may be negative",
                         (int)p->n_max, (int)p->n_stop);
    if (p->n_stop > 0 && !p->stop)
        return wnw__fail(WNW_E_ARG, "%d stop strings are announced and none is given", (int)p->n_stop);
    for (int32_t i = 0; i < p->n_stop; i++)
        if (!p->stop[i] || !*p->stop[i])
            return wnw__fail(WNW_E_RANGE, "stop string %d is empty, which would end every answer", (int)i);
    return WNW_OK;
}

static int add_token(struct answer *a, int32_t token)
{
    wnw_generated *g = &a->out;
    char *piece;
    if (g->n_tokens == a->cap) {
        const int32_t cap = a->cap * 2 + 64;
        int32_t *more = realloc(g->tokens, (size_t)cap * sizeof *more);
        if (!more)
            return wnw__fail(WNW_E_NOMEM, "no memory for %d tokens", (int)cap);
        g->tokens = more;
        a->cap = cap;
    }
    g->tokens[g->n_tokens++] = token;
    WNW_TRY(wnw_detokenize(a->by->model, &token, 1, &piece));
    const int rc = wnw__stream_add(&a->stream, piece, strlen(piece));
    free(piece);
    return rc;
}

/* Gives out what is ready; false to cancel. */
static bool show(struct answer *a)
{
    const size_t n = a->stream.ready - a->n_shown;
    const char *text = a->stream.text ? a->stream.text + a->n_shown : "";
    a->n_shown += n;
    return !a->params->on_text || a->params->on_text(text, n, a->out.n_tokens, a->params->user);
}

/* Picks a token; *going becomes false where the answer ends with it. */
static int step(struct answer *a, bool *going)
{
    const wnw_generate_params *p = a->params;
    wnw_generated *g = &a->out;
    const float *logits = a->by->logits(a->by->user);
    if (!logits)
        return wnw__fail(WNW_E_ARG,
                         "there are no logits to generate from: have the session read a token first");
    const int32_t token = wnw_sampler_pick(a->sampler, logits, a->by->model->hp.n_vocab);
    *going = false;
    g->end = WNW_END_TOKEN;
    if (wnw_token_is_eog(a->by->model, token))
        return WNW_OK;
    WNW_TRY(add_token(a, token));
    const bool goes_on = show(a);
    *going = goes_on && !a->stream.stopped && g->n_tokens != p->n_max && a->by->n_left(a->by->user) > 0;
    if (*going) {
        WNW_TRY(a->by->decode(token, a->by->user));
        g->n_read++;
    } else {
        g->end = g->n_tokens == p->n_max ? WNW_END_LIMIT : WNW_END_FULL;
        if (a->stream.stopped)
            g->end = WNW_END_STOP;
        if (!goes_on)
            g->end = WNW_END_CANCELLED;
    }
    return WNW_OK;
}

/* Gives out what was held back; the answer has ended, or an error ends it. */
static int end_text(struct answer *a)
{
    const int rc = wnw__stream_end(&a->stream);
    if (a->out.end != WNW_END_CANCELLED && a->stream.ready > a->n_shown && !show(a))
        a->out.end = WNW_END_CANCELLED;
    return rc;
}

static int generate(struct answer *a)
{
    bool going = true;
    while (going)
        WNW_TRY(step(a, &going));
    return WNW_OK;
}

/* Moves the text to the result, which has one even where nothing was said. */
static int take_text(struct answer *a)
{
    if (!a->stream.text)
        a->stream.text = calloc(1, 1);
    a->out.text = a->stream.text;
    a->out.n_text = a->stream.n;
    a->stream.text = NULL;
    return a->out.text ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for a text");
}

int wnw_generate_by(wnw_generated *out, const wnw_decoder *by, wnw_sampler *sp,
                    const wnw_generate_params *params)
{
    wnw_generate_params own = wnw_generate_default_params();
    wnw_decoder decoder = wnw_decoder_default();
    const wnw_generated nothing = wnw_generated_default();
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_generated, out));
    wnw__sized_give(out, &nothing);
    WNW_REQUIRE(by);
    WNW_TRY(WNW_SIZED_TAKE(wnw_decoder, &decoder, by));
    WNW_REQUIRE(decoder.model && decoder.logits && decoder.decode && decoder.n_left);
    WNW_REQUIRE(sp);
    WNW_TRY(WNW_SIZED_TAKE(wnw_generate_params, &own, params));
    WNW_TRY(check_params(&own));
    struct answer a = {.by = &decoder, .sampler = sp, .params = &own, .out = nothing};
    a.stream = (struct wnw__stream){.stop = own.stop, .n_stop = own.n_stop};
    int rc = generate(&a);
    const int ended = rc == WNW_OK || a.out.n_tokens > 0 ? end_text(&a) : WNW_OK;
    const int taken = rc == WNW_OK || a.out.n_tokens > 0 ? take_text(&a) : WNW_OK;
    if (rc == WNW_OK)
        rc = ended != WNW_OK ? ended : taken;
    wnw__stream_free(&a.stream);
    wnw__sized_give(out, &a.out);
    return rc;
}

/* ---- By a session ---- */

static const float *logits_of(void *s)
{
    return wnw_session_logits(s);
}

static int decode_with(int32_t token, void *s)
{
    return wnw_session_decode(s, token);
}

static int32_t left_in(void *s)
{
    const wnw_session *session = s;
    return session->params.n_ctx - session->n_past;
}

int wnw_generate(wnw_generated *out, wnw_session *s, wnw_sampler *sp, const wnw_generate_params *params)
{
    const wnw_generated nothing = wnw_generated_default();
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_generated, out));
    wnw__sized_give(out, &nothing);
    WNW_REQUIRE(s);
    const wnw_decoder by = {WNW_INIT(wnw_decoder), .model = s->m,     .logits = logits_of,
                            .decode = decode_with, .n_left = left_in, .user = s};
    return wnw_generate_by(out, &by, sp, params);
}

void wnw_generated_clear(wnw_generated *g)
{
    wnw_generated own = wnw_generated_default();
    const wnw_generated empty = wnw_generated_default();
    if (WNW_SIZED_TAKE(wnw_generated, &own, g) != WNW_OK)
        return;
    free(own.tokens);
    free(own.text);
    wnw__sized_give(g, &empty);
}
