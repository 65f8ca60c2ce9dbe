/* SPDX-License-Identifier: MIT */
/*
 * Measures sessions over libllama's graphs (B) and those over winnow's own graphs (A): measure_graphs MODEL TOKENS ROUNDS.
 * One thread; CPU time. Both read the same tokens in turns and then decode in turns, a few tokens at a time, with the full cache
 * and with an eighth of it. Prints medians over rounds of B's speed divided by A's. No test: what it prints is of one machine.
 */
#include "peek_session.h"
#include "winnow_method.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DECODED = 48, CHUNK = 8, MOST_ROUNDS = 100 };
enum { A, B, N_SIDE };
enum { READ_FULL, DECODE_FULL, READ_EIGHTH, DECODE_EIGHTH, N_FIGURE };
static const char *const figures[N_FIGURE] = {"read, full cache", "decode, full cache",
                                              "read and keep an eighth", "decode over an eighth"};

struct measure {
    wnw_model *model[N_SIDE];
    wnw_session *session[N_SIDE][2]; /* full, an eighth */
    wnw_policy *policy;
    int32_t n;
    int32_t *tokens; /* [n + DECODED] */
};

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int set_up(struct measure *m, const char *path)
{
    wnw_model_info info = wnw_model_info_default();
    wnw_session_params params = wnw_session_default_params();
    const wnw_run run = {WNW_INIT(wnw_run),
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more),
                                                 .policies = (const wnw_policy *const *)&m->policy,
                                                 .n_policies = 1}};
    params.n_threads = 1;
    params.n_ubatch = 512;
    WNW_TRY(wnw_policy_parse(&m->policy, "snapkv", NULL));
    WNW_TRY(wnw_model_open(&m->model[A], path, NULL));
    WNW_TRY(wnw__model_open_foreign(&m->model[B], path, NULL));
    WNW_TRY(wnw_model_get_info(m->model[A], &info));
    m->tokens = calloc((size_t)(m->n + DECODED), sizeof *m->tokens);
    if (!m->tokens)
        return wnw__fail(WNW_E_NOMEM, "no memory for tokens");
    for (int32_t i = 0; i < m->n + DECODED; i++)
        m->tokens[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)info.n_vocab);
    for (int i = 0; i < N_SIDE * 2; i++) {
        WNW_TRY(wnw_session_new(&m->session[i / 2][i % 2], m->model[i / 2], &params));
        if (i % 2)
            WNW_TRY(wnw_session_begin(m->session[i / 2][1], &run));
    }
    return WNW_OK;
}

static int read_tokens(struct measure *m, int side, int small, double *ms)
{
    wnw_session *s = m->session[side][small];
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.875};
    WNW_TRY(wnw_session_reset(s));
    const double start = cpu_ms();
    WNW_TRY(wnw_session_prefill(s, m->tokens, m->n, NULL, NULL));
    if (small)
        WNW_TRY(wnw_session_compress(s, m->policy, &size, NULL));
    *ms = cpu_ms() - start;
    return WNW_OK;
}

static int decode(struct measure *m, int side, int small, int32_t from, double *ms)
{
    const double start = cpu_ms();
    for (int32_t i = from; i < from + CHUNK; i++)
        WNW_TRY(wnw_session_decode(m->session[side][small], m->tokens[m->n + i]));
    *ms += cpu_ms() - start;
    return WNW_OK;
}

/* ratio[N_FIGURE]: B's speed divided by A's. The first side changes from round to round. */
static int run_round(struct measure *m, int turn, double *ratio)
{
    for (int small = 0; small < 2; small++) {
        double read[N_SIDE], steps[N_SIDE] = {0};
        for (int k = 0; k < N_SIDE; k++)
            WNW_TRY(read_tokens(m, (k + turn) % N_SIDE, small, &read[(k + turn) % N_SIDE]));
        for (int32_t from = 0; from < DECODED; from += CHUNK)
            for (int k = 0; k < N_SIDE; k++)
                WNW_TRY(decode(m, (k + turn) % N_SIDE, small, from, &steps[(k + turn) % N_SIDE]));
        ratio[2 * small] = read[A] / read[B];
        ratio[2 * small + 1] = steps[A] / steps[B];
    }
    return WNW_OK;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(struct measure *m, int n_round)
{
    double ratios[N_FIGURE][MOST_ROUNDS], ratio[N_FIGURE];
    for (int k = -1; k < n_round; k++) { /* the first warms up */
        WNW_TRY(run_round(m, k + 2, ratio));
        for (int f = 0; k >= 0 && f < N_FIGURE; f++)
            ratios[f][k] = ratio[f];
    }
    for (int f = 0; f < N_FIGURE; f++) {
        qsort(ratios[f], (size_t)n_round, sizeof *ratios[f], ascending);
        printf("%d tokens, %-24s %.3f [%.3f to %.3f]\n", (int)m->n, figures[f], ratios[f][n_round / 2],
               ratios[f][0], ratios[f][n_round - 1]);
    }
    return WNW_OK;
}

int main(int argc, char **argv)
{
    struct measure m = {.n = argc == 4 ? atoi(argv[2]) : 0};
    const int n_round = argc == 4 ? atoi(argv[3]) : 0;
    if (m.n < 16 || m.n > 1 << 20 || n_round < 1 || n_round > MOST_ROUNDS) {
        fprintf(stderr, "usage: measure_graphs MODEL.gguf TOKENS ROUNDS (1 to %d)\n", MOST_ROUNDS);
        return 2;
    }
    int rc = set_up(&m, argv[1]);
    if (rc == WNW_OK)
        rc = measure(&m, n_round);
    if (rc != WNW_OK)
        fprintf(stderr, "measure_graphs: %s\n", wnw_last_error());
    for (int i = 0; i < N_SIDE * 2; i++)
        wnw_session_free(m.session[i / 2][i % 2]);
    wnw_model_free(m.model[A]);
    wnw_model_free(m.model[B]);
    wnw_policy_free(m.policy);
    free(m.tokens);
    return rc == WNW_OK ? 0 : 1;
}
