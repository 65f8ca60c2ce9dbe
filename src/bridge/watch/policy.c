/* SPDX-License-Identifier: MIT */
#include "bridge/watch/watch.h"

#include "base/strings.h"
#include "bridge/sequence/track.h"
#include "forward/team.h"
#include "observe/projnorm.h"
#include "policy/policy.h"
#include "winnow_bridge.h"
#include "winnow_calibrate.h"
#include "winnow_tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define USUAL_CHUNK 512 /* tokens, as --evict chunk has */

/* ---- What cannot be had ---- */

/* Whether what is read a second time is a sample alone, which a program can feed. */
static bool repeats_sample(const wnw_needs *needs)
{
    return needs->flags & WNW_NEED_SECOND_PASS && needs->second_pass == WNW_PASS_SAMPLE;
}

static int check_needs(const wnw_policy *p, const wnw_needs *needs)
{
    const struct {
        uint32_t need;
        const char *why;
    } missing[] = {
        {repeats_sample(needs) ? 0 : WNW_NEED_SECOND_PASS,
         "winnow reads a prompt a second time only in sessions of its own"},
        {WNW_NEED_LOOKAHEAD, "tokens to come are generated with a copy of a cache, which only sessions have"},
        {WNW_NEED_PERPLEXITY, "libllama computes logits of few tokens, and after the backend has run"},
        {WNW_NEED_NOTES, "only sessions keep what a policy notes of an entry"},
        {WNW_NEED_TOKEN_TEXT, "libllama tells a backend the positions of tokens and not which ones they are"},
    };
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        if (needs->flags & missing[i].need)
            return wnw__fail(
                WNW_E_UNSUPPORTED, "%s needs %s, which the backend under libllama does not observe: %s",
                wnw__policy_name(p), wnw_need_name(__builtin_ctz(missing[i].need)), missing[i].why);
    if (wnw_policy_rerotates(p))
        return wnw__fail(WNW_E_UNSUPPORTED, "+rerotate: positions are libllama's under the backend");
    if (wnw__contents_of(p)->fit)
        return wnw__fail(WNW_E_UNSUPPORTED, "+%s: entries have no biases under the backend",
                         wnw__contents_of(p)->part.name);
    return WNW_OK;
}

static int check_profile(const wnw_profile *profile, const wnw_policy *p, const wnw_needs *needs)
{
    const uint32_t missing =
        needs->flags & WNW_NEED_PROFILE ? needs->profiles & ~wnw_profile_kinds(profile) : 0;
    if (missing == 0)
        return WNW_OK;
    const char *kind = wnw_profile_kind_name(__builtin_ctz(missing));
    return wnw__fail(
        WNW_E_MISMATCH,
        "%s needs a profile of kind %s: make it with `winnow calibrate %s`, and name its file in "
        "WINNOW_PROFILE, or with wnw_bridge_set_profiles",
        wnw__policy_name(p), kind, kind);
}

int wnw_bridge_check_policy(const wnw_policy *policy, const wnw_profile *profile)
{
    WNW_REQUIRE(policy);
    const wnw_needs needs = wnw_policy_needs(policy);
    WNW_TRY(check_needs(policy, &needs));
    return check_profile(profile, policy, &needs);
}

/* One recorder serves all sequences. */
int wnw__bridge_add_needs(wnw_needs *to, const wnw_needs *more)
{
    if ((to->flags & more->flags & WNW_NEED_QUERY_STATS) && to->skip != more->skip)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "statistics of queries leave out %d tokens for another policy here, and %d for this one",
            (int)to->skip, (int)more->skip);
    if (more->flags & WNW_NEED_QUERY_STATS)
        to->skip = more->skip;
    /* What is fed again looks with queries of its own. */
    to->flags |= more->flags | (repeats_sample(more) ? WNW_NEED_QUERIES_F16 : 0);
    to->window = more->window > to->window ? more->window : to->window;
    return WNW_OK;
}

/* ---- Setting ---- */

void wnw__bridge_watch_clear(struct wnw__bridge_watch *w)
{
    wnw_policy_free(w->policy);
    free(w->automatic);
    wnw__bridge_tracks_free(w->tracks);
    w->policy = NULL;
    w->automatic = NULL;
    w->tracks = NULL;
    w->needs = (wnw_needs){0};
    w->n_site = 0;
    w->sites_known = false;
    w->several = false;
    w->last_warning[0] = '\0';
    w->chunk = 0;
}

static int check_chunk(const wnw_policy *p, int32_t chunk)
{
    const char *reason;
    if (chunk == 0 || wnw_policy_allows(p, WNW_PHASE_CHUNK, &reason))
        return WNW_OK;
    return wnw__fail(WNW_E_UNSUPPORTED,
                     "%s cannot compress while a prompt is read: %s; leave chunks out, or use keydiff",
                     wnw__policy_name(p), reason);
}

/* A policy that can be had here. */
static int parse(wnw_policy **out, const char *recipe, const struct wnw__bridge_watch *w, int32_t chunk)
{
    WNW_TRY(wnw_policy_parse(out, recipe, w->registry));
    int rc = wnw_bridge_check_policy(*out, w->profile);
    if (rc == WNW_OK)
        rc = check_chunk(*out, chunk);
    if (rc != WNW_OK) {
        wnw_policy_free(*out);
        *out = NULL;
    }
    return rc;
}

/* What "auto" may come to: the policy for the shortest prompts, and what they all need. */
struct rows {
    const struct wnw__bridge_watch *watch;
    int32_t chunk;
    wnw_policy *first;
    wnw_needs needs;
};

static int add_row(const char *recipe, const wnw_policy_choice *row, void *user)
{
    struct rows *rows = user;
    wnw_policy *policy;
    (void)row;
    WNW_TRY(parse(&policy, recipe, rows->watch, rows->chunk));
    const wnw_needs needs = wnw_policy_needs(policy);
    const int rc = wnw__bridge_add_needs(&rows->needs, &needs);
    if (rows->first)
        wnw_policy_free(policy);
    else
        rows->first = policy;
    return rc;
}

/* What is chosen by; facts are the caller's. */
static wnw_automatic automatic_of(const char *recipe, wnw_policy_facts *facts, const wnw_profile *profile,
                                  const wnw_size *size, int32_t chunk)
{
    *facts = wnw_policy_facts_default();
    facts->phase = chunk > 0 ? WNW_PHASE_CHUNK : WNW_PHASE_END;
    wnw_policy_facts_add(facts, profile);
    return (wnw_automatic){WNW_INIT(wnw_automatic), .recipe = recipe, .facts = facts, .profile = profile,
                           .size = *size};
}

int wnw__bridge_watch_set(struct wnw__bridge_watch *w, const char *recipe, const wnw_size *size,
                          bool by_itself)
{
    const wnw_size none = {.kind = WNW_SIZE_NONE}, of = size ? *size : none;
    const bool chooses = wnw_automatic_is(recipe, NULL);
    const int32_t chunk = by_itself ? w->chunk_next : 0;
    wnw_policy_facts facts;
    const wnw_automatic automatic = automatic_of(recipe, &facts, w->profile, &of, chunk);
    struct rows rows = {.watch = w, .chunk = chunk};
    char *text = chooses ? strdup(recipe) : NULL;
    int rc = chooses ? wnw_automatic_each(&automatic, add_row, &rows) : add_row(recipe, NULL, &rows);
    if (rc == WNW_OK && chooses && !text)
        rc = wnw__fail(WNW_E_NOMEM, "out of memory for a recipe");
    if (rc != WNW_OK) {
        free(text);
        wnw_policy_free(rows.first);
        return rc;
    }
    wnw__bridge_watch_clear(w);
    w->policy = rows.first;
    w->automatic = text;
    w->needs = rows.needs;
    w->size = of;
    w->by_itself = by_itself;
    w->chunk = chunk;
    return WNW_OK;
}

int wnw__bridge_watch_set_alone(struct wnw__bridge_watch *w, const char *recipe, const wnw_size *size,
                                bool by_itself)
{
    wnw_policy *policy = NULL;
    if (!wnw_automatic_is(recipe, NULL) && wnw_policy_parse(&policy, recipe, w->registry) == WNW_OK) {
        const wnw_needs needs = wnw_policy_needs(policy);
        const int rc =
            repeats_sample(&needs)
                ? wnw__fail(WNW_E_UNSUPPORTED,
                            "%s has a sample of the prompt read a second time, which only a program can "
                            "feed that knows its sequences, as `winnow serve` does",
                            wnw__policy_name(policy))
                : WNW_OK;
        wnw_policy_free(policy);
        WNW_TRY(rc);
    }
    return wnw__bridge_watch_set(w, recipe, size, by_itself);
}

int wnw__bridge_watch_check(struct wnw__bridge_backend *b)
{
    struct wnw__bridge_watch *w = &b->watch;
    const int rc = b->far && w->policy ? b->far->check_policy(b, w->policy, &w->needs) : WNW_OK;
    if (rc != WNW_OK)
        wnw__bridge_watch_clear(w);
    return rc;
}

/* Adds a part that recipes may name from then on. */
static int add_part(struct wnw__bridge_watch *w, const wnw_part *part)
{
    if (!w->registry)
        WNW_TRY(wnw_registry_new(&w->registry));
    return wnw_registry_add(w->registry, part);
}

/* Adds the results of a file to the profile. */
static int add_profile(struct wnw__bridge_watch *w, const char *path)
{
    w->n_profile++;
    return w->profile ? wnw_profile_add_file(w->profile, path) : wnw_profile_open(&w->profile, path);
}

/* Adds the files of a setting. */
static int add_profiles(struct wnw__bridge_watch *w, const wnw_bridge_setting *setting)
{
    int rc = WNW_OK;
    for (int32_t i = 0; rc == WNW_OK && i < setting->n_profiles; i++) {
        rc = add_profile(w, setting->profiles[i]);
        rc = setting->found && (rc == WNW_E_MISMATCH || rc == WNW_E_FORMAT) ? WNW_OK : rc;
    }
    return rc;
}

int wnw__bridge_watch_prepare(struct wnw__bridge_watch *next, const struct wnw__bridge_backend *b,
                              const wnw_bridge_setting *setting)
{
    *next = (struct wnw__bridge_watch){.chunk_next = setting->chunk};
    for (int32_t i = 0; i < setting->n_parts; i++)
        WNW_TRY(add_part(next, setting->parts[i]));
    WNW_TRY(add_profiles(next, setting));
    if (!setting->recipe)
        return WNW_OK;
    WNW_TRY(wnw__bridge_watch_set_alone(next, setting->recipe, setting->size, setting->by_itself));
    return b->far ? b->far->check_policy(b, next->policy, &next->needs) : WNW_OK;
}

void wnw__bridge_watch_take(struct wnw__bridge_watch *w, struct wnw__bridge_watch *next)
{
    wnw__bridge_watch_clear(w);
    wnw_registry_free(w->registry);
    wnw_profile_free(w->profile);
    w->registry = next->registry;
    w->policy = next->policy;
    w->automatic = next->automatic;
    w->profile = next->profile;
    w->n_profile++;
    w->size = next->size;
    w->needs = next->needs;
    w->by_itself = next->by_itself;
    w->chunk = next->chunk;
    w->chunk_next = next->chunk_next;
    *next = (struct wnw__bridge_watch){0};
}

/* Whether cells of the sequence come from a state, so that nothing was noted of them. */
static bool was_read(const struct wnw__bridge_sequence_cells *sequence_cells)
{
    for (int32_t i = 0; i < sequence_cells->n; i++) {
        const struct wnw__bridge_note *note = wnw__bridge_note_of(sequence_cells, i);
        if (note && note->write_order == 0)
            return true;
    }
    return false;
}

/* Whether several layers read one cache: queries are noted of one of them alone. */
static bool shares_caches(const struct wnw__bridge_sequence_cells *sequence_cells)
{
    for (int32_t i = 0; sequence_cells->cache && i < sequence_cells->cache->n_layer; i++)
        if (sequence_cells->cache->layers[i]->info.n_reader > 1)
            return true;
    return false;
}

/* Chooses the policy for a sequence. */
static int choose(struct wnw__bridge_watch *w, const struct wnw__bridge_sequence_cells *sequence_cells)
{
    wnw_policy_facts facts;
    const wnw_automatic automatic = automatic_of(w->automatic, &facts, w->profile, &w->size, w->chunk);
    wnw_policy *policy;
    char *recipe;
    facts.queries_unknown = shares_caches(sequence_cells);
    WNW_TRY(wnw_automatic_choose(&recipe, &automatic, sequence_cells->n, was_read(sequence_cells)));
    const int rc = parse(&policy, recipe, w, w->chunk);
    if (rc == WNW_OK) {
        wnw__log(WNW_LOG_INFO, "winnow: %d tokens by %s", (int)sequence_cells->n, recipe);
        wnw_policy_free(w->policy);
        w->policy = policy;
    }
    wnw_free(recipe);
    return rc;
}

int wnw__bridge_compress_last(struct wnw__bridge_backend *b)
{
    if (b->watch.automatic)
        WNW_TRY(choose(&b->watch, &b->watch.last));
    return wnw__bridge_compress(b, &b->watch.last);
}

void wnw__bridge_watch_free(struct wnw__bridge_watch *w)
{
    wnw__bridge_watch_clear(w);
    wnw_registry_free(w->registry);
    wnw_profile_free(w->profile);
    for (int i = 0; i < 2; i++)
        wnw__proj_free(w->proj[i]);
    wnw__team_free(w->team);
    wnw__buffer_free(&w->gate_room);
    free(w->sites);
    free(w->last.cell);
    *w = (struct wnw__bridge_watch){0};
}

/* ---- The environment ---- */

/* A variable that names a size, with what the command's option of this kind takes. */
struct variable {
    const char *name;
    wnw_size_kind kind;
    double least, most;
    const char *form;
};
static const struct variable variables[] = {
    {"WINNOW_BUDGET", WNW_SIZE_BUDGET, 1.0, 2147483647.0, "from 1 to 2147483647, and whole"},
    {"WINNOW_RATIO", WNW_SIZE_RATIO, 0.0, 0.9999999999999999, "of at least 0 and less than 1"},
    {"WINNOW_KV_BYTES", WNW_SIZE_BYTES, 1.0, 1e15,
     "from 1 to 1e15, and whole; K, M or G after it are powers of 1024"},
};

/* The power of two that the end of a text multiplies with, -1 where it is none. */
static int shift_of(const char *end, wnw_size_kind kind)
{
    static const char suffixes[] = "KMG";
    const char *suffix = kind == WNW_SIZE_BYTES && *end ? strchr(suffixes, *end) : NULL;
    if (!*end)
        return 0;
    return suffix && !end[1] ? 10 * (int)(suffix - suffixes + 1) : -1;
}

/* A number of the environment, which is all of the variable, within bounds. */
static int number_of(const struct variable *v, const char *text, double *out)
{
    char *end;
    *out = wnw__to_double(text, &end);
    /* strtod takes blanks, hexadecimal numbers and names, too. */
    const bool plain = end > text && strspn(text, "0123456789.eE+-") >= (size_t)(end - text);
    const int shift = shift_of(end, v->kind);
    const bool whole = v->kind == WNW_SIZE_RATIO || *out == floor(*out);
    *out = ldexp(*out, shift > 0 ? shift : 0);
    if (!plain || shift < 0 || !whole || !(*out >= v->least && *out <= v->most))
        return wnw__fail(WNW_E_ARG, "%s is '%.40s': it is a number %s", v->name, text, v->form);
    return WNW_OK;
}

/* Takes the size that one variable names; n counts those that are set. */
static int take_size(const struct variable *v, wnw_size *size, int *n)
{
    const char *text = getenv(v->name);
    double x;
    if (!text || !*text)
        return WNW_OK;
    WNW_TRY(number_of(v, text, &x));
    size->kind = v->kind;
    size->budget = v->kind == WNW_SIZE_BUDGET ? (int64_t)x : 0;
    size->ratio = v->kind == WNW_SIZE_RATIO ? x : 0.0;
    size->bytes = v->kind == WNW_SIZE_BYTES ? (uint64_t)x : 0;
    (*n)++;
    return WNW_OK;
}

/* Takes when prompts are compressed: "end", "chunk" or "chunk:C". */
static int take_chunk(struct wnw__bridge_watch *w)
{
    static const char chunk[] = "chunk";
    const char *text = getenv("WINNOW_EVICT");
    const size_t n = sizeof chunk - 1;
    w->chunk_next = 0;
    if (!text || !*text || strcmp(text, "end") == 0)
        return WNW_OK;
    w->chunk_next = USUAL_CHUNK;
    if (strcmp(text, chunk) == 0)
        return WNW_OK;
    char *end = NULL;
    const bool numbered =
        strncmp(text, chunk, n) == 0 && text[n] == ':' && text[n + 1] >= '1' && text[n + 1] <= '9';
    const long long c = numbered ? strtoll(text + n + 1, &end, 10) : 0;
    w->chunk_next = c >= WNW_TURNS_LEAST_NEW && c <= INT32_MAX && !*end ? (int32_t)c : 0;
    return w->chunk_next > 0
               ? WNW_OK
               : wnw__fail(WNW_E_ARG,
                           "WINNOW_EVICT is '%.40s': use end, chunk, or chunk:C with C tokens at a "
                           "time, %d to 2147483647",
                           text, WNW_TURNS_LEAST_NEW);
}

/* Adds the files of a list. */
int wnw__bridge_watch_profiles(struct wnw__bridge_watch *w, const char *list)
{
    char *path = NULL;
    int rc = list ? wnw_profile_next(&path, &list) : WNW_OK;
    while (rc == WNW_OK && path) {
        rc = add_profile(w, path);
        wnw_free(path);
        if (rc == WNW_OK)
            rc = wnw_profile_next(&path, &list);
    }
    return rc;
}

int wnw__bridge_watch_set_from_environment(struct wnw__bridge_watch *w)
{
    const char *recipe = getenv("WINNOW_POLICY");
    wnw_size size = {.kind = WNW_SIZE_NONE};
    int n = 0;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        WNW_TRY(take_size(&variables[i], &size, &n));
    if (n > 1)
        return wnw__fail(WNW_E_ARG, "WINNOW_BUDGET, WINNOW_RATIO and WINNOW_KV_BYTES exclude each other");
    if ((!recipe || !*recipe) && n > 0)
        return wnw__fail(WNW_E_ARG, "a size is set without WINNOW_POLICY, so that nothing is compressed: set "
                                    "WINNOW_POLICY too, for instance to auto");
    if (!recipe || !*recipe)
        return WNW_OK;
    WNW_TRY(take_chunk(w));
    WNW_TRY(wnw__bridge_watch_profiles(w, getenv("WINNOW_PROFILE")));
    return wnw__bridge_watch_set_alone(w, recipe, &size, true);
}
