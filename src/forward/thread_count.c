/* SPDX-License-Identifier: MIT */
#include "forward/thread_count.h"

/* A sample is long enough to tell a crowd from the switches of a quiet machine, some tens a second, and short
 * enough that a trial costs little. */
static const double SAMPLE_MS = 60;
static const int32_t SAMPLE_GRAPHS = 3;
static const double LONG_MS = 200; /* a sample of fewer graphs, of a prompt's pieces for example */

static const double CROWDED = 0.1; /* switches per millisecond */
static const double FASTER = 0.97; /* a trial is kept that takes less than this share of the usual time */

/* Milliseconds until the next trial after trials in vain; never less than WAIT_SAMPLES samples take. */
static const double WAIT = 500, WAIT_MOST = 8000, WAIT_SAMPLES = 10;

struct wnw__thread_count wnw__thread_count_new(int32_t n_max)
{
    const struct wnw__thread_count_way way = {.step = 1, .wait = WAIT};
    return (struct wnw__thread_count){.n_max = n_max, .n = n_max, .fewer = way, .more = way};
}

static void empty_sample(struct wnw__thread_count *c)
{
    c->ms = 0;
    c->n_graph = 0;
    c->switches = 0;
}

/* Half of what is missing. */
static int32_t first_rise(const struct wnw__thread_count *c)
{
    return (c->n_max - c->n + 1) / 2;
}

/* No step this way has helped. */
static void wait_longer(struct wnw__thread_count_way *way, double now, double sample)
{
    way->at = now + (way->wait > WAIT_SAMPLES * sample ? way->wait : WAIT_SAMPLES * sample);
    way->wait = 2 * way->wait < WAIT_MOST ? 2 * way->wait : WAIT_MOST;
}

static void keep_trial(struct wnw__thread_count *c, double mean, double now)
{
    const struct wnw__thread_count_way fresh = {.step = 1, .at = now, .wait = WAIT};
    const int fell = c->trial < c->n;
    c->n = c->trial;
    c->usual = mean;
    c->fewer = c->more = fresh;
    c->more.step = first_rise(c);
    if (fell) /* more threads were just seen to be slower */
        c->more.at = now + WAIT;
}

/* One core more that is taken slows all threads down, so that a small step may show nothing where a larger one
 * helps; on the way back it is the other way round. */
static void drop_trial(struct wnw__thread_count *c, double now)
{
    if (c->trial < c->n && 2 * c->fewer.step < c->n) {
        c->fewer.step *= 2;
    } else if (c->trial < c->n) {
        c->fewer.step = 1;
        wait_longer(&c->fewer, now, c->ms);
    } else if (c->more.step > 1) {
        c->more.step /= 2;
    } else {
        c->more.step = first_rise(c);
        wait_longer(&c->more, now, c->ms);
    }
}

/* The sample with the usual number of threads is complete. */
static void begin_trial(struct wnw__thread_count *c, double mean, double now)
{
    c->usual = mean;
    if (c->n > 1 && now >= c->fewer.at && (double)c->switches >= CROWDED * c->ms)
        c->trial = c->n - c->fewer.step;
    else if (c->n < c->n_max && now >= c->more.at)
        c->trial = c->n + c->more.step;
}

void wnw__thread_count_note(struct wnw__thread_count *c, int32_t rows, double ms, double now,
                            int64_t switches)
{
    if (c->n_max < 2 || c->fixed)
        return;
    if (rows != c->rows) { /* times of other graphs cannot be compared */
        c->rows = rows;
        c->trial = 0;
        empty_sample(c);
    }
    c->ms += ms;
    c->n_graph++;
    c->switches += switches;
    if (c->ms < (c->n_graph < SAMPLE_GRAPHS ? LONG_MS : SAMPLE_MS))
        return;
    const double mean = c->ms / c->n_graph;
    if (!c->trial) {
        begin_trial(c, mean, now);
    } else {
        if (mean < FASTER * c->usual)
            keep_trial(c, mean, now);
        else
            drop_trial(c, now);
        c->trial = 0;
    }
    empty_sample(c);
}
