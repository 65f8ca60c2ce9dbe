/* SPDX-License-Identifier: MIT */
/* What the benchmarks share: lengths, tokens, the line about the machine, medians. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int bench_parse_lengths(int32_t *lengths, int32_t *n_lengths, const char *text)
{
    char *list = strdup(text), *save = NULL;
    int rc = CLI_OK;
    *n_lengths = 0;
    if (!list)
        return cli_fail(CLI_FAILED, "out of memory");
    for (char *word = strtok_r(list, ",", &save); word && rc == CLI_OK; word = strtok_r(NULL, ",", &save)) {
        int64_t n;
        if (!cli_parse_int(&n, word))
            rc = cli_fail(CLI_BAD_INPUT, "--lengths: '%s' is not a whole number", word);
        else if (n < 16 || n > 1 << 24)
            rc = cli_fail(CLI_BAD_INPUT, "--lengths: %s is out of range; it must be 16 to 16777216", word);
        else if (*n_lengths == BENCH_MAX_LENGTHS)
            rc = cli_fail(CLI_BAD_INPUT, "--lengths: at most %d lengths", BENCH_MAX_LENGTHS);
        else
            lengths[(*n_lengths)++] = (int32_t)n;
    }
    free(list);
    if (rc == CLI_OK && *n_lengths == 0)
        rc = cli_fail(CLI_BAD_INPUT, "--lengths is empty; give numbers, e.g. 512,2048");
    return rc;
}

int32_t *bench_make_tokens(int32_t n, int32_t n_vocab)
{
    uint64_t state = 42;
    int32_t *tokens = calloc((size_t)n + 1, sizeof *tokens);
    for (int32_t i = 0; tokens && i < n; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        tokens[i] = (int32_t)((state >> 33) % (uint64_t)n_vocab);
    }
    return tokens;
}

void bench_describe_machine(char *out, size_t size, int32_t n_threads)
{
    char cpu[160] = "unknown CPU", line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            snprintf(cpu, sizeof cpu, "%.*s", (int)strcspn(colon + 1, "\n") - 1, colon + 2);
            break;
        }
    }
    if (f)
        fclose(f);
    snprintf(out, size, "%s, %d threads, %s attention kernels", cpu, n_threads, wnw_kernel_name());
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct bench_spread bench_spread_of(double *v, int32_t n)
{
    int32_t n_good = 0;
    for (int32_t i = 0; i < n; i++)
        if (!isnan(v[i]))
            v[n_good++] = v[i];
    if (n_good == 0)
        return (struct bench_spread){NAN, NAN, NAN};
    qsort(v, (size_t)n_good, sizeof *v, compare);
    const int32_t mid = n_good / 2;
    return (struct bench_spread){
        .median = n_good % 2 ? v[mid] : 0.5 * (v[mid - 1] + v[mid]), .min = v[0], .max = v[n_good - 1]};
}
