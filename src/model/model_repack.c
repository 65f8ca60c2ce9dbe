/* SPDX-License-Identifier: MIT */
/*
 * Repacked weights: for some quantisation types ggml's CPU backend has an interleaved layout that its blocked
 * matrix products want (about 1.3x in prefill). The copy lives in anonymous memory, so the pages of the
 * mapping that it was made from are given back.
 */
#include "model/model_repack.h"
#include "base/memory.h"
#include "model/model.h"
#include "model/model_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

size_t wnw__repack_arena(size_t n_tensor)
{
    return (n_tensor + 4) * ggml_tensor_overhead();
}

ggml_backend_buffer_type_t *wnw__repack_layouts(ggml_backend_dev_t cpu)
{
    void *address = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu),
                                                      "ggml_backend_dev_get_extra_bufts");
    ggml_backend_dev_get_extra_bufts_t get = NULL;
    memcpy(&get, &address, sizeof get); /* ISO C has no cast from an object to a function pointer */
    return get ? get(cpu) : NULL;
}

bool wnw__repack_takes(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft, struct ggml_tensor *w,
                       void *arena)
{
    struct ggml_context *ctx = ggml_init(
        (struct ggml_init_params){.mem_size = wnw__repack_arena(0), .mem_buffer = arena, .no_alloc = true});
    if (!ctx)
        return false;
    /* The device can only be asked about an operation whose weight already lies in such a buffer. */
    ggml_backend_buffer_t empty = ggml_backend_buft_alloc_buffer(buft, 0);
    ggml_backend_buffer_t was = w->buffer;
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, w->ne[0], 512);
    struct ggml_tensor *op = ggml_mul_mat(ctx, w, x);
    w->buffer = empty;
    const bool yes = empty && ggml_backend_dev_supports_op(dev, op);
    w->buffer = was;
    if (empty)
        ggml_backend_buffer_free(empty);
    ggml_free(ctx);
    return yes;
}

/* Lists all pointers in the model to matrices used in products; returns their number. */
static size_t list_matrices(struct wnw_model *m, struct ggml_tensor ***slots)
{
    size_t n = 0;
    slots[n++] = &m->w.output;
    for (int32_t il = 0; il < m->hp.n_layer; il++) {
        struct wnw__layer_weights *l = &m->layers[il];
        struct ggml_tensor **all[] = {&l->wq, &l->wk, &l->wv, &l->wo, &l->ffn_gate, &l->ffn_up, &l->ffn_down};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            slots[n++] = all[i];
    }
    return n;
}

static void drop_pages(void *p, size_t n)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = ((uintptr_t)p + page - 1) / page * page, to = ((uintptr_t)p + n) / page * page;
    if (to > from)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

static int repack_into(struct wnw_model *m, ggml_backend_buffer_type_t buft, struct ggml_tensor ***slots,
                       size_t n)
{
    struct ggml_tensor **from = calloc(n, sizeof *from);
    m->repacked = ggml_init((struct ggml_init_params){
        .mem_size = wnw__repack_arena(n), .mem_buffer = m->repacked_arena, .no_alloc = true});
    if (!from || !m->repacked) {
        free(from);
        return wnw__fail(WNW_E_NOMEM, "no memory for repacked weights");
    }
    for (size_t i = 0; i < n; i++) {
        from[i] = *slots[i];
        *slots[i] = ggml_dup_tensor(m->repacked, from[i]);
        ggml_set_name(*slots[i], from[i]->name);
    }
    int rc = WNW_OK;
    m->repacked_buffer = ggml_backend_alloc_ctx_tensors_from_buft(m->repacked, buft);
    if (!m->repacked_buffer)
        rc = wnw__fail(WNW_E_NOMEM, "no memory for repacked weights");
    for (size_t i = 0; rc == WNW_OK && i < n; i++) {
        const size_t size = ggml_nbytes(from[i]);
        ggml_backend_tensor_set(*slots[i], from[i]->data, 0, size);
        m->repacked_bytes += size;
        if (from[i] != m->w.tok_embd)
            drop_pages(from[i]->data, size);
    }
    free(from);
    return rc;
}

int wnw__repack(struct wnw_model *m)
{
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_buffer_type_t *bufts = wnw__repack_layouts(cpu);
    if (!bufts || !bufts[0])
        return WNW_OK;

    const size_t most = (size_t)m->hp.n_layer * 7 + 1;
    struct ggml_tensor ***slots = calloc(most, sizeof *slots);
    m->repacked_arena = malloc(wnw__repack_arena(most));
    if (!slots || !m->repacked_arena || wnw__memory_check(WNW_MEMORY_SMALL, "repacked weights") != WNW_OK) {
        free(slots);
        return wnw__fail(WNW_E_NOMEM, "no memory for repacked weights");
    }
    const size_t n = list_matrices(m, slots);
    int rc = WNW_OK;
    /* The first buffer type that takes any weight is used: ggml lists the best type first, and today CPUs
     * have only one. */
    for (size_t b = 0; bufts[b] && !m->repacked && rc == WNW_OK; b++) {
        size_t n_taken = 0;
        for (size_t i = 0; i < n; i++) {
            if (wnw__repack_takes(cpu, bufts[b], *slots[i], m->repacked_arena))
                slots[n_taken++] = slots[i];
        }
        if (n_taken > 0)
            rc = repack_into(m, bufts[b], slots, n_taken);
    }
    free(slots);
    return rc;
}
