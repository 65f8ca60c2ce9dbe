/* SPDX-License-Identifier: MIT */
#include "calibrate/sample.h"

#include "profile/profile.h"
#include "session/run/run.h"
#include "session/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- How much ---- */

int32_t wnw__effort_value(const wnw_calibration *c, int32_t given, struct wnw__by_effort by)
{
    if (given > 0)
        return given;
    if (c->params.effort == WNW_EFFORT_QUICK)
        return by.quick;
    if (c->params.effort == WNW_EFFORT_PAPER)
        return by.paper;
    return by.normal;
}

int wnw__sample_length(int32_t *length, const wnw_calibration *c, int32_t given, struct wnw__by_effort by,
                       int32_t n_other)
{
    const int32_t room = c->info.n_ctx_train - n_other;
    *length = wnw__effort_value(c, given, by);
    if (given == 0 && *length > room)
        *length = room;
    if (*length < 1 || *length > room)
        return wnw__fail(
            WNW_E_RANGE,
            "samples of %d tokens with %d more do not fit the model's context of %d; give a smaller "
            "length",
            (int)*length, (int)n_other, (int)c->info.n_ctx_train);
    return WNW_OK;
}

/* ---- Pieces of texts ---- */

static int read_text(struct wnw__samples *s, const wnw_calibration *c, int32_t i, int32_t n_after,
                     int32_t n_most)
{
    const wnw_calibration_text *t = &c->params.texts[i];
    const int64_t most = (int64_t)s->length * n_most + n_after;
    size_t len;
    wnw_text_exceeds(c->m, t->text, t->len, most < INT32_MAX ? (int32_t)most : INT32_MAX, &len);
    WNW_TRY(wnw_tokenize(c->m, t->text, len, false, false, &s->tokens[i], &s->n_tokens[i]));
    const int32_t n = (s->n_tokens[i] - n_after) / s->length;
    s->n_piece[i] = n < n_most ? n : n_most;
    if (n >= 1)
        return WNW_OK;
    return wnw__fail(
        WNW_E_RANGE,
        "the text '%.80s' has %d tokens; at least %d are needed for one sample: give a longer text "
        "or a smaller length",
        t->name, (int)s->n_tokens[i], (int)(s->length + n_after));
}

int wnw__samples_cut(struct wnw__samples *s, const wnw_calibration *c, int32_t length, int32_t n_after,
                     int32_t n_most)
{
    const size_t n = (size_t)c->params.n_texts;
    *s = (struct wnw__samples){.length = length, .n_text = c->params.n_texts};
    s->tokens = calloc(n, sizeof *s->tokens);
    s->n_tokens = calloc(n, sizeof *s->n_tokens);
    s->n_piece = calloc(n, sizeof *s->n_piece);
    if (!s->tokens || !s->n_tokens || !s->n_piece)
        return wnw__fail(WNW_E_NOMEM, "no memory for the samples of %zu texts", n);
    WNW_TRY(wnw_tokenize(c->m, "", 0, true, false, &s->bos, &s->n_bos));
    for (int32_t i = 0; i < s->n_text; i++)
        WNW_TRY(read_text(s, c, i, n_after, n_most));
    return WNW_OK;
}

void wnw__samples_free(struct wnw__samples *s)
{
    for (int32_t i = 0; s->tokens && i < s->n_text; i++)
        wnw_free(s->tokens[i]);
    free(s->tokens);
    free(s->n_tokens);
    free(s->n_piece);
    wnw_free(s->bos);
    *s = (struct wnw__samples){0};
}

int32_t wnw__samples_n(const struct wnw__samples *s)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_text; i++)
        n += s->n_piece[i];
    return n;
}

const int32_t *wnw__samples_piece(const struct wnw__samples *s, int32_t i_text, int32_t i)
{
    return s->tokens[i_text] + (int64_t)i * s->length;
}

/* ---- A piece as a prompt ---- */

/* Removes what is left of characters that were cut at the ends of a text. */
static void trim(char *text)
{
    size_t first = 0, len = strlen(text), tail = len;
    while (((unsigned char)text[first] & 0xc0) == 0x80)
        first++;
    while (tail > first && ((unsigned char)text[tail - 1] & 0xc0) == 0x80)
        tail--;
    /* text[tail - 1] begins the last character: as many bytes as the ones at its top say. */
    if (tail > first) {
        const unsigned char c = (unsigned char)text[tail - 1];
        const size_t want = 1 + (size_t)(c >= 0x80) + (size_t)(c >= 0xe0) + (size_t)(c >= 0xf0);
        len = tail - 1 + want <= len ? tail - 1 + want : tail - 1;
    }
    memmove(text, text + first, len - first);
    text[len - first] = '\0';
}

int wnw__sample_text(char **text, const wnw_calibration *c, const int32_t *tokens, int32_t n)
{
    WNW_TRY(wnw_detokenize(c->m, tokens, n, text));
    trim(*text);
    return WNW_OK;
}

int wnw__sample_prompt(wnw_prompt **prompt, const wnw_calibration *c, const char *text, int32_t question)
{
    const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .document = text, .now = WNW_PROMPT_NOW,
                                      .question = wnw__question(question)};
    return wnw_prompt_build(prompt, c->m, &params);
}

int wnw__sample_read(wnw_session **s, wnw_calibration *c, const wnw_policy *const *policies, int32_t n_policy,
                     const char *record, const wnw_prompt *prompt, int32_t n_ctx)
{
    WNW_TRY(wnw__calibrate_session(s, c, n_ctx));
    const wnw_prompt header = {
        .n_prefix = prompt->n_prefix, .suffix = prompt->suffix, .n_suffix = prompt->n_suffix};
    const wnw_run run = {
        WNW_INIT(wnw_run), .profile = c->params.profile, .prompt = &header,
        .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .policies = policies, .n_policies = n_policy}};
    WNW_TRY(wnw_session_begin(*s, &run));
    if (record)
        WNW_TRY(wnw__session_record(*s, record, true));
    return wnw_session_prefill(*s, prompt->tokens, prompt->n_context, NULL, NULL);
}

/* ---- The policy ---- */

static int check_profiles(const wnw_policy *p, const wnw_profile *profile)
{
    const wnw_needs needs = wnw_policy_needs(p);
    const uint32_t lacking = needs.profiles & ~wnw_profile_kinds(profile);
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++)
        if (lacking >> kind & 1u)
            return wnw__fail(WNW_E_ARG, "policy %.120s needs a profile of kind %s", wnw_policy_string(p),
                             wnw_profile_kind_name(kind));
    return WNW_OK;
}

static int note_policy(wnw_calibration *c, const wnw_policy *p)
{
    const wnw_needs needs = wnw_policy_needs(p);
    const uint32_t kinds = needs.profiles | needs.profiles_optional;
    char hash[17];
    WNW_TRY(wnw__calibrate_set(c, "policy", json_string(wnw_policy_string(p))));
    if (kinds == 0)
        return WNW_OK;
    snprintf(hash, sizeof hash, "%016" PRIx64, wnw__profile_hash(c->params.profile, kinds));
    return wnw__calibrate_set(c, "profiles", json_string(hash));
}

int wnw__calibrate_policy(wnw_policy **policy, wnw_calibration *c, const char *def)
{
    WNW_TRY(wnw_policy_parse(policy, c->params.recipe ? c->params.recipe : def, NULL));
    int rc = wnw_policy_is_full(*policy)
                 ? wnw__fail(WNW_E_ARG, "the policy keeps everything; name another one")
                 : check_profiles(*policy, c->params.profile);
    if (rc == WNW_OK)
        rc = note_policy(c, *policy);
    if (rc == WNW_OK)
        return WNW_OK;
    wnw_policy_free(*policy);
    *policy = NULL;
    return rc;
}
