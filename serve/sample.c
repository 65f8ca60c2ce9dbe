/* SPDX-License-Identifier: MIT */
#include "serve/sample.h"

#include "serve/automatic.h"
#include "serve/compress.h"
#include "serve/document_cells.h"
#include "serve/libllama_real.h"
#include "winnow_method.h"
#include "winnow_tools.h"

#include <llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What is fed ---- */

/* Whether the rule of a slot wants some of its tokens repeated, once its prompt has n, and how many. */
static bool wants(wnw_sample_size *size, const struct serve_watched *w, int32_t seq, int32_t n)
{
    const struct serve_rule *rule = &w->rule[seq];
    struct serve_rule chosen = {0};
    if (serve_is_automatic(&rule->keep_rule)) {
        (void)serve_choose_rule(&chosen, w, seq, n - serve_document_cells_shared(w, seq), true);
        rule = &chosen;
    }
    const wnw_needs needs = rule->policy ? wnw_policy_needs(rule->policy) : (wnw_needs){0};
    wnw_policy_free(chosen.policy);
    *size = needs.sample;
    return needs.flags & WNW_NEED_SECOND_PASS;
}

/* The first token from which on all of a slot are text that no compression has judged. */
static int32_t first_new(const struct serve_watched *w, int32_t seq)
{
    const struct serve_sequence *q = &w->sequences.of[seq];
    const wnw_turns turns = serve_compress_turns(w, seq);
    int32_t from = wnw_turns_first_new(&turns);
    for (int32_t i = from; i < q->n; i++)
        from = q->token[i] < 0 ? i + 1 : from;
    return from;
}

/* Tokens of a slot that are fed again. */
struct fed {
    wnw_sample_place place[WNW_SAMPLE_PLACES];
    int32_t n_places, n;
};

/* Whether the fed tokens fit under the memory limit, into the cache and into the context that the model was trained for. With sliding
 * windows libllama overwrites cells that the next token will no longer see, so all fed tokens must be in one computation. */
static bool fits(const struct serve_watched *w, int32_t seq, int32_t n)
{
    const struct serve_sequence *q = &w->sequences.of[seq];
    const uint64_t cap = serve_settings()->cap;
    const bool slides = llama_model_n_swa(llama_get_model(w->ctx)) > 0;
    return n <= (int32_t)(slides ? llama_n_ubatch(w->ctx) : llama_n_batch(w->ctx)) &&
           n <= w->sequences.n_cells - w->sequences.n_live &&
           q->pos[q->n - 1] + n < REAL(llama_model_n_ctx_train)(llama_get_model(w->ctx)) &&
           (cap == 0 || serve_watched_bytes_with(w, n) <= cap);
}

/* As much as is wanted, or as there is room for. False: there is none, or too little to repeat. */
static bool find(struct fed *f, const struct serve_watched *w, int32_t seq, wnw_sample_size size)
{
    const int32_t from = first_new(w, seq), to = w->sequences.of[seq].n;
    bool room = false;
    while (!room && to - from >= WNW_TURNS_LEAST_NEW) {
        f->n_places = wnw_sample_places(&size, from, to, f->place);
        f->n = wnw_sample_fed(&size, to - from);
        room = fits(w, seq, f->n);
        if (size.every == 0 || size.most <= size.least) /* it is as little as can be */
            break;
        size.most /= 2;
    }
    return room;
}

/* ---- Feeding it ---- */

static struct llama_batch_ext *batch_of(const struct serve_watched *w, int32_t seq, const struct fed *f,
                                        struct serve_batch *rows)
{
    const struct serve_sequence *q = &w->sequences.of[seq];
    const int32_t n_removed = serve_watched_removed(w, seq);
    struct llama_batch_ext *batch = llama_batch_ext_init(w->ctx);
    bool good = batch != NULL;
    int32_t i = 0;
    for (int32_t k = 0; k < f->n_places; k++)
        for (int32_t t = f->place[k].lead; good && t < f->place[k].to; t++, i++) {
            const llama_pos pos = q->pos[q->n - 1] + 1 + i;
            good = REAL(llama_batch_ext_add_token)(batch, seq, q->token[t]) == i &&
                   REAL(llama_batch_ext_set_pos)(batch, i, &pos);
            serve_batch_add(rows, i, seq, q->token[t]);
            good = good && rows->n == i + 1;
            if (good) {
                rows->row[i].pos = pos;
                rows->row[i].at = pos + n_removed;
            }
        }
    if (!good && batch)
        REAL(llama_batch_ext_free)(batch);
    return good ? batch : NULL;
}

/* Feeds tokens after those of the slot, observes what they attend to, and removes them again. */
static void feed(struct serve_watched *w, int32_t seq, const struct fed *f)
{
    struct serve_sequence *q = &w->sequences.of[seq];
    const int32_t n = q->n, end = q->pos[q->n - 1] + 1;
    struct serve_batch rows = {0};
    struct llama_batch_ext *batch = batch_of(w, seq, f, &rows);
    w->running = &rows;
    w->at = 0;
    w->feeding = true;
    const bool fed = batch && REAL(llama_process)(w->ctx, LLAMA_PROCESS_TYPE_DECODE, batch) == 0;
    w->feeding = false;
    w->running = NULL;
    if (fed && q->n == n + f->n) {
        llama_synchronize(w->ctx);
        const wnw_bridge_sample_of of = {WNW_INIT(wnw_bridge_sample_of),
                                         .n_cells = q->n,
                                         .cells = q->cell,
                                         .n_fed = f->n,
                                         .places = f->place,
                                         .n_places = f->n_places};
        if (wnw_bridge_sample_new(&w->sample[seq], w->cache, &of) != WNW_OK)
            fprintf(stderr, "winnow: slot %d: %s\n", (int)seq, wnw_last_error());
    }
    REAL(llama_memory_seq_rm)(llama_get_memory(w->ctx), seq, end, -1);
    serve_sequences_cut(&w->sequences, seq, n);
    serve_watched_bury(w);
    if (batch)
        REAL(llama_batch_ext_free)(batch);
    free(rows.row);
}

void serve_sample_feed(struct serve_watched *w, const struct serve_batch *b)
{
    for (int32_t seq = 0; w->feeds && seq < w->n_slots; seq++) {
        const struct serve_rows r = serve_batch_rows_of(b, seq);
        const struct serve_slot_cache *s = &w->slot_cache[seq];
        const struct serve_sequence *q = &w->sequences.of[seq];
        wnw_sample_size size;
        struct fed f;
        if (!r.ends || !s->reading || s->n_unknown > 0 || q->n == 0 ||
            serve_keeps_all(&w->rule[seq].keep_rule))
            continue;
        serve_watched_drop_sample(w, seq);
        if (wants(&size, w, seq, q->n + r.n) && find(&f, w, seq, size))
            feed(w, seq, &f);
    }
}
