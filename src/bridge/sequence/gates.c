/* SPDX-License-Identifier: MIT */
#include "bridge/sequence/sequence.h"

#include "observe/input_gate_score.h"
#include "profile/profile.h"

#include <stdlib.h>

const struct wnw__input_gate *wnw__bridge_gates_of(const struct wnw__bridge_backend *b)
{
    const struct wnw__bridge_watch *w = &b->watch;
    const bool wanted = w->policy && (w->needs.flags & WNW_NEED_INPUT_GATE);
    return wanted && w->profile && w->profile->inputs.number ? &w->profile->inputs : NULL;
}

bool wnw__bridge_gates_suit(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l)
{
    const struct wnw__input_gate *g = wnw__bridge_gates_of(b);
    const struct wnw__shape *of = g ? &b->watch.profile->model : NULL;
    const int32_t il = g ? wnw__bridge_number(b, l) : 0;
    return g && il < of->n_layer && g->there[il] && g->n_embd == l->info.n_input &&
           of->n_head == l->info.n_head && of->n_head_kv == l->n_head;
}

int wnw__bridge_gates_missing(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l)
{
    const struct wnw__input_gate *g = wnw__bridge_gates_of(b);
    const int32_t il = wnw__bridge_number(b, l);
    if (l->info.n_input == 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "gates on hidden states cannot be asked in layer %d: its keys are not made by one "
                         "product with what its attention reads",
                         (int)il);
    if (g && g->n_embd != l->info.n_input)
        return wnw__fail(
            WNW_E_MISMATCH,
            "the gates of the profile read hidden states of %d numbers; those of layer %d have %d",
            (int)g->n_embd, (int)il, (int)l->info.n_input);
    if (g && il < b->watch.profile->model.n_layer && !g->there[il])
        return wnw__fail(WNW_E_NOT_OBSERVED, "layer %d has no gate in the profile", (int)il);
    return wnw__fail(WNW_E_NOT_OBSERVED,
                     "no gates were asked in layer %d: set the profile and the policy before the prompt is "
                     "read",
                     (int)il);
}

int wnw__bridge_gates_reserve(struct wnw__bridge_backend *b)
{
    const struct wnw__input_gate *g = wnw__bridge_gates_of(b);
    return g ? wnw__buffer_need(&b->watch.gate_room,
                                wnw__input_asked_room(g, &b->watch.profile->model) * (size_t)b->n_threads,
                                sizeof(float), "gates on hidden states")
             : WNW_OK;
}

/* Keeps the scores of n rows with their entries. */
static void keep(void *user, int64_t first, int32_t n, const float *out)
{
    const struct wnw__bridge_site *p = user;
    const struct wnw__bridge_layer *l = p->layer;
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    for (int32_t i = 0; i < n; i++) {
        const int64_t cell = wnw__bridge_store_cell(p->store, first + i);
        if (l->far) {
            l->far->keep_gate(l, cell, out + i, WNW_INPUT_BLOCK);
            continue;
        }
        const int32_t stream = (int32_t)(cell / l->k.n_cell), own = (int32_t)(cell % l->k.n_cell);
        for (int32_t ih = 0; ih < l->n_head; ih++) {
            const int32_t head = stream * l->n_head + ih, at = wnw__cache_find(kv, head, own);
            if (at < kv->len[head] && kv->pos[kv->off[head] + at] == own)
                wnw__cache_aux(kv, WNW_AUX_GATE, 0)[kv->off[head] + at] = out[ih * WNW_INPUT_BLOCK + i];
        }
    }
}

void wnw__bridge_gates_take(struct ggml_tensor *node, int ith, int nth, void *user)
{
    const struct wnw__bridge_site *p = user;
    const struct ggml_tensor *x = node->src[0];
    wnw__input_ask(&(struct wnw__input_asked){.g = wnw__bridge_gates_of(p->b),
                                              .shape = &p->b->watch.profile->model,
                                              .il = wnw__bridge_number(p->b, p->layer),
                                              .x = x->data,
                                              .stride = (size_t)x->ne[0],
                                              .n = x->ne[1],
                                              .room = p->b->watch.gate_room.p,
                                              .n_thread = p->b->n_threads,
                                              .keep = keep,
                                              .user = user},
                   ith, nth);
}
