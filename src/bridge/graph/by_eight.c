/* SPDX-License-Identifier: MIT */
/*
 * Weights that ggml keeps in a layout of its own for single tokens have no other copy in libllama's memory. Where the layout
 * is the one that winnow's kernels know, they multiply such weights with many tokens. Whether it is shows when ggml brings
 * rows into it.
 */
#include "base/memory.h"
#include "bridge/graph/graph.h"
#include "kernel/matmul.h"
#include "model/model_repack.h"

#include <stdlib.h>
#include <string.h>

/* Whether eight rows in such a buffer, w, are again what they were. */
static bool come_back(struct ggml_tensor *w)
{
    uint8_t rows[WNW_EIGHT][WNW_EIGHT_UNIT], back[WNW_EIGHT][WNW_EIGHT_UNIT];
    for (int i = 0; i < WNW_EIGHT * WNW_EIGHT_UNIT; i++)
        rows[i / WNW_EIGHT_UNIT][i % WNW_EIGHT_UNIT] = (uint8_t)(i * 181 + i / 7 * 59);
    ggml_backend_tensor_set(w, rows, 0, sizeof rows);
    wnw__rows_of_eight(w->data, back);
    return memcmp(rows, back, sizeof rows) == 0;
}

static bool is_by_eight(ggml_backend_buffer_type_t buft, uint8_t *arena)
{
    const size_t size = wnw__repack_arena(1);
    struct ggml_context *ctx =
        ggml_init((struct ggml_init_params){.mem_size = size, .mem_buffer = arena, .no_alloc = true});
    if (!ctx)
        return false;
    struct ggml_tensor *w = ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_K, WNW_CHUNK, WNW_EIGHT);
    ggml_backend_buffer_t buffer = wnw__repack_takes(wnw__bridge_cpu(), buft, w, arena + size)
                                       ? ggml_backend_alloc_ctx_tensors_from_buft(ctx, buft)
                                       : NULL;
    const bool yes = buffer && ggml_nbytes(w) == WNW_EIGHT * WNW_EIGHT_UNIT && come_back(w);
    if (buffer)
        ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    return yes;
}

ggml_backend_buffer_type_t wnw__bridge_by_eight(void)
{
    ggml_backend_buffer_type_t *layouts = wnw__repack_layouts(wnw__bridge_cpu()), found = NULL;
    uint8_t *arena = malloc(wnw__repack_arena(1) + wnw__repack_arena(0));
    for (size_t i = 0; arena && layouts && layouts[i] && !found; i++)
        if (wnw__memory_check(WNW_MEMORY_SMALL, "weights of ggml") == WNW_OK &&
            is_by_eight(layouts[i], arena))
            found = layouts[i];
    free(arena);
    return found;
}
