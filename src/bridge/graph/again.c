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

/* What a node is: the sum of its words, each times an odd number of its own. Any change of one word changes it. */
enum { WORD = sizeof(uint64_t), ALL = offsetof(struct ggml_tensor, name) / WORD };

static inline uint64_t word_of(const struct ggml_tensor *node, size_t i)
{
    uint64_t word;
    memcpy(&word, (const char *)node + i * WORD, WORD);
    return word;
}

/* Of words from .. to-1. The compiler knows both, and so the numbers. */
static inline uint64_t sum_of(const struct ggml_tensor *node, size_t from, size_t to)
{
    uint64_t sum = 0;
    for (size_t i = from; i < to; i++)
        sum += word_of(node, i) * (UINT32_C(0x1e3779b1) * (2 * (uint32_t)i + 1) % (1U << 30) | 1);
    return sum;
}

static inline bool is_zero(const struct ggml_tensor *node, size_t from, size_t to)
{
    uint64_t any = 0;
    for (size_t i = from; i < to; i++)
        any |= word_of(node, i);
    return any == 0;
}

static inline uint64_t mixed(uint64_t all, uint64_t word)
{
    const uint64_t x = (all ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return x << 29 | x >> 35;
}

/* The words that have a meaning: all before the name. Few operations have many parameters or many sources. Half of the nodes are views,
 * whose words are mostly in no cache of the CPU. Of them the place in memory is taken; who reads them looks at their shape when it runs. */
static inline uint64_t add_node(uint64_t all, const struct ggml_tensor *node)
{
    enum {
        OP = offsetof(struct ggml_tensor, op) / WORD,
        PARAMS = offsetof(struct ggml_tensor, op_params) / WORD + 3, /* from the sixth on */
        FLAGS = offsetof(struct ggml_tensor, flags) / WORD,
        SOURCES = offsetof(struct ggml_tensor, src) / WORD + 5, /* from the sixth on */
        VIEW = offsetof(struct ggml_tensor, view_src) / WORD,
    };
    if (wnw__bridge_is_view(node))
        return mixed(all, sum_of(node, OP, OP + 1) + sum_of(node, VIEW, ALL));
    uint64_t sum = sum_of(node, 0, PARAMS) + sum_of(node, FLAGS, SOURCES) + sum_of(node, VIEW, ALL);
    if (!is_zero(node, PARAMS, FLAGS))
        sum += sum_of(node, PARAMS, FLAGS);
    if (!is_zero(node, SOURCES, VIEW))
        sum += sum_of(node, SOURCES, VIEW);
    return mixed(all, sum);
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
    struct ggml_tensor *const *nodes = ggml_graph_nodes(graph);
    const int n = ggml_graph_n_nodes(graph);
    const bool room = need_nodes(last, n);
    bool again = room && last->shown && last->known && last->n == n;
    uint64_t hash = 0;
    for (int i = 0; room && i < n; i++) {
        const struct ggml_tensor *node = nodes[i];
        if (i + AHEAD < last->n) /* most often it is in the same place */
            fetch(last->node[i + AHEAD]);
        again = again && last->node[i] == node;
        last->node[i] = node;
        hash = add_node(hash, node);
    }
    last->again = again && last->hash == hash;
    last->looked = last->looked && last->again;
    last->known = room;
    last->n = room ? n : 0;
    last->hash = hash;
}
