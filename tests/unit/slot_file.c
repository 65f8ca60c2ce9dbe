/* SPDX-License-Identifier: MIT */
/* Slots in files (serve/slot_file.c, serve/slot_state.c): what is written is read again, and what no server has written is refused. */
#include "serve/slot_file.h"
#include "files.h"
#include "helpers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- States ---- */

enum { K_ROW = 48, V_ROW = 32, LAYERS = 3, F16 = 1, ROOM = 1 << 16 };

/* A state as libllama writes one. Cells of a windowed cache are the newest of all. */
struct state {
    uint8_t bytes[ROOM];
    size_t n;
};

static void put(struct state *s, const void *bytes, size_t n)
{
    assert_true(s->n + n <= ROOM);
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
}

static void put_u32(struct state *s, uint32_t x)
{
    put(s, &x, sizeof x);
}

static void put_u64(struct state *s, uint64_t x)
{
    put(s, &x, sizeof x);
}

/* A byte of a cell's keys or values, by which it is known again. */
static void put_row(struct state *s, int32_t pos, size_t bytes)
{
    for (size_t b = 0; b < bytes; b++) {
        const uint8_t x = (uint8_t)(pos * 5 + (int32_t)b);
        put(s, &x, 1);
    }
}

/* What a test makes differently than libllama. */
struct made {
    int32_t n_tokens, n_cells, n_layers,
        n_window; /* n_window: layers of a second cache, with n_window_cells */
    int32_t n_window_cells;
    uint32_t ext_bytes;
    bool turned, recurrent;
    const int32_t *pos; /* [n_cells] of the first cache; NULL: 0, 1, 2 ... */
};

static void put_cache(struct state *s, const struct made *m, int32_t n_cells, int32_t n_layers,
                      const int32_t *pos)
{
    put_u32(s, 1);
    put_u32(s, (uint32_t)n_cells);
    if (n_cells == 0)
        return;
    for (int32_t i = 0; i < n_cells; i++) {
        const uint8_t ext[16] = {0};
        put_u32(s, (uint32_t)(pos ? pos[i] : m->n_tokens - n_cells + i));
        put_u32(s, 1);
        put(s, ext, m->ext_bytes);
        put_u32(s, 3); /* the slot that it was in */
    }
    put_u32(s, m->turned);
    put_u32(s, (uint32_t)n_layers);
    for (int32_t il = 0; il < n_layers; il++) {
        put_u32(s, F16);
        put_u64(s, K_ROW);
        for (int32_t i = 0; i < n_cells; i++)
            put_row(s, pos ? pos[i] : m->n_tokens - n_cells + i, K_ROW);
    }
    for (int32_t il = 0; il < n_layers; il++) {
        put_u32(s, F16);
        if (!m->turned) {
            put_u64(s, V_ROW);
            for (int32_t i = 0; i < n_cells; i++)
                put_row(s, pos ? pos[i] : m->n_tokens - n_cells + i, V_ROW);
            continue;
        }
        put_u32(s, 2);
        put_u32(s, V_ROW / 2);
        for (int32_t e = 0; e < V_ROW / 2; e++)
            for (int32_t i = 0; i < n_cells; i++)
                put_row(s, pos ? pos[i] : m->n_tokens - n_cells + i, 2);
    }
}

static struct state *make(const struct made *m)
{
    struct state *s = calloc(1, sizeof *s);
    assert_non_null(s);
    put_u32(s, 0xaf143cd8u);
    put_u32(s, 3);
    put_cache(s, m, m->n_cells, m->n_layers, m->pos);
    if (m->n_window > 0)
        put_cache(s, m, m->n_window_cells, m->n_window, NULL);
    if (m->recurrent) {
        put_u32(s, 1);
        put_u32(s, (uint32_t)m->n_tokens - 1);
        put_u32(s, 0);
        put_row(s, 1, 100);
    }
    return s;
}

static const struct made good = {.n_tokens = 9, .n_cells = 9, .n_layers = LAYERS};

static struct serve_slot_form form_of(const struct made *m)
{
    return (struct serve_slot_form){.model = {7, 8},
                                    .n_vocab = 100,
                                    .n_most = 1000,
                                    .n_cells = 50,
                                    .n_window_cells = m->n_window > 0 ? 6 : 0,
                                    .n_layers = m->n_layers + m->n_window,
                                    .n_heads = 2 * LAYERS,
                                    .type_k = F16,
                                    .type_v = F16,
                                    .row_bytes = 4000,
                                    .n_rows = 1,
                                    .rows = {{K_ROW, V_ROW}},
                                    .ext_bytes = m->ext_bytes,
                                    .recurrent = m->recurrent};
}

static int check(const struct state *s, const struct made *m)
{
    const struct serve_slot_form form = form_of(m);
    return serve_slot_state_check(s->bytes, s->n, m->n_tokens, false, &form);
}

static void test_states(void **state)
{
    (void)state;
    const struct made all[] = {
        good,
        {.n_tokens = 9, .n_cells = 9, .n_layers = LAYERS, .turned = true},
        {.n_tokens = 9, .n_cells = 9, .n_layers = LAYERS, .ext_bytes = 12},
        {.n_tokens = 9, .n_cells = 9, .n_layers = 1, .n_window = 2, .n_window_cells = 4},
        {.n_tokens = 9, .n_cells = 9, .n_layers = 0, .n_window = 2, .n_window_cells = 6},
        {.n_tokens = 9, .n_cells = 9, .n_layers = LAYERS, .recurrent = true},
        {.n_tokens = 9, .n_cells = 9, .n_layers = 2, .n_window = 1, .n_window_cells = 2, .recurrent = true},
        {.n_tokens = 1, .n_cells = 1, .n_layers = LAYERS},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct state *s = make(&all[i]);
        if (check(s, &all[i]) != WNW_OK)
            fail_msg("case %d: %s", (int)i, wnw_last_error());
        /* Every shorter one is none, except where the end is what libllama compares itself. */
        for (size_t n = 0; n < s->n - (all[i].recurrent ? 100 : 0); n++) {
            const struct serve_slot_form form = form_of(&all[i]);
            assert_int_equal(serve_slot_state_check(s->bytes, n, all[i].n_tokens, false, &form),
                             WNW_E_FORMAT);
        }
        free(s);
    }
}

/* A state that is otherwise good, with one number changed. */
static void expect_refused(const char *name, const struct made *m, const struct made *of, size_t at,
                           uint32_t value)
{
    struct state *s = make(m);
    assert_true(at + sizeof value <= s->n);
    if (at > 0)
        memcpy(s->bytes + at, &value, sizeof value);
    if (check(s, of) != WNW_E_FORMAT)
        fail_msg("%s is taken", name);
    assert_true(wnw_last_error()[0] != '\0');
    free(s);
}

static void test_states_that_are_none(void **state)
{
    (void)state;
    enum {
        CELLS = 8,
        N = 12,
        POS = 16,
        OF = 20,
        SEQ = 24,
        LAST = POS + 8 * 12,
        TURNED = POS + 9 * 12,
        LAYER = TURNED + 4,
        TYPE = LAYER + 4,
        ROW = TYPE + 4,
        WINDOW = TYPE + (12 + 9 * K_ROW) + (12 + 9 * V_ROW) + 8
    };
    static const int32_t again[] = {0, 1, 2, 3, 4, 5, 6, 7, 7}, swapped[] = {1, 0, 2, 3, 4, 5, 6, 7, 8},
                         document_plus_1[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const struct made half = {.n_tokens = 9, .n_cells = 4, .n_layers = LAYERS},
                      none = {.n_tokens = 9, .n_cells = 0, .n_layers = LAYERS},
                      more = {.n_tokens = 10, .n_cells = 10, .n_layers = LAYERS},
                      fewer = {.n_tokens = 9, .n_cells = 9, .n_layers = 2},
                      twice = {.n_tokens = 9, .n_cells = 9, .n_layers = LAYERS, .pos = again},
                      order = {.n_tokens = 9, .n_cells = 9, .n_layers = LAYERS, .pos = swapped},
                      late = {.n_tokens = 9, .n_cells = 9, .n_layers = LAYERS, .pos = document_plus_1},
                      window = {.n_tokens = 9,
                                .n_cells = 9,
                                .n_layers = 1,
                                .n_window = 2,
                                .n_window_cells = 4},
                      wide = {.n_tokens = 9, .n_cells = 9, .n_layers = 1, .n_window = 2, .n_window_cells = 7},
                      closed = {.n_tokens = 9, .n_cells = 9, .n_layers = 1, .n_window = 2},
                      turned = {.n_tokens = 9, .n_cells = 9, .n_layers = LAYERS, .turned = true},
                      hybrid = {.n_tokens = 9, .n_cells = 9, .n_layers = LAYERS, .recurrent = true};
    expect_refused("half of the cells", &half, &good, 0, 0);
    expect_refused("no cell", &none, &good, 0, 0);
    expect_refused("one cell more", &more, &good, 0, 0);
    expect_refused("another number of layers", &fewer, &good, 0, 0);
    expect_refused("a position twice", &twice, &good, 0, 0);
    expect_refused("another order", &order, &good, 0, 0);
    expect_refused("positions from 1", &late, &good, 0, 0);
    expect_refused("another mark", &good, &good, 1, 0);
    expect_refused("a sequence below 0", &good, &good, 4, (uint32_t)-1);
    expect_refused("two streams", &good, &good, CELLS, 2);
    expect_refused("cells beyond its end", &good, &good, N, 0x7fffffff);
    expect_refused("so many cells that their bytes overflow", &good, &good, N, 0xffffffff);
    expect_refused("the last position", &good, &good, LAST, 0x7fffffff);
    expect_refused("a position below 0", &good, &good, POS, (uint32_t)-1);
    expect_refused("a cell of no sequence", &good, &good, OF, 0);
    expect_refused("a cell of two", &good, &good, OF, 2);
    expect_refused("a cell of a sequence that nobody has", &good, &good, SEQ, 1u << 20);
    expect_refused("a cell of a sequence below 0", &good, &good, SEQ, (uint32_t)-1);
    expect_refused("values that are turned twice", &good, &good, TURNED, 2);
    expect_refused("values said to be turned", &good, &good, TURNED, 1);
    expect_refused("values said not to be", &turned, &turned, TURNED, 0);
    expect_refused("no layers", &good, &good, LAYER, 0);
    expect_refused("more layers", &good, &good, LAYER, 1u << 30);
    expect_refused("another type", &good, &good, TYPE, 8);
    expect_refused("no type", &good, &good, TYPE, (uint32_t)-1);
    expect_refused("shorter keys", &good, &good, ROW, K_ROW - 4);
    expect_refused("no keys", &good, &good, ROW, 0);
    expect_refused("keys that overflow", &good, &good, ROW + 4, 0xffffffff);
    expect_refused("a window that begins early", &window, &window, WINDOW, 4);
    expect_refused("a window that ends late", &window, &window, WINDOW + 3 * 12, 0x7fffffff);
    expect_refused("more of a window than the server has", &wide, &wide, 0, 0);
    expect_refused("nothing of a window", &closed, &window, 0, 0);
    expect_refused("no recurrent state", &good, &hybrid, 0, 0);
    expect_refused("a recurrent state of a model without", &hybrid, &good, 0, 0);
    struct state *s = make(&hybrid);
    const size_t recurrent = s->n - 100 - 12;
    free(s);
    expect_refused("two recurrent cells", &hybrid, &hybrid, recurrent, 2);
    expect_refused("a recurrent cell elsewhere", &hybrid, &hybrid, recurrent + 4, 7);
    expect_refused("a recurrent cell of a sequence", &hybrid, &hybrid, recurrent + 8, 1);
}

/* Cells that libllama has given in another order: rows go with them. */
static void test_order(void **state)
{
    (void)state;
    static const int32_t mixed[] = {5, 6, 7, 8, 0, 1, 2, 3, 4};
    for (int i = 0; i < 3; i++) {
        struct made m = {
            .n_tokens = 9, .n_cells = 9, .n_layers = LAYERS, .turned = i == 1, .ext_bytes = i == 2 ? 12 : 0};
        struct state *want = make(&m);
        m.pos = mixed;
        struct state *s = make(&m);
        const struct serve_slot_form form = form_of(&m);
        assert_int_equal(check(s, &m), WNW_E_FORMAT);
        assert_int_equal(serve_slot_state_sort(s->bytes, s->n, &form), WNW_OK);
        assert_int_equal(s->n, want->n);
        assert_memory_equal(s->bytes, want->bytes, want->n);
        assert_int_equal(serve_slot_state_sort(s->bytes, s->n, &form), WNW_OK);
        assert_memory_equal(s->bytes, want->bytes, want->n);
        assert_int_equal(serve_slot_state_sort(s->bytes, s->n - 1, &form), WNW_E_FORMAT);
        free(want);
        free(s);
    }
}

/* ---- Notes ---- */

static void test_notes(void **state)
{
    (void)state;
    const struct serve_slot_form form = form_of(&good);
    static const struct {
        const char *name;
        int32_t notes[12];
        size_t n;
        int32_t n_tokens; /* -1: they are none */
        bool several;
    } cases[] = {
        {"nothing", {0}, 0, 0, false},
        {"tokens", {5, 6, 99}, 3, 3, false},
        {"a token that the model has not", {5, 100}, 2, -1, false},
        {"a token below 0", {5, -1}, 2, -1, false},
        {"the server's form", {-1, 1, 2, 5, 6, 0}, 6, 2, false},
        {"of nothing", {-1, 1, 0, 0}, 4, 0, false},
        {"of another version", {-1, 2, 2, 5, 6, 0}, 6, -1, false},
        {"with more tokens than it has", {-1, 1, 3, 5, 6, 0}, 6, -1, false},
        {"with tokens below 0", {-1, 1, -1, 5, 6, 0}, 6, -1, false},
        {"cut off", {-1, 1}, 2, -1, false},
        {"with something behind it", {-1, 1, 2, 5, 6, 0, 0}, 7, -1, false},
        {"with a hole and no image", {-1, 1, 2, 5, -1, 0}, 6, -1, false},
        {"with an image", {-1, 1, 3, 5, -1, 6, 1, 1, 4, 77}, 10, 3, true},
        {"with an image where a token is", {-1, 1, 3, 5, -1, 6, 1, 0, 4, 77}, 10, -1, false},
        {"with an image outside", {-1, 1, 3, 5, -1, 6, 1, 3, 4, 77}, 10, -1, false},
        {"with an image that is cut off", {-1, 1, 3, 5, -1, 6, 1, 1, 5, 77}, 10, -1, false},
        {"with more images than it has", {-1, 1, 3, 5, -1, 6, 1 << 30, 1, 4, 77}, 10, -1, false},
        {"with an empty image", {-1, 1, 3, 5, -1, 6, 1, 1, 0}, 9, -1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t n = 0;
        bool several = false;
        const int rc = serve_slot_notes_check(&n, &several, cases[i].notes, cases[i].n, &form);
        if ((rc == WNW_OK) != (cases[i].n_tokens >= 0) ||
            (rc == WNW_OK && (n != cases[i].n_tokens || several != cases[i].several)))
            fail_msg("notes %s: %d, %d tokens", cases[i].name, rc, (int)n);
    }
    struct serve_slot_form small = form;
    small.n_most = 2;
    int32_t n;
    bool several;
    assert_int_equal(serve_slot_notes_check(&n, &several, cases[1].notes, 3, &small), WNW_E_FORMAT);
    assert_non_null(strstr(wnw_last_error(), "have room for 2"));
}

/* ---- Files ---- */

/* A slot of nine tokens that a test changes. */
struct slot {
    struct serve_slot_file file;
    int32_t notes[64]; /* 9 tokens, and what a test adds */
    struct state *state;
};

static void slot_new(struct slot *x)
{
    memset(x, 0, sizeof *x);
    x->state = make(&good);
    memset(x->state->bytes + 150, 0xff, 350); /* keys of the first layer */
    for (int32_t i = 0; i < 9; i++)
        x->notes[i] = 10 + i;
    x->file.model[0] = 7;
    x->file.model[1] = 8;
    x->file.n_tokens = 9;
    x->file.n_sequence = 9;
    x->file.state_bytes = x->state->n;
    x->file.entries = 20;
    x->file.compressed = 1;
    x->file.by.size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = 3};
    strcpy(x->file.by.recipe, "knorm");
}

static size_t write_slot(const char *path, struct slot *x)
{
    size_t bytes;
    assert_int_equal(serve_slot_file_write(&bytes, path, &x->file, x->notes, x->state->bytes), WNW_OK);
    return bytes;
}

/* Whether a server of that model takes it; without: nothing is left of it. */
static bool takes(const char *path, const struct serve_slot_form *form)
{
    struct serve_slot_read read;
    const int rc = serve_slot_file_read(&read, path, form);
    if (rc != WNW_OK) {
        assert_true(wnw_last_error()[0] != '\0');
        assert_null(read.notes);
        assert_null(read.state);
    }
    serve_slot_read_clear(&read);
    return rc == WNW_OK;
}

/* Turns the lowest bit of a byte of a file. */
static void turn_byte(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    const int byte = fgetc(f) ^ 1;
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte, f), byte);
    assert_int_equal(fclose(f), 0);
}

static void test_files(void **state)
{
    (void)state;
    char path[] = "/tmp/winnow-slot-XXXXXX";
    const struct serve_slot_form form = form_of(&good);
    struct serve_slot_read read;
    struct slot x;
    slot_new(&x);
    test_file_new(path);
    const size_t n = write_slot(path, &x);
    assert_true(n < sizeof x.file + x.state->n - 250); /* what was dropped was left out */
    assert_int_equal(serve_slot_file_read(&read, path, &form), WNW_OK);
    assert_int_equal(read.bytes, n);
    assert_string_equal(read.file.by.recipe, "knorm");
    assert_int_equal(read.file.state_bytes, x.state->n);
    assert_memory_equal(read.state, x.state->bytes, x.state->n);
    assert_memory_equal(read.notes, x.notes, 9 * sizeof *x.notes);
    serve_slot_read_clear(&read);
    /* Any byte that is another one, which its size and its parts do not tell. */
    for (size_t at = 0; at < n; at += at < 1100 ? 8 : 37) {
        turn_byte(path, (long)at);
        assert_false(takes(path, &form));
        turn_byte(path, (long)at);
    }
    assert_true(takes(path, &form));
    /* Any length that is another one. */
    for (size_t cut = n - 1; cut > 0; cut -= cut > 100 ? 91 : 1) {
        assert_int_equal(truncate(path, (off_t)cut), 0);
        assert_false(takes(path, &form));
    }
    unlink(path);
    assert_false(takes(path, &form));
    free(x.state);
}

/* Headers whose checksum is right and which say what no slot has. */
static void test_headers(void **state)
{
    (void)state;
    char path[] = "/tmp/winnow-slot-XXXXXX";
    struct serve_slot_form form = form_of(&good);
    struct slot x;
    test_file_new(path);
    for (int i = 0; i < 15; i++) {
        slot_new(&x);
        switch (i) {
        case 0:
            x.file.n_sequence = 8;
            break;
        case 1:
            x.file.n_sequence = -1;
            break;
        case 2:
            x.file.entries = -1;
            break;
        case 3:
            x.file.entries = 9 * 2 * LAYERS + 1;
            break;
        case 4:
            x.file.compressed = 2;
            break;
        case 5:
            strcpy(x.file.by.recipe, "a\"b");
            break;
        case 6:
            strcpy(x.file.by.recipe, "a\nb");
            break;
        case 7:
            memset(x.file.by.recipe, 'a', sizeof x.file.by.recipe);
            break;
        case 8:
            x.file.by.size.budget = 0;
            break;
        case 9:
            x.file.by.size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 1.0};
            break;
        case 10:
            x.file.by.size.kind = (wnw_size_kind)77;
            break;
        case 11:
            x.file.by.n_protected = 10;
            break;
        case 12:
            x.file.by.n_protected = -1;
            break;
        case 13:
            x.file.model[0] = 9;
            break;
        default:
            memset(x.file.fingerprint, 'a', sizeof x.file.fingerprint);
            break;
        }
        write_slot(path, &x);
        if (takes(path, &form))
            fail_msg("header %d is taken", i);
        free(x.state);
    }
    /* And contexts that a good one does not fit. */
    slot_new(&x);
    write_slot(path, &x);
    assert_true(takes(path, &form));
    form.n_cells = 8;
    assert_false(takes(path, &form));
    form = form_of(&good);
    form.row_bytes = 10; /* tokens that are smaller than that cannot have such a state */
    memset(x.state->bytes + x.state->n, 0xff, 4000);
    x.file.state_bytes = x.state->n + 4000;
    write_slot(path, &x);
    assert_false(takes(path, &form));
    assert_non_null(strstr(wnw_last_error(), "more than 9 tokens"));
    free(x.state);
    unlink(path);
}

/* Nine tokens that are left of thirty. */
static const int32_t left_at[9] = {0, 1, 2, 8, 9, 20, 27, 28, 29};

static void slot_of_thirty(struct slot *x)
{
    slot_new(x);
    for (int32_t i = 0; i < 30; i++)
        x->notes[i] = 10 + i;
    memcpy(x->notes + 30, left_at, sizeof left_at);
    x->file.n_tokens = 30;
    x->file.n_at = 9;
}

/* Slots in which room was made: a server that makes room as well takes them. */
static void test_removed(void **state)
{
    (void)state;
    char path[] = "/tmp/winnow-slot-XXXXXX";
    struct serve_slot_form form = form_of(&good);
    struct serve_slot_read read;
    struct slot x;
    static const struct {
        int32_t k, at;
    } wrong[] = {{0, -1}, {3, 2}, {3, 1}, {4, 20}, {8, 28}, {8, 30}, {7, 26}};
    test_file_new(path);
    slot_of_thirty(&x);
    form.n_most = 9;
    form.n_longest = 30;
    write_slot(path, &x);
    assert_int_equal(serve_slot_file_read(&read, path, &form), WNW_OK);
    assert_int_equal(read.file.n_at, 9);
    assert_memory_equal(read.notes, x.notes, 39 * sizeof *x.notes);
    serve_slot_read_clear(&read);
    form.n_longest = 29;
    assert_false(takes(path, &form));
    form.n_longest = 0;
    assert_false(takes(path, &form));
    form.n_longest = 30;
    form.n_most = 8;
    assert_false(takes(path, &form));
    assert_non_null(strstr(wnw_last_error(), "room for 8"));
    form.n_most = 1000;
    form.n_longest = 0;
    assert_false(takes(path, &form));
    assert_non_null(strstr(wnw_last_error(), "--when-full compress"));
    form.n_longest = 1000;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        x.notes[30 + wrong[i].k] = wrong[i].at;
        write_slot(path, &x);
        if (takes(path, &form))
            fail_msg("positions %d are taken", (int)i);
        x.notes[30 + wrong[i].k] = left_at[wrong[i].k];
    }
    x.file.n_at = 8;
    write_slot(path, &x);
    assert_false(takes(path, &form));
    x.file.n_at = -9;
    x.file.n_tokens = 39;
    write_slot(path, &x);
    assert_false(takes(path, &form));
    free(x.state);
    unlink(path);
}

/* Parked slots have states that libllama alone understands: they are read from memory and never from a file that somebody names. */
static void test_borders(void **state)
{
    (void)state;
    char path[] = "/tmp/winnow-slot-XXXXXX";
    const struct serve_slot_form form = form_of(&good);
    static uint8_t borders[] = "two states";
    struct serve_slot_read slot = {0}, read;
    struct slot x;
    uint8_t *bytes;
    size_t n;
    slot_new(&x);
    slot.file = x.file;
    slot.file.border_bytes = sizeof borders;
    slot.notes = x.notes;
    slot.state = x.state->bytes;
    slot.borders = borders;
    assert_int_equal(serve_slot_file_pack(&bytes, &n, &slot), WNW_OK);
    assert_int_equal(serve_slot_file_unpack(&read, bytes, n, &form), WNW_OK);
    assert_int_equal(read.file.border_bytes, sizeof borders);
    assert_memory_equal(read.borders, borders, sizeof borders);
    serve_slot_read_clear(&read);
    test_file_new(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    assert_false(takes(path, &form));
    assert_non_null(strstr(wnw_last_error(), "--state"));
    bytes[n - 3] ^= 1;
    assert_int_equal(serve_slot_file_unpack(&read, bytes, n, &form), WNW_E_FORMAT);
    assert_int_equal(serve_slot_file_unpack(&read, bytes, n - 1, &form), WNW_E_FORMAT);
    free(bytes);
    free(x.state);
    unlink(path);
}

static void test_files_of_models(void **state)
{
    (void)state;
    static const struct {
        uint64_t numbers[2];
        const char *fingerprint, *own;
        bool fits;
    } cases[] = {
        {{7, 8}, "", "", true},        {{7, 8}, "", "abc", false},    {{7, 9}, "abc", "abc", false},
        {{0, 8}, "abc", "abc", false}, {{7, 8}, "abc", "abc", true},  {{7, 8}, "abd", "abc", false},
        {{0, 0}, "abc", "abc", true},  {{0, 0}, "abd", "abc", false}, {{0, 0}, "abc", "", false},
        {{0, 0}, "", "abc", false},    {{7, 8}, "abc", "", false},
    };
    const uint64_t model[2] = {7, 8};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct serve_slot_file file = {.model = {cases[i].numbers[0], cases[i].numbers[1]}};
        strcpy(file.fingerprint, cases[i].fingerprint);
        if (serve_slot_file_fits(&file, model, cases[i].own) != cases[i].fits)
            fail_msg("case %d", (int)i);
    }
}

/* ---- Names ---- */

/* Nobody waits for a pipe in the folder of the slots, and none is replaced; names that users may take are theirs. */
static void test_names(void **state)
{
    (void)state;
    char folder[] = "/tmp/winnow-slots-XXXXXX", path[64], part[80];
    const struct serve_slot_form form = form_of(&good);
    struct slot x;
    size_t bytes;
    slot_new(&x);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/slot", folder);
    snprintf(part, sizeof part, "%s.part", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(takes(path, &form));
    assert_int_equal(serve_slot_file_write(&bytes, path, &x.file, x.notes, x.state->bytes), WNW_E_ARG);
    unlink(path);
    write_slot(part, &x);
    write_slot(path, &x);
    assert_true(takes(part, &form));
    assert_true(takes(path, &form));
    unlink(part);
    unlink(path);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left in it */
    free(x.state);
}

/* Processes that write a name at once: each time it has one of theirs, whole. */
static void test_several_writers(void **state)
{
    (void)state;
    enum { WRITERS = 3, TIMES = 20 };
    char path[] = "/tmp/winnow-slot-XXXXXX";
    const struct serve_slot_form form = form_of(&good);
    struct slot x;
    pid_t child[WRITERS];
    slot_new(&x);
    test_file_new(path);
    write_slot(path, &x);
    for (int i = 0; i < WRITERS; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] == 0) {
            size_t bytes;
            int rc = WNW_OK;
            x.file.entries = i;
            for (int k = 0; rc == WNW_OK && k < TIMES; k++)
                rc = serve_slot_file_write(&bytes, path, &x.file, x.notes, x.state->bytes);
            _exit(rc == WNW_OK ? 0 : 1);
        }
    }
    int n_left = WRITERS, status;
    while (n_left > 0) {
        assert_true(takes(path, &form));
        const pid_t ended = waitpid(-1, &status, WNOHANG);
        assert_true(ended >= 0);
        if (ended > 0) {
            assert_int_equal(status, 0);
            n_left--;
        }
    }
    assert_true(takes(path, &form));
    unlink(path);
    free(x.state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),          cmocka_unit_test(test_states_that_are_none),
        cmocka_unit_test(test_order),           cmocka_unit_test(test_notes),
        cmocka_unit_test(test_files),           cmocka_unit_test(test_headers),
        cmocka_unit_test(test_files_of_models), cmocka_unit_test(test_names),
        cmocka_unit_test(test_several_writers), cmocka_unit_test(test_removed),
        cmocka_unit_test(test_borders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
