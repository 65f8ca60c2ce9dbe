/* SPDX-License-Identifier: MIT */
#include "eval/run/reading_store.h"

#include "app/console.h"
#include "eval/base/grow.h"
#include "winnow_method.h"
#include "winnow_store.h"

#include <stdlib.h>
#include <string.h>

/* What is noted while tokens are read, and is not in a file. */
enum {
    NOTED = WNW_NEED_WINDOW_ATTN | WNW_NEED_ATTN_SUM | WNW_NEED_ATTN_MAX | WNW_NEED_QUERY_STATS |
            WNW_NEED_QUERIES | WNW_NEED_PERPLEXITY | WNW_NEED_INPUT_GATE | WNW_NEED_LOOKAHEAD
};

/* The name of the first of them that a policy needs; NULL = none. */
static const char *noted(const wnw_policy *policy)
{
    const uint32_t flags = wnw_policy_needs(policy).flags & NOTED;
    int32_t bit = 0;
    while (flags && !(flags >> bit & 1))
        bit++;
    return flags ? wnw_need_name(bit) : NULL;
}

int eval_reading_store_check(const struct eval_args *args, const struct eval_configs *c)
{
    if (!args->store)
        return args->store_limit == APP_UNSET
                   ? APP_OK
                   : app_fail(APP_BAD_INPUT, "--store-limit bounds a folder; name it with --store");
    if (c->n_masks > 1)
        return app_fail(APP_BAD_INPUT, "--store does not go with --mask-heads, which change what is read");
    for (int32_t i = 0; i < c->n; i++) {
        const struct eval_config *of = &c->items[i];
        const char *what = of->full ? NULL : noted(of->policy);
        if (of->own_read)
            return app_fail(
                APP_BAD_INPUT,
                "--store keeps whole caches, and '%s' reads for itself here (--evict, --evict-every, "
                "--alone)",
                of->recipe);
        if (what)
            return app_fail(
                APP_BAD_INPUT,
                "--store keeps caches without what is observed while they are read, and '%s' needs "
                "%s; leave one of them out",
                of->recipe, what);
    }
    return APP_OK;
}

/* A reading as it is found: of no policy, and of no prompt whose parts are known. Prompts of `run --store` have theirs. */
struct key {
    wnw_prompt *prompt; /* owned */
    wnw_session_params how;
    wnw_run run;
    wnw_policy *full; /* owned */
    wnw_store_key key;
};

static int make_key(struct key *k, const struct eval_shared_reading *rd, int32_t n)
{
    const struct eval_config *c = eval_config_at(rd, rd->first);
    int status = wnw_policy_parse(&k->full, "full", NULL);
    if (status == WNW_OK)
        status = wnw_prompt_new(&k->prompt, &(wnw_prompt_parts){WNW_INIT(wnw_prompt_parts), .n_prefix = -1});
    k->how = (wnw_session_params){WNW_INIT(wnw_session_params), .kv_type = c->kv.type, .kv_tail = c->kv.tail,
                                  .kv_unrotated = c->kv.unrotated};
    k->run = (wnw_run){WNW_INIT(wnw_run), .policy = k->full, .prompt = k->prompt};
    k->key = (wnw_store_key){WNW_INIT(wnw_store_key), .model = rd->m->model,         .session = &k->how,
                             .run = &k->run,          .tokens = rd->r->first[0].ids, .n_tokens = n};
    return eval_status_code(status);
}

/* Finds the reading of k and begins a session of it; *base stays NULL if there is none. */
static int open_stored(wnw_session **base, wnw_stored **st, const struct key *k,
                       const struct eval_shared_reading *rd)
{
    const wnw_stored_session_params how = {WNW_INIT(wnw_stored_session_params), .copied = true};
    WNW_TRY(eval_status_code(wnw_store_find(st, rd->m->store, &k->key, true)));
    if (!*st)
        return APP_OK;
    WNW_TRY(eval_status_code(wnw_stored_session(base, *st, rd->m->engine, &how)));
    return *base ? eval_status_code(wnw_session_begin(*base, &rd->told)) : APP_OK;
}

int eval_reading_store_take(struct eval_shared_reading *rd, int32_t n)
{
    struct key k = {.full = NULL};
    wnw_stored *st = NULL;
    wnw_session *base = NULL;
    if (!rd->m->store)
        return APP_OK;
    int rc = make_key(&k, rd, n);
    if (rc == APP_OK)
        rc = open_stored(&base, &st, &k, rd);
    if (rc == APP_OK && base) {
        wnw_session_free(rd->base);
        rd->base = base;
        rd->n_kept = n;
        base = NULL;
    }
    wnw_session_free(base);
    wnw_stored_free(st);
    wnw_prompt_free(k.prompt);
    wnw_policy_free(k.full);
    return rc;
}

void eval_reading_store_add(const struct eval_shared_reading *rd, int32_t n)
{
    struct key k = {.full = NULL};
    if (!rd->m->store)
        return;
    if (make_key(&k, rd, n) == APP_OK && wnw_store_add(rd->m->store, &k.key, rd->base, NULL) != WNW_OK)
        app_note("warning: a reading was not stored: %s", wnw_last_error());
    wnw_prompt_free(k.prompt);
    wnw_policy_free(k.full);
}
