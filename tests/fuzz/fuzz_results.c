/* SPDX-License-Identifier: MIT */
/* The input is a results.jsonl. */
#include "fuzz.h"

#include "app/console.h"
#include "eval/results/results.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What tables rely on. */
static void look_at(const struct eval_run *run)
{
    for (size_t i = 0; i < run->n; i++) {
        const struct eval_result *r = &run->results[i], *before = i > 0 ? r - 1 : NULL;
        fuzz_require(r->task >= 0 && r->task < run->n_tasks && r->variant >= 0 &&
                         r->variant < run->n_variants,
                     "a line of no task or no method");
        fuzz_require(isnan(r->m[EVAL_M_SCORE]) || (r->m[EVAL_M_SCORE] >= 0 && r->m[EVAL_M_SCORE] <= 1),
                     "a score outside 0 to 1");
        fuzz_require(!before || before->task <= r->task, "lines that are not in order");
        fuzz_require(!before || before->task != r->task || before->n_target != r->n_target ||
                         before->index != r->index || before->turn != r->turn || before->variant < r->variant,
                     "the same answer twice");
    }
}

static void read_all(struct eval_run *run, const char *path)
{
    struct eval_jsonl j;
    json_t *line = NULL;
    int rc = eval_jsonl_open(&j, path);
    j.growing = true;
    while (rc == APP_OK && (rc = eval_jsonl_next(&j, &line)) == APP_OK && line) {
        rc = eval_results_add(run, &j, 0, line);
        json_decref(line);
        line = NULL;
    }
    eval_jsonl_close(&j);
    fuzz_require(rc == APP_OK || rc == APP_BAD_INPUT, "neither good nor bad input");
    if (rc == APP_OK && (rc = eval_results_sort(run)) == APP_OK)
        look_at(run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eval_runs runs = {.run = calloc(1, sizeof(struct eval_run)), .n = 1};
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC), messages = dup(STDERR_FILENO);
    fuzz_require(runs.run && nothing >= 0 && messages >= 0, "no memory or no descriptors");
    runs.run[0].folders = calloc(1, sizeof(char *));
    runs.run[0].folders[0] = strdup("folder");
    runs.run[0].n_folders = 1;
    runs.run[0].info =
        json_loads("{\"depths\":[0,50],\"tasks\":[{\"task\":\"passkey64\",\"n_trials\":2}],"
                   "\"configs\":[{\"config_id\":\"c\",\"evict\":\"chunk:64\",\"policy\":\"x\"}]}",
                   0, NULL);
    dup2(nothing, STDERR_FILENO); /* thousands of sentences about bad lines say nothing here */
    read_all(&runs.run[0], fuzz_file(data, size));
    dup2(messages, STDERR_FILENO);
    close(nothing);
    close(messages);
    eval_runs_clear(&runs);
    return 0;
}
