/* SPDX-License-Identifier: MIT */
/* Whether a session can be made of a file that was opened: for sessions that are made of one, and for what was just written of one. */
#include "store/wkv.h"

/* Whether the numbers that are kept with entries are those that a session of the model keeps, if it keeps any. */
static int check_numbers(const struct wnw_stored *st, const wnw_session *s)
{
    const int32_t group = s->m->hp.n_head / s->m->hp.n_head_kv;
    for (int kind = 0; kind < WNW_N_AUX; kind++) {
        const bool of_heads =
            kind == WNW_AUX_ATTN_SUM || kind == WNW_AUX_ATTN_MAX || kind >= WNW_AUX_HEAD_PROJ;
        const int32_t n = st->meta.aux_planes[kind];
        if (n != 0 && n != (of_heads ? group : 1))
            return wnw__fail(WNW_E_FORMAT, "the stored cache has %d numbers of kind %d with every entry",
                             (int)n, kind);
    }
    return WNW_OK;
}

static int check_form(const struct wnw_stored *st, const wnw_session *s)
{
    const struct wnw__cache *c = &s->cache;
    const struct wnw__wkv_meta *m = &st->meta;
    bool same = m->n_layer == c->n_layer && m->n_head_kv == c->n_head_kv && m->n_embd_head == c->d &&
                m->k_block == c->k_block && m->v_block == c->v_block;
    for (int32_t il = 0; same && il < c->n_layer; il++)
        same = st->form.layers[il].n_swa == c->layers[il].n_swa;
    if (!same)
        return wnw__fail(WNW_E_FORMAT,
                         "the stored cache has %d layers of %d heads of %d elements in another form than "
                         "sessions of this model",
                         (int)m->n_layer, (int)m->n_head_kv, (int)m->n_embd_head);
    return check_numbers(st, s);
}

int wnw__wkv_check_session(const struct wnw_stored *st, const wnw_session *s)
{
    WNW_TRY(wnw_stored_check_model(st, s->m));
    WNW_TRY(check_form(st, s));
    return wnw__session_check_state(&st->meta.state, s);
}
