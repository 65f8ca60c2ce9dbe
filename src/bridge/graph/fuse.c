/* SPDX-License-Identifier: MIT */
#include "bridge/graph/fuse.h"

#include "bridge/graph/graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- Notes ---- */

enum note_kind { NO_NOTE, NORM, NORMED, GATED };

/* In place of a number of readers: there are others, too. NORM: than nodes; else than winnow's products. */
enum { STRANGE = -1 };

/* A copy of what is noted of a norm, of the MUL after it, or of a GLU. */
static struct wnw__bridge_node_note note_of(const struct wnw__bridge_backend *b, const struct ggml_tensor *t)
{
    const struct wnw__bridge_node_note *note = wnw__bridge_notes_find(&b->notes, t);
    return note ? *note : (struct wnw__bridge_node_note){.kind = NO_NOTE};
}

/* Where there is no memory for a note, there is none: the node is computed by itself. */
static void set_note(struct wnw__bridge_backend *b, const struct ggml_tensor *t, enum note_kind kind,
                     int32_t n_reader)
{
    struct wnw__bridge_node_note *note = wnw__bridge_notes_add(&b->notes, t);
    if (!note)
        return;
    note->kind = (int32_t)kind;
    note->n_reader = n_reader;
    note->n_seen = 0;
}

/* ---- Patterns ---- */

static bool is_rows(const struct ggml_tensor *t)
{
    return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float) && t->ne[2] == 1 && t->ne[3] == 1;
}

/* Whether a node of the shape of `like` can be made of rows of t by the products that read it. */
static bool is_read_by_rows(const struct ggml_tensor *t, const struct ggml_tensor *like)
{
    return t && is_rows(t) && ggml_are_same_shape(t, like);
}

static bool is_normed(const struct ggml_tensor *node)
{
    struct ggml_tensor *w;
    return is_rows(node) && wnw__bridge_norm_of(node, &w);
}

static bool is_gated(const struct ggml_tensor *node)
{
    const bool swapped = node->op == GGML_OP_GLU && node->op_params[WNW_GLU_SWAPPED] != 0;
    return node->op == GGML_OP_GLU && wnw__bridge_has_known_words(node) &&
           ggml_get_glu_op(node) == GGML_GLU_OP_SWIGLU && !swapped && is_rows(node) &&
           is_read_by_rows(node->src[0], node) && is_read_by_rows(node->src[1], node);
}

/* What products take in place of a node with a note. */
static struct wnw__operand operand_of(const struct wnw__bridge_backend *b, const struct ggml_tensor *node)
{
    struct wnw__operand x = {.kind = WNW_OPERAND_SWIGLU, .a = node->src[0], .b = node->src[1]};
    if (note_of(b, node).kind == NORMED) {
        x.kind = WNW_OPERAND_RMS_NORM;
        x.a = wnw__bridge_norm_of(node, &x.b)->src[0];
    }
    return x;
}

/* ---- Noting ---- */

/* Nodes before a product among which others with its operand are looked for. */
enum { WINDOW = 24 };

static void count_reader(struct wnw__bridge_backend *b, const struct ggml_tensor *t, bool known)
{
    struct wnw__bridge_node_note *note = wnw__bridge_notes_find(&b->notes, t);
    if (note && note->kind != NO_NOTE)
        note->n_reader = known && note->n_reader != STRANGE ? note->n_reader + 1 : STRANGE;
}

/* Counts a node among the readers of what it reads. */
static void count_reads(struct wnw__bridge_backend *b, const struct ggml_tensor *node)
{
    const bool is_product = wnw__bridge_takes_product(&b->products, node);
    if (node->view_src)
        count_reader(b, node->view_src, false);
    for (int i = 0; i < GGML_MAX_SRC; i++)
        if (node->src[i])
            count_reader(b, node->src[i], note_of(b, node->src[i]).kind == NORM || (is_product && i == 1));
}

/* All norms that are left to products have the same epsilon, which is the scratch memory's. */
static bool has_our_eps(struct wnw__bridge_products *p, const struct ggml_tensor *node)
{
    struct ggml_tensor *w;
    const float eps = wnw__bridge_param(wnw__bridge_norm_of(node, &w), WNW_NORM_EPS);
    if (!p->has_eps) {
        wnw__matmul_free(p->scratch);
        p->scratch = NULL;
        p->rms_eps = eps;
        p->has_eps = true;
    }
    return eps == p->rms_eps;
}

/* Whether all readers of a node with a note are known, and of its norm, which it alone may read. */
static bool is_settled(const struct wnw__bridge_backend *b, const struct ggml_tensor *node)
{
    struct ggml_tensor *w, *norm = note_of(b, node).kind == NORMED ? wnw__bridge_norm_of(node, &w) : NULL;
    return note_of(b, node).n_reader > 0 && !(node->flags & GGML_TENSOR_FLAG_OUTPUT) &&
           (!norm || (note_of(b, norm).n_reader == 1 && !(norm->flags & GGML_TENSOR_FLAG_OUTPUT)));
}

/* Whether nothing but the CPU computes in this process. Otherwise a reader may be in a graph of another device. */
static bool is_alone(void)
{
    for (size_t i = 0; i < ggml_backend_dev_count(); i++)
        if (ggml_backend_dev_get(i) != &wnw__bridge_device &&
            ggml_backend_dev_type(ggml_backend_dev_get(i)) != GGML_BACKEND_DEVICE_TYPE_CPU)
            return false;
    return true;
}

/* The first product before node i that has the same operand and may be computed together with it; i: there is none. */
static int first_with(const struct wnw__bridge_products *p, struct ggml_cgraph *graph, int i)
{
    const struct ggml_tensor *node = ggml_graph_node(graph, i), *x = node->src[1];
    int first = i;
    for (int j = i - 1; x->ne[1] == 1 && j >= 0 && j >= i - WINDOW; j--)
        if (ggml_graph_node(graph, j)->src[1] == x && wnw__bridge_takes_product(p, ggml_graph_node(graph, j)))
            first = j;
    return first;
}

/* Keeps what product i may read in place of its operand. And what nodes before it have as memory, from the first product with
 * its operand on: it must not be its own, which then can be written as early as that. */
static void keep_for(const struct wnw__bridge_backend *b, struct ggml_cgraph *graph, int i,
                     const struct ggml_backend_graph_optimize_params *params)
{
    struct ggml_tensor *node = ggml_graph_node(graph, i);
    if (note_of(b, node->src[1]).kind != NO_NOTE) {
        const struct wnw__operand x = operand_of(b, node->src[1]);
        params->add_alloc_dep(params->user_data, x.a, node);
        if (x.kind == WNW_OPERAND_SWIGLU)
            params->add_alloc_dep(params->user_data, x.b, node);
    }
    for (int j = first_with(&b->products, graph, i); j < i; j++)
        if (!wnw__bridge_is_view(ggml_graph_node(graph, j)))
            params->add_alloc_dep(params->user_data, ggml_graph_node(graph, j), node);
}

/* Keeps what stores read until the attention after them, which may run them. */
static void keep_for_attention(const struct wnw__bridge_backend *b, struct ggml_cgraph *graph, int i,
                               const struct ggml_backend_graph_optimize_params *params)
{
    struct ggml_tensor *attention = ggml_graph_node(graph, i);
    const struct wnw__cells_op op = wnw__bridge_attention(b, attention);
    for (int j = i - 1; j >= 0 && wnw__cells_is_few(&op); j--) {
        const struct ggml_tensor *node = ggml_graph_node(graph, j);
        if (wnw__bridge_is_view(node))
            continue;
        if (wnw__bridge_node_get(b, node).what != WNW_BRIDGE_STORE)
            return;
        params->add_alloc_dep(params->user_data, node->src[0], attention);
        params->add_alloc_dep(params->user_data, node->src[1], attention);
    }
}

static void keep_for_attentions(const struct wnw__bridge_backend *b, struct ggml_cgraph *graph,
                                const struct ggml_backend_graph_optimize_params *params)
{
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const int32_t what = wnw__bridge_node_get(b, ggml_graph_node(graph, i)).what;
        if (what == WNW_BRIDGE_ATTEND || what == WNW_BRIDGE_ATTEND_CHAIN)
            keep_for_attention(b, graph, i, params);
    }
}

void wnw__bridge_fuse_note(struct wnw__bridge_backend *b, struct ggml_cgraph *graph,
                           const struct ggml_backend_graph_optimize_params *params)
{
    const int n = ggml_graph_n_nodes(graph);
    if (params && params->add_alloc_dep && !b->drive)
        keep_for_attentions(b, graph, params);
    if (b->ggml_products || !params || !params->add_alloc_dep || !is_alone())
        return;
    for (int i = 0; i < n; i++) {
        struct ggml_tensor *node = ggml_graph_node(graph, i);
        count_reads(b, node);
        if (node->op == GGML_OP_RMS_NORM)
            set_note(b, node, NORM, 0);
        else if (is_normed(node) && has_our_eps(&b->products, node))
            set_note(b, node, NORMED, 0);
        else if (is_gated(node))
            set_note(b, node, GATED, 0);
    }
    for (int i = 0; i < n; i++) {
        struct ggml_tensor *node = ggml_graph_node(graph, i);
        const int32_t kind = note_of(b, node).kind;
        if ((kind == NORMED || kind == GATED) && !is_settled(b, node))
            set_note(b, node, NO_NOTE, 0);
        if (wnw__bridge_takes_product(&b->products, node))
            keep_for(b, graph, i, params);
    }
}

/* ---- Planning a run ---- */

static void see_reader(const struct wnw__bridge_backend *b, const struct ggml_tensor *t)
{
    struct wnw__bridge_node_note *note = t ? wnw__bridge_notes_find(&b->notes, t) : NULL;
    if (note)
        note->n_seen++;
}

void wnw__bridge_fuse_recount(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    for (int32_t i = 0; i < b->notes.cap; i++)
        b->notes.slot[i].n_seen = 0;
    b->products.planned.valid = false;
    for (int i = 0; b->notes.n > 0 && i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        see_reader(b, node->view_src);
        for (int k = 0; k < GGML_MAX_SRC; k++)
            see_reader(b, node->src[k]);
    }
}

enum { MOST_PRODUCTS = 8, NEAR = 8 };

/* Products with one operand, in the order of the graph. */
struct wnw__bridge_group {
    const struct ggml_tensor *x;
    int at, n;                  /* at: where x is, -1: in no node with a note */
    int product[MOST_PRODUCTS]; /* [n] */
};

/* Whether the note of what a group reads is of the graph that runs, as far as it does. */
static bool is_noted(const struct wnw__bridge_backend *b, const struct wnw__bridge_group *g)
{
    const struct wnw__bridge_node_note note = note_of(b, g->x);
    struct ggml_tensor *w, *norm;
    if (note.n_reader != g->n || note.n_seen != g->n || (g->x->flags & GGML_TENSOR_FLAG_OUTPUT))
        return false;
    if (note.kind == GATED)
        return is_gated(g->x);
    norm = is_normed(g->x) ? wnw__bridge_norm_of(g->x, &w) : NULL;
    return norm && note_of(b, norm).n_seen == 1 && !(norm->flags & GGML_TENSOR_FLAG_OUTPUT) &&
           b->products.has_eps && wnw__bridge_param(norm, WNW_NORM_EPS) == b->products.rms_eps;
}

/* Nodes from .. to-1 of a graph. */
struct part {
    struct wnw__bridge_backend *b;
    struct ggml_cgraph *graph;
    int from, to;
    struct wnw__bridge_step *step; /* [to - from] */
    int n_group;
};

static int need_steps(struct wnw__bridge_products *p, int n)
{
    if (n <= p->cap_step)
        return WNW_OK;
    struct wnw__bridge_step *steps = malloc((size_t)n * sizeof *steps);
    struct wnw__bridge_group *groups = malloc((size_t)n * sizeof *groups);
    if (!steps || !groups) {
        free(steps);
        free(groups);
        return wnw__fail(WNW_E_NOMEM, "no memory for a graph of %d nodes", n);
    }
    free(p->steps);
    free(p->groups);
    p->steps = steps;
    p->groups = groups;
    p->cap_step = n;
    return WNW_OK;
}

static bool overlap(const struct ggml_tensor *a, const struct ggml_tensor *b)
{
    const uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;
    return x < y + ggml_nbytes(b) && y < x + ggml_nbytes(a);
}

static bool is_of_group(const struct wnw__bridge_group *g, int i)
{
    for (int k = 0; k < g->n; k++)
        if (g->product[k] == i)
            return true;
    return false;
}

/* Whether a node may be between those of a group. A product of another group may compute what comes later, or read
 * what was earlier. */
static bool is_foreign_product(const struct part *p, const struct wnw__bridge_group *g, int i)
{
    return !is_of_group(g, i) && wnw__bridge_takes_product(&p->b->products, ggml_graph_node(p->graph, i));
}

/* Whether what node `first` reads of a tensor is there until the last product of the group has run, if neither that node nor
 * x does. */
static bool lives(const struct part *p, const struct wnw__bridge_group *g, const struct ggml_tensor *t,
                  int first)
{
    for (int i = first + 1; i <= g->product[g->n - 1]; i++) {
        const struct ggml_tensor *node = ggml_graph_node(p->graph, i);
        if (i != g->at && (is_foreign_product(p, g, i) || (overlap(node, t) && !wnw__bridge_is_view(node))))
            return false;
    }
    return true;
}

/* Whether a product can run as early as the first of its group, with the operand x. */
static bool can_move(const struct part *p, const struct wnw__bridge_group *g, int k,
                     const struct wnw__operand *x)
{
    const struct ggml_tensor *y = ggml_graph_node(p->graph, g->product[k]);
    if (overlap(y, x->a) || (x->b && overlap(y, x->b)))
        return false;
    for (int i = g->product[0]; i < g->product[k]; i++) {
        const struct ggml_tensor *node = ggml_graph_node(p->graph, i);
        if (is_foreign_product(p, g, i) || overlap(node, y))
            return false;
        for (int s = 0; s < GGML_MAX_SRC; s++)
            if (node->src[s] && node->src[s] != y && overlap(node->src[s], y))
                return false;
    }
    return true;
}

/* A recorder reads what the attention reads: norms are not left out. */
static bool inputs_are_observed(const struct wnw__bridge_backend *b)
{
    return b->drive_inputs || (b->watch.policy && (b->watch.needs.flags & WNW_NEED_INPUT_GATE));
}

/* The node of a norm, which is near the one that multiplies it; -1: in another part. */
static int index_of_norm(const struct part *p, int at)
{
    struct ggml_tensor *w;
    const struct ggml_tensor *norm = wnw__bridge_norm_of(ggml_graph_node(p->graph, at), &w);
    for (int i = at - 1; i >= p->from && i >= at - NEAR; i--)
        if (ggml_graph_node(p->graph, i) == norm)
            return i;
    return -1;
}

static bool all_run(const struct part *p, const struct wnw__bridge_group *g)
{
    bool run = (g->x->flags & GGML_TENSOR_FLAG_COMPUTE) != 0;
    for (int k = 0; k < g->n; k++)
        run = run && (ggml_graph_node(p->graph, g->product[k])->flags & GGML_TENSOR_FLAG_COMPUTE);
    return run;
}

/* Has the products of a group compute their operand, if they can. A program that stops a graph at a node may read what that
 * node has read. */
static bool fuse(const struct part *p, const struct wnw__bridge_group *g, struct wnw__operand *x)
{
    if (g->at < 0 || !is_noted(p->b, g) || g->product[g->n - 1] == ggml_graph_n_nodes(p->graph) - 1 ||
        !all_run(p, g))
        return false;
    const bool normed = note_of(p->b, g->x).kind == NORMED;
    const int norm = normed ? index_of_norm(p, g->at) : g->at;
    const struct wnw__operand of = operand_of(p->b, g->x);
    if (norm < 0 || (normed && inputs_are_observed(p->b)) || !lives(p, g, of.a, norm) ||
        (!normed && !lives(p, g, of.b, norm)))
        return false;
    p->step[norm - p->from].kind = p->step[g->at - p->from].kind = WNW_BRIDGE_LEFT_OUT;
    *x = of;
    return true;
}

static void plan_group(const struct part *p, const struct wnw__bridge_group *g)
{
    struct wnw__operand x = {.kind = WNW_OPERAND_PLAIN,
                             .a = ggml_graph_node(p->graph, g->product[0])->src[1]};
    struct wnw__bridge_step *first = NULL;
    if (!p->b->products.unfused)
        fuse(p, g, &x);
    for (int k = 0; k < g->n; k++) {
        struct ggml_tensor *node = ggml_graph_node(p->graph, g->product[k]);
        struct wnw__bridge_step *step = &p->step[g->product[k] - p->from];
        if (first && first->n_product < WNW_MATMUL_TOGETHER && can_move(p, g, k, &x)) {
            first->product[first->n_product++] = node;
            step->kind = WNW_BRIDGE_LEFT_OUT;
            continue;
        }
        *step = (struct wnw__bridge_step){
            .kind = WNW_BRIDGE_PRODUCTS, .n_product = 1, .product = {node}, .operand = x};
        if (k == 0 && x.a->ne[1] == 1 && all_run(p, g) && !p->b->products.unfused)
            first = step;
    }
}

/* The group of a tensor, one of the newest; NULL: it has none, or it is full. */
static struct wnw__bridge_group *group_of(const struct part *p, const struct ggml_tensor *x)
{
    struct wnw__bridge_group *groups = p->b->products.groups;
    for (int i = p->n_group - 1; i >= 0 && i >= p->n_group - NEAR; i--)
        if (groups[i].x == x && groups[i].n < MOST_PRODUCTS)
            return &groups[i];
    return NULL;
}

static struct wnw__bridge_group *new_group(struct part *p, const struct ggml_tensor *x, int at)
{
    struct wnw__bridge_group *g = &p->b->products.groups[p->n_group++];
    *g = (struct wnw__bridge_group){.x = x, .at = at};
    return g;
}

/* Whether a node computes nothing at its place. */
static bool does_nothing(const struct part *p, int i)
{
    const struct ggml_tensor *node = ggml_graph_node(p->graph, i);
    return wnw__bridge_is_view(node) || p->step[i - p->from].kind == WNW_BRIDGE_LEFT_OUT;
}

/* The last node before i that computes something at its place; -1: there is none in this part. */
static int last_before(const struct part *p, int i)
{
    do
        i--;
    while (i >= p->from && does_nothing(p, i));
    return i >= p->from ? i : -1;
}

/* Whether rows can be read while others are written: none is written where another one is read. */
static bool can_write(const struct ggml_tensor *node, const struct ggml_tensor *x)
{
    return (node->data == x->data && ggml_are_same_stride(node, x)) || !overlap(node, x);
}

/* Whether node i can compute the norm before it as well, which nothing else reads. A program that stops a graph at a node may
 * read what that node has read. */
static bool takes_norm(const struct part *p, int i, const struct ggml_tensor *norm)
{
    const struct ggml_tensor *node = ggml_graph_node(p->graph, i);
    const struct wnw__bridge_node_note note = note_of(p->b, norm);
    return note.kind == NORM && note.n_reader == 1 && note.n_seen == 1 &&
           !(norm->flags & GGML_TENSOR_FLAG_OUTPUT) &&
           (norm->flags & node->flags & GGML_TENSOR_FLAG_COMPUTE) && ggml_is_contiguous(node) &&
           can_write(node, norm->src[0]) && i < ggml_graph_n_nodes(p->graph) - 1;
}

/* Has norms that no product computes run together with their weights. Returns their number. */
static int plan_norms(const struct part *p)
{
    int n = 0;
    for (int i = p->from; i < p->to && !p->b->products.unfused; i++) {
        struct wnw__bridge_step *step = &p->step[i - p->from];
        struct ggml_tensor *w, *norm = wnw__bridge_norm_of(ggml_graph_node(p->graph, i), &w);
        const int at = norm && step->kind == WNW_BRIDGE_AS_IT_IS ? last_before(p, i) : -1;
        if (at < 0 || ggml_graph_node(p->graph, at) != norm || !takes_norm(p, i, norm))
            continue;
        p->step[at - p->from].kind = WNW_BRIDGE_LEFT_OUT;
        step->kind = WNW_BRIDGE_NORM;
        n++;
    }
    return n;
}

/* Stores between which and the node that is looked at nothing is computed: at most two, in the order of the graph; -1: none. */
struct stores {
    int at[2];
};

static const struct stores no_stores = {{-1, -1}};

static const struct ggml_tensor *store_at(const struct part *p, const struct stores *s, int k)
{
    return s->at[k] >= 0 ? ggml_graph_node(p->graph, s->at[k]) : NULL;
}

/* Has a store run the one before it, if there is one that it may run. */
static void plan_store(const struct part *p, struct wnw__bridge_node_note *note, int i, struct stores *s)
{
    const bool joins = s->at[0] >= 0 && s->at[1] < 0 && !p->b->products.unfused;
    note->ours.with[0] = joins ? store_at(p, s, 0) : NULL;
    if (joins)
        p->step[s->at[0] - p->from].kind = WNW_BRIDGE_JOINED;
    *s = (struct stores){{joins ? s->at[0] : i, joins ? i : -1}};
}

/* Whether an attention can write what a store writes. What it reads and what it computes are at different addresses, since
 * threads do not do the one before the other. */
static bool can_store(const struct ggml_tensor *attention, const struct ggml_tensor *store)
{
    return wnw__bridge_tensor_of(store)->layer == wnw__bridge_tensor_of(attention->src[1])->layer &&
           !overlap(attention, store->src[0]) && !overlap(attention, store->src[1]);
}

/* Has an attention run the stores before it, if it can. */
static void plan_attention(const struct part *p, struct wnw__bridge_node_note *note, const struct stores *s)
{
    const struct wnw__cells_op op = wnw__bridge_attention(p->b, note->node);
    bool joins = s->at[0] >= 0 && !p->b->products.unfused && wnw__cells_is_few(&op);
    for (int k = 0; k < 2 && joins && s->at[k] >= 0; k++)
        joins = can_store(note->node, store_at(p, s, k));
    for (int k = 0; k < 2; k++) {
        note->ours.with[k] = joins ? store_at(p, s, k) : NULL;
        if (note->ours.with[k])
            p->step[s->at[k] - p->from].kind = WNW_BRIDGE_JOINED;
    }
}

/* Has the stores of a layer's keys and values run together, and with the attention, where nothing is computed between them. */
static void plan_stores(const struct part *p)
{
    struct stores before = no_stores;
    for (int i = p->from; i < p->to; i++) {
        const struct ggml_tensor *node = ggml_graph_node(p->graph, i);
        const bool computes = node->op == GGML_OP_CUSTOM && (node->flags & GGML_TENSOR_FLAG_COMPUTE);
        struct wnw__bridge_node_note *note = computes ? wnw__bridge_notes_find(&p->b->notes, node) : NULL;
        const int32_t what = note ? note->ours.what : WNW_BRIDGE_NOT_OURS;
        if (what == WNW_BRIDGE_STORE) {
            plan_store(p, note, i, &before);
            continue;
        }
        if (what == WNW_BRIDGE_ATTEND || what == WNW_BRIDGE_ATTEND_CHAIN)
            plan_attention(p, note, &before);
        if (!does_nothing(p, i))
            before = no_stores;
    }
}

/* What a plan depends on that is not in the nodes. */
static struct wnw__bridge_planned settings_of(const struct wnw__bridge_backend *b, int from, int to)
{
    return (struct wnw__bridge_planned){.from = from,
                                        .to = to,
                                        .n_threads = b->n_threads,
                                        .observed = inputs_are_observed(b),
                                        .unfused = b->products.unfused};
}

bool wnw__bridge_fuse_is_planned(const struct wnw__bridge_backend *b, int from, int to)
{
    const struct wnw__bridge_planned *was = &b->products.planned, now = settings_of(b, from, to);
    return was->valid && was->from == now.from && was->to == now.to && was->n_threads == now.n_threads &&
           was->observed == now.observed && was->unfused == now.unfused;
}

int wnw__bridge_fuse_plan(struct wnw__bridge_backend *b, struct ggml_cgraph *graph, int from, int to)
{
    struct part part = {.b = b, .graph = graph, .from = from, .to = to};
    struct wnw__bridge_planned plan = settings_of(b, from, to);
    if (wnw__bridge_fuse_is_planned(b, from, to))
        return b->products.planned.n_product + b->products.planned.n_norm;
    b->products.planned.valid = false;
    if (need_steps(&b->products, 2 * (to - from)) != WNW_OK)
        return -1;
    part.step = b->products.steps;
    b->products.n_step = to - from;
    for (int i = from; i < to; i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        const int32_t kind = note_of(b, node).kind;
        part.step[i - from].kind = WNW_BRIDGE_AS_IT_IS;
        if (kind == NORMED || kind == GATED)
            new_group(&part, node, i);
        if (b->ggml_products || !wnw__bridge_takes_product(&b->products, node))
            continue;
        if (wnw__bridge_products_reserve(&b->products, b->n_threads, node) != WNW_OK)
            return -1;
        struct wnw__bridge_group *g = group_of(&part, node->src[1]);
        g = g ? g : new_group(&part, node->src[1], -1);
        g->product[g->n++] = i;
        plan.n_product++;
    }
    for (int i = 0; i < part.n_group; i++)
        if (b->products.groups[i].n > 0)
            plan_group(&part, &b->products.groups[i]);
    plan.n_norm = plan_norms(&part);
    if (!b->drive)
        plan_stores(&part);
    plan.valid = true;
    b->products.planned = plan;
    return plan.n_product + plan.n_norm;
}
