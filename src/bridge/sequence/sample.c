/* SPDX-License-Identifier: MIT */
/*
 * The attention that the entries of sampled tokens get when the program feeds these tokens a second time, after the sequence. A
 * session's second pass does the same with WNW_PASS_SAMPLE (session/planning/second_pass.h). The program feeds them before the last tokens of a
 * prompt, whose logits it wants, and then removes them. The attention is kept for the next compression.
 */
#include "bridge/sequence/sample.h"
#include "base/err.h"
#include "bridge/sequence/sequence.h"
#include "observe/queries.h"
#include "observe/window.h"
#include "winnow_bridge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Queries whose attention over a layer is there at once: a prompt may be long, and so a row of it. */
enum { TOGETHER = 32 };

/* ---- Taking it ---- */

/* Fed queries of one of the attentions that read a layer, some of them at once. */
struct fed {
    const struct wnw__bridge_sequence *s;
    int32_t reader;
    size_t row; /* numbers of one token */
    float *one; /* [row] */
    bool *lost; /* one was not kept, or has a number beyond the range of its type */
};

static const float *fed_at(const void *of, int32_t il, int32_t pos)
{
    const struct fed *f = of;
    const struct wnw__bridge_layer *l = f->s->layer[il];
    const void *kept = wnw__bridge_query(l, f->s->sequence_cells->cell[pos], f->reader);
    bool good = kept != NULL;
    if (good && l->queries.type == WNW_KV_F32)
        return kept;
    good = good && wnw__queries_widen(kept, 1, (int32_t)f->row, f->one);
    if (!good)
        memset(f->one, 0, f->row * sizeof *f->one);
    *f->lost = *f->lost || !good;
    return f->one;
}

/* Adds what rows of attention give the sampled entries. */
static void add_rows(const struct wnw_bridge_sample *to, const wnw_observation *obs)
{
    const int32_t group = obs->n_head / obs->n_head_kv;
    for (int32_t h = 0; h < obs->n_head; h++) {
        const int32_t ih = h / group, *pos = obs->pos + (int64_t)ih * obs->n;
        float *sum = to->sum[obs->il] + (int64_t)h * to->n, *max = to->max[obs->il] + (int64_t)h * to->n;
        for (int32_t e = 0; e < obs->n_entry[ih]; e++) {
            const int32_t i = wnw__bridge_sampled(to, pos[e]);
            for (int32_t r = 0; i >= 0 && r < obs->n_window; r++) {
                const float x = obs->window_attn[((int64_t)h * obs->n_window + r) * obs->n + e];
                sum[i] += x;
                max[i] = fmaxf(max[i], x);
            }
        }
    }
}

static int attend_fed(const struct wnw__bridge_sequence *s, struct wnw__source *source, float *one,
                      wnw_observation *obs)
{
    const struct wnw_bridge_sample *to = s->taking;
    const int32_t n = s->sequence_cells->n;
    const size_t row = (size_t)obs->n_head * (size_t)obs->n_embd_head;
    bool lost = false;
    for (int32_t reader = 0; reader < s->layer[obs->il]->info.n_reader; reader++)
        for (int32_t at = n - to->n_fed; at < n; at += TOGETHER) {
            const int32_t some = n - at < TOGETHER ? n - at : TOGETHER;
            const struct fed of = {.s = s, .reader = reader, .row = row, .one = one, .lost = &lost};
            const struct wnw__window_queries queries = {.of = &of, .at = fed_at, .n = some, .end = at + some};
            WNW_TRY(wnw__window_attend(source, &queries, NULL, obs));
            add_rows(to, obs);
        }
    if (lost)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "queries of layer %d were not kept of tokens that were fed again, or are beyond the "
                         "range of f16",
                         (int)obs->il);
    return WNW_OK;
}

int wnw__bridge_sample_take(struct wnw__bridge_sequence *s, struct wnw__source *source, wnw_observation *obs)
{
    const size_t row = (size_t)obs->n_head * (size_t)obs->n_embd_head;
    float *one = malloc((row + 1) * sizeof *one);
    if (!one)
        return wnw__fail(WNW_E_NOMEM, "no memory for a query");
    const int rc = attend_fed(s, source, one, obs);
    free(one);
    return rc;
}

/* ---- Showing it ---- */

/* How much further on tokens were when the sample was taken: then a header was there that a policy may not see now. */
static int32_t shift_of(const struct wnw_bridge_sample *from,
                        const struct wnw__bridge_sequence_cells *sequence_cells)
{
    int32_t first = 0;
    while (first < sequence_cells->n && sequence_cells->cell[first] != from->cell[0])
        first++;
    return from->place[0].from - first;
}

/* Whether the tokens that the sample has are those of the sequence. */
static bool is_of(const struct wnw_bridge_sample *from,
                  const struct wnw__bridge_sequence_cells *sequence_cells, int32_t shift)
{
    int32_t i = 0;
    for (int32_t k = 0; k < from->n_places; k++)
        for (int32_t t = from->place[k].from - shift; t < from->place[k].to - shift; t++, i++) {
            const struct wnw__bridge_note *note =
                t < sequence_cells->n ? wnw__bridge_note_of(sequence_cells, t) : NULL;
            if (!note || sequence_cells->cell[t] != from->cell[i] ||
                note->write_order != from->write_order[i])
                return false;
        }
    return true;
}

int wnw__bridge_sample_show(struct wnw__bridge_sequence *s, wnw_observation *obs)
{
    const struct wnw__bridge_sequence_cells *sequence_cells = s->sequence_cells;
    const struct wnw_bridge_sample *from = sequence_cells->sample;
    if (!from || from->cache != sequence_cells->cache || obs->il >= from->n_layer || !from->max[obs->il])
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "no sample of this prompt was fed a second time: that is before the last of several "
                         "batches in which it is read");
    const int32_t shift = shift_of(from, sequence_cells), group = obs->n_head / obs->n_head_kv;
    if (!is_of(from, sequence_cells, shift))
        return wnw__fail(WNW_E_NOT_OBSERVED, "the sample that was fed again is of other tokens");
    float *sum = wnw__bridge_room(s, WNW_ROOM_PASS_SUM, (size_t)obs->n_head * (size_t)obs->n),
          *max = wnw__bridge_room(s, WNW_ROOM_PASS_MAX, (size_t)obs->n_head * (size_t)obs->n);
    if (!sum || !max)
        return WNW_E_NOMEM;
    for (int32_t h = 0; h < obs->n_head; h++)
        for (int32_t e = 0; e < obs->n; e++) {
            const int32_t *pos = obs->pos + (int64_t)(h / group) * obs->n;
            const int32_t i = e < obs->n_entry[h / group] ? wnw__bridge_sampled(from, pos[e] + shift) : -1;
            sum[(int64_t)h * obs->n + e] = i >= 0 ? from->sum[obs->il][(int64_t)h * from->n + i] : 0.0f;
            max[(int64_t)h * obs->n + e] = i >= 0 ? from->max[obs->il][(int64_t)h * from->n + i] : 0.0f;
        }
    for (int32_t k = 0; k < from->n_places; k++) {
        const wnw_sample_place p = from->place[k];
        s->sampled[k] =
            (wnw_sample_place){.lead = p.lead - shift, .from = p.from - shift, .to = p.to - shift};
    }
    obs->pass2_sum = sum;
    obs->pass2_max = max;
    obs->n_pass2 = from->n_fed;
    obs->pass2_places = s->sampled;
    obs->n_pass2_places = from->n_places;
    return WNW_OK;
}
