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

/* What nodes are, word by word. Any change of one word changes the result. */
enum { LANES = 8 };
struct sum {
    uint64_t lane[LANES];
};

static inline uint64_t mixed(uint64_t lane, uint64_t word)
{
    const uint64_t x = (lane ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return x << 29 | x >> 35;
}

static inline void add_word(struct sum *s, size_t i, const void *words)
{
    uint64_t word;
    memcpy(&word, (const char *)words + i * sizeof word, sizeof word);
    s->lane[i % LANES] = mixed(s->lane[i % LANES], word);
}

/* In loops whose length the compiler knows, so that lanes stay in registers. */
static inline void add_words(struct sum *s, const void *words, size_t n)
{
    for (size_t i = 0; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            add_word(s, i + k, words);
    for (size_t k = 0; k < n % LANES; k++)
        add_word(s, n / LANES * LANES + k, words);
}

static uint64_t total(const struct sum *s)
{
    uint64_t all = 0;
    for (int i = 0; i < LANES; i++)
        all = mixed(all, s->lane[i]);
    return all;
}

/* The words that have a meaning: all before the name. Half of the nodes are views, whose words are mostly in no cache of the CPU. Of
 * them the place in memory is taken; who reads them looks at their shape when it runs. */
static inline void add_node(struct sum *s, const struct ggml_tensor *node)
{
    enum { WORD = sizeof(uint64_t), ALL = offsetof(struct ggml_tensor, name) / WORD };
    if (!wnw__bridge_is_view(node)) {
        add_words(s, node, ALL);
        return;
    }
    const uint64_t place[] = {(uint64_t)node->op, (uint64_t)(uintptr_t)node->view_src,
                              (uint64_t)node->view_offs, (uint64_t)(uintptr_t)node->data};
    add_words(s, place, sizeof place / sizeof *place);
}

/* Begins to load a node that will be looked at soon. The weights have taken the place of most in the CPU's caches. */
static inline void fetch(const struct ggml_tensor *node)
{
    enum { LINE = 64 };
    for (size_t at = 0; at < offsetof(struct ggml_tensor, name); at += LINE)
        __builtin_prefetch((const char *)node + at);
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
    enum { AHEAD = 4 };
    struct wnw__bridge_last *last = &b->last;
    const int n = ggml_graph_n_nodes(graph);
    const bool room = need_nodes(last, n);
    bool again = room && last->shown && last->known && last->n == n;
    struct sum sum = {{0}};
    for (int i = 0; room && i < n; i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        if (i + AHEAD < last->n) /* most often it is in the same place */
            fetch(last->node[i + AHEAD]);
        again = again && last->node[i] == node;
        last->node[i] = node;
        add_node(&sum, node);
    }
    const uint64_t hash = total(&sum);
    last->again = again && last->hash == hash;
    last->looked = last->looked && last->again;
    last->known = room;
    last->n = room ? n : 0;
    last->hash = hash;
}
