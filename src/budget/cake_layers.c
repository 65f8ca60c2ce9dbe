/* SPDX-License-Identifier: MIT */
/*
 * CAKE's layer budgets: layers whose attention is spread out and changes over the window get more. Paper:
 * "CAKE: Cascading and Adaptive KV Cache Eviction with Layer Preferences" (arXiv 2503.12491). With a_h[i][j]
 * the attention of the last w queries on the S - w entries before the window, not renormalised (Var has divisor
 * w - 1):
 *
 *     H_l = - sum_h sum_i sum_j a ln(a + 1e-10)       V_l = sum_h sum_j Var_i a;
 *     P_l = H_l^(1/tau1) V_l^(1/tau2)                 Tt = (B - w) L, cap = S - w;
 *     b_l = adjust(trunc(P_l / sum P Tt))             B_l = b_l + w
 *
 * adjust: entries over cap, then entries missing from Tt, are spread evenly over the layers that have room.
 *
 * cascade:  as each layer m is finished, the layers 0 .. m share Tt among them and shrink to that. A layer's
 *           entries are the best of the best, so its count is the smallest b_l of all m >= l (default).
 * oneshot:  one allocation over all layers, with an exact total.
 * paper:    cascade, and prompts of up to B + w tokens stay whole, as in the authors' code.
 *
 * Early shares of a cascade can be smaller than the last one. So it may keep a little less than asked for, never
 * more. The authors tune tau1, tau2 per model and budget; 1, 1 is neutral. Cost O(H_q w n) logarithms.
 */
#include "method/window.h"

#include <math.h>

enum form { FORM_CASCADE, FORM_ONESHOT, FORM_PAPER };

struct opts {
    struct wnw__layer_opts common;
    int32_t window;
    double tau1, tau2;
    int32_t form;
};

static void gather_needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_WINDOW_ATTN;
    out->window = o->window;
}

static size_t gather_size(const void *opts, const wnw_shape *shape)
{
    (void)opts;
    return (size_t)shape->n_layer;
}

/* Adds one head's share: a[n_row][stride], n entries before the window. */
static void add_head(const float *a, int32_t n_row, int32_t stride, int32_t n, double *h, double *v)
{
    for (int32_t j = 0; j < n; j++) {
        double mean = 0, var = 0;
        for (int32_t w = 0; w < n_row; w++) {
            const double x = (double)a[(int64_t)w * stride + j];
            mean += x / n_row;
            *h -= x * log(x + 1e-10);
        }
        for (int32_t w = 0; w < n_row; w++) {
            const double dev = (double)a[(int64_t)w * stride + j] - mean;
            var += dev * dev;
        }
        *v += n_row > 1 ? var / (n_row - 1) : 0;
    }
}

static int gather_layer(const void *opts, const wnw_observation *obs, double *by_layer)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv, n_row = wnw__window_rows(obs, o->window);
    double h = 0, v = 0;
    for (int32_t head = 0; head < obs->n_head; head++)
        add_head(wnw__window_of(obs, head) + (int64_t)(obs->n_window - n_row) * obs->n, n_row, obs->n,
                 wnw__window_n_old(obs, head / group, n_row), &h, &v);
    by_layer[obs->il] = h > 0 && v > 0 ? pow(h, 1 / o->tau1) * pow(v, 1 / o->tau2) : 0;
    return WNW_OK;
}

static const wnw_gather gather = {.size = gather_size, .needs = gather_needs, .visit = gather_layer};

/* Adds `amount` (or takes it, if negative) evenly over the layers with room; the first ones get the rest. */
static void spread(double *b, int32_t m, double amount, double cap)
{
    int32_t room = 0;
    for (int32_t l = 0; l < m; l++)
        room += amount > 0 ? b[l] < cap : b[l] > 1;
    if (room == 0 || amount == 0)
        return;
    const double each = floor(fabs(amount) / room);
    double rest = fabs(amount) - each * room;
    for (int32_t l = 0; l < m; l++) {
        if (!(amount > 0 ? b[l] < cap : b[l] > 1))
            continue;
        b[l] += (each + (rest > 0 ? 1 : 0)) * (amount > 0 ? 1 : -1);
        rest -= 1;
    }
}

static double clip(double *b, int32_t m, double cap)
{
    double excess = 0;
    for (int32_t l = 0; l < m; l++) {
        excess += b[l] > cap ? b[l] - cap : 0;
        b[l] = b[l] > cap ? cap : b[l];
    }
    return excess;
}

static double missing(const double *b, int32_t m, double total)
{
    for (int32_t l = 0; l < m; l++)
        total -= b[l];
    return total;
}

/* b[m] = shares of the first m layers that take part. exact: they are adjusted until they add up and fit. */
static void share(const wnw_layer_problem *p, int32_t m, double total, double cap, bool exact, double *b)
{
    double sum = 0;
    for (int32_t l = 0; l < m; l++)
        sum += p->gathered[p->il[l]];
    for (int32_t l = 0; l < m; l++)
        b[l] = floor((sum > 0 ? p->gathered[p->il[l]] / sum : 1.0 / m) * total);
    do {
        spread(b, m, clip(b, m, cap), cap);
        spread(b, m, missing(b, m, total), cap);
    } while (exact && (clip(b, m, cap) > 0 || missing(b, m, total) > 0) && cap * m >= total);
}

static int allocate(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    const struct opts *o = opts;
    (void)warning;
    const int32_t cap = p->n - p->n_protected, n_layer = p->n_layer;
    const double total = (double)(p->budget - p->n_protected) * n_layer;
    const bool whole = o->form == FORM_PAPER && p->n <= p->budget + p->n_protected;
    for (int32_t l = 0; l < n_layer; l++)
        n_keep[l] = cap;
    for (int32_t m = o->form == FORM_ONESHOT ? n_layer : 1; m <= n_layer && !whole; m++) {
        share(p, m, total, cap, o->form == FORM_ONESHOT, p->work);
        for (int32_t l = 0; l < m; l++)
            if (p->work[l] < n_keep[l])
                n_keep[l] = p->work[l] > 0 ? (int32_t)p->work[l] : 0;
    }
    for (int32_t l = 0; l < n_layer; l++)
        n_keep[l] += p->n_protected;
    return WNW_OK;
}

static const char *const forms[] = {"cascade", "oneshot", "paper", NULL};

static const wnw_option options[] = {
    WNW_OPTION_ROUNDING,
    {.name = "window",
     .help = "last prompt tokens whose queries are looked at",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, window),
     .def = 32,
     .min = 2,
     .max = 4096},
    {.name = "tau1",
     .help = "temperature of the dispersion of a layer's attention",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, tau1),
     .def = 1,
     .min = 0.05,
     .max = 100},
    {.name = "tau2",
     .help = "temperature of its change over the window",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, tau2),
     .def = 1,
     .min = 0.05,
     .max = 100},
    {.name = "form",
     .help = "cascade: shrink as layers come; oneshot: exact total; paper: prompts just above the size whole",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, form),
     .def = FORM_CASCADE,
     .choices = forms},
    {0}};

const wnw_layer_budget wnw__layer_budget_cake_layers = {
    .part = {WNW_LAYER_BUDGET_INIT, .name = "cake_layers",
             .about = "More entries for layers whose attention is spread out and changes over the window.",
             .paper = "CAKE, arXiv 2503.12491",
             .details =
                 "`H_l = -sum a ln(a + 1e-10)`, `V_l = sum Var_i a` over the heads, the last `w` queries and "
                 "the entries before them; `P_l = H_l^(1/tau1) V_l^(1/tau2)` and `b_l` in proportion to it, "
                 "from `(B - w) L` entries and at most `S - w` each.\n\n"
                 "`cascade` re-shares after every layer and never gives back, which can keep slightly less "
                 "than asked; it is worked out from the final scores, with the same result as shrinking on "
                 "the way. `oneshot` has an exact total.\n\n"
                 "tau1 and tau2 are 1 unless given. The authors tuned them for budgets of 128 and of 1024 "
                 "entries: "
                 "Llama-3.1-8B-Instruct 1.6, 0.6 and 1.6, 0.4; Mistral-7B-Instruct-v0.3 1, 0.8 and 0.8, 0.5; "
                 "Qwen2.5-7B 0.4, 0.6 and 1.5, 0.6; Llama-2-7B-chat 0.9, 2.3 and 1.9, 1.8; Llama-2-13B-chat "
                 "1.8, 2 "
                 "and 0.5, 0.4. CompressKV's comparison takes the first pair up to 256 entries.\n\n"
                 "Cost O(w n) logarithms per query head.",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES | WNW_FLAG_ALL_LAYERS, .gather = &gather},
    .allocate = allocate,
};
