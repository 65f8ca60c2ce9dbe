/* SPDX-License-Identifier: MIT */
/* Gates on hidden states: their scores worked out with NumPy, and the text that files have in place of numbers. */
#include "helpers.h"
#include "peek_session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Scores ---- */

enum { B = WNW_INPUT_BLOCK, N_EMBD = 3 };

static const float two_tokens[2 * N_EMBD] = {0.5f, -1, 2, 1, 1, 0};

/* Gates of one layer with these numbers. */
static struct wnw__input_gate gate_of(struct wnw__input_gate g, const struct wnw__shape *shape,
                                      const float *number, size_t size)
{
    g.n_embd = N_EMBD;
    assert_ok(wnw__input_gate_new(&g, shape));
    assert_int_equal((size_t)wnw__input_numbers(&g, shape) * sizeof *number, size);
    memcpy(g.number, number, size);
    g.there[0] = true;
    return g;
}

static void check(struct wnw__input_gate *g, const struct wnw__shape *shape, const double want[2][2])
{
    float *room = malloc(wnw__input_gate_room(g, shape) * sizeof *room), out[2 * B];
    assert_non_null(room);
    wnw__input_gate_score(g, shape, 0, two_tokens, 2, room, out);
    for (int32_t ih = 0; ih < shape->n_head_kv; ih++)
        for (int32_t i = 0; i < 2; i++)
            assert_near(out[ih * B + i], want[ih][i], 1e-5);
    free(room);
    wnw__input_gate_free(g);
}

static void linear(void **state)
{
    (void)state;
    const struct wnw__shape shape = {.n_layer = 1, .n_head = 2, .n_head_kv = 2, .d = 4};
    static const float number[] = {1, 2, 3, 4, 5, 6, -1, -2};
    struct wnw__input_gate g =
        gate_of((struct wnw__input_gate){.form = WNW_INPUT_LINEAR}, &shape, number, sizeof number);
    check(&g, &shape, (const double[2][2]){{3.5, 2}, {7, 7}});
}

/* Hidden units before the GELU: 1.75, -2 and 1.25, -0.5. */
static void mlp(void **state)
{
    (void)state;
    const struct wnw__shape shape = {.n_layer = 1, .n_head = 2, .n_head_kv = 2, .d = 4};
    static const float number[] = {1, 0, 0.5f, -1, 1, 0, 0.25f, -0.5f, 2, 1, -1, 3, 0.5f, 0};
    struct wnw__input_gate g = gate_of((struct wnw__input_gate){.form = WNW_INPUT_MLP, .n_hidden = 2}, &shape,
                                       number, sizeof number);
    check(&g, &shape, (const double[2][2]){{3.814293, 2.581607}, {-1.816397, -1.580744}});
}

/* Two query heads of one KV head, two sinks. */
static void attention(void **state)
{
    (void)state;
    const struct wnw__shape shape = {.n_layer = 1, .n_head = 2, .n_head_kv = 1, .d = 4};
    static const float number[] = {1,     0,    0,    0,  1, 0, 0, 0, 1, 1, 1, 0, /* Wq */
                                   0,     0.5f, -1,   0,                          /* bq */
                                   1,     0,    1,    0,  1, 0,                   /* Wk */
                                   1,     2,    0.5f, 1,                          /* weights of the norms */
                                   1,     0,    0,    -1,                         /* sinks */
                                   0.25f, -0.5f};                                 /* b */
    struct wnw__input_gate g =
        gate_of((struct wnw__input_gate){.form = WNW_INPUT_ATTENTION, .n_dim = 2, .n_sink = 2}, &shape,
                number, sizeof number);
    check(&g, &shape, (const double[2][2]){{0.337205, 0.802505}});
}

static void too_many_numbers(void **state)
{
    (void)state;
    const struct wnw__shape shape = {.n_layer = 4096, .n_head = 1024, .n_head_kv = 1024, .d = 1024};
    struct wnw__input_gate g = {.form = WNW_INPUT_MLP, .n_embd = 1 << 17, .n_hidden = 8192};
    assert_error(wnw__input_gate_new(&g, &shape), WNW_E_RANGE);
    assert_says("at most 1073741824");
    assert_null(g.number);
}

/* ---- Base64 ---- */

static void bytes_as_text(void **state)
{
    (void)state;
    /* RFC 4648, section 10. */
    static const char *const rows[][2] = {{"", ""},
                                          {"f", "Zg=="},
                                          {"fo", "Zm8="},
                                          {"foo", "Zm9v"},
                                          {"foob", "Zm9vYg=="},
                                          {"fooba", "Zm9vYmE="},
                                          {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t n = strlen(rows[i][0]);
        char text[16], back[16] = "";
        wnw__base64_write(text, rows[i][0], n);
        assert_string_equal(text, rows[i][1]);
        assert_int_equal(strlen(text), WNW_BASE64_LENGTH(n));
        assert_true(wnw__base64_read(back, n, text, strlen(text)));
        assert_memory_equal(back, rows[i][0], n);
        assert_false(wnw__base64_read(back, n + 1, text, strlen(text)));
        assert_false(n > 0 && wnw__base64_read(back, n - 1, text, strlen(text)));
    }
    uint8_t all[256], back[256];
    char text[WNW_BASE64_LENGTH(256) + 1];
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)(255 - i);
    wnw__base64_write(text, all, 256);
    assert_true(wnw__base64_read(back, 256, text, strlen(text)));
    assert_memory_equal(back, all, 256);
    static const char *const bad[] = {"Zm9*", "Zm=v", "=m9v", "Zm9", "Zm9vYg=", "Zm9\n", "Zh=="};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(wnw__base64_read(back, i == 6 ? 1 : 3, bad[i], strlen(bad[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(linear), cmocka_unit_test(mlp),
                                       cmocka_unit_test(attention), cmocka_unit_test(too_many_numbers),
                                       cmocka_unit_test(bytes_as_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
