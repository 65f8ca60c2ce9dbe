/* SPDX-License-Identifier: MIT */
/*
 * What the device of another machine computes. ggml's RPC has no question for that: its client says yes to every operation. But its
 * client asks a server how much memory a tensor takes, with all sources of the tensor. So a question is such a request. Its tensor has a
 * name that no other has, and its sources are the operation and the sources of that. A worker of winnow puts a buffer type of its own
 * before the device's, and answers with one of the numbers below. Other servers answer with a size, which is small, and so are known.
 *
 * ggml's client keeps answers. It knows questions by the parameters of the tensor, which are a hash of the question, and of the connection: the
 * next worker at an address may have another device.
 */
#include "base/random.h"
#include "bridge/wrap/wrap.h"
#include "bridge/wrap/wrap_guard.h"

#include <stdio.h>

#define NAME "winnow: does the device compute it?"

enum { NO, YES, KIND, /* and the type of the device */ N_ANSWER = 256 };

static const uint64_t FIRST_ANSWER = UINT64_C(0x77696e6e6f770000);

/* ---- Asking ---- */

static void hash_number(uint64_t *h, int64_t x)
{
    *h = wnw__hash(*h, &x, sizeof x);
}

/* A tensor's type and shape. The number of keys and of tokens of an attention grows from graph to graph, and no device refuses one of them. */
static void hash_shape(uint64_t *h, const struct ggml_tensor *t, bool is_attention)
{
    hash_number(h, t ? (int64_t)t->type : -1);
    for (int i = 0; t && i < GGML_MAX_DIMS; i++) {
        const bool grows = is_attention && i == 1;
        hash_number(h, grows ? (t->ne[i] > 1) + 2 * (t->ne[i] % 256 == 0) : t->ne[i]);
        hash_number(h, is_attention ? 0 : (int64_t)t->nb[i]);
    }
}

static uint64_t hash_of(const struct ggml_tensor *op, unsigned connection)
{
    const bool is_attention = op && op->op == GGML_OP_FLASH_ATTN_EXT;
    uint64_t h = WNW_HASH_START;
    hash_number(&h, connection);
    if (!op)
        return h;
    hash_number(&h, op->op);
    h = wnw__hash(h, op->op_params, sizeof op->op_params);
    if (!is_attention)
        hash_shape(&h, op, false);
    for (int i = 0; i < GGML_MAX_SRC; i++)
        hash_shape(&h, op->src[i], is_attention);
    return h;
}

/* A tensor without memory, since a question is of none. */
static void describe(struct ggml_tensor *out, const struct ggml_tensor *t)
{
    *out = (struct ggml_tensor){.type = t->type, .op = t->op, .flags = t->flags};
    memcpy(out->ne, t->ne, sizeof out->ne);
    memcpy(out->nb, t->nb, sizeof out->nb);
    memcpy(out->op_params, t->op_params, sizeof out->op_params);
}

/* The answer of the server, or N_ANSWER: it does not know the question. op NULL: what its device is. ggml's client asks for the sizes of
 * quantised tensors alone. */
static uint64_t ask(const struct wnw__wrap *w, const struct ggml_tensor *op)
{
    const unsigned connection = w->guard ? wnw__guard_connection(w->guard) : 0;
    const uint64_t hash = hash_of(op, connection);
    const size_t row = ggml_row_size(GGML_TYPE_Q8_0, 32);
    struct ggml_tensor asked = {.type = GGML_TYPE_Q8_0,
                                .ne = {32, 1, 1, 1},
                                .nb = {ggml_type_size(GGML_TYPE_Q8_0), row, row, row}},
                       parts[GGML_MAX_SRC];
    snprintf(asked.name, sizeof asked.name, "%s", NAME);
    memcpy(asked.op_params, &hash, sizeof hash);
    for (int i = 0; op && i < GGML_MAX_SRC; i++) {
        const struct ggml_tensor *t = i == 0 ? op : op->src[i - 1];
        if (!t)
            continue;
        describe(&parts[i], t);
        asked.src[i] = &parts[i];
    }
    const uint64_t answer = ggml_backend_buft_get_alloc_size(w->xt, &asked);
    return answer - FIRST_ANSWER < N_ANSWER ? answer - FIRST_ANSWER : N_ANSWER;
}

bool wnw__wrap_supports(const struct wnw__wrap *w, const struct ggml_tensor *op)
{
    if (!ggml_backend_dev_supports_op(w->x, op))
        return false;
    const bool fits = !op->src[GGML_MAX_SRC - 1];
    return !w->remote || !fits || ask(w, NULL) == N_ANSWER || ask(w, op) != NO;
}

bool wnw__wrap_is_gpu(const struct wnw__wrap *w)
{
    enum { CPU_ALIGNMENT = 64 };
    const uint64_t kind = w->remote ? ask(w, NULL) : KIND + (uint64_t)ggml_backend_dev_type(w->x);
    if (kind == N_ANSWER)
        return ggml_backend_buft_get_alignment(w->xt) > CPU_ALIGNMENT;
    return kind != KIND + GGML_BACKEND_DEVICE_TYPE_CPU;
}

/* ---- Answering ---- */

static struct wnw__wrap_served *served_of(ggml_backend_buffer_type_t type)
{
    return (struct wnw__wrap_served *)((char *)type - offsetof(struct wnw__wrap_served, type));
}

static uint64_t answer(const struct wnw__wrap_served *s, const struct ggml_tensor *asked)
{
    struct ggml_tensor *op = asked->src[0];
    if (!op)
        return KIND + (uint64_t)(s->x == &wnw__bridge_device ? GGML_BACKEND_DEVICE_TYPE_CPU
                                                             : ggml_backend_dev_type(s->x));
    for (int i = 1; i < GGML_MAX_SRC; i++)
        op->src[i - 1] = asked->src[i];
    return ggml_backend_dev_supports_op(s->x, op) ? YES : NO;
}

static size_t get_alloc_size(ggml_backend_buffer_type_t type, const struct ggml_tensor *t)
{
    const struct wnw__wrap_served *s = served_of(type);
    return strcmp(t->name, NAME) == 0 ? FIRST_ANSWER + answer(s, t)
                                      : ggml_backend_buft_get_alloc_size(s->xt, t);
}

static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size)
{
    return ggml_backend_buft_alloc_buffer(served_of(type)->xt, size);
}

static size_t get_alignment(ggml_backend_buffer_type_t type)
{
    return ggml_backend_buft_get_alignment(served_of(type)->xt);
}

static size_t get_max_size(ggml_backend_buffer_type_t type)
{
    return ggml_backend_buft_get_max_size(served_of(type)->xt);
}

static ggml_backend_buffer_type_t get_buffer_type(ggml_backend_dev_t dev)
{
    return &((struct wnw__wrap_served *)dev)->type;
}

/* ggml's server asks a backend's device for its memory. */
static ggml_backend_t init_backend(ggml_backend_dev_t dev, const char *params)
{
    ggml_backend_t backend = ggml_backend_dev_init(((struct wnw__wrap_served *)dev)->x, params);
    if (backend)
        backend->device = dev;
    return backend;
}

void wnw__wrap_served_init(struct wnw__wrap_served *s, ggml_backend_dev_t x)
{
    *s = (struct wnw__wrap_served){.dev = *x, .x = x, .xt = ggml_backend_dev_buffer_type(x)};
    s->dev.iface.get_buffer_type = get_buffer_type;
    s->dev.iface.init_backend = init_backend;
    s->type = *s->xt;
    s->type.iface.alloc_buffer = alloc_buffer;
    s->type.iface.get_alignment = get_alignment;
    s->type.iface.get_max_size = get_max_size;
    s->type.iface.get_alloc_size = get_alloc_size;
}
