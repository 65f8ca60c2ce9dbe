/* SPDX-License-Identifier: MIT */
/*
 * Gates on hidden states (gates.h): for every KV head a linear form of the hidden state after the norm before the layer's
 * attention. It predicts the scores of KVzip or KVzip+. KVzap's linear gates (arXiv 2601.07891) are of this form and have the
 * target KVzip+; these here are fitted in closed form. The heads of a layer have the same features and a target each.
 */
#include "base/json.h"
#include "calibrate/gates.h"
#include "observe/recorders.h"
#include "observe/token_rows.h"
#include "profile/profile.h"
#include "session/session.h"

#include <stdlib.h>
#include <string.h>

static const char *const targets[] = {"kvzip", "kvzip_plus", NULL};

struct opts {
    struct wnw__gates_opts gates;
    int32_t target, reach;
};

static int see_layer(struct wnw__gates *g, struct wnw__looked *l, int32_t i_layer)
{
    const struct wnw__token_rows *inputs = wnw__recorders_find(&l->s->recorders, &wnw__inputs_recorder);
    const struct wnw__token_rows_layer *of = &inputs->layers[g->il[i_layer]];
    const size_t n_embd = (size_t)g->n_feature, n = (size_t)l->n * n_embd;
    if (of->n != l->n_first + l->n)
        return wnw__fail(WNW_E_NOT_OBSERVED, "hidden states of %d tokens, not %d", (int)of->n,
                         (int)(l->n_first + l->n));
    float *x = malloc(n * sizeof *x);
    if (!x)
        return wnw__fail(WNW_E_NOMEM, "no memory for the hidden states of %d tokens", (int)l->n);
    memcpy(x, wnw__token_rows_at(inputs, g->il[i_layer], l->n_first), n * sizeof *x);
    const int rc = wnw__gates_take(g, l, i_layer, 0, x);
    free(x);
    return rc;
}

/* ---- The results ---- */

static void report_row(struct wnw__calibrate_text *out, const char *name, const struct wnw__held_out *h)
{
    wnw__calibrate_print(out, "%-20.20s  %9.3f  %9.3f\n", name, h->within[0], h->over_all[0]);
}

/* Sets the gates of the layers that take part. */
static void set_gates(const struct wnw__gates *g, struct wnw__input_gate *gate)
{
    const int64_t n_head = g->c->info.n_head_kv, n_embd = g->n_feature;
    for (int32_t i = 0; i < g->n_layer; i++) {
        float *to = gate->number + g->il[i] * wnw__input_numbers(gate, &g->c->shape);
        memcpy(to, g->weight + i * n_head * n_embd, (size_t)(n_head * n_embd) * sizeof *to);
        memcpy(to + n_head * n_embd, g->bias + i * n_head, (size_t)n_head * sizeof *to);
        gate->there[g->il[i]] = true;
    }
}

static int finish(struct wnw__gates *g, struct wnw__input_gate *gate)
{
    const int64_t entries = wnw__gates_entries(g);
    char columns[64];
    struct wnw__calibrate_text *out;
    WNW_TRY(wnw__calibrate_output(g->c, "report", &out));
    wnw__calibrate_print(
        out, "gates on hidden states from %s: %lld entries of each of %d heads, %d numbers an entry\n",
        g->target, (long long)entries, (int)g->n_row, (int)g->n_feature);
    snprintf(columns, sizeof columns, "%-20s  %9s  %9s", "", "in a head", "over all");
    wnw__gates_tell(g, out, columns, report_row);
    set_gates(g, gate);
    json_t *more = json_pack("{s:I}", "entries", (json_int_t)entries);
    json_t *results =
        json_pack("{s:o, s:o, s:o}", "layers", wnw__profile_input_layers(gate, &g->c->shape), "thresholds",
                  wnw__json_f64s(g->tau, WNW_GATES_TAU), "held_out", wnw__gates_held_out(g));
    return wnw__calibrate_profile(g->c, "inputgate.json", "inputgate", more, results);
}

/* ---- The run ---- */

static int work(struct wnw__gates *g, struct wnw__input_gate *gate)
{
    WNW_TRY(wnw__gates_prepare(g));
    WNW_TRY(wnw__gates_note_fit(g));
    if (!wnw__profile_input_settings(gate, g->c->settings))
        return wnw__fail(WNW_E_NOMEM, "no memory for the settings of gates");
    WNW_TRY(wnw__input_gate_new(gate, &g->c->shape));
    WNW_TRY(wnw__gates_run(g));
    return finish(g, gate);
}

static int run(wnw_calibration *c, const void *opts)
{
    const struct opts *o = opts;
    struct wnw__input_gate gate = {.form = WNW_INPUT_LINEAR, .n_embd = c->info.n_embd};
    struct wnw__gates g = {.c = c,
                           .o = &o->gates,
                           .pieces = {.quick = 2, .normal = 4, .paper = 16},
                           .length = 3000, /* prompts up to twice that: decision 118 */
                           .target = targets[o->target],
                           .record = wnw__inputs_recorder.name,
                           .see = see_layer,
                           .n_feature = c->info.n_embd,
                           .n_target = c->info.n_head_kv,
                           .ranked_by = {"gate"},
                           .n_ranked = 1};
    const int rc = work(&g, &gate);
    wnw__gates_free(&g);
    wnw__input_gate_free(&gate);
    return rc;
}

static const wnw_option options[] = {{.name = "target",
                                      .help = "whose scores are predicted",
                                      .type = WNW_OPT_ENUM,
                                      .offset = offsetof(struct opts, target),
                                      .choices = targets},
                                     WNW_OPTIONS_GATES("2, 4, 16", "3000"),
                                     {.name = "reach",
                                      .help = "tokens of the longest prompts that auto asks them for; 0 = "
                                              "twice length",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, reach),
                                      .max = 1000000000},
                                     {0}};

const struct wnw__calibrate_type wnw__calibrate_inputgate = {
    .name = "inputgate",
    .about = "A linear form of hidden states for every KV head that predicts the scores of KVzip or KVzip+, "
             "for the "
             "scorer inputgate.",
    .options = options,
    .options_size = sizeof(struct opts),
    .reads_text = true,
    .run = run,
};
