/* SPDX-License-Identifier: MIT */

#include "attend/attend.h"
#include "session/session.h"

#include <stdlib.h>
#include <string.h>

void wnw__masks_free(struct wnw__masks *m)
{
    free(m->head);
    *m = (struct wnw__masks){0};
}

int wnw__masks_copy(struct wnw__masks *to, const struct wnw__masks *from, size_t n)
{
    uint8_t *head = from->head ? malloc(n) : NULL;
    if (from->head && !head)
        return wnw__fail(WNW_E_NOMEM, "no memory for the masks of %zu heads", n);
    if (head)
        memcpy(head, from->head, n);
    *to = (struct wnw__masks){.head = head, .phase = from->phase, .form = from->form};
    return WNW_OK;
}

const uint8_t *wnw__masks_for(const struct wnw__masks *m, bool generated)
{
    return generated || m->phase == WNW_MASK_ALL ? m->head : NULL;
}

static uint8_t mark_of(wnw_mask_form form)
{
    return form == WNW_MASK_MEAN ? WNW_MASKED_QUERY : WNW_MASKED_OUTPUT;
}

int wnw_session_mask_heads(wnw_session *s, const wnw_head *heads, int32_t n, wnw_mask_phase phase)
{
    WNW_REQUIRE(s);
    WNW_REQUIRE(heads || n < 1);
    const int32_t n_layer = s->m->hp.n_layer, n_head = s->m->hp.n_head;
    if (n < 0)
        return wnw__fail(WNW_E_RANGE, "%d heads to mask: 0 or more are allowed", (int)n);
    if (phase != WNW_MASK_ALL && phase != WNW_MASK_DECODE)
        return wnw__fail(WNW_E_ARG, "mask phase number %d does not exist", (int)phase);
    for (int32_t i = 0; i < n; i++)
        if (heads[i].il < 0 || heads[i].il >= n_layer || heads[i].h < 0 || heads[i].h >= n_head)
            return wnw__fail(WNW_E_RANGE,
                             "there is no query head %d-%d to mask: layers are 0 to %d, heads 0 to %d",
                             (int)heads[i].il, (int)heads[i].h, (int)n_layer - 1, (int)n_head - 1);
    uint8_t *head = n > 0 ? calloc((size_t)n_layer * (size_t)n_head, 1) : NULL;
    if (n > 0 && !head)
        return wnw__fail(WNW_E_NOMEM, "no memory for the masks of %d layers", (int)n_layer);
    for (int32_t i = 0; i < n; i++)
        head[heads[i].il * n_head + heads[i].h] = mark_of(s->masks.form);
    free(s->masks.head);
    s->masks.head = head;
    s->masks.phase = phase;
    return WNW_OK;
}

int wnw_session_mask_form(wnw_session *s, wnw_mask_form form)
{
    WNW_REQUIRE(s);
    if (form != WNW_MASK_ZERO && form != WNW_MASK_MEAN)
        return wnw__fail(WNW_E_ARG, "mask form number %d does not exist", (int)form);
    const size_t n = s->masks.head ? (size_t)s->m->hp.n_layer * (size_t)s->m->hp.n_head : 0;
    for (size_t i = 0; i < n; i++)
        s->masks.head[i] = s->masks.head[i] ? mark_of(form) : 0;
    s->masks.form = form;
    return WNW_OK;
}
