/* SPDX-License-Identifier: MIT */
/*
 * Where this process's ggml keeps what the backend reads of it without a function (docs/internals/upstream.md). Nodes are made by
 * ggml's own functions, with parameters that differ from each other, and are read as the backend reads them. A patched ggml of
 * the same version, which the version gate lets through, fails here and not by wrong numbers.
 */
#include "bridge/cells/cells.h"

#include <stdlib.h>

static int differs(const char *what)
{
    return wnw__fail(WNW_E_BACKEND,
                     "the backend does not fit this ggml %s: %s is not where it was built for; build it with "
                     "the headers of this ggml (docs/internals/upstream.md)",
                     ggml_version(), what);
}

/* ---- Numbers that the compiler took from ggml's headers, with their names in this process ---- */

static int check_numbers(void)
{
    const struct {
        const char *is, *name;
    } numbers[] = {
        {ggml_op_name(GGML_OP_NONE), "NONE"},
        {ggml_op_name(GGML_OP_VIEW), "VIEW"},
        {ggml_op_name(GGML_OP_RESHAPE), "RESHAPE"},
        {ggml_op_name(GGML_OP_PERMUTE), "PERMUTE"},
        {ggml_op_name(GGML_OP_TRANSPOSE), "TRANSPOSE"},
        {ggml_op_name(GGML_OP_MUL_MAT), "MUL_MAT"},
        {ggml_op_name(GGML_OP_MUL_MAT_ID), "MUL_MAT_ID"},
        {ggml_op_name(GGML_OP_MUL), "MUL"},
        {ggml_op_name(GGML_OP_RMS_NORM), "RMS_NORM"},
        {ggml_op_name(GGML_OP_GLU), "GLU"},
        {ggml_op_name(GGML_OP_ROPE), "ROPE"},
        {ggml_op_name(GGML_OP_SET_ROWS), "SET_ROWS"},
        {ggml_op_name(GGML_OP_FLASH_ATTN_EXT), "FLASH_ATTN_EXT"},
        {ggml_op_name(GGML_OP_CUSTOM), "CUSTOM"},
        {ggml_glu_op_name(GGML_GLU_OP_SWIGLU), "SWIGLU"},
        {ggml_type_name(GGML_TYPE_F32), "f32"},
        {ggml_type_name(GGML_TYPE_F16), "f16"},
        {ggml_type_name(GGML_TYPE_BF16), "bf16"},
        {ggml_type_name(GGML_TYPE_I32), "i32"},
        {ggml_type_name(GGML_TYPE_I64), "i64"},
        {ggml_type_name(GGML_TYPE_Q8_0), "q8_0"},
        {ggml_type_name(GGML_TYPE_Q4_0), "q4_0"},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].is, numbers[i].name) != 0)
            return differs(numbers[i].name);
    return WNW_OK;
}

/* ---- Fields and parameters of nodes ---- */

enum { D = 64, N_CELL = 32, N_HEAD = 2, N_ROW = 3 };

static bool is_word(const struct ggml_tensor *t, enum wnw__bridge_word word, float x)
{
    return wnw__bridge_param(t, (int)word) == x;
}

static int check_fields(struct ggml_context *ctx)
{
    struct ggml_tensor *a = ggml_new_tensor_3d(ctx, GGML_TYPE_F16, D, N_HEAD, N_ROW);
    struct ggml_tensor *view = ggml_view_1d(ctx, a, D, D * sizeof(uint16_t));
    ggml_set_output(a);
    if (ggml_get_name(a) != a->name || ggml_get_data(a) != a->data)
        return differs("the name of struct ggml_tensor");
    if (a->type != GGML_TYPE_F16 || a->ne[0] != D || a->ne[2] != N_ROW || a->ne[3] != 1 ||
        a->nb[1] != D * sizeof(uint16_t) || !(a->flags & GGML_TENSOR_FLAG_OUTPUT) || a->view_src)
        return differs("the shape of struct ggml_tensor");
    if (view->op != GGML_OP_VIEW || view->src[0] != a || view->view_src != a ||
        view->view_offs != D * sizeof(uint16_t))
        return differs("the source of struct ggml_tensor");
    return WNW_OK;
}

static int check_rope(struct ggml_context *ctx, struct ggml_tensor *a)
{
    struct ggml_tensor *pos = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, N_ROW);
    const struct ggml_tensor *t = ggml_rope_ext(ctx, a, pos, NULL, D / 2, GGML_ROPE_TYPE_NEOX, 4321, 9876.0f,
                                                0.5f, 0.25f, 1.5f, 7.0f, 3.0f);
    if (t->op_params[WNW_ROPE_N_ROT] != D / 2 || t->op_params[WNW_ROPE_MODE] != GGML_ROPE_TYPE_NEOX ||
        t->op_params[WNW_ROPE_N_CTX] != 4321 || !is_word(t, WNW_ROPE_BASE, 9876.0f) ||
        !is_word(t, WNW_ROPE_FREQ_SCALE, 0.5f) || !is_word(t, WNW_ROPE_MIX, 0.25f) ||
        !is_word(t, WNW_ROPE_FACTOR, 1.5f) || t->src[0] != a || t->src[1] != pos ||
        !wnw__bridge_has_known_words(t))
        return differs("a parameter of ROPE");
    return WNW_OK;
}

static int check_attention(struct ggml_context *ctx)
{
    struct ggml_tensor *q = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, D, N_ROW, N_HEAD);
    struct ggml_tensor *k = ggml_new_tensor_3d(ctx, GGML_TYPE_F16, D, N_CELL, N_HEAD);
    struct ggml_tensor *v = ggml_new_tensor_3d(ctx, GGML_TYPE_F16, D, N_CELL, N_HEAD);
    struct ggml_tensor *mask = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, N_CELL, 64);
    const struct ggml_tensor *t = ggml_flash_attn_ext(ctx, q, k, v, mask, 0.25f, 4.0f, 50.0f);
    if (!is_word(t, WNW_FLASH_SCALE, 0.25f) || !is_word(t, WNW_FLASH_MAX_BIAS, 4.0f) ||
        !is_word(t, WNW_FLASH_CAP, 50.0f) || t->src[0] != q || t->src[1] != k || t->src[2] != v ||
        t->src[3] != mask || !wnw__bridge_has_known_words(t))
        return differs("a parameter of FLASH_ATTN_EXT");
    return WNW_OK;
}

static int check_chain(struct ggml_context *ctx, struct ggml_tensor *a)
{
    struct ggml_tensor *mask = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, D, 64, 1);
    struct ggml_tensor *b = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, D, N_HEAD, N_ROW);
    const struct ggml_tensor *t = ggml_soft_max_ext(ctx, a, mask, 0.25f, 4.0f);
    if (!is_word(t, WNW_SOFT_MAX_SCALE, 0.25f) || !is_word(t, WNW_SOFT_MAX_MAX_BIAS, 4.0f) ||
        t->src[0] != a || t->src[1] != mask || !wnw__bridge_has_known_words(t))
        return differs("a parameter of SOFT_MAX");
    t = ggml_scale_bias(ctx, a, 0.25f, 3.0f);
    if (!is_word(t, WNW_SCALE_FACTOR, 0.25f) || !is_word(t, WNW_SCALE_ADDEND, 3.0f) ||
        !wnw__bridge_has_known_words(t))
        return differs("a parameter of SCALE");
    t = ggml_rms_norm(ctx, a, 0.125f);
    if (!is_word(t, WNW_NORM_EPS, 0.125f) || !wnw__bridge_has_known_words(t))
        return differs("a parameter of RMS_NORM");
    t = ggml_glu(ctx, a, GGML_GLU_OP_SWIGLU, true);
    if (ggml_get_glu_op(t) != GGML_GLU_OP_SWIGLU || t->op_params[WNW_GLU_SWAPPED] != 1)
        return differs("a parameter of GLU");
    t = ggml_swiglu_split(ctx, a, b);
    if (t->op_params[WNW_GLU_SWAPPED] != 0 || t->src[0] != a || t->src[1] != b ||
        !wnw__bridge_has_known_words(t))
        return differs("a source of GLU");
    return WNW_OK;
}

static void run_nothing(struct ggml_tensor *node, int ith, int nth, void *user)
{
    (void)node;
    (void)ith;
    (void)nth;
    (void)user;
}

static int check_custom(struct ggml_context *ctx)
{
    const struct ggml_tensor *t =
        ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, NULL, 0, run_nothing, GGML_N_TASKS_MAX, NULL);
    return wnw__bridge_custom_function(t) == run_nothing ? WNW_OK : differs("the function of CUSTOM");
}

static int check_nodes(struct ggml_context *ctx)
{
    WNW_TRY(check_fields(ctx));
    struct ggml_tensor *a = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, D, N_HEAD, N_ROW);
    WNW_TRY(check_rope(ctx, a));
    WNW_TRY(check_attention(ctx));
    WNW_TRY(check_chain(ctx, a));
    return check_custom(ctx);
}

int wnw__bridge_contacts_check(void)
{
    ggml_backend_dev_t cpu = wnw__bridge_cpu(); /* not yet there where ggml loads its backends one by one */
    WNW_TRY(check_numbers());
    if (cpu && ggml_backend_dev_backend_reg(cpu) != cpu->reg)
        return differs("the registry of struct ggml_backend_device");
    struct ggml_context *ctx =
        ggml_init((struct ggml_init_params){.mem_size = 64 * ggml_tensor_overhead(), .no_alloc = true});
    if (!ctx)
        return wnw__fail(WNW_E_NOMEM, "no memory to look at nodes of ggml");
    const int rc = check_nodes(ctx);
    ggml_free(ctx);
    return rc;
}

/* ---- Words that are known ---- */

bool wnw__bridge_has_known_words(const struct ggml_tensor *node)
{
    enum { PRECISION = 1 << 3, N_KV_MAX = 1 << 4, TO_SECTIONS = (1 << 15) - 1 };
    static const struct {
        const char *op;
        unsigned words; /* bits */
    } known[] = {
        {"ROPE", TO_SECTIONS},
        {"FLASH_ATTN_EXT",
         1 << WNW_FLASH_SCALE | 1 << WNW_FLASH_MAX_BIAS | 1 << WNW_FLASH_CAP | PRECISION | N_KV_MAX},
        {"SOFT_MAX", 1 << WNW_SOFT_MAX_SCALE | 1 << WNW_SOFT_MAX_MAX_BIAS},
        {"SCALE", 1 << WNW_SCALE_FACTOR | 1 << WNW_SCALE_ADDEND},
        {"RMS_NORM", 1 << WNW_NORM_EPS},
        {"MUL", 0},
        {"GLU", 1 << 0 | 1 << WNW_GLU_SWAPPED},
    };
    unsigned words = ~0u;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (wnw__bridge_is_op(node, known[i].op))
            words = known[i].words;
    for (unsigned i = 0; i < sizeof node->op_params / sizeof *node->op_params; i++)
        if (node->op_params[i] != 0 && !(words >> i & 1))
            return false;
    return true;
}

/* ---- What nodes are ---- */

ggml_custom_op_t wnw__bridge_custom_function(const struct ggml_tensor *node)
{
    ggml_custom_op_t fun;
    memcpy(&fun, node->op_params, sizeof fun);
    return fun;
}
