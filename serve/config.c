/* SPDX-License-Identifier: MIT */
/* What `winnow serve` sets in the environment, and the device WINNOW, both before the server's main. */
#include "serve/config.h"

#include "app/cut.h"
#include "app/values.h"
#include "serve/automatic.h"
#include "serve/documents.h"
#include "serve/memory.h"
#include "serve/origins.h"
#include "winnow_bridge.h"
#include "winnow_calibrate.h"
#include "winnow_method.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_CAP (INT64_C(1) << 62) /* bytes, as --kv-bytes allows */

/* What the library has said of a value that was given. */
static void refuse_status(int status) __attribute__((noreturn));
static void refuse_status(int status)
{
    if (status == WNW_E_NOMEM || status == WNW_E_BACKEND)
        serve_refuse(wnw_last_error());
    serve_refuse_input(wnw_last_error());
}

static void say(wnw_log_level level, const char *text, void *user)
{
    (void)user;
    if (level >= WNW_LOG_WARN || getenv("WINNOW_VERBOSE"))
        fprintf(stderr, "%s\n", text);
}

/* ---- Values ---- */

static void refuse_value(const char *variable, const char *form) __attribute__((noreturn));
static void refuse_value(const char *variable, const char *form)
{
    char line[SERVE_TEXT];
    snprintf(line, sizeof line, "%s is '%.60s': it is %s", variable, getenv(variable), form);
    serve_refuse_input(line);
}

/* A whole number that a variable holds, as the command's option of its name takes it; `missing` where it is not set. */
static int64_t number_of(const char *variable, bool (*parse)(int64_t *, const char *), int64_t least,
                         int64_t most, int64_t missing, const char *form)
{
    const char *text = getenv(variable);
    int64_t n = missing;
    if (text && *text && (!parse(&n, text) || n < least || n > most))
        refuse_value(variable, form);
    return n;
}

/* The same for numbers from 1; 0 where it is not set. */
static int64_t whole_of(const char *variable, bool (*parse)(int64_t *, const char *), int64_t most,
                        const char *form)
{
    return number_of(variable, parse, 1, most, 0, form);
}

static void read_size(wnw_size *size)
{
    const char *ratio = getenv("WINNOW_SERVE_RATIO");
    const int64_t budget =
        whole_of("WINNOW_SERVE_BUDGET", app_parse_int, INT32_MAX, "a whole number from 1 to 2147483647");
    if (budget > 0)
        *size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = budget};
    if (!ratio || !*ratio)
        return;
    if (budget > 0)
        serve_refuse_input("WINNOW_SERVE_BUDGET and WINNOW_SERVE_RATIO exclude each other");
    *size = (wnw_size){.kind = WNW_SIZE_RATIO};
    if (!app_parse_real(&size->ratio, ratio) || !(size->ratio >= 0.0 && size->ratio < 1.0))
        refuse_value("WINNOW_SERVE_RATIO", "a number of at least 0 and less than 1");
}

/* ---- Parked prompts ---- */

#define BYTES_FORM "a whole number of bytes from 0 to 4294967296G; K, M or G after it are powers of 1024"

static uint64_t bytes_of(const char *variable, uint64_t missing)
{
    return (uint64_t)number_of(variable, app_parse_bytes, 0, MOST_CAP, (int64_t)missing, BYTES_FORM);
}

/* An eighth of the machine's memory, 4 GiB at most. */
static uint64_t default_park(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    const uint64_t eighth = pages > 0 && size > 0 ? (uint64_t)pages / 8 * (uint64_t)size : UINT64_C(1) << 28;
    return eighth < UINT64_C(4) << 30 ? eighth : UINT64_C(4) << 30;
}

static void read_parks(struct serve_config *config)
{
    const char *ratio = getenv("WINNOW_SERVE_PARK_RATIO");
    config->state = getenv("WINNOW_SERVE_STATE");
    config->state = config->state && *config->state ? config->state : NULL;
    config->park = bytes_of("WINNOW_SERVE_PARK", default_park());
    config->park_disk = bytes_of("WINNOW_SERVE_PARK_DISK", UINT64_C(8) << 30);
    if (ratio && *ratio &&
        (!app_parse_real(&config->park_ratio, ratio) ||
         !(config->park_ratio >= 0.0 && config->park_ratio < 1.0)))
        refuse_value("WINNOW_SERVE_PARK_RATIO", "a number of at least 0 and less than 1");
    if (!WNW_SERVE_ROUTES) { /* nothing sees requests */
        config->park = 0;
        config->state = NULL;
    }
}

/* ---- Policies ---- */

/* Adds the files of the list to what recipes are checked against. */
static int read_profiles(struct serve_config *config, const char *list)
{
    char *path;
    int rc = wnw_profile_next(&path, &list);
    while (rc == WNW_OK && path) {
        rc = config->profile ? wnw_profile_add_file(config->profile, path)
                             : wnw_profile_open(&config->profile, path);
        wnw_free(path);
        if (rc == WNW_OK)
            rc = wnw_profile_next(&path, &list);
    }
    return rc;
}

/* Logs one of the recipes that "auto" may choose at the server's own size or quality. prompts: the words for the prompts that it applies
 * to; comma: the text around their length. */
static void print_choice(const char *prompts, const char *comma, const char *recipe,
                         const wnw_policy_choice *row)
{
    char upto[48] = "";
    if (row->until_tokens < INT32_MAX)
        snprintf(upto, sizeof upto, "%s of up to %d tokens%s", comma, (int)row->until_tokens, comma);
    fprintf(stderr, "winnow: auto: %s%s by %s: %s\n", prompts, upto, recipe, row->reason);
}

static int print_row(const char *recipe, const wnw_policy_choice *row, void *user)
{
    (void)user;
    print_choice("prompts", "", recipe, row);
    return WNW_OK;
}

/* The same for prompts with a sample that is fed again, if the policy needs one. */
static int print_fed_row(const char *recipe, const wnw_policy_choice *row, void *user)
{
    wnw_policy *policy;
    (void)user;
    if (wnw_policy_parse(&policy, recipe, NULL) != WNW_OK)
        return WNW_OK;
    if (wnw_policy_needs(policy).flags & WNW_NEED_SECOND_PASS)
        print_choice("prompts that come in several batches", ",", recipe, row);
    wnw_policy_free(policy);
    return WNW_OK;
}

void serve_print_fed(void)
{
    wnw_policy_facts facts;
    const struct serve_keep_rule *keep_rule = &serve_settings()->keep_rule;
    const wnw_automatic of = serve_automatic_of(&facts, keep_rule, true);
    if (serve_is_automatic(keep_rule))
        (void)wnw_automatic_each(&of, print_fed_row, NULL);
}

/* Takes the recipe of requests that do not say. */
static void take_recipe(struct serve_config *config, const char *recipe)
{
    wnw_policy *policy = NULL;
    int rc = serve_keep_rule_set(&config->keep_rule, recipe, &policy);
    rc = rc == WNW_OK && policy ? serve_check_policy(policy) : rc;
    if (rc == WNW_OK)
        rc = serve_automatic_settle(&config->keep_rule);
    if (rc != WNW_OK)
        refuse_status(rc);
    wnw_policy_free(policy);
    wnw_policy_facts facts;
    const wnw_automatic of = serve_automatic_of(&facts, &config->keep_rule, false);
    if (!serve_is_automatic(&config->keep_rule))
        return;
    (void)wnw_automatic_each(&of, print_row, NULL);
    if (!serve_asks_quality(&config->keep_rule) && !(config->facts.profiles & 1u << WNW_PROFILE_SHARES))
        fputs("winnow: auto: this model has no profile of shares, without which more answers are lost: "
              "`winnow calibrate shares` makes one, in minutes for small models\n",
              stderr);
}

static void read_documents(const struct serve_config *config, const char *lines)
{
    char why[SERVE_TEXT];
    if (!serve_documents_load(lines, why))
        serve_refuse_input(why);
    bool reads = false; /* what is stored was compressed already */
    for (int32_t d = 0; d < serve_documents_n(); d++)
        reads = reads || !serve_document_is_stored(d);
    if (reads && serve_looks_at_question(&config->keep_rule))
        serve_refuse_input("the policy looks at the end of a prompt, where a document's questions are not: "
                           "documents need another one, as keydiff");
}

static const char *text_of(const char *variable)
{
    const char *text = getenv(variable);
    return text ? text : "";
}

/* Names of this host, each one that a request can call it by. */
static const char *names_of(const char *variable)
{
    const char *list = text_of(variable);
    for (const char *at = list; *at; at += strspn(at, ",")) {
        char name[256], line[SERVE_TEXT];
        const size_t n = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), at);
        snprintf(line, sizeof line,
                 "--host-name '%.60s': a name has letters, digits and '.', '-' and '_', and no port", name);
        if (n >= sizeof name || !serve_is_host_name(name))
            serve_refuse_input(line);
        at += n;
    }
    return list;
}

/* Without a word, it is as the policy: one that keeps everything has nothing to remove. */
static void read_when_full(struct serve_config *config)
{
    const char *text = text_of("WINNOW_SERVE_WHEN_FULL");
    config->makes_room = *text ? strcmp(text, "compress") == 0 : !serve_keeps_all(&config->keep_rule);
    if (*text && !config->makes_room && strcmp(text, "refuse") != 0)
        refuse_value("WINNOW_SERVE_WHEN_FULL", "compress or refuse");
    config->makes_room = config->makes_room && WNW_SERVE_ROUTES;
}

static void read_environment(struct serve_config *config)
{
    const char *recipe = getenv("WINNOW_SERVE_POLICY");
    if (!recipe || !*recipe)
        recipe = "full";
    if (strlen(recipe) >= SERVE_RECIPE)
        serve_refuse_input("the policy's recipe is too long");
    read_size(&config->keep_rule.size);
    config->saves = getenv("WINNOW_SERVE_SAVES");
    config->cap = (uint64_t)whole_of("WINNOW_SERVE_KV_BYTES", app_parse_bytes, MOST_CAP,
                                     "a whole number of bytes from 1 to 4294967296G; K, M or G after it are "
                                     "powers of 1024");
    config->chunk = WNW_SERVE_ROUTES ? (int32_t)number_of("WINNOW_SERVE_CHUNK", app_parse_int, 0, INT32_MAX,
                                                          -1, "a whole number from 0 to 2147483647")
                                     : 0;
    const char *documents = text_of("WINNOW_SERVE_DOCUMENTS");
    config->profiles = text_of("WINNOW_PROFILE");
    config->fingerprint = text_of("WINNOW_SERVE_FINGERPRINT");
    if (*config->fingerprint && !(config->files = app_model_files_open(text_of("WINNOW_SERVE_MODEL_FILES"))))
        serve_refuse("another program wrote to the model's file while the server started: start it again");
    config->names = names_of("WINNOW_SERVE_HOST_NAMES");
    config->origins = text_of("WINNOW_SERVE_ORIGINS");
    const int status = read_profiles(config, config->profiles);
    if (status != WNW_OK)
        refuse_status(status);
    config->facts = wnw_policy_facts_default();
    config->facts.question_known = config->facts.more_questions = true;
    wnw_policy_facts_add(&config->facts, config->profile);
    take_recipe(config, recipe);
    if (!WNW_SERVE_ROUTES && (*documents || config->cap > 0))
        serve_refuse("this winnow-llama-server was built without what sees requests, because llama.cpp's "
                     "server does not call what it should: it "
                     "has no documents and no cap (--document, --kv-bytes)");
    read_documents(config, documents);
    read_parks(config);
    read_when_full(config);
}

/* Whether an option or a variable of llama.cpp gives the model a projector. */
static bool has_projector(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--mmproj", 8) == 0 || strncmp(argv[i], "-mm", 3) == 0)
            return true;
    return getenv("LLAMA_ARG_MMPROJ") || getenv("LLAMA_ARG_MMPROJ_URL");
}

/* The first device that `winnow serve` names. */
static void take_device(struct serve_config *config, int argc, char **argv)
{
    const char *names = "WINNOW";
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "-dev") == 0)
            names = argv[i + 1];
    snprintf(config->device, sizeof config->device, "%.*s", (int)strcspn(names, ","), names);
}

/* The C library gives the arguments of main to what runs before it, too. It runs before park_begin.c, which needs it. */
__attribute__((constructor(SERVE_FIRST))) static void begin(int argc, char **argv)
{
    serve_memory_begin();
    wnw_set_log(say, NULL);
    app_catch_cuts();
    const int status = wnw_bridge_register();
    if (status != WNW_OK)
        refuse_status(status);
    struct serve_config *config = serve_settings_begin();
    config->media = has_projector(argc, argv);
    take_device(config, argc, argv);
    read_environment(config);
}
