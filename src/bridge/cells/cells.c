/* SPDX-License-Identifier: MIT */
/* Which cells of a layer a store of libllama's writes. */
#include "bridge/cells/cells.h"

static int64_t index_at(const struct ggml_tensor *index, int64_t i)
{
    return index->type == GGML_TYPE_I64 ? ((const int64_t *)index->data)[i]
                                        : ((const int32_t *)index->data)[i];
}

int64_t wnw__bridge_store_rows(const struct ggml_tensor *node)
{
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
    return ggml_nelements(node->src[0]) / t->n_embd;
}

int64_t wnw__bridge_store_cell(const struct ggml_tensor *node, int64_t i)
{
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
    if (!(t->is_v && t->layer->transposed))
        return index_at(node->src[1], i);
    const int64_t at = index_at(node->src[1], i * t->n_embd), stream = at / ((int64_t)t->n_cell * t->n_embd);
    return stream * t->n_cell + at % t->n_cell;
}
