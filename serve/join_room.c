/* SPDX-License-Identifier: MIT */
#include "serve/join_room.h"

#include "serve/document_cells.h"
#include "serve/libllama_real.h"

#include <llama.h>

int32_t serve_join_sequence(const struct serve_watched *w, int32_t place)
{
    return w->n_slots + serve_documents_n() + place;
}

bool serve_join_clear(struct serve_watched *w, int32_t seq)
{
    if (!REAL(llama_memory_seq_rm)(llama_get_memory(w->ctx), seq, -1, -1))
        return false;
    if (seq < w->n_slots)
        (void)serve_watched_lose(w, seq, 0);
    serve_sequences_rm(&w->sequences, seq, -1, -1);
    serve_watched_bury(w);
    w->slot_cache[seq] = (struct serve_slot_cache){0};
    return true;
}

void serve_join_empty(struct serve_watched *w, int32_t place)
{
    const int32_t from = serve_join_sequence(w, place);
    for (int32_t seq = 0; w->joined[place] > 0 && seq < w->n_slots; seq++)
        if (w->slot_cache[seq].document_plus_1 == w->joined[place]) {
            serve_document_cells_end(w, seq);
            serve_watched_report(w, seq);
        }
    if (w->joined[place] > 0)
        serve_join_lost(w->joined[place] - 1);
    w->joined[place] = 0;
    (void)serve_join_clear(w, from);
}

/* The place whose list was unused for longest, but for some; -1: there is none. */
static int32_t oldest(const struct serve_watched *w, const bool *but)
{
    int32_t best = -1;
    for (int32_t i = 0; i < SERVE_MAX_JOINS; i++)
        if (w->joined[i] > 0 && !but[i] &&
            (best < 0 || serve_join_used(w->joined[i] - 1) < serve_join_used(w->joined[best] - 1)))
            best = i;
    return best;
}

bool serve_join_make_way(struct serve_watched *w, int32_t n)
{
    const uint64_t cap = serve_settings()->cap;
    bool held[SERVE_MAX_JOINS] = {false};
    int32_t place;
    while (cap > 0 && serve_watched_bytes_with(w, n) > cap && (place = oldest(w, held)) >= 0) {
        held[place] = !serve_slots_give_up_list(w->joined[place] - 1);
        if (!held[place])
            serve_join_empty(w, place);
    }
    return cap == 0 || serve_watched_bytes_with(w, n) <= cap;
}
