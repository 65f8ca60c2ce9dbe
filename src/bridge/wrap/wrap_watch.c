/* SPDX-License-Identifier: MIT */
/* Policies on a wrapped device: before X computes a graph, the host looks at it as it does on the device WINNOW (watch/watch.c). */
#include "bridge/watch/watch.h"
#include "bridge/wrap/wrap.h"
#include "policy/policy.h"
#include "winnow_bridge.h"

/* ---- What cannot be had ---- */

static int check_needs(const struct wnw__wrap *w, const wnw_policy *policy, const wnw_needs *needs)
{
    const uint32_t missing = needs->flags & WNW_NEED_ATTN_MAX;
    return missing == 0
               ? WNW_OK
               : wnw__fail(
                     WNW_E_UNSUPPORTED,
                     "%s needs %s, which cannot be had on %s: the device computes attention without saying "
                     "what each entry receives; auto and snapkv work there, and the device "
                     "WINNOW has it",
                     wnw__policy_name(policy), wnw_need_name(__builtin_ctz(missing)), w->name);
}

int wnw__wrap_check_policy(const struct wnw__bridge_backend *b, const wnw_policy *policy,
                           const wnw_needs *needs)
{
    if (b->watch.automatic)
        return WNW_OK;
    if ((needs->flags & WNW_NEED_ATTN_SUM) && b->wrap->no_sums[0])
        return wnw__fail(WNW_E_UNSUPPORTED, "%s needs %s, and %s", wnw__policy_name(policy),
                         wnw_need_name(__builtin_ctz(WNW_NEED_ATTN_SUM)), b->wrap->no_sums);
    return check_needs(b->wrap->w, policy, needs);
}

int wnw_bridge_check_policy_on(const char *device, const wnw_policy *policy, const wnw_profile *profile)
{
    WNW_REQUIRE(device);
    WNW_TRY(wnw_bridge_check_policy(policy, profile));
    ggml_backend_dev_t dev = ggml_backend_dev_by_name(device);
    if (!dev)
        return wnw__fail(WNW_E_ARG, "there is no device '%s'", device);
    const struct wnw__wrap *w = wnw__wrap_of(dev);
    const wnw_needs needs = wnw_policy_needs(policy);
    return w ? check_needs(w, policy, &needs) : WNW_OK;
}

bool wnw__wrap_wants_sums(const struct wnw__bridge_backend *b)
{
    return b->watch.policy && (b->watch.needs.flags & WNW_NEED_ATTN_SUM);
}

/* ---- Looking ---- */

static int note_node(struct wnw__bridge_backend *b, const struct ggml_tensor *node,
                     const struct wnw__bridge_node *ours)
{
    struct wnw__bridge_node_note *note = wnw__bridge_notes_add(&b->notes, node);
    if (!note)
        return wnw__fail(WNW_E_NOMEM, "no memory to note the nodes of a graph");
    note->ours = *ours;
    return WNW_OK;
}

/* Notes what nodes of the graph are, as the device WINNOW does where it takes them over. */
static int note_nodes(struct wnw__bridge_backend *b, const struct wnw__wrap_look *look)
{
    uint64_t *noted = &b->wrap->found.noted;
    if (*noted == look->number)
        return WNW_OK;
    *noted = 0;
    wnw__bridge_nodes_begin(b, look->graph);
    for (int32_t i = 0; i < look->n_flash; i++) {
        const struct wnw__bridge_flash *f = &look->flash[i];
        if (f->layer->kind == WNW_BRIDGE_RAGGED)
            WNW_TRY(note_node(b, f->node, &f->what));
    }
    for (int32_t i = 0; i < look->n_store; i++)
        if (look->stores[i].t->layer->kind == WNW_BRIDGE_RAGGED)
            WNW_TRY(note_node(b, look->stores[i].node, &(struct wnw__bridge_node){.what = WNW_BRIDGE_STORE}));
    *noted = look->number;
    return WNW_OK;
}

/* Has the host read the masks and the numbers of cells. */
static int show_inputs(struct wnw__wrap_host *h, struct wnw__wrap *w, const struct wnw__wrap_look *look)
{
    wnw__wrap_host_show(h, true);
    for (int32_t i = 0; i < look->n_flash; i++)
        WNW_TRY(wnw__wrap_host_add(h, w, wnw__bridge_input_of(look->flash[i].mask)));
    for (int32_t i = 0; i < look->n_store; i++)
        if (!look->stores[i].t->is_v)
            WNW_TRY(wnw__wrap_host_add(h, w, look->stores[i].node->src[1]));
    return WNW_OK;
}

/* Whether something is kept of entries. */
static bool keeps_numbers(const struct wnw__bridge_layer *l)
{
    return l->wrap->gate || l->wrap->settled_marks || l->wrap->sums;
}

/* What entries kept of the tokens that were in the cells is not that of those that come. */
static void renew(const struct wnw__wrap_look *look)
{
    for (int32_t i = 0; i < look->n_store; i++) {
        const struct wnw__bridge_layer *l = look->stores[i].t->layer;
        const struct ggml_tensor *node = look->stores[i].node;
        const int64_t n = (int64_t)l->k.n_stream * l->k.n_cell;
        if (look->stores[i].t->is_v || !keeps_numbers(l))
            continue;
        for (int64_t row = 0; row < wnw__bridge_store_rows(node); row++) {
            const int64_t cell = wnw__bridge_store_cell(node, row);
            if (cell >= 0 && cell < n)
                wnw__wrap_renew(l, cell, 1);
        }
    }
}

/* Whether anything is to be looked at, or may be out of date. */
static bool is_wanted(const struct wnw__bridge_backend *b, const struct wnw__wrap_look *look)
{
    bool wanted = b->watch.policy || b->rows_told;
    for (int32_t i = 0; i < look->n_store && !wanted; i++)
        wanted = keeps_numbers(look->stores[i].t->layer);
    return wanted;
}

int wnw__wrap_watch(struct wnw__wrap_watched *out, struct wnw__bridge_backend *b,
                    const struct wnw__wrap_look *look)
{
    *out = (struct wnw__wrap_watched){0};
    if (!is_wanted(b, look))
        return WNW_OK;
    ggml_backend_synchronize(b->wrap->x);
    WNW_TRY(note_nodes(b, look));
    WNW_TRY(show_inputs(&out->host, b->wrap->w, look));
    wnw__bridge_watch_graph(b, look->graph);
    wnw__bridge_rows_tell(b, look->graph);
    renew(look);
    out->watched = true;
    wnw__wrap_host_show(&out->host, false);
    return wnw__wrap_taps_new(&out->taps, b);
}

int wnw__wrap_watch_end(struct wnw__wrap_watched *watched, struct wnw__bridge_backend *b, bool computed)
{
    int rc = WNW_OK;
    if (watched->watched && !computed)
        wnw__bridge_watch_fail(b);
    if (computed && watched->taps) {
        wnw__wrap_host_show(&watched->host, true);
        rc = wnw__wrap_taps_take(watched->taps, b);
    }
    wnw__wrap_taps_free(watched->taps);
    wnw__wrap_host_free(&watched->host);
    return rc;
}
