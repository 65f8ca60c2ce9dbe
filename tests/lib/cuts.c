/* SPDX-License-Identifier: MIT */
#include "cuts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "peek_plan.h"
#include "peek_session.h"
#include "rounding.h"

/* The largest of some hundred errors of one size is within this of the largest of others. */
#define FACTOR 4.0
/* What float32 itself leaves: a thousand units of 2^-24, as in model/parity.c. */
#define FLOAT32 (1000 * 0x1p-24)

enum { MOST_LAYERS = 128, OTHER_UBATCH = 53 };

struct layer {
    int32_t il, row, n_head, n_head_kv, *n_entry; /* [n_head_kv] */
    float *score;                                 /* [n_head_kv][row]; NULL: not known */
    bool *kept;                                   /* [n_head_kv][row]; NULL until the layer is selected */
    bool *again;       /* [n_head_kv][row]: moved twice as far; NULL: no entry is */
    float *head_score; /* [n_head][row] or NULL */
    /* What else was looked at: norms of values [n_head_kv][row] and of query heads [n_head][row], and where scores
     * jump the window's attention [n_head][n_window][row]. NULL: it was not. */
    float *norm[WNW_N_PROJ_NORMS], *head_norm[WNW_N_PROJ_NORMS], *window;
    int32_t n_window;
};

struct test_cuts {
    struct layer layer[MOST_LAYERS];
    int32_t n;
    double *gathered[WNW_N_PART_KINDS];
    size_t n_gathered[WNW_N_PART_KINDS];
};

/* What the wrapped functions do, which the tests' single thread sets. */
static struct {
    struct test_cuts *note;
    const struct test_cuts *here, *other, *towards; /* NULL: nothing is moved */
    bool replays;       /* the numbers of `towards` take the place of those here */
    bool staged, jumps; /* facts about the last plan: is_staged, jumps */
    /* Of the observation that is shown. */
    const float *(*proj_norm)(const wnw_observation *obs, wnw_proj_norm kind);
    const float *(*head_proj_norm)(const wnw_observation *obs, wnw_proj_norm kind);
} now;

/* Whether the selector chooses twice. */
static bool is_staged(const struct wnw__draft *draft)
{
    return strncmp(wnw__selector_of(draft->policy)->part.name, "critical", 8) == 0;
}

/* Whether a small change of what the scorer sees makes a large change of scores: defensivekv raises the entries that
 * hold its mass to the largest score. */
static bool jumps(const struct wnw__draft *draft)
{
    return strcmp(draft->scorer->part.name, "defensivekv") == 0;
}

/* ---- Notes ---- */

static void *copy_of(const void *x, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    assert_non_null(copy);
    memcpy(copy, x, bytes);
    return copy;
}

static void empty(struct test_cuts *c)
{
    for (int32_t i = 0; i < c->n; i++) {
        struct layer *l = &c->layer[i];
        free(l->n_entry);
        free(l->score);
        free(l->kept);
        free(l->again);
        free(l->head_score);
        free(l->window);
        for (int32_t k = 0; k < WNW_N_PROJ_NORMS; k++) {
            free(l->norm[k]);
            free(l->head_norm[k]);
        }
    }
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        free(c->gathered[k]);
    *c = (struct test_cuts){.n = 0};
}

struct test_cuts *test_cuts_note(void)
{
    assert_null(now.note);
    now.note = calloc(1, sizeof *now.note);
    assert_non_null(now.note);
    return now.note;
}

void test_cuts_stop(void)
{
    now.note = NULL;
}

void test_cuts_free(struct test_cuts *c)
{
    if (!c)
        return;
    empty(c);
    free(c);
}

static void *zeros(size_t n, size_t size)
{
    void *x = calloc(n + 1, size);
    assert_non_null(x);
    return x;
}

struct test_cuts *test_cuts_new(int32_t n_layer, int32_t n_head_kv, int32_t n_entry)
{
    struct test_cuts *c = zeros(1, sizeof *c);
    assert_in_range(n_layer, 1, MOST_LAYERS);
    for (c->n = 0; c->n < n_layer; c->n++) {
        struct layer *l = &c->layer[c->n];
        *l = (struct layer){.il = c->n, .row = n_entry, .n_head_kv = n_head_kv};
        l->n_entry = zeros((size_t)n_head_kv, sizeof *l->n_entry);
        l->kept = zeros((size_t)n_head_kv * (size_t)n_entry, sizeof *l->kept);
        for (int32_t ih = 0; ih < n_head_kv; ih++)
            l->n_entry[ih] = n_entry;
    }
    return c;
}

void test_cuts_keep(struct test_cuts *c, int32_t k, int32_t ih, int32_t i)
{
    assert_in_range(k, 0, c->n - 1);
    const struct layer *l = &c->layer[k];
    assert_in_range(ih, 0, l->n_head_kv - 1);
    assert_in_range(i, 0, l->n_entry[ih] - 1);
    l->kept[(int64_t)ih * l->row + i] = true;
}

static size_t n_gathered(const struct wnw__draft *draft, int32_t k)
{
    const wnw_gather *g = draft->policy->part[k].head.gather;
    const wnw_shape shape = {.n_layer = draft->src->shape.n_layer,
                             .n_head = draft->src->shape.n_head,
                             .n_head_kv = draft->src->shape.n_head_kv,
                             .n_embd_head = draft->src->shape.d,
                             .n_past = draft->src->n_past};
    return draft->gathered[k] && g ? g->size(draft->policy->opts[k], &shape) : 0;
}

static struct layer *layer_of(struct test_cuts *c, int32_t il)
{
    for (int32_t i = 0; i < c->n; i++)
        if (c->layer[i].il == il)
            return &c->layer[i];
    return NULL;
}

/* A layer before it is scored. */
static void begin_layer(struct test_cuts *c, const struct wnw__draft *draft, const wnw_observation *obs)
{
    const size_t n_kv = (size_t)obs->n_head_kv, n = (size_t)obs->n;
    if (layer_of(c, obs->il)) /* the layers of another plan */
        empty(c);
    assert_cmp(c->n, <, MOST_LAYERS);
    struct layer *l = &c->layer[c->n++];
    *l = (struct layer){.il = obs->il,
                        .row = obs->n,
                        .n_head = obs->n_head,
                        .n_head_kv = obs->n_head_kv,
                        .n_entry = copy_of(obs->n_entry, n_kv * sizeof *l->n_entry)};
    if (!jumps(draft))
        return;
    l->n_window = obs->n_window;
    l->window =
        copy_of(obs->window_attn, (size_t)obs->n_head * (size_t)obs->n_window * n * sizeof *l->window);
}

static void note_scores(struct test_cuts *c, const struct wnw__scored_layer *scored)
{
    struct layer *l = layer_of(c, scored->il);
    const size_t row = (size_t)l->row;
    l->score = copy_of(scored->score, (size_t)l->n_head_kv * row * sizeof *l->score);
    if (scored->head_score)
        l->head_score = copy_of(scored->head_score, (size_t)l->n_head * row * sizeof *l->score);
}

static void note_kept(struct test_cuts *c, const struct wnw__draft *draft, int32_t il)
{
    struct layer *l = layer_of(c, il);
    const size_t row = (size_t)draft->cache.row;
    assert_non_null(l);
    l->kept = zeros((size_t)l->n_head_kv * (size_t)l->row, sizeof *l->kept);
    for (int32_t ih = 0; ih < l->n_head_kv; ih++)
        for (int32_t i = 0; i < draft->kept.n_keep[ih]; i++)
            l->kept[(int64_t)ih * l->row + draft->kept.keep[(size_t)ih * row + (size_t)i]] = true;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        free(c->gathered[k]);
        c->n_gathered[k] = n_gathered(draft, k);
        c->gathered[k] =
            c->n_gathered[k] > 0 ? copy_of(draft->gathered[k], c->n_gathered[k] * sizeof(double)) : NULL;
    }
}

/* The number of the layer among those that were scored, which is the same in both programs. */
static int32_t number_of(const struct test_cuts *c, int32_t il)
{
    const int32_t k = test_cuts_number(c, il);
    if (k < 0)
        fail_msg("layer %d was not scored before", il);
    return k;
}

/* ---- Norms, which an observation computes when it is asked ---- */

/* The norms, which are noted, or those of the other program. */
static const float *shown(const wnw_observation *obs, wnw_proj_norm kind, bool of_query_heads)
{
    const float *nu = of_query_heads ? now.head_proj_norm(obs, kind) : now.proj_norm(obs, kind);
    const size_t n = (size_t)(of_query_heads ? obs->n_head : obs->n_head_kv) * (size_t)obs->n;
    if (!nu)
        return NULL; /* they cannot be had, and the error is set */
    if (now.note) {
        struct layer *l = layer_of(now.note, obs->il);
        assert_non_null(l);
        float **to = of_query_heads ? &l->head_norm[kind] : &l->norm[kind];
        if (!*to)
            *to = copy_of(nu, n * sizeof *nu);
    }
    if (!now.replays)
        return nu;
    const struct layer *there = &now.towards->layer[number_of(now.here, obs->il)];
    const float *theirs = of_query_heads ? there->head_norm[kind] : there->norm[kind];
    assert_non_null(theirs); /* the same parts ask for the same norms */
    return theirs;
}

static const float *shown_norm(const wnw_observation *obs, wnw_proj_norm kind)
{
    return shown(obs, kind, false);
}

static const float *shown_head_norm(const wnw_observation *obs, wnw_proj_norm kind)
{
    return shown(obs, kind, true);
}

static wnw_observation observation_of(const wnw_observation *obs)
{
    wnw_observation copy = *obs;
    now.proj_norm = obs->proj_norm;
    now.head_proj_norm = obs->head_proj_norm;
    copy.proj_norm = obs->proj_norm ? shown_norm : NULL;
    copy.head_proj_norm = obs->head_proj_norm ? shown_head_norm : NULL;
    return copy;
}

/* ---- Moving ---- */

/* Whether entry i of head ih of `here` is kept there. What is hidden there is. */
static bool is_kept(const struct layer *there, const struct layer *here, int32_t ih, int32_t i)
{
    const int32_t at = i - here->n_entry[ih] + there->n_entry[ih];
    return at < 0 || there->kept[(int64_t)ih * there->row + at];
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The smallest difference between two scores of a layer. For ranks it is the step by which two near entries change places; for
 * other scores it is next to nothing. */
static double step_of(const float *score, const struct layer *l, int32_t n_row)
{
    float *sorted = zeros((size_t)n_row * (size_t)l->row, sizeof *sorted);
    size_t n = 0;
    double step = INFINITY;
    for (int32_t r = 0; r < n_row; r++)
        for (int32_t i = 0; i < l->n_entry[r / (n_row / l->n_head_kv)]; i++)
            if (isfinite(score[(int64_t)r * l->row + i]))
                sorted[n++] = score[(int64_t)r * l->row + i];
    qsort(sorted, n, sizeof *sorted, compare_floats);
    for (size_t i = 1; i < n; i++)
        if (sorted[i] > sorted[i - 1])
            step = fmin(step, (double)sorted[i] - (double)sorted[i - 1]);
    free(sorted);
    return step < INFINITY ? step : 0;
}

/* The error of a layer's scores. A selector that multiplies them with norms has the error of those, too. */
static float error_of(const float *a, const float *b, const struct layer *l, int32_t n_row)
{
    double most = step_of(a, l, n_row), largest = 0;
    for (int32_t r = 0; r < n_row; r++)
        for (int32_t i = 0; i < l->n_entry[r / (n_row / l->n_head_kv)]; i++) {
            const int64_t at = (int64_t)r * l->row + i;
            if (isfinite(a[at]) && isfinite(b[at])) {
                most = fmax(most, fabs((double)a[at] - (double)b[at]));
                largest = fmax(largest, fabs((double)a[at]));
            }
        }
    return (float)(FACTOR * most + test_rounding(FLOAT32, now.staged && !now.replays ? 1 : 0) * largest);
}

static void move_rows(float *score, const float *a, const float *b, const struct layer *here,
                      const struct layer *there, int32_t n_row)
{
    const float e = error_of(a, b, here, n_row);
    const int32_t group = n_row / here->n_head_kv;
    for (int32_t r = 0; r < n_row; r++)
        for (int32_t i = 0; i < here->n_entry[r / group]; i++) {
            const bool again = here->again && here->again[(int64_t)(r / group) * here->row + i];
            score[(int64_t)r * here->row + i] += !is_kept(there, here, r / group, i) ? -e : again ? 2 * e : e;
        }
}

static void move_scores(struct wnw__scored_layer *l)
{
    const int32_t k = number_of(now.here, l->il);
    const struct layer *here = &now.here->layer[k], *other = &now.other->layer[k],
                       *there = &now.towards->layer[k];
    const size_t row = (size_t)here->row;
    assert_int_equal(l->row, here->row);
    if (now.replays && !now.jumps) {
        memcpy(l->score, there->score, (size_t)here->n_head_kv * row * sizeof *l->score);
        if (l->head_score)
            memcpy(l->head_score, there->head_score, (size_t)here->n_head * row * sizeof *l->score);
        return;
    }
    if (now.replays)
        return; /* what they are made of was moved */
    move_rows(l->score, here->score, other->score, here, there, here->n_head_kv);
    if (l->head_score)
        move_rows(l->head_score, here->head_score, other->head_score, here, there, here->n_head);
}

/* Numbers that were gathered for budgets are the other program's, which test_same_cuts has compared. */
static void move_gathered(struct wnw__draft *draft)
{
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        if (k != WNW_PART_SCORER && draft->gathered[k] && now.towards->n_gathered[k] == n_gathered(draft, k))
            memcpy(draft->gathered[k], now.towards->gathered[k], n_gathered(draft, k) * sizeof(double));
}

static int compare_down(const void *a, const void *b)
{
    return compare_floats(b, a);
}

/* Scores by which head ih wins most nearly n_win[ih] entries that are not protected: its best ones are raised by the
 * error of the layer, and the others are lowered. No other scores within that error come nearer. */
static float *scores_that_win(int32_t k, const wnw_protected *prot, const int32_t *n_win)
{
    const struct layer *l = &now.here->layer[k];
    const float e = error_of(l->score, now.other->layer[k].score, l, l->n_head_kv);
    float *score = copy_of(l->score, (size_t)l->n_head_kv * (size_t)l->row * sizeof *score),
          *sorted = zeros((size_t)l->row, sizeof *sorted);
    for (int32_t ih = 0; ih < l->n_head_kv; ih++) {
        float *row = score + (int64_t)ih * l->row;
        const int32_t first = prot[ih].n_first, end = l->n_entry[ih] - prot[ih].n_last;
        int32_t n_equal = n_win[ih]; /* places for entries with the score of the last place */
        if (n_win[ih] < 0 || n_win[ih] > end - first)
            continue; /* no scores do: the counts differ */
        memcpy(sorted, row + first, (size_t)(end - first) * sizeof *sorted);
        qsort(sorted, (size_t)(end - first), sizeof *sorted, compare_down);
        const float last = n_win[ih] > 0 ? sorted[n_win[ih] - 1] : INFINITY;
        for (int32_t i = first; i < end; i++)
            n_equal -= row[i] > last;
        for (int32_t i = first; i < end; i++) {
            const bool wins = row[i] > last || (row[i] >= last && n_equal-- > 0);
            row[i] += wins ? e : -e;
        }
    }
    free(sorted);
    return score;
}

/* ---- The library's functions ---- */

__typeof__(wnw__draft_score) __real_wnw__draft_score, __wrap_wnw__draft_score;
int __wrap_wnw__draft_score(struct wnw__draft *draft, const wnw_observation *seen,
                            struct wnw__scored_layer *out)
{
    wnw_observation obs = observation_of(seen);
    if (now.note)
        begin_layer(now.note, draft, seen);
    if (now.replays && now.jumps)
        obs.window_attn = now.towards->layer[number_of(now.here, obs.il)].window;
    const int rc = __real_wnw__draft_score(draft, &obs, out);
    if (rc == WNW_OK && now.towards)
        move_scores(out);
    if (rc == WNW_OK && now.note)
        note_scores(now.note, out);
    return rc;
}

__typeof__(wnw__draft_count_model) __real_wnw__draft_count_model, __wrap_wnw__draft_count_model;
int __wrap_wnw__draft_count_model(struct wnw__draft *draft)
{
    if (now.towards)
        move_gathered(draft);
    return __real_wnw__draft_count_model(draft);
}

/* Where the selector chooses twice, the entries that a head keeps are not those by which it has won. */
__typeof__(wnw__draft_count_heads) __real_wnw__draft_count_heads, __wrap_wnw__draft_count_heads;
int __wrap_wnw__draft_count_heads(struct wnw__draft *draft, const struct wnw__scored_layer *l)
{
    enum { MOST_HEADS = 64 };
    int32_t n_win[MOST_HEADS] = {0};
    const int rc = __real_wnw__draft_count_heads(draft, l);
    if (rc != WNW_OK || !now.towards || now.replays || !is_staged(draft))
        return rc;
    const int32_t k = number_of(now.here, l->il);
    const struct layer *here = &now.here->layer[k], *there = &now.towards->layer[k];
    assert_in_range(here->n_head_kv, 1, MOST_HEADS);
    for (int32_t ih = 0; ih < here->n_head_kv; ih++) {
        for (int32_t i = 0; i < here->n_entry[ih]; i++)
            n_win[ih] += is_kept(there, here, ih, i);
        n_win[ih] -= draft->kept.prot[ih].n_first + draft->kept.prot[ih].n_last;
    }
    struct wnw__scored_layer moved = *l;
    moved.score = scores_that_win(k, draft->kept.prot, n_win);
    const int rc_moved = __real_wnw__draft_count_heads(draft, &moved);
    free(moved.score);
    return rc_moved;
}

__typeof__(wnw__draft_select_layer) __real_wnw__draft_select_layer, __wrap_wnw__draft_select_layer;
int __wrap_wnw__draft_select_layer(struct wnw__draft *draft, const struct wnw__scored_layer *l,
                                   const wnw_observation *seen)
{
    wnw_observation obs;
    if (seen)
        obs = observation_of(seen);
    if (now.towards)
        move_gathered(draft);
    const int rc = __real_wnw__draft_select_layer(draft, l, seen ? &obs : NULL);
    if (rc == WNW_OK && now.note) {
        note_kept(now.note, draft, l->il);
        now.staged = is_staged(draft);
        now.jumps = jumps(draft);
    }
    return rc;
}

/* ---- Comparing ---- */

static struct test_cuts *noted(const struct test_keeper *k, bool other)
{
    struct test_cuts *c = test_cuts_note();
    k->run(k->user, other);
    test_cuts_stop();
    return c;
}

int32_t test_cuts_head(const struct test_cuts *c, int32_t k, int32_t ih, int32_t *entries)
{
    assert_in_range(k, 0, c->n - 1);
    const struct layer *l = &c->layer[k];
    int32_t n = 0;
    for (int32_t i = 0; i < l->n_entry[ih]; i++)
        if (l->kept[(int64_t)ih * l->row + i])
            entries[n++] = i;
    return n;
}

int64_t test_cuts_kept(const struct test_cuts *c)
{
    int64_t n = 0;
    for (int32_t k = 0; k < c->n; k++)
        for (int64_t i = 0; c->layer[k].kept && i < (int64_t)c->layer[k].n_head_kv * c->layer[k].row; i++)
            n += c->layer[k].kept[i];
    return n;
}

int32_t test_cuts_number(const struct test_cuts *c, int32_t il)
{
    for (int32_t i = 0; i < c->n; i++)
        if (c->layer[i].il == il)
            return i;
    return -1;
}

static int64_t common(const struct test_cuts *a, const struct test_cuts *b)
{
    int64_t n = 0;
    for (int32_t k = 0; k < a->n && k < b->n; k++) {
        const struct layer *of_a = &a->layer[k], *of_b = &b->layer[k];
        for (int32_t ih = 0; ih < of_a->n_head_kv; ih++)
            for (int32_t i = 0; i < of_a->n_entry[ih]; i++)
                n += of_a->kept[(int64_t)ih * of_a->row + i] &&
                     (i >= of_a->n_entry[ih] - of_b->n_entry[ih]) && is_kept(of_b, of_a, ih, i);
    }
    return n;
}

bool test_cuts_same(const struct test_cuts *a, const struct test_cuts *b)
{
    for (int32_t k = 0; k < a->n && k < b->n; k++)
        if (memcmp(a->layer[k].n_entry, b->layer[k].n_entry,
                   (size_t)a->layer[k].n_head_kv * sizeof *a->layer[k].n_entry) != 0)
            return false;
    return a->n == b->n && common(a, b) == test_cuts_kept(a) && common(a, b) == test_cuts_kept(b);
}

/* Whether what parts gathered agrees as far as rounding goes. */
static bool gathered_are_near(const char *name, const struct test_cuts *here, const struct test_cuts *other,
                              const struct test_cuts *there)
{
    bool near = true;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        double error = 0, largest = 0, is = 0;
        if (here->n_gathered[k] == 0 || here->n_gathered[k] != there->n_gathered[k])
            continue; /* one of them has more layers, as those without a cache */
        for (size_t i = 0; i < here->n_gathered[k]; i++) {
            error = fmax(error, fabs(here->gathered[k][i] - other->gathered[k][i]));
            largest = fmax(largest, fabs(here->gathered[k][i]));
            is = fmax(is, fabs(here->gathered[k][i] - there->gathered[k][i]));
        }
        if (is <= FACTOR * error + test_rounding(FLOAT32, 8) * largest)
            continue;
        print_error("%s: numbers that the %d. part gathered differ by %g, with another rounding by %g\n",
                    name, k, is, error);
        near = false;
    }
    return near;
}

static int64_t index_of(const struct layer *l, int32_t r, int32_t i)
{
    return (int64_t)r * l->row + i;
}

/* The median size of a layer's numbers. Those that are not finite count as none. */
static double median_of(const float *x, const struct layer *l, int32_t n_row)
{
    float *sorted = zeros((size_t)n_row * (size_t)l->row, sizeof *sorted);
    size_t n = 0;
    for (int32_t r = 0; r < n_row; r++)
        for (int32_t i = 0; i < l->n_entry[r / (n_row / l->n_head_kv)]; i++)
            if (isfinite(x[index_of(l, r, i)]))
                sorted[n++] = fabsf(x[index_of(l, r, i)]);
    qsort(sorted, n, sizeof *sorted, compare_floats);
    const double median = n > 0 ? (double)sorted[n / 2] : 0;
    free(sorted);
    return median;
}

/* The largest difference of two numbers, in relation to their size and that of their layer: a few large numbers have
 * errors of their own size, and say nothing of those of others. */
static double difference(const float *a, const float *b, const struct layer *l, int32_t n_row)
{
    const double median = median_of(a, l, n_row);
    double most = 0;
    for (int32_t r = 0; r < n_row; r++)
        for (int32_t i = 0; i < l->n_entry[r / (n_row / l->n_head_kv)]; i++) {
            const int64_t at = index_of(l, r, i);
            const double d = fabs((double)a[at] - (double)b[at]);
            if (memcmp(&a[at], &b[at], sizeof *a) == 0 || d == 0)
                continue;
            most = isfinite(d) ? fmax(most, d / (fabs((double)a[at]) + median)) : INFINITY;
        }
    return most;
}

/* Whether all numbers that a layer's entries have there are within the error of those here. For ranks that is a number of places,
 * too. */
static bool rows_are_near(const char *name, const char *what, const float *here, const float *other,
                          const float *there, const struct layer *l, int32_t n_row)
{
    if (!here && !there)
        return true;
    assert_true(here && other && there);
    const double most = difference(here, there, l, n_row), median = median_of(here, l, n_row);
    const double step = median > 0 ? step_of(here, l, n_row) / median : 0;
    const double e = FACTOR * fmax(difference(here, other, l, n_row), step) + FLOAT32;
    if (most <= e)
        return true;
    print_error("%s: %s of layer %d differ by %g of their size, more than %g\n", name, what, l->il, most, e);
    return false;
}

/* Whether all that the other program has seen of the layers, and made of it, is near what is seen here. */
static bool numbers_are_near(const char *name, const struct test_cuts *here, const struct test_cuts *other,
                             const struct test_cuts *there)
{
    bool near = true;
    for (int32_t k = 0; k < here->n; k++) {
        const struct layer *a = &here->layer[k], *b = &other->layer[k], *x = &there->layer[k];
        for (int32_t i = 0; i < WNW_N_PROJ_NORMS; i++) {
            near &= rows_are_near(name, "norms", a->norm[i], b->norm[i], x->norm[i], a, a->n_head_kv);
            near &= rows_are_near(name, "norms of query heads", a->head_norm[i], b->head_norm[i],
                                  x->head_norm[i], a, a->n_head);
        }
        if (now.jumps) {
            near &= rows_are_near(name, "rows of the window", a->window, b->window, x->window, a,
                                  a->n_head * a->n_window);
            continue;
        }
        near &= rows_are_near(name, "scores", a->score, b->score, x->score, a, a->n_head_kv);
        near &= rows_are_near(name, "scores of query heads", a->head_score, b->head_score, x->head_score, a,
                              a->n_head);
    }
    return near;
}

/* Whether the numbers of the other program can take the place of those here: it has noted them, and of the same entries. */
static bool can_replay(const struct test_cuts *here, const struct test_cuts *there)
{
    for (int32_t k = 0; k < here->n; k++) {
        const struct layer *a = &here->layer[k], *x = &there->layer[k];
        if (!x->score || x->row != a->row || x->n_head != a->n_head || x->n_head_kv != a->n_head_kv ||
            x->n_window != a->n_window ||
            memcmp(x->n_entry, a->n_entry, (size_t)a->n_head_kv * sizeof *a->n_entry) != 0)
            return false;
    }
    return true;
}

/* Entries of layer k for which the moved numbers decide otherwise. */
static int64_t count_far(const char *name, const struct test_cuts *here, const struct test_cuts *other,
                         const struct test_cuts *there, const struct test_cuts *moved, int32_t k)
{
    const struct layer *l = &moved->layer[k], *to = &there->layer[k], *of = &here->layer[k];
    int64_t n_far = 0;
    for (int32_t ih = 0; ih < l->n_head_kv; ih++)
        for (int32_t i = 0; i < l->n_entry[ih]; i++)
            if (l->kept[(int64_t)ih * l->row + i] != is_kept(to, l, ih, i) && n_far++ < 2) {
                print_error("%s: entry %d of layer %d, KV head %d is kept by one alone", name, i, l->il, ih);
                if (now.replays)
                    print_error(" from the same numbers\n");
                else
                    print_error(", and its score %g is further from the cut than %g\n",
                                (double)of->score[(int64_t)ih * l->row + i],
                                (now.staged ? 3 : 2) *
                                    (double)error_of(of->score, other->layer[k].score, of, l->n_head_kv));
            }
    return n_far;
}

/* Entries that the moved scores do not keep are moved further. Returns their number. */
static int64_t move_again(struct test_cuts *here, const struct test_cuts *there,
                          const struct test_cuts *moved)
{
    int64_t n = 0;
    for (int32_t k = 0; k < here->n; k++) {
        struct layer *l = &here->layer[k];
        if (!l->again)
            l->again = zeros((size_t)l->n_head_kv * (size_t)l->row, sizeof *l->again);
        for (int32_t ih = 0; ih < l->n_head_kv; ih++)
            for (int32_t i = 0; i < l->n_entry[ih]; i++) {
                const int64_t at = (int64_t)ih * l->row + i;
                if (!l->again[at] && is_kept(&there->layer[k], l, ih, i) && !moved->layer[k].kept[at]) {
                    l->again[at] = true;
                    n++;
                }
            }
    }
    return n;
}

bool test_keeps_near(const char *name, const struct test_keeper *k, const struct test_cuts *there)
{
    int64_t n_far = 0;
    struct test_cuts *here = noted(k, false), *other = noted(k, true), *moved = NULL;
    assert_int_equal(here->n, there->n);
    assert_int_equal(here->n, other->n);
    bool near = gathered_are_near(name, here, other, there);
    now.here = here;
    now.other = other;
    now.towards = there;
    now.replays = can_replay(here, there);
    if (now.replays)
        near &= numbers_are_near(name, here, other, there);
    /* Where a selector chooses twice, an entry that the other program chose first may be chosen second here, with
     * another number to compete by. So entries that are missed are moved once more, until none is new. */
    do {
        test_cuts_free(moved);
        moved = noted(k, false);
        assert_int_equal(moved->n, here->n);
    } while (now.staged && !now.replays && move_again(here, there, moved) > 0);
    for (int32_t i = 0; i < here->n; i++)
        n_far += count_far(name, here, other, there, moved, i);
    print_message("%s: %lld of %lld kept entries in both, %lld that differ %s\n", name,
                  (long long)common(here, there), (long long)test_cuts_kept(there), (long long)n_far,
                  now.replays ? "do not follow from its scores" : "are not within the error of the cut");
    now.towards = NULL;
    now.replays = false;
    test_cuts_free(moved);
    test_cuts_free(other);
    test_cuts_free(here);
    return near && n_far == 0;
}

void test_keeps_as(const char *name, const struct test_keeper *k, const struct test_cuts *there)
{
    if (!test_keeps_near(name, k, there))
        fail_msg("%s: what is kept differs by more than rounding", name);
}

/* ---- Sessions ---- */

struct reader {
    const struct test_keep *keep;
    wnw_session *here; /* has read the tokens; plans leave it as it is */
};

static wnw_session *read_tokens(const struct test_keep *k, bool other)
{
    struct test_session want = k->want;
    if (other) {
        want.attn =
            k->m->executor ? WNW_ATTN_F32 : WNW_ATTN_GGML; /* libllama runs with our attention alone */
        want.n_ubatch = OTHER_UBATCH;
    }
    wnw_session *s = test_session_new(k->m, &want);
    assert_ok(wnw_session_begin(s, &k->run));
    assert_ok(wnw_session_prefill(s, k->tokens, k->n, NULL, NULL));
    return s;
}

static void run_session(void *user, bool other)
{
    struct reader *r = user;
    wnw_plan *plan;
    if (!other && !r->here)
        r->here = read_tokens(r->keep, false);
    wnw_session *s = other ? read_tokens(r->keep, true) : r->here;
    assert_ok(wnw_session_plan(s, r->keep->run.policy, &r->keep->size, &plan, NULL));
    wnw_plan_free(plan);
    if (other)
        wnw_session_free(s);
}

void test_session_keeps_as(const char *name, const struct test_keep *k, const struct test_cuts *there)
{
    struct reader r = {.keep = k};
    test_keeps_as(name, &(struct test_keeper){run_session, &r}, there);
    wnw_session_free(r.here);
}
