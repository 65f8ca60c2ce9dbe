/* SPDX-License-Identifier: MIT */
/* winnow serve: starts winnow-llama-server, which is llama.cpp's server over the backend (serve/). */
#include "app/args.h"
#include "app/automatic.h"
#include "app/console.h"
#include "app/devices.h"
#include "app/models.h"
#include "app/profiles.h"
#include "app/share.h"
#include "app/text.h"
#include "base/err.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/serve_chunk.h"
#include "cli/serve_documents.h"
#include "cli/serve_rest.h"
#include "winnow_bridge.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Environment variables that would override one of winnow's options which is not passed to the server. The server would take another model
 * or another place for the cache. */
static const char *const taken_set[] = {
    "LLAMA_ARG_MODEL_URL",     "LLAMA_ARG_DOCKER_REPO",  "LLAMA_ARG_HF_REPO",    "LLAMA_ARG_HF_FILE",
    "LLAMA_ARG_HF_REPO_FILE",  "LLAMA_ARG_MODELS_DIR",   "LLAMA_ARG_KV_OFFLOAD", "LLAMA_ARG_NO_KV_OFFLOAD",
    "LLAMA_ARG_MODELS_PRESET", "LLAMA_ARG_TENSOR_SPLIT", "LLAMA_ARG_SPLIT_MODE", NULL};

/* What contexts that nobody watches compress by. The server's are watched, and have options for it. */
static const char *const unwatched[] = {"WINNOW_POLICY",   "WINNOW_BUDGET", "WINNOW_RATIO",
                                        "WINNOW_KV_BYTES", "WINNOW_EVICT",  NULL};

/* ---- Checks ---- */

static bool asks_quality(const struct cli_args *args)
{
    return !isnan(args->app.keep_quality);
}

/* The recipe that requests have which do not say. *out is released with free. */
static int find_recipe(char **out, const struct cli_args *args)
{
    if (asks_quality(args))
        return app_keep_recipe(out, args->app.policy, args->app.keep_quality);
    *out = strdup(args->app.policy);
    return *out ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

/* That its profile is there is seen by the server, which reads it. */
static int check_policy(const struct cli_args *args, const char *recipe, const char *device)
{
    wnw_policy *policy = NULL;
    WNW_TRY(app_auto_check(args->app.policy));
    if (strcmp(recipe, "full") == 0 || app_is_auto(args->app.policy))
        return APP_OK;
    int rc = wnw_policy_parse(&policy, recipe, NULL);
    if (rc == WNW_OK)
        rc =
            device ? wnw_bridge_check_policy_on(device, policy, NULL) : wnw_bridge_check_policy(policy, NULL);
    wnw_policy_free(policy);
    if (rc == WNW_OK || rc == WNW_E_MISMATCH)
        return APP_OK;
    if (rc == WNW_E_UNSUPPORTED)
        return app_fail(APP_BAD_INPUT, "%s", wnw_last_error());
    return app_fail_status(rc);
}

/* Adds what the user names, which counts in place of what was found. */
static int add_own_profiles(struct app_text *list, const char *model)
{
    const char *own = getenv("WINNOW_PROFILE");
    if (own && *own && !app_text_put(list, "%s%s", list->len > 0 ? ":" : "", own))
        return app_fail(APP_FAILED, "out of memory");
    return own ? app_profile_list_check(own, model) : APP_OK;
}

/* The addresses of a host; bad input if there are none. */
static int find_address(struct addrinfo **found, const char *host, int64_t port)
{
    char service[16];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    snprintf(service, sizeof service, "%d", (int)port);
    const int rc = getaddrinfo(host, service, &hints, found);
    return rc == 0 ? APP_OK : app_fail(APP_BAD_INPUT, "--host %s: %s", host, gai_strerror(rc));
}

static bool is_loopback(const struct addrinfo *a)
{
    static const struct in6_addr one = IN6ADDR_LOOPBACK_INIT;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (a->ai_family == AF_INET) {
        memcpy(&v4, a->ai_addr, sizeof v4);
        return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
    }
    if (a->ai_family != AF_INET6)
        return false;
    memcpy(&v6, a->ai_addr, sizeof v6);
    return memcmp(&v6.sin6_addr, &one, sizeof one) == 0;
}

/* Whether nobody else listens there; the server would say it among many lines. */
static int try_address(const struct addrinfo *a, const char *host, int64_t port)
{
    const int on = 1, s = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    int rc = APP_OK;
    if (s < 0)
        return APP_OK;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(s, a->ai_addr, a->ai_addrlen) != 0)
        rc = app_fail(APP_BAD_INPUT, "port %d of %s: %s%s", (int)port, host, strerror(errno),
                      errno == EADDRINUSE ? "; --port takes another one, 0 any that is free" : "");
    close(s);
    return rc;
}

static int check_address(const struct cli_args *args, bool has_key)
{
    struct addrinfo *found = NULL;
    int rc = find_address(&found, args->host, args->port);
    if (rc != APP_OK)
        return rc;
    bool local = true;
    for (const struct addrinfo *a = found; a; a = a->ai_next)
        local = local && is_loopback(a);
    if (!local && !has_key && !args->no_auth)
        rc = app_fail(APP_BAD_INPUT,
                      "%s can be reached from other machines, by anyone: give an --api-key, or --no-auth if "
                      "that is meant",
                      args->host);
    else
        rc = try_address(found, args->host, args->port);
    freeaddrinfo(found);
    return rc;
}

static int find_server(char *path, size_t size)
{
    if (!app_program_part(path, size, "winnow-llama-server", true))
        return app_fail(APP_FAILED,
                        "there is no winnow-llama-server next to this program, nor in lib/winnow; "
                        "`make server` builds it in winnow's sources");
    return APP_OK;
}

/* ---- Starting ---- */

static int set(const char *name, const char *value)
{
    return setenv(name, value, 1) == 0 ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

static const char *key_of(const struct cli_args *args)
{
    return args->api_key ? args->api_key : getenv("LLAMA_API_KEY");
}

/* A list as one text, with `end` after each element. */
static int join(struct app_text *text, const struct app_list *list, char end)
{
    bool good = app_text_add(text, "", 0);
    for (int i = 0; good && i < list->n; i++)
        good = app_text_put(text, "%s%c", list->s[i], end);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

/* The names of this host: those that the user gives, and where it listens, if that is a name. */
static int join_names(struct app_text *text, const struct cli_args *args)
{
    unsigned char address[sizeof(struct in6_addr)];
    const bool named =
        inet_pton(AF_INET, args->host, address) != 1 && inet_pton(AF_INET6, args->host, address) != 1;
    for (int i = 0; i < args->host_names.n; i++)
        if (strchr(args->host_names.s[i], ','))
            return app_fail(APP_BAD_INPUT,
                            "--host-name '%s': give one name, and the option again for another",
                            args->host_names.s[i]);
    const int rc = join(text, &args->host_names, ',');
    if (rc != APP_OK || !named || app_text_put(text, "%s", args->host))
        return rc;
    return app_fail(APP_FAILED, "out of memory");
}

/* The origins of pages that the server's own option allows, as it compares the names of options; "": none. */
static const char *origins_of(const struct app_args *args)
{
    const char *origins = "";
    for (int i = 0; i + 1 < args->n_rest; i++)
        if (strcmp(args->rest[i], "--cors-origins") == 0 || strcmp(args->rest[i], "--cors_origins") == 0)
            origins = args->rest[i + 1];
    return origins;
}

static void drop_unwatched(void)
{
    for (int i = 0; unwatched[i]; i++) {
        const char *value = getenv(unwatched[i]);
        if (value && *value)
            app_note("%s in the environment is for other programs of libllama and does not count here: "
                     "see --policy, --budget and --ratio",
                     unwatched[i]);
        unsetenv(unwatched[i]);
    }
}

/* What the server is started with. */
struct server {
    char path[4096], chunk[CLI_SERVE_CHUNK], fingerprint[WNW_FINGERPRINT_SIZE];
    char *model, *recipe;            /* owned */
    struct app_text profiles, files; /* owned */
    struct app_devices devices;
};

/* What the server's constructor reads (serve/config.c). */
static int set_environment(const struct cli_args *args, const struct server *s)
{
    struct app_text documents = {0}, names = {0};
    char budget[32] = "", ratio[32] = "", bytes[32] = "", park[32] = "", disk[32] = "", park_ratio[32] = "";
    if (args->app.budget != APP_UNSET)
        snprintf(budget, sizeof budget, "%lld", (long long)args->app.budget);
    if (!isnan(args->app.ratio))
        snprintf(ratio, sizeof ratio, "%.17g", args->app.ratio);
    if (args->app.kv_bytes != APP_UNSET)
        snprintf(bytes, sizeof bytes, "%lld", (long long)args->app.kv_bytes);
    if (args->park != APP_UNSET)
        snprintf(park, sizeof park, "%lld", (long long)args->park);
    if (args->park_disk != APP_UNSET)
        snprintf(disk, sizeof disk, "%lld", (long long)args->park_disk);
    if (!isnan(args->park_ratio))
        snprintf(park_ratio, sizeof park_ratio, "%.17g", args->park_ratio);
    int rc = join(&documents, &args->app.documents, '\n');
    if (rc == APP_OK)
        rc = join_names(&names, args);
    const char *const pairs[][2] = {{"WINNOW_SERVE_POLICY", s->recipe},
                                    {"WINNOW_SERVE_BUDGET", budget},
                                    {"WINNOW_SERVE_RATIO", ratio},
                                    {"WINNOW_SERVE_KV_BYTES", bytes},
                                    {"WINNOW_SERVE_CHUNK", s->chunk},
                                    {"WINNOW_SERVE_SAVES", args->save},
                                    {"WINNOW_SERVE_PARK", park},
                                    {"WINNOW_SERVE_PARK_DISK", disk},
                                    {"WINNOW_SERVE_PARK_RATIO", park_ratio},
                                    {"WINNOW_SERVE_WHEN_FULL", args->when_full ? args->when_full : ""},
                                    {"WINNOW_SERVE_STATE", args->state ? args->state : ""},
                                    {"LLAMA_API_KEY", key_of(args)},
                                    {"WINNOW_PROFILE", s->profiles.s},
                                    {"WINNOW_SERVE_FINGERPRINT", s->fingerprint},
                                    {"WINNOW_SERVE_MODEL_FILES", s->files.s ? s->files.s : ""},
                                    {"WINNOW_SERVE_ORIGINS", origins_of(&args->app)},
                                    {"WINNOW_SERVE_DOCUMENTS", documents.s},
                                    {"WINNOW_SERVE_HOST_NAMES", names.s},
                                    {"WINNOW_DEVICES", args->app.devices}};
    drop_unwatched();
    unsetenv("GGML_BACKEND_PATH"); /* the backend is in the server */
    unsetenv("WINNOW_SERVE_SAVES");
    for (int i = 0; taken_set[i]; i++)
        unsetenv(taken_set[i]);
    for (size_t i = 0; rc == APP_OK && i < sizeof pairs / sizeof *pairs; i++)
        rc = pairs[i][1] ? set(pairs[i][0], pairs[i][1]) : APP_OK;
    free(documents.s);
    free(names.s);
    return rc;
}

/* Replaces this process by the server. */
static int start(const struct cli_args *args, const struct server *s)
{
    char slots[16], context[24], port[16], timeout[16];
    snprintf(slots, sizeof slots, "%d", (int)args->slots);
    snprintf(context, sizeof context, "%lld", (long long)(args->slots * args->context));
    snprintf(port, sizeof port, "%d", (int)args->port);
    snprintf(timeout, sizeof timeout, "%d", (int)args->timeout);
    const char *const own[] = {s->path,
                               "-m",
                               s->model,
                               "-dev",
                               s->devices.n ? s->devices.ours.s : "WINNOW",
                               "-ngl",
                               "99",
                               "--fit",
                               "off",
                               "-kvu",
                               "-np",
                               slots,
                               "-c",
                               context,
                               "-b",
                               "512",
                               "--cache-ram",
                               "0",
                               "--metrics",
                               "--host",
                               args->host,
                               "--port",
                               port,
                               "--cors-origins",
                               "localhost",
                               "--timeout",
                               timeout,
                               "--slot-save-path",
                               args->save ? args->save : "/proc"}; /* there nothing can be written */
    const char *const split[] = {"-ts", s->devices.split.s};
    const int n_own = (int)(sizeof own / sizeof *own), n_split = s->devices.split.s ? 2 : 0,
              n = args->app.n_rest;
    const char **argv = calloc((size_t)(n_own + n_split + n + 1), sizeof *argv);
    if (!argv)
        return app_fail(APP_FAILED, "out of memory");
    memcpy(argv, own, sizeof own);
    memcpy(argv + n_own, split, (size_t)n_split * sizeof *split);
    for (int i = 0; i < n; i++)
        argv[n_own + n_split + i] = args->app.rest[i];
    execv(s->path, (char **)(uintptr_t)argv);
    free(argv);
    return app_fail(APP_FAILED, "cannot start %s: %s", s->path, strerror(errno));
}

/* The size of a server that keeps everything is for requests that name another policy. */
static void say_full(const struct cli_args *args)
{
    static const char whole[] = "every request keeps its whole cache, unless it names another policy";
    if (args->app.budget != APP_UNSET)
        app_note("%s, which keeps %lld entries a head then", whole, (long long)args->app.budget);
    else if (!isnan(args->app.ratio))
        app_note("%s, which removes %.4g of the prompt then", whole, args->app.ratio);
    else
        app_note("%s (docs/use/server.md)", whole);
}

/* What "auto" chooses is said by the server, which chooses. */
static void say_policy(const struct cli_args *args, const char *recipe)
{
    if (strcmp(recipe, "full") == 0)
        say_full(args);
    else if (asks_quality(args) && args->app.budget == APP_UNSET && isnan(args->app.ratio))
        app_note("policy %s, as few entries as preserve that quality, unless a request sets another", recipe);
    else if (args->app.budget != APP_UNSET)
        app_note("policy %s, %lld entries a head, unless a request sets another size", recipe,
                 (long long)args->app.budget);
    else
        app_note("policy %s, %.4g of each prompt is removed, unless a request sets another size", recipe,
                 isnan(args->app.ratio) ? 0.5 : args->app.ratio);
}

static int check(const struct cli_args *args, const char *recipe)
{
    const struct app_args *app = &args->app;
    bool has_key = key_of(args) && *key_of(args);
    if (app->budget != APP_UNSET && !isnan(app->ratio))
        return app_fail(APP_BAD_INPUT, "--budget and --ratio exclude each other");
    if (args->save && access(args->save, W_OK | X_OK) != 0)
        return app_fail(APP_BAD_INPUT, "--save %s: %s", args->save, strerror(errno));
    if (args->when_full && strcmp(args->when_full, "compress") != 0 && strcmp(args->when_full, "refuse") != 0)
        return app_fail(APP_BAD_INPUT, "--when-full '%s': it is compress or refuse", args->when_full);
    if (args->state && !*args->state)
        return app_fail(APP_BAD_INPUT, "--state has no name; give a folder");
    if (args->park_disk != APP_UNSET && !args->state)
        return app_fail(APP_BAD_INPUT, "--park-disk needs a folder: give --state DIR");
    if (args->park_ratio > 0 && args->park == 0 && (!args->state || args->park_disk == 0))
        return app_fail(APP_BAD_INPUT,
                        "--park-ratio %g is of conversations that are parked, and with --park 0 none is; "
                        "leave one of the two out, or give --state DIR",
                        args->park_ratio);
    WNW_TRY(cli_serve_rest_check(args, &has_key));
    WNW_TRY(check_policy(args, recipe, NULL));
    WNW_TRY(cli_serve_documents_check(&app->documents));
    return check_address(args, has_key);
}

/* The server has libllama open the model, which ends the process for some damaged files. */
static int check_model(const char *model)
{
    return app_status_code(wnw_bridge_check_model(model));
}

/* Checks everything that the server would refuse later, or not at all, and starts it. */
static int check_and_start(struct server *s, const struct cli_args *args)
{
    bool stored = false;
    WNW_TRY(find_server(s->path, sizeof s->path));
    WNW_TRY(find_recipe(&s->recipe, args));
    WNW_TRY(check(args, s->recipe));
    WNW_TRY(cli_serve_chunk(s->chunk, args, s->recipe));
    WNW_TRY(app_model_path(&s->model, args->app.model));
    if (access(s->model, R_OK) != 0)
        return app_fail(APP_BAD_INPUT, "cannot read %s: %s", s->model, strerror(errno));
    WNW_TRY(check_model(s->model));
    WNW_TRY(app_devices_make(&s->devices, &args->app, s->model));
    if (s->devices.n > 0)
        WNW_TRY(check_policy(args, s->recipe, "WINNOW0"));
    WNW_TRY(cli_serve_documents_fit(s->fingerprint, &s->files, &args->app.documents, s->model,
                                    args->save || args->state, &stored));
    WNW_TRY(cli_serve_rest_check_model(args, stored));
    WNW_TRY(app_profile_list(&s->profiles, s->model));
    WNW_TRY(add_own_profiles(&s->profiles, s->model));
    WNW_TRY(set_environment(args, s));
    say_policy(args, s->recipe);
    return start(args, s);
}

int cli_serve(const struct app_args *app)
{
    struct server s = {.devices = {.n = 0}};
    const int rc = check_and_start(&s, (const struct cli_args *)app);
    app_devices_clear(&s.devices);
    free(s.profiles.s);
    free(s.files.s);
    free(s.recipe);
    free(s.model);
    return rc;
}
