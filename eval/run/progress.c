/* SPDX-License-Identifier: MIT */
/* How far a run is. */
#include "eval/run/progress.h"

#include "app/process.h"

#include <stdio.h>
#include <unistd.h>

void eval_progress_start(struct eval_progress *p, bool quiet)
{
    p->quiet = quiet;
    p->terminal = isatty(STDERR_FILENO);
    p->start_ms = app_now_ms();
    p->last_ms = p->start_ms - (p->terminal ? 1e9 : 0);
}

void eval_progress_score(struct eval_progress *p, bool full, double score)
{
    if (full) {
        p->n_full++;
        p->sum_full += score;
    } else {
        p->n_comp++;
        p->sum_comp += score;
    }
}

static double points(double sum, int64_t n)
{
    return 100 * sum / (double)n;
}

void eval_progress_show(struct eval_progress *p, const char *task, int32_t n_target)
{
    const double now = app_now_ms();
    if (p->quiet || now - p->last_ms < (p->terminal ? 100 : 10000))
        return;
    p->last_ms = now;
    const double left =
        p->work_ran > 0 ? (p->work_all - p->work_done) * (now - p->start_ms) / p->work_ran : -1;
    char eta[32] = "?", bar[11] = "..........";
    if (left >= 0)
        snprintf(eta, sizeof eta, "%02d:%02d:%02d", (int)(left / 3.6e6), (int)(left / 6e4) % 60,
                 (int)(left / 1e3) % 60);
    for (int i = 0; i < 10 && p->n_all > 0 && i * p->n_all < 10 * p->n_done; i++)
        bar[i] = '#';
    fprintf(stderr, "%s[%s] %d/%d samples", p->terminal ? "\r\033[K" : "", bar, (int)p->n_done,
            (int)p->n_all);
    if (p->n_configs > 0)
        fprintf(stderr, "  config %d/%d", (int)p->config, (int)p->n_configs);
    fprintf(stderr, "  %s@%d  ETA %s", task, (int)n_target, eta);
    if (p->n_tokens > 0 && now > p->start_ms)
        fprintf(stderr, "  %.0f tok/s", 1e3 * (double)p->n_tokens / (now - p->start_ms));
    if (p->n_full > 0)
        fprintf(stderr, "  mean full %.0f", points(p->sum_full, p->n_full));
    if (p->n_comp > 0)
        fprintf(stderr, "  compressed %.0f", points(p->sum_comp, p->n_comp));
    if (!p->terminal)
        fputc('\n', stderr);
    fflush(stderr);
    p->shown = true;
}

void eval_progress_end(struct eval_progress *p)
{
    if (p->shown && p->terminal)
        fputs("\r\033[K", stderr);
    p->shown = false;
}
