/* SPDX-License-Identifier: MIT */
/*
 * Whether the graph that runs is the one that ran before it. libllama runs a graph that it has built for one token after the
 * other, as long as the cache that they see has one size. Looking at a thousand nodes takes a twentieth of a small model's token.
 *
 * ggml's scheduler shows every graph that it allocates (graph_optimize), so a graph that was not shown again has its old memory. Its
 * nodes are compared, too: a program may change one, or run a part of the graph.
 */
#include "bridge/graph/graph.h"

#include <stddef.h>

void wnw__bridge_last_forget(struct wnw__bridge_backend *b)
{
    b->last.known = b->last.again = false;
}

void wnw__bridge_last_shown(struct wnw__bridge_backend *b)
{
    b->last.shown = true;
    wnw__bridge_last_forget(b);
}

void wnw__bridge_last_free(struct wnw__bridge_last *last)
{
    free(last->node);
    free(last->ours);
    *last = (struct wnw__bridge_last){0};
}

/* Words of a node that have a meaning: all before its name. Any change of one of them changes the hash. */
static uint64_t hash_node(uint64_t h, const struct ggml_tensor *node)
{
    enum { LANES = 4, WORDS = offsetof(struct ggml_tensor, name) / sizeof(uint64_t) };
    static const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t lane[LANES] = {h, h, h, h};
    for (int i = 0; i < WORDS; i++) {
        uint64_t word;
        memcpy(&word, (const char *)node + (size_t)i * sizeof word, sizeof word);
        lane[i % LANES] = (lane[i % LANES] ^ word) * odd;
    }
    for (int k = 1; k < LANES; k++)
        lane[0] = (lane[0] ^ (lane[0] >> 32) ^ lane[k]) * odd;
    return lane[0];
}

static bool need_nodes(struct wnw__bridge_last *last, int n)
{
    if (n <= last->cap)
        return true;
    const struct ggml_tensor **node = malloc((size_t)n * sizeof *node);
    if (!node)
        return false;
    free(last->node);
    last->node = node;
    last->cap = n;
    return true;
}

/* Without memory a graph is not recognised, and is looked at each time. */
void wnw__bridge_last_see(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    struct wnw__bridge_last *last = &b->last;
    const int n = ggml_graph_n_nodes(graph);
    const bool room = need_nodes(last, n);
    bool again = room && last->shown && last->known && last->n == n;
    uint64_t hash = 0;
    for (int i = 0; room && i < n; i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        again = again && last->node[i] == node;
        last->node[i] = node;
        hash = hash_node(hash, node);
    }
    last->again = again && last->hash == hash;
    last->looked = last->looked && last->again;
    last->known = room;
    last->n = room ? n : 0;
    last->hash = hash;
}
