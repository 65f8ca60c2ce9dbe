/* SPDX-License-Identifier: MIT */
#include "serve/slot_state.h"

#include "base/bytes.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

/* The mark of a state, the most caches and sequences that libllama has, and the bytes of a cell: position, sequences, sequence. */
enum { MAX_CACHES = 4, MAX_SEQUENCES = 256, CELL = 12 };
static const uint32_t state_mark = 0xaf143cd8u;

/* What the server's own form of notes begins with, and its version. */
enum { NOTES_MARK = -1, NOTES_VERSION = 1 };

static int misfit(const char *what)
{
    return wnw__fail(WNW_E_FORMAT, "%s", what);
}

/* ---- Caches ---- */

/* A cache of keys and values, while it is walked over. */
struct cache {
    const uint8_t *cells;
    size_t cell_bytes;
    uint32_t n, n_layers;
    bool turned;           /* its values are transposed */
    const uint32_t *order; /* [n] cells in the order that they get; NULL: they stay */
    uint8_t *scratch;      /* for order: room for the largest array of the cache */
    const uint8_t *state;  /* for order: what is walked over, from its start, */
    uint8_t *bytes;        /* and the same memory, which may be written to */
};

static int32_t position(const struct cache *c, uint32_t i)
{
    int32_t pos;
    memcpy(&pos, c->cells + i * c->cell_bytes, sizeof pos);
    return pos;
}

/* Passes an array of one item for each cell, which gets the order. */
static bool pass_cells(struct wnw__bytes *r, const struct cache *c, uint64_t each)
{
    if (each > 0 && wnw__bytes_left(r) / each < c->n)
        return false;
    uint8_t *items = c->order ? c->bytes + (r->at - c->state) : NULL;
    for (uint32_t i = 0; items && i < c->n; i++)
        memcpy(c->scratch + i * each, items + c->order[i] * each, each);
    if (items)
        memcpy(items, c->scratch, c->n * each);
    return wnw__bytes_take(r, c->n * each) != NULL;
}

static bool knows_row(const struct serve_slot_form *form, uint64_t k, uint64_t v)
{
    for (int32_t i = 0; i < form->n_rows; i++)
        if ((k == 0 || form->rows[i].k == k) && (v == 0 || form->rows[i].v == v))
            return true;
    return form->n_rows == 0;
}

static bool is_type(int32_t have, int32_t want)
{
    return want < 0 || have == want;
}

/* The keys, or the values, of all layers. */
static bool pass_rows(struct wnw__bytes *r, const struct cache *c, const struct serve_slot_form *form,
                      bool values)
{
    bool good = true;
    for (uint32_t il = 0; good && il < c->n_layers; il++) {
        const int32_t type = (int32_t)wnw__bytes_u32(r);
        const uint64_t row = wnw__bytes_u64(r);
        good = !r->short_of && is_type(type, values ? form->type_v : form->type_k) && row > 0 &&
               knows_row(form, values ? 0 : row, values ? row : 0) && pass_cells(r, c, row);
    }
    return good;
}

static bool pass_turned(struct wnw__bytes *r, const struct cache *c, const struct serve_slot_form *form)
{
    bool good = true;
    for (uint32_t il = 0; good && il < c->n_layers; il++) {
        const int32_t type = (int32_t)wnw__bytes_u32(r);
        const uint64_t element = wnw__bytes_u32(r), n = wnw__bytes_u32(r);
        good = !r->short_of && is_type(type, form->type_v) && element > 0 && element <= 64 && n > 0 &&
               knows_row(form, 0, element * n);
        for (uint64_t i = 0; good && i < n; i++)
            good = pass_cells(r, c, element);
    }
    return good;
}

/* Reads a cache's cells, without the values in them. */
static bool pass_head(struct wnw__bytes *r, struct cache *c, const struct serve_slot_form *form)
{
    c->cell_bytes = CELL + form->ext_bytes;
    if (wnw__bytes_u32(r) != 1) /* streams */
        return false;
    c->n = wnw__bytes_u32(r);
    c->cells = r->at;
    return !r->short_of && pass_cells(r, c, c->cell_bytes);
}

static bool pass_layers(struct wnw__bytes *r, struct cache *c, const struct serve_slot_form *form)
{
    if (c->n == 0) /* libllama writes no more of it */
        return true;
    const uint32_t turned = wnw__bytes_u32(r);
    c->n_layers = wnw__bytes_u32(r);
    c->turned = turned == 1;
    return !r->short_of && turned <= 1 && (form->n_layers == 0 || c->n_layers <= (uint32_t)form->n_layers) &&
           pass_rows(r, c, form, false) && (turned ? pass_turned(r, c, form) : pass_rows(r, c, form, true));
}

static bool pass_start(struct wnw__bytes *r)
{
    const bool marked = wnw__bytes_u32(r) == state_mark;
    return marked && wnw__bytes_u32(r) < MAX_SEQUENCES && !r->short_of;
}

/* Whether another cache of keys and values follows. */
static bool has_more(const struct wnw__bytes *r, const struct serve_slot_form *form, int32_t n_caches,
                     uint32_t n_layers)
{
    if (n_caches == 0)
        return true;
    return wnw__bytes_left(r) > 0 && n_caches < MAX_CACHES &&
           !(form->recurrent && n_layers >= (uint32_t)form->n_layers);
}

/* ---- Checking ---- */

/* Each cell is of one sequence, and each position where it should be. */
static int check_cells(const struct cache *c, int32_t n_tokens, bool several, bool whole)
{
    const int32_t n = (int32_t)c->n, first = whole || several ? 0 : n_tokens - n;
    int32_t last = -1;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t of[2];
        const int32_t pos = position(c, i);
        memcpy(of, c->cells + (i + 1) * c->cell_bytes - sizeof of[1], sizeof of[1]);
        memcpy(of + 1, c->cells + i * c->cell_bytes + sizeof pos, sizeof of[1]);
        if (of[1] != 1 || of[0] >= MAX_SEQUENCES)
            return wnw__fail(WNW_E_FORMAT, "cell %u of its state is of %u sequences, the first %u", i, of[1],
                             of[0]);
        if (several ? pos < last || pos < 0 || pos >= n_tokens : pos != first + (int32_t)i)
            return wnw__fail(WNW_E_FORMAT, "cell %u of its state has position %d, among %d tokens", i,
                             (int)pos, (int)n_tokens);
        last = pos;
    }
    return WNW_OK;
}

static int check_cache(const struct cache *c, int32_t n_tokens, bool several, bool whole,
                       const struct serve_slot_form *form)
{
    const int32_t most = !whole && form->n_window_cells > 0 ? form->n_window_cells : form->n_cells;
    if (c->n > (uint32_t)n_tokens || c->n < (whole ? (uint32_t)n_tokens : 1))
        return wnw__fail(WNW_E_FORMAT, "its state has %u cells for %d tokens", c->n, (int)n_tokens);
    if (most > 0 && c->n > (uint32_t)most)
        return wnw__fail(WNW_E_FORMAT, "it has %u cells of layers %s, and the server's cache has %d%s", c->n,
                         whole ? "that see the whole text" : "with a sliding window", (int)most,
                         whole ? "; give it a larger --context" : "; start it with `-- --swa-full`");
    return check_cells(c, n_tokens, several, whole);
}

/* The state of recurrent layers: one cell, after the last token. libllama itself compares the rest with the model before it uses
 * the state. */
static int check_recurrent(struct wnw__bytes *r, const struct cache *before)
{
    const uint32_t n = wnw__bytes_u32(r);
    const int32_t pos = (int32_t)wnw__bytes_u32(r);
    const uint32_t n_sequences = wnw__bytes_u32(r);
    if (r->short_of || n != 1 || n_sequences != 0 || pos != position(before, before->n - 1))
        return misfit("its state of recurrent layers is not that of its last token");
    return WNW_OK;
}

int serve_slot_state_check(const uint8_t *state, size_t n, int32_t n_tokens, bool several,
                           const struct serve_slot_form *form)
{
    struct wnw__bytes r = wnw__bytes_of(state, n);
    struct cache c = {0};
    uint32_t n_layers = 0;
    if (n_tokens == 0) /* it is not used */
        return WNW_OK;
    if (!pass_start(&r))
        return misfit("it has no state of libllama");
    for (int32_t i = 0; has_more(&r, form, i, n_layers); i++) {
        c = (struct cache){0};
        if (!pass_head(&r, &c, form))
            return misfit("the cells of its state are not what a state has");
        WNW_TRY(check_cache(&c, n_tokens, several, i == 0, form));
        if (!pass_layers(&r, &c, form))
            return misfit("its layers are not those of the server's cache: other types of keys or values "
                          "(-ctk, -ctv), or another model");
        n_layers += c.n_layers;
    }
    if (form->n_layers > 0 && n_layers != (uint32_t)form->n_layers)
        return wnw__fail(WNW_E_FORMAT, "its state has %u layers, and the server's cache %d", n_layers,
                         (int)form->n_layers);
    if (form->recurrent)
        return check_recurrent(&r, &c);
    return wnw__bytes_left(&r) == 0 ? WNW_OK : misfit("bytes follow its state");
}

/* ---- Notes ---- */

static int check_token(int32_t id, const struct serve_slot_form *form, bool image)
{
    if ((image && id == NOTES_MARK) || (id >= 0 && (form->n_vocab == 0 || id < form->n_vocab)))
        return WNW_OK;
    return wnw__fail(WNW_E_FORMAT, "token %d is not in the model's vocabulary of %d", (int)id,
                     (int)form->n_vocab);
}

/* The pieces that are no text: where each begins, then each with its size. */
static bool pass_images(struct wnw__bytes *r, const int32_t *tokens, uint32_t n_tokens, uint32_t *n_images)
{
    bool good = true;
    uint64_t next = 0;
    *n_images = wnw__bytes_u32(r);
    if (r->short_of || *n_images > wnw__bytes_left(r) / sizeof(uint32_t))
        return false;
    for (uint32_t i = 0; good && i < *n_images; i++) {
        const uint64_t at = wnw__bytes_u32(r);
        good = !r->short_of && at >= next && at < n_tokens && tokens[at] == NOTES_MARK;
        next = at + 1;
    }
    for (uint32_t i = 0; good && i < *n_images; i++) {
        const uint32_t size = wnw__bytes_u32(r);
        good = size > 0 && wnw__bytes_take(r, size);
    }
    return good && wnw__bytes_left(r) < sizeof(int32_t);
}

int serve_slot_notes_check(int32_t *n_tokens, bool *several, const int32_t *notes, size_t n_notes,
                           const struct serve_slot_form *form)
{
    const int32_t *tokens = notes, most = form->n_longest > form->n_most ? form->n_longest : form->n_most;
    uint32_t n = n_notes < INT32_MAX ? (uint32_t)n_notes : UINT32_MAX, n_images = 0;
    bool good = true;
    if (n_notes > 0 && notes[0] == NOTES_MARK) {
        struct wnw__bytes r = wnw__bytes_of(notes + 1, (n_notes - 1) * sizeof *notes);
        if (wnw__bytes_u32(&r) != NOTES_VERSION)
            return misfit("its notes are of another version of llama.cpp's server");
        n = wnw__bytes_u32(&r);
        tokens = notes + 3;
        good = !r.short_of && n <= wnw__bytes_left(&r) / sizeof *notes &&
               wnw__bytes_take(&r, n * sizeof *notes) && pass_images(&r, tokens, n, &n_images);
    }
    if (!good || n > INT32_MAX)
        return misfit("its notes are not what llama.cpp's server notes");
    if (most > 0 && n > (uint32_t)most)
        return wnw__fail(WNW_E_FORMAT, "it has %u tokens, and the server's slots have room for %d", n,
                         (int)most);
    for (uint32_t i = 0; i < n; i++)
        WNW_TRY(check_token(tokens[i], form, n_images > 0));
    *n_tokens = (int32_t)n;
    *several = n_images > 0;
    return WNW_OK;
}

/* ---- Order ---- */

struct place {
    int32_t pos;
    uint32_t i;
};

static int by_position(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->pos != y->pos)
        return x->pos < y->pos ? -1 : 1;
    return (x->i > y->i) - (x->i < y->i);
}

/* The cells in the order of their positions; *order is NULL where they are in it, and else the caller's. */
static int find_order(uint32_t **order, const struct cache *c)
{
    bool sorted = true;
    *order = NULL;
    for (uint32_t i = 1; sorted && i < c->n; i++)
        sorted = position(c, i - 1) <= position(c, i);
    if (sorted)
        return WNW_OK;
    struct place *places = malloc(c->n * sizeof *places);
    *order = malloc(c->n * sizeof **order);
    for (uint32_t i = 0; places && *order && i < c->n; i++)
        places[i] = (struct place){position(c, i), i};
    if (places && *order)
        qsort(places, c->n, sizeof *places, by_position);
    for (uint32_t i = 0; places && *order && i < c->n; i++)
        (*order)[i] = places[i].i;
    free(places);
    return places && *order ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory to order %u cells", c->n);
}

/* Passes a cache, and orders its cells. */
static int sort_cache(struct wnw__bytes *r, struct cache *c, uint8_t *state,
                      const struct serve_slot_form *form)
{
    struct wnw__bytes start = *r;
    uint32_t *order = NULL;
    if (!pass_head(r, c, form) || !pass_layers(r, c, form))
        return misfit("libllama's state has another form than is known");
    int rc = find_order(&order, c);
    if (rc == WNW_OK && order) {
        struct cache again = {
            .order = order, .state = state, .bytes = state, .scratch = malloc(wnw__bytes_left(&start))};
        if (!again.scratch)
            rc = wnw__fail(WNW_E_NOMEM, "no memory to order %u cells", c->n);
        else if (!pass_head(&start, &again, form) || !pass_layers(&start, &again, form))
            rc = misfit("libllama's state has another form than is known");
        free(again.scratch);
    }
    free(order);
    return rc;
}

int serve_slot_state_sort(uint8_t *state, size_t n, const struct serve_slot_form *form)
{
    struct wnw__bytes r = wnw__bytes_of(state, n);
    uint32_t n_layers = 0;
    if (!pass_start(&r))
        return misfit("libllama's state has another form than is known");
    for (int32_t i = 0; has_more(&r, form, i, n_layers); i++) {
        struct cache c = {0};
        WNW_TRY(sort_cache(&r, &c, state, form));
        n_layers += c.n_layers;
    }
    return WNW_OK;
}

const int32_t *serve_slot_notes_tokens(const int32_t *notes, size_t n_notes)
{
    return n_notes > 3 && notes[0] == NOTES_MARK ? notes + 3 : notes;
}
