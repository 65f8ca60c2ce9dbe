/* SPDX-License-Identifier: MIT */
/* Recorder of what the attention of every layer reads of a prompt: the hidden states after the layer's first norm, which
 * gates on hidden states are learned from. No policy asks for it: one that follows gates has them evaluated while tokens
 * are read (input_gates.c), so that no hidden state is kept. */
#include "observe/recorders.h"
#include "observe/token_rows.h"

static int open_inputs(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    struct wnw__token_rows *k;
    (void)arg;
    const int rc = wnw__token_rows_open(&k, shape->model.n_layer, (size_t)shape->n_embd, WNW_KV_F32);
    *rec = k;
    return rc;
}

static int stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    (void)rec;
    (void)il;
    return point == WNW_POINT_INPUT && !pass->generated;
}

const struct wnw__recorder_type wnw__inputs_recorder = {
    .name = "inputs",
    .open = open_inputs,
    .free = wnw__token_rows_close,
    .copy = wnw__token_rows_copy,
    .begin = wnw__token_rows_reserve,
    .reserve = wnw__token_rows_reserve,
    .stages = stages,
    .take = wnw__token_rows_take,
    .commit = wnw__token_rows_commit,
    .told = wnw__token_rows_told,
    .rewound = wnw__token_rows_rewound,
};
