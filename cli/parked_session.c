/* SPDX-License-Identifier: MIT */
#include "cli/parked.h"

#include "app/console.h"
#include "app/files.h"
#include "app/output.h"
#include "app/profiles.h"
#include "base/err.h"
#include "base/kv_types.h"
#include "base/prefix.h"
#include "base/system.h"
#include "cli/stored.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Reading a parked prompt ---- */

/* The type of the keys in a checked state of n tokens: it follows the cells of the first cache. */
static bool type_of(wnw_kv_type *type, const struct serve_slot_read *read)
{
    const size_t at = (size_t)(4 + 3 * read->file.n_sequence + 2) * sizeof(uint32_t);
    int32_t is = -1;
    if (at + sizeof is <= read->file.state_bytes)
        memcpy(&is, read->state + at, sizeof is);
    return wnw__kv_type_of_ggml(type, (enum ggml_type)is);
}

static const int32_t *tokens_of(const struct serve_slot_read *read)
{
    return serve_slot_notes_tokens(read->notes, read->file.n_tokens);
}

/* How many tokens there are with those that were generated and not read, but for one that ends a turn. */
static int32_t n_said(const struct serve_slot_read *read, const struct cli_parked *p)
{
    const struct serve_slot_form any = {.type_k = -1, .type_v = -1, .n_longest = INT32_MAX};
    const int32_t *tokens = tokens_of(read);
    int32_t n = 0;
    bool images;
    (void)serve_slot_notes_check(&n, &images, read->notes, read->file.n_tokens,
                                 &any); /* it was good before */
    while (n > read->file.n_sequence && wnw_token_is_eog(p->model, tokens[n - 1]))
        n--;
    return n;
}

/* What sessions of the model can hold: rows of any type, thus of no more bytes than f32 has. */
static void set_form(struct serve_slot_form *form, const struct cli_parked *p)
{
    wnw_model_info info = wnw_model_info_default();
    (void)wnw_model_get_info(p->model, &info); /* this call does not fail for an open model */
    *form =
        (struct serve_slot_form){.type_k = -1, .type_v = -1, .n_vocab = info.n_vocab, .n_longest = INT32_MAX};
    snprintf(form->fingerprint, sizeof form->fingerprint, "%s", p->folder.fingerprint);
    form->row_bytes =
        2 * sizeof(float) * (uint64_t)info.n_layer * (uint64_t)info.n_head_kv * (uint64_t)info.n_embd_head;
}

/* Reads the slot of a parked prompt, which the caller clears. Bad input where no session can hold it. */
static int read_slot(struct serve_slot_read *read, wnw_kv_type *type, const struct cli_parked *p,
                     const struct cli_parked_entry *e)
{
    struct serve_slot_form form;
    uint8_t *image = NULL;
    size_t n = 0;
    int32_t n_noted = 0;
    bool images = false;
    const unsigned long long id = e->id;
    *read = (struct serve_slot_read){0};
    set_form(&form, p);
    int status = serve_park_folder_image(&image, &n, &p->folder, e->id);
    if (status == WNW_OK)
        status = serve_slot_file_unpack(read, image, n, &form);
    free(image);
    if (status == WNW_E_FORMAT)
        return app_fail(APP_BAD_INPUT, "parked conversation %llu cannot be used: %s", id, wnw_last_error());
    if (status != WNW_OK)
        return app_fail_status(status);
    if (read->file.n_at > 0)
        return app_fail(
            APP_BAD_INPUT,
            "parked conversation %llu has lost tokens of its middle: only a server goes on with it", id);
    status = serve_slot_notes_check(&n_noted, &images, read->notes, read->file.n_tokens, &form);
    if (status != WNW_OK || images || read->file.n_sequence > n_noted)
        return app_fail(APP_BAD_INPUT, "parked conversation %llu has images: only a server goes on with it",
                        id);
    return type_of(type, read)
               ? APP_OK
               : app_fail(APP_BAD_INPUT, "parked conversation %llu has a cache of a type that sessions lack",
                          id);
}

/* ---- By way of a stored session ---- */

static char *way(const struct cli_parked *p)
{
    char name[48];
    snprintf(name, sizeof name, "winnow-%ld.wkv", (long)getpid());
    return app_in_folder(p->folder.path, name);
}

/* Opens what was stored, and removes its name. */
static int open_way(wnw_stored **st, const char *path)
{
    const int rc = cli_stored_open(st, path);
    unlink(path);
    return rc;
}

int cli_parked_store(wnw_stored **st, const struct cli_parked *p, const wnw_session *s,
                     const wnw_store_params *params)
{
    char *path = way(p);
    int rc = path ? app_status_code(wnw_session_store(s, path, params))
                  : app_fail(APP_FAILED, "out of memory for a file's name");
    if (rc == APP_OK)
        rc = open_way(st, path);
    free(path);
    return rc;
}

/* A session that holds the sequence. */
static int take_sequence(wnw_session **s, const struct cli_parked *p, const wnw_session_params *how,
                         const wnw_run *run, const struct serve_slot_read *read)
{
    /* The server counts what follows the header, which is whole. */
    const int32_t n_settled = read->file.n_settled > 0 ? read->file.by.n_protected + read->file.n_settled : 0;
    int status = wnw_session_new(s, p->model, how);
    if (status == WNW_OK && run)
        status = wnw_session_begin(*s, run);
    if (status == WNW_OK)
        status = wnw_session_take_sequence(*s, read->state, read->file.state_bytes, tokens_of(read),
                                           read->file.n_sequence, n_settled);
    if (status == WNW_E_UNSUPPORTED || status == WNW_E_FORMAT || status == WNW_E_FULL)
        return app_fail(APP_BAD_INPUT, "what is parked is no session here: %s", wnw_last_error());
    return app_status_code(status);
}

/* ---- Conversations ---- */

/* Sets the policy by which it was compressed, and reads the profile that it needs. */
static int take_policy(wnw_run *run, wnw_policy **policy, wnw_profile **profile, const struct cli_parked *p,
                       const struct cli_parked_entry *e)
{
    struct app_text notes = {0};
    struct app_inputs inputs = {0};
    int rc = APP_OK;
    WNW_TRY(app_status_code(wnw_policy_parse(policy, serve_keep_rule_taken(&e->about.by), NULL)));
    const wnw_needs needs = wnw_policy_needs(*policy);
    if (needs.flags & WNW_NEED_PROFILE)
        rc = app_profile_load(profile, &notes, p->model,
                              &(struct app_profile_want){.given = p->profile,
                                                         .model = p->model_path,
                                                         .model_path = p->model_path,
                                                         .required = needs.profiles,
                                                         .optional = needs.profiles_optional,
                                                         .user = serve_keep_rule_taken(&e->about.by),
                                                         .inputs = &inputs});
    free(notes.s);
    run->policy = *policy;
    run->profile = *profile;
    return rc;
}

/* Whether a session can follow rules. */
static bool can_follow(const struct cli_parked *p, const wnw_session_params *how, const wnw_run *run)
{
    wnw_session *s = NULL;
    int status = wnw_session_new(&s, p->model, how);
    if (status == WNW_OK)
        status = wnw_session_begin(s, run);
    if (status != WNW_OK)
        app_note("%s", wnw_last_error());
    wnw_session_free(s);
    return status == WNW_OK;
}

/* What a session of a parked prompt borrows, starts as {0}. */
struct rules {
    wnw_policy *policy;
    wnw_profile *profile;
    wnw_prompt *header;
};

static void clear_rules(struct rules *r)
{
    wnw_policy_free(r->policy);
    wnw_profile_free(r->profile);
    wnw_prompt_free(r->header);
}

/* Holds the sequence under the rules by which it was compressed, where sessions can follow them here. */
static int take_ruled(wnw_session **s, struct rules *r, const struct cli_parked *p,
                      const struct cli_parked_entry *e, wnw_kv_type type, const struct serve_slot_read *read)
{
    const struct serve_keep_rule *by = &e->about.by;
    wnw_session_params how = wnw_session_default_params();
    wnw_run run = wnw_run_default();
    const wnw_prompt_parts parts = {WNW_INIT(wnw_prompt_parts), .n_prefix = e->about.keep_rule.n_protected};
    how.kv_type = type;
    run.size = by->size;
    WNW_TRY(app_status_code(wnw_prompt_new(&r->header, &parts)));
    if (!e->about.compressed)
        return take_sequence(s, p, &how, NULL, read);
    run.prompt = r->header;
    const bool ruled =
        take_policy(&run, &r->policy, &r->profile, p, e) == APP_OK && can_follow(p, &how, &run);
    if (!ruled)
        app_note("warning: from here on everything is kept, because '%.200s' cannot be followed",
                 serve_keep_rule_taken(by));
    return take_sequence(s, p, &how, ruled ? &run : NULL, read);
}

/* The note of a stored conversation, which has the turns. */
static int make_note(char **note, const struct cli_parked *p, const struct cli_parked_entry *e,
                     const struct serve_slot_read *read)
{
    struct cli_conversation turns = {.model = p->model, .layout = wnw_prompt_default_params()};
    char *system = NULL;
    turns.layout.now = wnw__local_seconds((time_t)e->used);
    int rc = cli_parked_turns(&turns, &system, tokens_of(read), n_said(read, p), read->file.n_sequence);
    if (rc == APP_OK)
        rc = cli_conversation_note(note, &turns, read->file.n_sequence);
    cli_conversation_clear(&turns);
    free(system);
    return rc;
}

/* Stores a session that goes on as the server would. */
static int store_session(wnw_stored **st, const struct cli_parked *p, const struct cli_parked_entry *e,
                         wnw_kv_type type, const struct serve_slot_read *read, const char *note)
{
    wnw_session *s = NULL;
    struct rules rules = {0};
    const wnw_store_params params = {WNW_INIT(wnw_store_params), .note = note};
    int rc = take_ruled(&s, &rules, p, e, type, read);
    if (rc == APP_OK)
        rc = cli_parked_store(st, p, s, &params);
    wnw_session_free(s);
    clear_rules(&rules);
    return rc;
}

int cli_parked_conversation(wnw_stored **st, const struct cli_parked *p, const struct cli_parked_entry *e)
{
    struct serve_slot_read read;
    wnw_kv_type type;
    char *note = NULL;
    *st = NULL;
    int rc = read_slot(&read, &type, p, e);
    if (rc == APP_OK)
        rc = make_note(&note, p, e, &read);
    if (rc == APP_OK)
        rc = store_session(st, p, e, type, &read, note);
    free(note);
    serve_slot_read_clear(&read);
    return rc;
}

/* ---- Beginnings of a document ---- */

/* Whether what was kept of a prompt is what these rules keep. */
static bool same_rules(const struct cli_parked_entry *e, const wnw_run *run)
{
    struct serve_keep_rule rule = {.n_protected = 0};
    char *recipe = NULL;
    if (!run->policy || wnw_policy_short(run->policy, &recipe) != WNW_OK ||
        strlen(recipe) >= sizeof rule.recipe || serve_keep_rule_set(&rule, recipe, NULL) != WNW_OK) {
        wnw_free(recipe);
        return false;
    }
    wnw_free(recipe);
    rule.size = run->size;
    return serve_same_keep_rule(&rule, &e->about.by);
}

/* Tokens that a parked prompt can give. */
static int32_t n_given(const struct cli_parked_entry *e, const struct serve_slot_read *read,
                       const wnw_run *run, const int32_t *tokens, int32_t n)
{
    const int32_t same = wnw__common_tokens(tokens_of(read), read->file.n_sequence, tokens, n);
    const bool keeps_all = !run->policy || wnw_policy_is_full(run->policy);
    if (!e->about.compressed)
        return keeps_all ? same : 0; /* a policy judges all tokens together */
    return !keeps_all && same == n && read->file.n_sequence == n && same_rules(e, run) ? n : 0;
}

/* The parked prompt whose text has the most of a text, of those that were not looked at. */
static const struct cli_parked_entry *next_best(const struct cli_parked *p, const bool *looked,
                                                const char *text, size_t len)
{
    const struct cli_parked_entry *best = NULL;
    size_t most = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const struct serve_park_about *a = &p->of[i].about;
        const size_t n = wnw__common_bytes(text, len, a->key, a->key_len);
        if (!looked[i] && n > most) {
            best = &p->of[i];
            most = n;
        }
    }
    return best;
}

/* Makes the session of the first tokens[n] of a slot. */
static int begin_with(wnw_stored **st, const struct cli_parked *p, const wnw_session_params *how,
                      const wnw_run *run, const struct serve_slot_read *read, int32_t n)
{
    wnw_session *s = NULL;
    int rc = take_sequence(&s, p, how, run, read);
    if (rc == APP_OK)
        rc = app_status_code(wnw_session_rewind(s, n));
    if (rc == APP_OK)
        rc = cli_parked_store(st, p, s, NULL);
    wnw_session_free(s);
    return rc;
}

int cli_parked_beginning(wnw_stored **st, const struct cli_parked *p, const wnw_session_params *how,
                         const wnw_run *run, const int32_t *tokens, int32_t n)
{
    enum { MOST_LOOKED = 8 };
    const int32_t n_begin = cli_slot_n_begin(p->model, tokens, n);
    char *text = cli_slot_text(p->model, tokens + n_begin, n - n_begin, NULL);
    bool *looked = calloc((size_t)p->n + 1, sizeof *looked);
    int rc = text && looked ? APP_OK : app_fail(APP_FAILED, "out of memory for the text of a document");
    *st = NULL;
    for (int i = 0; rc == APP_OK && !*st && i < MOST_LOOKED; i++) {
        struct serve_slot_read read;
        wnw_kv_type type;
        const struct cli_parked_entry *e = next_best(p, looked, text, strlen(text));
        if (!e)
            break;
        looked[e - p->of] = true;
        if (read_slot(&read, &type, p, e) == APP_OK && type == how->kv_type) { /* else it has said why */
            const int32_t n_has = n_given(e, &read, run, tokens, n);
            rc = n_has > 1 ? begin_with(st, p, how, run, &read, n_has) : APP_OK;
        }
        if (*st)
            serve_park_folder_touch(&p->folder, e->id);
        serve_slot_read_clear(&read);
    }
    free(text);
    free(looked);
    return rc;
}

/* ---- Parking ---- */

/* Keeps what no server can hold as a file that `winnow chat -c` takes. */
static int keep_aside(const struct cli_parked *p, const char *path)
{
    char name[48];
    snprintf(name, sizeof name, "chat-%llu.wkv", (unsigned long long)p->most);
    char *aside = app_in_folder(p->folder.path, name);
    const bool renamed = aside && rename(path, aside) == 0;
    app_note("it is kept in '%s', for `winnow chat -c`", renamed ? aside : path);
    free(aside);
    return APP_FAILED;
}

/* Whether a stored session goes on from what a parked prompt has. */
static bool goes_on(const wnw_stored *st, const wnw_model *model, const struct cli_parked_entry *e)
{
    int32_t n;
    const int32_t *tokens = wnw_stored_tokens(st, &n), n_begin = cli_slot_n_begin(model, tokens, n);
    char *text = cli_slot_text(model, tokens + n_begin, n - n_begin, NULL);
    const bool goes = text && strncmp(text, e->about.key, e->about.key_len) == 0;
    free(text);
    return goes;
}

/* Parks the session of a file. It takes the place of the prompt that it goes on from. */
static int park_file(const struct cli_parked *p, const struct cli_slot_place *to, const char *path,
                     const struct cli_parked_entry *from)
{
    wnw_stored *st = NULL;
    WNW_TRY(cli_stored_open(&st, path));
    const int rc = cli_slot_park(to, st, p->model, path);
    if (rc == APP_OK && from && goes_on(st, p->model, from))
        serve_park_folder_remove(&p->folder, from->id);
    wnw_stored_free(st);
    return rc;
}

int cli_parked_add(struct cli_parked *p, cli_parked_write *write, void *user,
                   const struct cli_parked_entry *from, bool same_rules)
{
    char *path = way(p);
    if (!path)
        return app_fail(APP_FAILED, "out of memory for a file's name");
    int rc = write(path, user);
    const bool written = rc == APP_OK;
    const struct cli_slot_place to = {.folder = &p->folder,
                                      .id = ++p->most,
                                      .owner = p->owner,
                                      .like = from && same_rules ? &from->about : NULL};
    if (written)
        rc = park_file(p, &to, path, from);
    if (rc != APP_OK && written)
        rc = keep_aside(p, path);
    else
        unlink(path); /* if it is there */
    free(path);
    return rc;
}
