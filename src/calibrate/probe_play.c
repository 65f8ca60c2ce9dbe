/* SPDX-License-Identifier: MIT */
/* A model answers a probe while the attention of every token is looked at. */
#include "calibrate/probe.h"

#include "base/vectors.h"
#include "observe/newest.h"
#include "observe/recorders.h"
#include "session/run/run.h"
#include "session/session.h"

#include <string.h>

static void look_at_all(const wnw_calibration *c, const wnw_session *s, struct wnw__probe_play *play,
                        int32_t token)
{
    const struct wnw__newest *rec = wnw__recorders_find(&s->recorders, &wnw__newest_recorder);
    for (int32_t il = 0; play->look && il < c->info.n_layer; il++) {
        int32_t n;
        const float *rows = wnw__newest_rows(rec, il, &n);
        /* Entries of a sliding window are no longer numbered by their positions. */
        for (int32_t h = 0; rows && wnw__layer_takes_part(&c->shape, il) && h < c->info.n_head; h++)
            play->look(play->user, il, h, rows + (size_t)h * (size_t)n, n, token);
    }
}

static int ends_answer(const wnw_calibration *c, const struct wnw__probe_play *play, int32_t token, bool *out)
{
    char *piece;
    *out = false;
    if (play->forced || !play->stop_at_line)
        return WNW_OK;
    WNW_TRY(wnw_token_piece(c->m, token, &piece));
    *out = wnw_token_is_eog(c->m, token) || (play->n > 1 && strchr(piece, '\n'));
    wnw_free(piece);
    return WNW_OK;
}

/* Feeds one token and takes what the model, or the span, makes of it. */
static int step(wnw_calibration *c, wnw_session *s, const struct wnw__probe *p, struct wnw__probe_play *play)
{
    const int32_t fed = play->n > 0 ? play->tokens[play->n - 1] : p->tokens[p->n - 1];
    WNW_TRY(wnw__calibrate_progress(c, 1));
    WNW_TRY(wnw_session_decode(s, fed));
    const int32_t own = wnw__argmax(wnw_session_logits(s), c->info.n_vocab);
    const int32_t token = play->forced ? p->tokens[p->span.first + play->n] : own;
    play->n_predicted += token == own;
    play->tokens[play->n++] = token;
    look_at_all(c, s, play, token);
    return WNW_OK;
}

static int answer(wnw_calibration *c, wnw_session *s, const struct wnw__probe *p,
                  struct wnw__probe_play *play)
{
    const int32_t most = play->forced && p->span.n < play->n_answer ? p->span.n : play->n_answer;
    bool end = false;
    WNW_TRY(wnw_session_prefill(s, p->tokens, p->n - 1, NULL, NULL));
    WNW_TRY(wnw__session_record(s, "newest", true));
    while (!end && play->n < most) {
        WNW_TRY(step(c, s, p, play));
        WNW_TRY(ends_answer(c, play, play->tokens[play->n - 1], &end));
    }
    return WNW_OK;
}

int wnw__probe_play(wnw_calibration *c, const struct wnw__probe *p, struct wnw__probe_play *play)
{
    wnw_session *s;
    play->n = play->n_predicted = 0;
    WNW_TRY(wnw__calibrate_session(&s, c, p->n + play->n_answer));
    const int rc = answer(c, s, p, play);
    wnw_session_free(s);
    return rc;
}
