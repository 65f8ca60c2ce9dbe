/* SPDX-License-Identifier: MIT */
/*
 * What is noted of nodes of graphs: a table by the node's address. Words of ggml's structures that a version does not
 * use may have a meaning in the next one, so nothing is written there. libllama builds a new graph at the addresses of the
 * last one, and so the table stays small. What was noted of an earlier node at an address is taken away before a graph is
 * looked at (graph/nodes.c).
 */
#include "bridge/bridge.h"

#include <stdlib.h>

/* The slot of a node: its own, or the free one where it would be. A free slot has no node. */
static struct wnw__bridge_node_note *slot_of(struct wnw__bridge_node_note *slot, int32_t cap,
                                             const struct ggml_tensor *node)
{
    const uint64_t hash = ((uint64_t)(uintptr_t)node >> 4) * UINT64_C(0x9e3779b97f4a7c15);
    int32_t i = (int32_t)(hash >> 32) & (cap - 1);
    while (slot[i].node && slot[i].node != node)
        i = (i + 1) & (cap - 1);
    return &slot[i];
}

struct wnw__bridge_node_note *wnw__bridge_notes_find(const struct wnw__bridge_node_notes *notes,
                                                     const struct ggml_tensor *node)
{
    if (notes->n == 0)
        return NULL;
    struct wnw__bridge_node_note *found = slot_of(notes->slot, notes->cap, node);
    return found->node ? found : NULL;
}

/* Makes the table twice as large. */
static bool grow(struct wnw__bridge_node_notes *notes)
{
    const int32_t cap = notes->cap > 0 ? 2 * notes->cap : 256;
    struct wnw__bridge_node_note *slot = cap <= INT32_MAX / 4 ? calloc((size_t)cap, sizeof *slot) : NULL;
    if (!slot)
        return false;
    for (int32_t i = 0; i < notes->cap; i++)
        if (notes->slot[i].node)
            *slot_of(slot, cap, notes->slot[i].node) = notes->slot[i];
    free(notes->slot);
    notes->slot = slot;
    notes->cap = cap;
    return true;
}

struct wnw__bridge_node_note *wnw__bridge_notes_add(struct wnw__bridge_node_notes *notes,
                                                    const struct ggml_tensor *node)
{
    struct wnw__bridge_node_note *note = wnw__bridge_notes_find(notes, node);
    if (note)
        return note;
    if (2 * (notes->n + 1) > notes->cap && !grow(notes))
        return NULL;
    note = slot_of(notes->slot, notes->cap, node);
    note->node = node;
    notes->n++;
    return note;
}

struct wnw__bridge_node wnw__bridge_node_get(const struct wnw__bridge_backend *b,
                                             const struct ggml_tensor *node)
{
    const struct wnw__bridge_node_note *note =
        b->wrap || node->op == GGML_OP_CUSTOM ? wnw__bridge_notes_find(&b->notes, node) : NULL;
    return note ? note->ours : (struct wnw__bridge_node){.what = WNW_BRIDGE_NOT_OURS};
}

void wnw__bridge_notes_free(struct wnw__bridge_node_notes *notes)
{
    free(notes->slot);
    *notes = (struct wnw__bridge_node_notes){0};
}
