/* SPDX-License-Identifier: MIT */
/*
 * Slots of the server in files: any bytes, with a checksum that is set here, so that what it guards is reached too. What is accepted must hold
 * what it says: a cell for each token, in order. The first byte of an input says whether the checksum is set, and which context reads the file.
 */
#include "fuzz.h"

#include "serve/slot_file.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { MAGIC = 16, SEALED = 1, WINDOW = 2, RECURRENT = 4, PARTS = 8, UNKNOWN = 16 };

static struct serve_slot_form form_of(int kind)
{
    struct serve_slot_form form = {.model = {7, 8},
                                   .n_vocab = 100,
                                   .n_most = 64,
                                   .n_longest = kind & PARTS ? 0 : 200,
                                   .n_cells = 64,
                                   .n_window_cells = kind & WINDOW ? 6 : 0,
                                   .n_layers = kind & WINDOW ? 3 : 2,
                                   .n_heads = 6,
                                   .type_k = 1,
                                   .type_v = 1,
                                   .row_bytes = 256,
                                   .window_bytes = 1024,
                                   .n_rows = 2,
                                   .rows = {{16, 16}, {24, 8}},
                                   .ext_bytes = kind & PARTS ? 12 : 0,
                                   .recurrent = (kind & RECURRENT) != 0};
    if (kind & UNKNOWN) {
        form.n_rows = form.n_layers = 0;
        form.type_k = form.type_v = -1;
    }
    return form;
}

/* Sets the checksum of a file that is long enough to have one. */
static void seal(uint8_t *bytes, size_t size)
{
    const size_t rest = MAGIC + sizeof(struct serve_slot_file),
                 at = MAGIC + offsetof(struct serve_slot_file, sum);
    if (size < rest)
        return;
    XXH3_state_t *state = XXH3_createState();
    fuzz_require(state != NULL, "no memory for a checksum");
    memset(bytes + at, 0, sizeof(uint64_t));
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, bytes + rest, size - rest);
    XXH3_64bits_update(state, bytes + MAGIC, rest - MAGIC);
    const uint64_t sum = XXH3_64bits_digest(state);
    memcpy(bytes + at, &sum, sizeof sum);
    XXH3_freeState(state);
}

/* What was accepted is in order already, and is accepted again. */
static void look(struct serve_slot_read *x, const struct serve_slot_form *form)
{
    const size_t n = (size_t)x->file.state_bytes;
    fuzz_require(x->file.n_sequence >= 0 && x->file.n_sequence <= form->n_cells, "more tokens than cells");
    fuzz_require(strlen(x->file.by.recipe) < sizeof x->file.by.recipe || !x->file.compressed,
                 "a recipe without end");
    for (int32_t k = 0; k < x->file.n_at; k++) {
        const int32_t *at = x->notes + x->file.n_tokens + k;
        fuzz_require(*at >= k && (uint64_t)*at < x->file.n_tokens && (k == 0 || *at > at[-1]),
                     "positions that do not rise");
    }
    if (x->file.n_sequence == 0)
        return;
    uint8_t *copy = malloc(n + 1);
    fuzz_require(copy != NULL, "no memory for a state");
    memcpy(copy, x->state, n);
    fuzz_require(serve_slot_state_sort(copy, n, form) == WNW_OK && memcmp(copy, x->state, n) == 0,
                 "a state that is not in order");
    fuzz_require(serve_slot_file_check(&x->file, x->notes, x->state, form) == WNW_OK,
                 "a file that is accepted once");
    free(copy);
}

/* A state that libllama might give: it may have any order, and is in order afterwards, or refused. */
static void sort(const uint8_t *bytes, size_t size, const struct serve_slot_form *form)
{
    uint8_t *copy = malloc(size + 1);
    fuzz_require(copy != NULL, "no memory for a state");
    memcpy(copy, bytes, size);
    if (fuzz_status(serve_slot_state_sort(copy, size, form)))
        fuzz_require(serve_slot_state_sort(copy, size, form) == WNW_OK, "a state that is in order once");
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct serve_slot_read read;
    const size_t front = 1 + MAGIC + sizeof(struct serve_slot_file);
    if (size < 1)
        return 0;
    const struct serve_slot_form form = form_of(data[0]);
    uint8_t *bytes = malloc(size);
    fuzz_require(bytes != NULL, "no memory for an input");
    memcpy(bytes, data + 1, size - 1);
    if (data[0] & SEALED)
        seal(bytes, size - 1);
    const bool opened = fuzz_status(serve_slot_file_read(&read, fuzz_file(bytes, size - 1), &form));
    fuzz_require(opened == (read.notes != NULL), "an error and a slot at once, or neither");
    if (opened)
        look(&read, &form);
    serve_slot_read_clear(&read);
    if (size > front)
        sort(data + front, size - front, &form);
    free(bytes);
    return 0;
}
