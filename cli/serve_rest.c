/* SPDX-License-Identifier: MIT */
#include "cli/serve_rest.h"

#include "app/console.h"
#include "app/values.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

/* Options of the server that would move a document's cells, or lose them. */
static const char *const no_documents[] = {"--context-shift", "--cache-reuse", "--sleep-idle-seconds", NULL};
/* What says the same in the environment. */
static const char *const no_documents_set[] = {"LLAMA_ARG_CONTEXT_SHIFT", "LLAMA_ARG_CACHE_REUSE", NULL};

/* Options of the server by which it computes another model than its file says. What is stored names the file's model alone. */
static const char *const changes_model[] = {"--lora",
                                            "--lora-scaled",
                                            "--lora-init-without-apply",
                                            "--control-vector",
                                            "--control-vector-scaled",
                                            "--control-vector-layer-range",
                                            "--override-kv",
                                            "--rope-scaling",
                                            "--rope-scale",
                                            "--rope-freq-base",
                                            "--rope-freq-scale",
                                            "--yarn-orig-ctx",
                                            "--yarn-ext-factor",
                                            "--yarn-attn-factor",
                                            "--yarn-beta-slow",
                                            "--yarn-beta-fast",
                                            NULL};
static const char *const changes_model_set[] = {"LLAMA_ARG_ROPE_SCALING_TYPE", "LLAMA_ARG_ROPE_SCALE",
                                                "LLAMA_ARG_ROPE_FREQ_BASE",    "LLAMA_ARG_ROPE_FREQ_SCALE",
                                                "LLAMA_ARG_YARN_ORIG_CTX",     "LLAMA_ARG_YARN_EXT_FACTOR",
                                                "LLAMA_ARG_YARN_ATTN_FACTOR",  "LLAMA_ARG_YARN_BETA_SLOW",
                                                "LLAMA_ARG_YARN_BETA_FAST",    NULL};

/* Options of the server that are ours to give, in all their names. */
static const char *const taken[] = {"-m",
                                    "--model",
                                    "-mu",
                                    "--model-url",
                                    "-dr",
                                    "--docker-repo",
                                    "-hf",
                                    "-hfr",
                                    "--hf-repo",
                                    "-hff",
                                    "--hf-file",
                                    "-dev",
                                    "--device",
                                    "-ts",
                                    "--tensor-split",
                                    "-sm",
                                    "--split-mode",
                                    "-ngl",
                                    "--gpu-layers",
                                    "--n-gpu-layers",
                                    "-np",
                                    "--parallel",
                                    "-c",
                                    "--ctx-size",
                                    "--host",
                                    "--port",
                                    "--api-key",
                                    "-kvu",
                                    "--kv-unified",
                                    "-no-kvu",
                                    "--no-kv-unified",
                                    "--cache-ram",
                                    "-cram",
                                    "--slot-save-path",
                                    "-kvo",
                                    "--kv-offload",
                                    "-nkvo",
                                    "--no-kv-offload",
                                    "--models-dir",
                                    "--models-preset",
                                    NULL};

/* Whether llama.cpp's server reads these n bytes of an option as those of a name: it takes '_' in long options for '-'. */
static bool is_same(const char *option, const char *name, size_t n)
{
    size_t i = 0;
    while (i < n && (option[i] == name[i] || (option[i] == '_' && name[i] == '-')))
        i++;
    return i == n;
}

static bool is_option(const char *option, const char *name)
{
    return strlen(option) == strlen(name) && is_same(option, name, strlen(name));
}

static bool is_listed(const char *const *list, const char *option)
{
    while (*list && !is_option(option, *list))
        list++;
    return *list != NULL;
}

static bool has_end(const char *option, const char *end)
{
    const size_t n = strlen(option), n_end = strlen(end);
    return n > n_end && is_same(option + n - n_end, end, n_end);
}

/* Options of the server that name a model of its makers, "--fim-qwen-1.5b-default" and "--fim-qwen-7b-spec". */
static bool names_model(const char *option)
{
    const size_t n = strlen(option);
    return n > 6 && is_same(option, "--", 2) &&
           ((has_end(option, "-default") && !is_option(option, "--spec-default")) ||
            (is_same(option, "--fim-", 6) && has_end(option, "-spec")));
}

static int check_set(const struct app_args *args)
{
    for (int i = 0; args->documents.n > 0 && no_documents_set[i]; i++)
        if (getenv(no_documents_set[i]))
            return app_fail(APP_BAD_INPUT,
                            "%s in the environment does not go with --document: slots share its cells",
                            no_documents_set[i]);
    return APP_OK;
}

/* Options of the server whose numbers it does not check, and their variables of the environment: with others it ends by a signal, or
 * waits for ever. A batch has a row for each slot; winnow sets its option, which the variable would not replace. */
static const struct {
    const char *name, *other, *set;
    int64_t least, most;
} numbers[] = {{"-b", "--batch-size", NULL, 1, INT32_MAX},
               {"-ub", "--ubatch-size", "LLAMA_ARG_UBATCH", 1, INT32_MAX},
               {"-t", "--threads", "LLAMA_ARG_THREADS", -1, 512},
               {"-tb", "--threads-batch", NULL, -1, 512},
               {"--threads-http", NULL, "LLAMA_ARG_THREADS_HTTP", -1, 1024},
               {"--mirostat", NULL, NULL, 0, 2}};

static int check_number(const struct cli_args *args, size_t i, const char *name, const char *value)
{
    int64_t x;
    const int64_t least = i == 0 ? args->slots : numbers[i].least;
    if (app_parse_int(&x, value) && x >= least && x <= numbers[i].most)
        return APP_OK;
    return app_fail(APP_BAD_INPUT, "%s '%s': give a whole number from %lld%s to %lld", name, value,
                    (long long)least, i == 0 && least > 1 ? ", that of --slots," : "",
                    (long long)numbers[i].most);
}

static int check_numbers(const struct cli_args *args)
{
    const size_t n = sizeof numbers / sizeof *numbers;
    for (int k = 0; k + 1 < args->app.n_rest; k++)
        for (size_t i = 0; i < n; i++)
            if (is_option(args->app.rest[k], numbers[i].name) ||
                (numbers[i].other && is_option(args->app.rest[k], numbers[i].other)))
                WNW_TRY(check_number(args, i, args->app.rest[k], args->app.rest[k + 1]));
    for (size_t i = 0; i < n; i++)
        if (numbers[i].set && getenv(numbers[i].set))
            WNW_TRY(check_number(args, i, numbers[i].set, getenv(numbers[i].set)));
    return APP_OK;
}

int cli_serve_rest_check(const struct cli_args *args, bool *has_key)
{
    const struct app_args *app = &args->app;
    for (int i = 0; i < app->n_rest; i++) {
        const char *option = app->rest[i];
        if (is_listed(taken, option) || names_model(option))
            return app_fail(APP_BAD_INPUT, "%s is set by `winnow serve` itself: see `winnow serve --help`",
                            option);
        if (app->documents.n > 0 && is_listed(no_documents, option))
            return app_fail(APP_BAD_INPUT, "%s does not go with --document: slots share its cells", option);
        *has_key = *has_key || is_option(option, "--api-key-file");
    }
    WNW_TRY(check_numbers(args));
    return check_set(app);
}

int cli_serve_rest_check_model(const struct cli_args *args, bool stored)
{
    const struct app_args *app = &args->app;
    const char *option = NULL;
    for (int i = 0; !option && i < app->n_rest; i++)
        option = is_listed(changes_model, app->rest[i]) ? app->rest[i] : NULL;
    for (int i = 0; !option && changes_model_set[i]; i++)
        option = getenv(changes_model_set[i]) ? changes_model_set[i] : NULL;
    if (!option || (!stored && !args->save && !args->state))
        return APP_OK;
    return app_fail(APP_BAD_INPUT,
                    "%s changes the model, but %s belong to the unchanged model: leave one of them out",
                    option,
                    APP_FIRST_GIVEN({stored, "stored documents"}, {args->save, "slots in files (--save)"},
                                    {true, "parked conversations in files (--state)"}));
}
