/* SPDX-License-Identifier: MIT */
/* Masked heads in the output of the attention, or their queries in front of it: 0 in the rows of their slice, and no other
 * number changes. */
#include "asserts.h"
#include "peek_arrays.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

enum { N_LAYER = 3, MAX_SLICES = 4 };

static const struct row {
    const char *name;
    int32_t n_head, d, il;
    int32_t n_row[MAX_SLICES]; /* of each slice, up to the first 0 */
    uint32_t masked;           /* bit set of slices that have masks */
    int32_t threads;
    uint8_t how, other; /* of these heads, and of half of the others */
} rows[] = {
    {"one row, one head", 1, 8, 0, {1}, 1, 1, WNW_MASKED_OUTPUT, 0},
    {"nobody masks", 5, 7, 1, {3, 2}, 0, 2, WNW_MASKED_OUTPUT, 0},
    {"odd shapes", 9, 5, 2, {7, 1, 4}, 5, 3, WNW_MASKED_OUTPUT, WNW_MASKED_QUERY},
    {"more threads than rows", 4, 64, 1, {2}, 1, 8, WNW_MASKED_QUERY, 0},
    {"all slices", 3, 33, 2, {1, 1, 1, 13}, 15, 4, WNW_MASKED_QUERY, WNW_MASKED_OUTPUT},
};

/* Whether slice i masks head h of a layer. */
static bool is_masked(const struct row *row, int32_t i, int32_t il, int32_t h)
{
    return (row->masked >> i & 1u) && (il + 2 * h + i) % 3 == 0;
}

static void zeroes_masked_heads(void **state)
{
    const struct row *row = *state;
    uint8_t masked[MAX_SLICES][N_LAYER * 16] = {{0}};
    struct wnw__attend_slice slice[MAX_SLICES] = {{0}};
    struct wnw__attend_batch batch = {.slice = slice};
    struct wnw__attend_shared *shared;
    const struct wnw__attend_dims dims = {.model = {.n_head = row->n_head, .n_head_kv = 1, .d = row->d},
                                          .n_threads = row->threads,
                                          .n_ubatch = 64};
    assert_ok(wnw__attend_shared_new(&shared, &dims));
    for (; batch.n_slice < MAX_SLICES && row->n_row[batch.n_slice] > 0; batch.n_slice++) {
        const int32_t i = batch.n_slice;
        for (int32_t k = 0; k < N_LAYER * row->n_head; k++)
            masked[i][k] = is_masked(row, i, k / row->n_head, k % row->n_head) ? row->how
                           : k % 2                                             ? row->other
                                                                               : 0;
        slice[i] = (struct wnw__attend_slice){.first_row = batch.n_row,
                                              .n_row = row->n_row[i],
                                              .masked = row->masked >> i & 1u ? masked[i] : NULL};
        batch.n_row += row->n_row[i];
    }
    const struct wnw__attend_op op = {.shared = shared, .il = row->il, .batch = &batch};
    const size_t n = (size_t)(batch.n_row * row->n_head * row->d);
    float *out = test_random_floats(n, 3, 1), *want = test_random_floats(n, 3, 1);
    for (int32_t i = 0; i < batch.n_slice; i++)
        for (int32_t t = 0; t < slice[i].n_row; t++)
            for (int32_t k = 0; k < row->n_head * row->d; k++)
                if (is_masked(row, i, row->il, k / row->d))
                    want[(slice[i].first_row + t) * row->n_head * row->d + k] = 0;
    for (int ith = 0; ith < row->threads; ith++)
        wnw__attend_mask_run(&op, row->how, out, ith, row->threads);
    assert_memory_equal(out, want, n * sizeof *out);
    free(out);
    free(want);
    wnw__attend_shared_free(shared);
}

int main(void)
{
    return run_rows(zeroes_masked_heads, rows);
}
