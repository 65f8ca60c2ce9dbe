/* SPDX-License-Identifier: MIT */
#include "bench/peak.h"

#include "app/console.h"
#include "app/process.h"
#include "base/err.h"
#include "bench/peak_kernel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One run takes about as long as a slice of the scheduler, so that some runs are not interrupted. */
enum { RUNS = 5, RUN_MS = 15, WARM_REPS = 20000 };
#define MIN_BUFFER (256l << 20)
#define MAX_BUFFER (2048l << 20)

static const char *const names[] = {"read bandwidth", "float32", "bf16", "int8"};

const char *bench_peak_name(enum bench_peak_kind kind)
{
    return names[kind];
}

/* ---- The same work on all threads ---- */

enum { WAIT, GO, LEAVE };

struct team {
    int32_t n_threads;
    atomic_int state;
    const struct bench_peak_kernel *kernel; /* NULL: read the buffer */
    int64_t reps;
    const uint64_t *buffer; /* [n_words] */
    size_t n_words;
};

struct member {
    struct team *team;
    pthread_t thread;
    int32_t i;
    volatile uint64_t sum;
};

/* Sums of many lanes do not wait for each other. */
static uint64_t read_words(const uint64_t *p, size_t n)
{
    enum { LANES = 32 };
    uint64_t sum[LANES] = {0}, all = 0;
    for (size_t i = 0; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            sum[k] += p[i + k];
    for (int k = 0; k < LANES; k++)
        all += sum[k];
    return all;
}

static void do_share(struct member *m)
{
    const struct team *t = m->team;
    const size_t share = t->n_words / (size_t)t->n_threads;
    if (t->kernel)
        t->kernel->run(t->reps);
    else
        m->sum = read_words(t->buffer + share * (size_t)m->i, share);
}

static void *run_member(void *user)
{
    struct member *m = user;
    int state;
    while ((state = atomic_load(&m->team->state)) == WAIT)
        sched_yield();
    if (state == GO)
        do_share(m);
    return NULL;
}

/* Sets *ms to the time in which all threads have done their share. */
static int run_team(struct team *t, double *ms)
{
    struct member *members = calloc((size_t)t->n_threads, sizeof *members);
    int32_t n = 1;
    if (!members)
        return app_fail(APP_FAILED, "out of memory");
    atomic_init(&t->state, WAIT);
    for (int32_t i = 0; i < t->n_threads; i++)
        members[i] = (struct member){.team = t, .i = i};
    while (n < t->n_threads && pthread_create(&members[n].thread, NULL, run_member, &members[n]) == 0)
        n++;
    const double start = app_now_ms();
    atomic_store(&t->state, n == t->n_threads ? GO : LEAVE);
    if (n == t->n_threads)
        do_share(&members[0]);
    for (int32_t i = 1; i < n; i++)
        pthread_join(members[i].thread, NULL);
    *ms = app_now_ms() - start;
    free(members);
    return n == t->n_threads
               ? APP_OK
               : app_fail(APP_FAILED, "the system lets %d threads start, not %d", (int)n, (int)t->n_threads);
}

/* ---- The rates ---- */

static void raise_to(struct bench_peak *peak, double rate, const char *how)
{
    if (rate > peak->rate)
        *peak = (struct bench_peak){.rate = rate, .how = how};
}

static int measure_kernel(struct bench_peak *peaks, const struct bench_peak_kernel *k, int32_t n_threads)
{
    struct team t = {.n_threads = n_threads, .kernel = k, .reps = WARM_REPS};
    double ms;
    WNW_TRY(run_team(&t, &ms));
    if (ms > 0)
        t.reps = (int64_t)(WARM_REPS * RUN_MS / ms) + 1;
    for (int run = 0; run < RUNS; run++) {
        WNW_TRY(run_team(&t, &ms));
        raise_to(&peaks[k->kind], (double)t.reps * k->ops * n_threads / (ms * 1e-3), k->how);
    }
    return APP_OK;
}

static int measure_kernels(struct bench_peak *peaks, const struct bench_peak_kernel *list, int32_t n_threads)
{
    for (; list && list->run; list++)
        WNW_TRY(measure_kernel(peaks, list, n_threads));
    return APP_OK;
}

/* A buffer that no cache holds. */
static size_t buffer_bytes(void)
{
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE), wanted = cache > 0 ? 4 * cache : 0;
    const long least = wanted < MIN_BUFFER ? MIN_BUFFER : wanted;
    return (size_t)(least > MAX_BUFFER ? MAX_BUFFER : least);
}

static int measure_reading(struct bench_peak *peak, int32_t n_threads)
{
    const size_t bytes = buffer_bytes();
    uint64_t *buffer = malloc(bytes);
    if (!buffer)
        return app_fail(APP_FAILED, "no memory for %zu bytes that measure the read bandwidth", bytes);
    memset(buffer, 1, bytes);
    struct team t = {.n_threads = n_threads, .buffer = buffer, .n_words = bytes / sizeof *buffer};
    int rc = APP_OK;
    for (int run = 0; run < RUNS && rc == APP_OK; run++) {
        double ms = 0;
        rc = run_team(&t, &ms);
        if (rc == APP_OK)
            raise_to(peak, (double)bytes / (ms * 1e-3), "sum of words");
    }
    free(buffer);
    return rc;
}

int bench_peaks_measure(struct bench_peak *peaks, int32_t n_threads)
{
    const struct bench_peak_kernel *const lists[] = {bench_peak_scalar(),     bench_peak_avx2(),
                                                     bench_peak_avxvnni(),    bench_peak_avx512(),
                                                     bench_peak_avx512vnni(), bench_peak_avx512bf16()};
    int rc = measure_reading(&peaks[PEAK_READ], n_threads);
    for (size_t i = 0; i < sizeof lists / sizeof *lists && rc == APP_OK; i++)
        rc = measure_kernels(peaks, lists[i], n_threads);
    for (int k = 0; k < N_PEAKS; k++)
        if (!peaks[k].how)
            peaks[k].how = "";
    return rc;
}
