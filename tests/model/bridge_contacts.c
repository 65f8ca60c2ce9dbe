/* SPDX-License-Identifier: MIT */
/*
 * A ggml that is not the one that the backend was built for: another version, operations with other numbers, parameters and
 * fields at other places. Functions of ggml are replaced by ones that do what a patched copy would do. Each is refused with one
 * sentence when the backend is registered, and a graph with a parameter that is not known leaves its layer to libllama.
 */
#include "files.h"
#include "helpers.h"
#include "llamas.h"
#include "peek_bridge.h"
#include "winnow_bridge.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- A patched ggml ---- */

static enum patch {
    AS_IT_IS,
    VERSION,
    COMMIT,
    NEW_OP,
    NEW_TYPE,
    NEW_GLU,
    NAME,
    ROPE,
    FLASH,
    SOFT_MAX,
    SCALE,
    NORM,
    GLU,
    CUSTOM,
    VIEW,
    MORE_WORDS,
    CACHE_NAMES
} patch;

static struct ggml_tensor patched; /* a copy of a node, with fields at other places */

/* Moves words from `at` on by one, as a new parameter before them does. */
static struct ggml_tensor *moved(struct ggml_tensor *t, enum patch which, int at)
{
    if (patch == which) {
        memmove(t->op_params + at + 1, t->op_params + at,
                sizeof t->op_params - (size_t)(at + 1) * sizeof *t->op_params);
        t->op_params[at] = 0;
    }
    return t;
}

#define REPLACE(type, name, parameters) \
    type __real_##name parameters;      \
    type __wrap_##name parameters;      \
    type __wrap_##name parameters

REPLACE(const char *, ggml_version, (void))
{
    return patch == VERSION ? "0.99.9" : __real_ggml_version();
}

REPLACE(const char *, ggml_commit, (void))
{
    return patch == COMMIT ? "another" : __real_ggml_commit();
}

/* An operation was put in front of MUL_MAT. */
REPLACE(const char *, ggml_op_name, (enum ggml_op op))
{
    return __real_ggml_op_name(patch == NEW_OP && op >= GGML_OP_MUL_MAT ? op - 1 : op);
}

REPLACE(const char *, ggml_type_name, (enum ggml_type type))
{
    return __real_ggml_type_name(patch == NEW_TYPE && type == GGML_TYPE_Q8_0 ? GGML_TYPE_Q8_1 : type);
}

REPLACE(const char *, ggml_glu_op_name, (enum ggml_glu_op op))
{
    return __real_ggml_glu_op_name(patch == NEW_GLU ? op + 1 : op);
}

REPLACE(const char *, ggml_get_name, (const struct ggml_tensor *t))
{
    return patch == NAME ? __real_ggml_get_name(t) + sizeof(void *) : __real_ggml_get_name(t);
}

REPLACE(struct ggml_tensor *, ggml_rope_ext,
        (struct ggml_context * ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c,
         int n_dims, int mode, int n_ctx, float base, float scale, float ext, float attn, float fast,
         float slow))
{
    return moved(__real_ggml_rope_ext(ctx, a, b, c, n_dims, mode, n_ctx, base, scale, ext, attn, fast, slow),
                 ROPE, 5);
}

REPLACE(struct ggml_tensor *, ggml_flash_attn_ext,
        (struct ggml_context * ctx, struct ggml_tensor *q, struct ggml_tensor *k, struct ggml_tensor *v,
         struct ggml_tensor *mask, float scale, float max_bias, float cap))
{
    struct ggml_tensor *t = __real_ggml_flash_attn_ext(ctx, q, k, v, mask, scale, max_bias, cap);
    if (patch == MORE_WORDS)
        t->op_params[9] = 1;
    return moved(t, FLASH, 1);
}

REPLACE(struct ggml_tensor *, ggml_soft_max_ext,
        (struct ggml_context * ctx, struct ggml_tensor *a, struct ggml_tensor *mask, float scale,
         float max_bias))
{
    return moved(__real_ggml_soft_max_ext(ctx, a, mask, scale, max_bias), SOFT_MAX, 0);
}

REPLACE(struct ggml_tensor *, ggml_scale_bias,
        (struct ggml_context * ctx, struct ggml_tensor *a, float s, float b))
{
    return moved(__real_ggml_scale_bias(ctx, a, s, b), SCALE, 0);
}

REPLACE(struct ggml_tensor *, ggml_rms_norm, (struct ggml_context * ctx, struct ggml_tensor *a, float eps))
{
    return moved(__real_ggml_rms_norm(ctx, a, eps), NORM, 0);
}

REPLACE(struct ggml_tensor *, ggml_glu,
        (struct ggml_context * ctx, struct ggml_tensor *a, enum ggml_glu_op op, bool swapped))
{
    return moved(__real_ggml_glu(ctx, a, op, swapped), GLU, 1);
}

REPLACE(struct ggml_tensor *, ggml_custom_4d,
        (struct ggml_context * ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3,
         struct ggml_tensor **args, int n_args, ggml_custom_op_t fun, int n_tasks, void *user))
{
    return moved(__real_ggml_custom_4d(ctx, type, ne0, ne1, ne2, ne3, args, n_args, fun, n_tasks, user),
                 CUSTOM, 0);
}

REPLACE(struct ggml_tensor *, ggml_view_1d,
        (struct ggml_context * ctx, struct ggml_tensor *a, int64_t n, size_t offset))
{
    struct ggml_tensor *t = __real_ggml_view_1d(ctx, a, n, offset);
    if (patch == VIEW) {
        patched = *t;
        patched.view_src = NULL;
        return &patched;
    }
    return t;
}

/* In front of libggml's: libllama gives its caches their names by it. */
struct ggml_tensor *ggml_format_name(struct ggml_tensor *t, const char *format, ...)
{
    char name[GGML_MAX_NAME + 8];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (patch == CACHE_NAMES && strncmp(name, "cache_", 6) == 0)
        memcpy(name, "store_", 6);
    return ggml_set_name(t, name);
}

/* ---- Registering ---- */

static void check_refused(enum patch which, const char *what)
{
    patch = which;
    const int rc = wnw_bridge_register();
    patch = AS_IT_IS;
    assert_int_equal(rc, WNW_E_BACKEND);
    assert_non_null(strstr(wnw_last_error(), what));
}

static void test_gate(void **state)
{
    (void)state;
    check_refused(VERSION, "this program has ggml 0.99.9");
    check_refused(COMMIT, " another: build it for that");
    check_refused(NEW_OP, "VIEW is not where");
    check_refused(NEW_TYPE, "q8_0 is not where");
    check_refused(NEW_GLU, "SWIGLU is not where");
    check_refused(NAME, "the name of struct ggml_tensor");
    check_refused(VIEW, "the source of struct ggml_tensor");
    check_refused(ROPE, "a parameter of ROPE");
    check_refused(FLASH, "a parameter of FLASH_ATTN_EXT");
    check_refused(MORE_WORDS, "a parameter of FLASH_ATTN_EXT");
    check_refused(SOFT_MAX, "a parameter of SOFT_MAX");
    check_refused(SCALE, "a parameter of SCALE");
    check_refused(NORM, "a parameter of RMS_NORM");
    check_refused(GLU, "a parameter of GLU");
    check_refused(CUSTOM, "the function of CUSTOM");
    assert_ok(wnw_bridge_register());
}

/* ---- Parameters that are not known ---- */

/* A rotation that begins inside of a head has a parameter which an earlier ggml did not have. */
static void test_words(void **state)
{
    struct ggml_context *ctx =
        ggml_init((struct ggml_init_params){.mem_size = 16 * ggml_tensor_overhead(), .no_alloc = true});
    (void)state;
    assert_non_null(ctx);
    struct ggml_tensor *a = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 64, 2, 3);
    struct ggml_tensor *pos = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 3);
    struct ggml_tensor *rope =
        ggml_rope_ext(ctx, a, pos, NULL, 32, GGML_ROPE_TYPE_NEOX, 4096, 1e4f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
    assert_true(wnw__bridge_has_known_words(rope));
    assert_true(wnw__bridge_is_plain_rope(rope));
    ggml_rope_set_offset(rope, 32);
    assert_false(wnw__bridge_has_known_words(rope));
    assert_false(wnw__bridge_is_plain_rope(rope));
    struct ggml_tensor *norm = ggml_rms_norm(ctx, a, 1e-5f);
    assert_true(wnw__bridge_has_known_words(norm));
    norm->op_params[15] = 1;
    assert_false(wnw__bridge_has_known_words(norm));
    struct ggml_tensor *sum = ggml_add(ctx, a, a); /* nothing is read of it */
    sum->op_params[15] = 1;
    assert_true(wnw__bridge_has_known_words(sum));
    ggml_free(ctx);
}

/* ---- Notes ---- */

static void test_notes(void **state)
{
    enum { N = 1000 };
    static struct ggml_tensor nodes[N];
    struct wnw__bridge_node_notes notes = {0};
    (void)state;
    assert_null(wnw__bridge_notes_find(&notes, &nodes[0]));
    for (int32_t i = 0; i < N; i++) {
        struct wnw__bridge_node_note *note = wnw__bridge_notes_add(&notes, &nodes[i]);
        assert_non_null(note);
        assert_ptr_equal(wnw__bridge_notes_add(&notes, &nodes[i]), note);
        note->n_reader = i;
    }
    assert_int_equal(notes.n, N);
    for (int32_t i = 0; i < N; i++)
        assert_int_equal(wnw__bridge_notes_find(&notes, &nodes[i])->n_reader, i);
    assert_null(wnw__bridge_notes_find(&notes, nodes + N));
    wnw__bridge_notes_free(&notes);
    assert_null(wnw__bridge_notes_find(&notes, &nodes[0]));
}

/* ---- Notes of an earlier graph ---- */

enum { D_X = 256, N_WEIGHT = 3, GRAPH_BYTES = 1 << 20 };

static void keep(void *user, struct ggml_tensor *tensor, struct ggml_tensor *until)
{
    (void)tensor;
    (void)until;
    ++*(int *)user;
}

/* Two weights and the gain of a norm. */
static ggml_backend_buffer_t make_weights(struct ggml_context *ctx, struct ggml_tensor *w[N_WEIGHT])
{
    for (int i = 0; i < 2; i++)
        w[i] = ggml_new_tensor_2d(ctx, GGML_TYPE_Q8_0, D_X, D_X);
    w[2] = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, D_X);
    ggml_backend_buffer_t buffer =
        ggml_backend_alloc_ctx_tensors_from_buft(ctx, ggml_backend_cpu_buffer_type());
    assert_non_null(buffer);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    return buffer;
}

/* A norm that two products read, at the same addresses each time; another_reader: and one more node. */
static struct ggml_cgraph *make_graph(struct ggml_context **ctx, void *memory,
                                      struct ggml_tensor *w[N_WEIGHT], bool another_reader)
{
    *ctx = ggml_init((struct ggml_init_params){.mem_size = GRAPH_BYTES, .mem_buffer = memory});
    assert_non_null(*ctx);
    struct ggml_tensor *x = ggml_new_tensor_2d(*ctx, GGML_TYPE_F32, D_X, 2);
    struct ggml_tensor *normed = ggml_mul(*ctx, ggml_rms_norm(*ctx, x, 1e-5f), w[2]);
    struct ggml_tensor *sum =
        ggml_add(*ctx, ggml_mul_mat(*ctx, w[0], normed), ggml_mul_mat(*ctx, w[1], normed));
    if (another_reader)
        sum = ggml_add(*ctx, sum, ggml_scale(*ctx, normed, 2.0f));
    struct ggml_cgraph *graph = ggml_new_graph(*ctx);
    ggml_build_forward_expand(graph, sum);
    return graph;
}

/* Nodes that are left out of the graph when it runs. Where the products do not compute the norm, one node does, with the gain. */
static int left_out(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    int n = 0, n_norm = 0;
    wnw__bridge_fuse_recount(b, graph);
    const int n_ours = wnw__bridge_fuse_plan(b, graph, 0, ggml_graph_n_nodes(graph));
    for (int i = 0; i < b->products.n_step; i++) {
        n += b->products.steps[i].kind == WNW_BRIDGE_LEFT_OUT;
        n_norm += b->products.steps[i].kind == WNW_BRIDGE_NORM;
    }
    assert_int_equal(n_ours, 2 + n_norm);
    assert_int_equal(n_norm, n == 1);
    return n;
}

/* A program may run a graph that nobody has looked at, at the addresses of one that was looked at. */
static void test_stale_notes(void **state)
{
    const struct ggml_tensor weight = {.type = GGML_TYPE_Q8_0, .ne = {D_X, D_X, 1, 1}};
    struct ggml_tensor *w[N_WEIGHT];
    struct ggml_context *of_weights, *ctx;
    struct wnw__bridge_backend b = {.n_threads = 1};
    void *memory = malloc(GRAPH_BYTES);
    int n_kept = 0;
    struct ggml_backend_graph_optimize_params params = {.add_alloc_dep = keep, .user_data = &n_kept};
    (void)state;
    assert_non_null(memory);
    if (!wnw__matmul_takes(&weight, 2, false)) {
        free(memory);
        skip(); /* no kernel for this CPU */
    }
    of_weights =
        ggml_init((struct ggml_init_params){.mem_size = 8 * ggml_tensor_overhead(), .no_alloc = true});
    assert_non_null(of_weights);
    ggml_backend_buffer_t buffer = make_weights(of_weights, w);

    struct ggml_cgraph *graph = make_graph(&ctx, memory, w, false);
    wnw__bridge_fuse_note(&b, graph, &params);
    assert_cmp(n_kept, >, 0);
    assert_int_equal(left_out(&b, graph), 2); /* the norm and its product with the gain */
    ggml_free(ctx);

    graph = make_graph(&ctx, memory, w, true);
    assert_int_equal(left_out(&b, graph), 1);
    wnw__bridge_nodes_begin(&b, graph);
    wnw__bridge_fuse_note(&b, graph, &params);
    assert_int_equal(left_out(&b, graph), 1);
    ggml_free(ctx);

    graph = make_graph(&ctx, memory, w, false); /* not looked at: as it was noted last */
    assert_int_equal(left_out(&b, graph), 1);
    ggml_free(ctx);
    wnw__bridge_products_free(&b.products);
    wnw__bridge_notes_free(&b.notes);
    ggml_backend_buffer_free(buffer);
    ggml_free(of_weights);
    free(memory);
}

/* ---- Graphs that run again ---- */

static bool is_again(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    wnw__bridge_last_see(b, graph);
    return b->last.again;
}

/* What was found in a graph is used for another one only if no node of it has changed and a scheduler shows graphs. */
static void test_again(void **state)
{
    struct wnw__bridge_backend b = {.n_threads = 1};
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = GRAPH_BYTES});
    (void)state;
    assert_non_null(ctx);
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, D_X, 2);
    struct ggml_tensor *scaled = ggml_scale(ctx, x, 2.0f), *sum = ggml_add(ctx, scaled, x);
    struct ggml_cgraph *graph = ggml_new_graph(ctx), *part = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, sum);
    ggml_build_forward_expand(part, scaled);

    assert_false(is_again(&b, graph));
    assert_false(is_again(&b, graph)); /* nobody would say that it has other memory now */
    wnw__bridge_last_shown(&b);
    assert_false(is_again(&b, graph));
    assert_true(is_again(&b, graph));
    assert_true(is_again(&b, graph));

    assert_false(is_again(&b, part));
    assert_false(is_again(&b, graph));
    assert_true(is_again(&b, graph));

    struct ggml_tensor *const nodes[] = {scaled, sum};
    for (int i = 0; i < 2; i++) {
        struct ggml_tensor *node = nodes[i];
        const struct ggml_tensor was = *node;
        node->op_params[1] = 7;
        assert_false(is_again(&b, graph));
        assert_true(is_again(&b, graph));
        node->data = (char *)node->data + 4;
        assert_false(is_again(&b, graph));
        node->src[0] = sum;
        assert_false(is_again(&b, graph));
        node->flags ^= GGML_TENSOR_FLAG_OUTPUT;
        assert_false(is_again(&b, graph));
        node->view_offs = 64;
        assert_false(is_again(&b, graph));
        *node = was;
        assert_false(is_again(&b, graph));
        assert_true(is_again(&b, graph));
    }
    wnw__bridge_last_shown(&b);
    assert_false(is_again(&b, graph));
    wnw__bridge_last_free(&b.last);
    ggml_free(ctx);
}

/* Of views the place in memory is compared. */
static void test_again_views(void **state)
{
    struct wnw__bridge_backend b = {.n_threads = 1};
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = GRAPH_BYTES});
    (void)state;
    assert_non_null(ctx);
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, D_X, 2),
                       *other = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, D_X, 2);
    struct ggml_tensor *const views[] = {ggml_view_1d(ctx, x, D_X, 0), ggml_reshape_1d(ctx, x, 2 * D_X),
                                         ggml_permute(ctx, x, 1, 0, 2, 3), ggml_transpose(ctx, x)};
    wnw__bridge_last_shown(&b);
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        struct ggml_tensor *view = views[i];
        struct ggml_cgraph *graph = ggml_new_graph(ctx);
        ggml_build_forward_expand(graph, view);
        assert_false(is_again(&b, graph));
        assert_true(is_again(&b, graph));
        view->data = (char *)view->data + 4;
        assert_false(is_again(&b, graph));
        view->view_src = other;
        assert_false(is_again(&b, graph));
        view->view_offs += 64;
        assert_false(is_again(&b, graph));
        view->op = GGML_OP_CONT;
        assert_false(is_again(&b, graph));
        assert_true(is_again(&b, graph));
    }
    wnw__bridge_last_free(&b.last);
    ggml_free(ctx);
}

/* ---- Caches with other names ---- */

static char said[1024]; /* the last warning */

static void hear(wnw_log_level level, const char *line, void *user)
{
    (void)user;
    if (level >= WNW_LOG_WARN)
        snprintf(said, sizeof said, "%s", line);
}

/* Programs compute what they do without winnow, and a policy says that it has nothing. */
static void test_renamed_cache(void **state)
{
    enum { N = 40 };
    char path[4096];
    int32_t tokens[2 * N];
    float *logits[2];
    (void)state;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    for (int32_t i = 0; i < 2 * N; i++)
        tokens[i] = 3 + i * 7 % 200;
    patch = CACHE_NAMES;
    for (int ours = 0; ours < 2; ours++) {
        struct test_llama t;
        if (ours) {
            setenv("WINNOW_POLICY", "h2o", 1);
            setenv("WINNOW_BUDGET", "20", 1);
        }
        test_llama_open(&t, path, &(struct test_llama_params){.ours = ours, .n_ctx = 128});
        wnw_set_log(hear, NULL);
        logits[ours] = test_llama_logits(&t, tokens, N, 2 * N);
        if (ours) {
            assert_non_null(strstr(said, "h2o has nothing to act on"));
            assert_cmp(test_nmse(logits[1], logits[0], (int64_t)(2 * N) * t.n_vocab), <,
                       test_nmse_most(1e-8));
        }
        test_llama_close(&t);
    }
    free(logits[0]);
    free(logits[1]);
    unsetenv("WINNOW_POLICY");
    unsetenv("WINNOW_BUDGET");
    wnw_set_log(NULL, NULL);
    patch = AS_IT_IS;
}

/* Sessions over libllama's graphs keep keys and values themselves: without the cache there is none. */
static void test_renamed_session(void **state)
{
    char path[4096];
    wnw_model *model;
    (void)state;
    test_model_path(path, sizeof path, "tiny/foreign/phi3.gguf");
    patch = CACHE_NAMES;
    assert_error(wnw_model_open(&model, path, NULL), WNW_E_UNSUPPORTED);
    patch = AS_IT_IS;
    assert_null(model);
    print_message("%s\n", wnw_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gate),          cmocka_unit_test(test_words),
        cmocka_unit_test(test_notes),         cmocka_unit_test(test_stale_notes),
        cmocka_unit_test(test_again),         cmocka_unit_test(test_again_views),
        cmocka_unit_test(test_renamed_cache), cmocka_unit_test(test_renamed_session)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
