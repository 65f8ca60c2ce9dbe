/* SPDX-License-Identifier: MIT */
/* What `winnow serve` sets in the environment, and the device WINNOW, both before the server's main. */
#include "serve/serve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One for the process, written before main. */
static struct serve_config config;

const struct serve_config *serve_settings(void)
{
    return &config;
}

void serve_refuse(const char *what)
{
    fprintf(stderr, "winnow: %s\n", what);
    fflush(stderr);
    _exit(1);
}

static void say(wnw_log_level level, const char *text, void *user)
{
    (void)user;
    if (level >= WNW_LOG_WARN || getenv("WINNOW_VERBOSE"))
        fprintf(stderr, "%s\n", text);
}

/* A number that a variable holds, NAN-free and within bounds; 0 where it is not set. */
static double number_of(const char *variable)
{
    const char *text = getenv(variable);
    char *end, line[160];
    if (!text || !*text)
        return 0.0;
    errno = 0;
    const double x = strtod(text, &end);
    if (errno || *end || !(x >= 0.0 && x < 1e18)) {
        snprintf(line, sizeof line, "%s is '%.60s', which is no number of that kind", variable, text);
        serve_refuse(line);
    }
    return x;
}

static void read_environment(void)
{
    const char *recipe = getenv("WINNOW_SERVE_POLICY");
    const double budget = number_of("WINNOW_SERVE_BUDGET"), ratio = number_of("WINNOW_SERVE_RATIO");
    if (!recipe || !*recipe)
        recipe = "full";
    if (strlen(recipe) >= SERVE_RECIPE)
        serve_refuse("the policy's recipe is too long");
    strcpy(config.want.recipe, recipe);
    if (budget > 0.0)
        config.want.size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = (int64_t)budget};
    else if (ratio > 0.0)
        config.want.size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = ratio};
    config.saves = getenv("WINNOW_SERVE_SAVES") != NULL;
    config.cap = (uint64_t)number_of("WINNOW_SERVE_KV_BYTES");
    if (!serve_keeps_all(&config.want) && wnw_bridge_observe(NULL, recipe) != WNW_OK)
        serve_refuse(wnw_last_error());
}

__attribute__((constructor)) static void begin(void)
{
    wnw_set_log(say, NULL);
    if (wnw_bridge_register() != WNW_OK)
        serve_refuse(wnw_last_error());
    read_environment();
}
