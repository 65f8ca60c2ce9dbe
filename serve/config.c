/* SPDX-License-Identifier: MIT */
/* What `winnow serve` sets in the environment, and the device WINNOW, both before the server's main. */
#include "serve/automatic.h"
#include "serve/documents.h"
#include "winnow_bridge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One of each for the process, written before main. */
static struct serve_config config;
static wnw_profile *profile; /* what the files of config.profiles hold; NULL: nothing */

const struct serve_config *serve_settings(void)
{
    return &config;
}

static void end(int code, const char *what) __attribute__((noreturn));
static void end(int code, const char *what)
{
    fprintf(stderr, "winnow: %s\n", what);
    fflush(stderr);
    _exit(code);
}

void serve_refuse(const char *what)
{
    end(1, what);
}

void serve_refuse_input(const char *what)
{
    end(2, what);
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

/* Adds the files of the list to what recipes are checked against. */
static int read_profiles(const char *list)
{
    char *path;
    int rc = wnw_profile_next(&path, &list);
    while (rc == WNW_OK && path) {
        rc = profile ? wnw_profile_add_file(profile, path) : wnw_profile_open(&profile, path);
        wnw_free(path);
        rc = rc == WNW_OK ? wnw_profile_next(&path, &list) : rc;
    }
    return rc;
}

int serve_check_policy(const wnw_policy *policy)
{
    return wnw_bridge_check_policy(policy, profile);
}

/* Says one of the rows that "auto" has for the server's own size. */
static int tell_row(const wnw_policy_choice *row, void *user)
{
    char upto[48] = "";
    (void)user;
    if (row->until_tokens < INT32_MAX)
        snprintf(upto, sizeof upto, " of up to %d tokens", (int)row->until_tokens);
    fprintf(stderr, "winnow: auto: prompts%s by %s: %s\n", upto, row->recipe, row->why);
    return WNW_OK;
}

/* Takes the recipe of requests that do not say. */
static void take_recipe(const char *recipe)
{
    wnw_policy *policy = NULL;
    if (serve_want_set(&config.want, recipe, &policy) != WNW_OK ||
        (policy && serve_check_policy(policy) != WNW_OK) || serve_automatic_settle(&config.want) != WNW_OK)
        serve_refuse(wnw_last_error());
    wnw_policy_free(policy);
    if (serve_is_automatic(&config.want))
        (void)serve_automatic_each(&config.want, tell_row, NULL);
}

static void read_documents(const char *lines)
{
    char why[SERVE_TEXT];
    if (!serve_documents_load(lines, why))
        serve_refuse_input(why);
    bool reads = false; /* what is stored was compressed already */
    for (int32_t d = 0; d < serve_documents_n(); d++)
        reads = reads || !serve_document_is_stored(d);
    if (reads && serve_looks_at_question(&config.want))
        serve_refuse_input("the policy looks at the end of a prompt, where a document's questions are not: "
                           "documents need another one, as keydiff");
}

static void read_environment(void)
{
    const char *recipe = getenv("WINNOW_SERVE_POLICY");
    const double budget = number_of("WINNOW_SERVE_BUDGET"), ratio = number_of("WINNOW_SERVE_RATIO");
    if (!recipe || !*recipe)
        recipe = "full";
    if (strlen(recipe) >= SERVE_RECIPE)
        serve_refuse_input("the policy's recipe is too long");
    if (budget > 0.0)
        config.want.size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = (int64_t)budget};
    else if (ratio > 0.0)
        config.want.size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = ratio};
    config.saves = getenv("WINNOW_SERVE_SAVES") != NULL;
    config.cap = (uint64_t)number_of("WINNOW_SERVE_KV_BYTES");
    const char *profiles = getenv("WINNOW_PROFILE"), *documents = getenv("WINNOW_SERVE_DOCUMENTS"),
               *fingerprint = getenv("WINNOW_SERVE_FINGERPRINT");
    config.profiles = profiles ? profiles : "";
    config.fingerprint = fingerprint ? fingerprint : "";
    if (read_profiles(config.profiles) != WNW_OK)
        serve_refuse(wnw_last_error());
    config.facts = wnw_policy_facts_default();
    wnw_policy_facts_add(&config.facts, profile);
    take_recipe(recipe);
    if (!WNW_SERVE_ROUTES && ((documents && *documents) || config.cap > 0))
        serve_refuse("this winnow-llama-server was built without what sees requests, because llama.cpp's "
                     "server does not call what it should: it "
                     "has no documents and no cap (--document, --kv-bytes)");
    read_documents(documents ? documents : "");
}

__attribute__((constructor)) static void begin(void)
{
    wnw_set_log(say, NULL);
    if (wnw_bridge_register() != WNW_OK)
        serve_refuse(wnw_last_error());
    read_environment();
}
