/* SPDX-License-Identifier: MIT */
#include "bridge/graph/graph.h"

/* Operations that make a key of a key, the first source. */
static bool turns_keys(const struct ggml_tensor *t)
{
    static const char *const ops[] = {"RESHAPE", "VIEW", "PERMUTE",  "TRANSPOSE", "CONT",  "ROPE", "NORM",
                                      "MUL",     "ADD",  "RMS_NORM", "L2_NORM",   "SCALE", "CLAMP"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (wnw__bridge_is_op(t, ops[i]))
            return true;
    return false;
}

static bool is_input(const struct ggml_tensor *t)
{
    return wnw__bridge_is_op(t, "NONE") && (t->flags & GGML_TENSOR_FLAG_INPUT);
}

/* A weight, or what it is a part of. */
static bool is_weight(const struct ggml_tensor *t)
{
    return t && (wnw__bridge_is_op(t, "NONE") || wnw__bridge_is_op(t, "VIEW")) && !is_input(t) &&
           t->ne[2] == 1 && t->ne[3] == 1;
}

/* Whether rows are those of the tokens that the store writes. */
static bool is_rows(const struct ggml_tensor *x, const struct ggml_tensor *store)
{
    return x->type == GGML_TYPE_F32 && ggml_is_contiguous(x) && x->ne[1] == wnw__bridge_store_rows(store) &&
           x->ne[2] == 1 && x->ne[3] == 1;
}

const struct ggml_tensor *wnw__bridge_keys_product(const struct ggml_tensor *store)
{
    const struct ggml_tensor *t = store->src[0];
    for (bool found = false; t && !found;) {
        if (turns_keys(t)) {
            t = t->src[0];
        } else if (!wnw__bridge_is_op(t, "MUL_MAT")) {
            return NULL;
        } else if (is_input(t->src[0])) {
            t = t->src[1]; /* blocks of keys that libllama turns before it quantises them */
        } else {
            found = true;
        }
    }
    return t && is_weight(t->src[0]) && is_rows(t->src[1], store) ? t : NULL;
}
