/* SPDX-License-Identifier: MIT */
#include "serve/compress.h"

#include "serve/automatic.h"
#include "serve/document_cells.h"

#include <stdio.h>
#include <string.h>

/* Entries that stay in addition to a header, however small the size. */
enum { LEAST_KEPT = 32 };

static void count_all_entries(struct serve_watched *w)
{
    for (int32_t i = 0; i < serve_watched_n(w); i++) /* several may share cells */
        if (w->sequences.of[i].n > 0)
            serve_watched_count(w, i);
}

/* Says why the fallback is taken, once for each reason. */
static void warn_fallback(struct serve_watched *w, const char *recipe, int rc)
{
    if (rc == WNW_E_UNSUPPORTED)
        snprintf(w->cannot, sizeof w->cannot, "%s", recipe);
    if (strcmp(w->last_fallback_reason, wnw_last_error()) == 0)
        return;
    snprintf(w->last_fallback_reason, sizeof w->last_fallback_reason, "%s", wnw_last_error());
    fprintf(stderr, "winnow: %s is taken in place of %s where that cannot be had: %s\n", SERVE_FALLBACK,
            recipe, w->last_fallback_reason);
}

/* Whether a rule sets its own size, and no size was given. */
static bool sizes_itself(const struct serve_rule *rule, const wnw_size *size)
{
    return size->kind == WNW_SIZE_NONE && wnw_policy_has_own_size(rule->policy);
}

/* Compresses a part of a slot with `rule`; the policy also gets the slot's first n_prefix tokens, which stay. If the rule cannot run here,
 * or is NULL, the fallback policy is used, because a client that gave a size expects it to be met. A rule with a size of its own
 * (`quality`) has no fallback. */
static int compress_part(struct serve_watched *w, int32_t seq, const wnw_turns_part *part, int32_t n_prefix,
                         const struct serve_rule *rule)
{
    const int32_t *cell = w->sequences.of[seq].cell;
    int32_t *const n_settled = &w->slot_cache[seq].n_settled;
    wnw_bridge_cells_of of = {WNW_INIT(wnw_bridge_cells_of),
                              .n_cells = part->to - part->from,
                              .cells = cell + part->from,
                              .policy = rule ? rule->policy : w->fallback,
                              .size = &part->size,
                              .n_prefix = n_prefix,
                              .prefix = cell,
                              .sample = w->sample[seq],
                              .n_settled = n_prefix == part->from ? n_settled : NULL};
    int rc = wnw_bridge_compress_cells(w->cache, &of);
    if (rc != WNW_OK && rc != WNW_E_NOMEM && rule && !sizes_itself(rule, &part->size) &&
        strcmp(rule->keep_rule.recipe, SERVE_FALLBACK) != 0) {
        warn_fallback(w, rule->keep_rule.recipe, rc);
        serve_slots_count_fallback();
        of.policy = w->fallback;
        *n_settled = 0;
        rc = wnw_bridge_compress_cells(w->cache, &of);
    }
    return rc;
}

/* Whether earlier turns are left as they are. A quality rule may compress each token once: a second time would fall below the promised
 * quality. Earlier turns are only compressed again if they do not fit into a given size. */
static bool keeps_previous(const struct serve_watched *w, int32_t seq, const struct serve_rule *rule)
{
    const wnw_size *size = &w->rule[seq].keep_rule.size;
    if (!rule->keep_rule.keeps_quality || size->kind == WNW_SIZE_NONE)
        return rule->keep_rule.keeps_quality;
    const int64_t n_kept = (w->slot_cache[seq].entries + w->row_entries - 1) / w->row_entries;
    return size->kind == WNW_SIZE_BUDGET && n_kept <= rule->keep_rule.size.budget;
}

/* What the slot has read, and what `rule` says; NULL: the fallback is taken. A budget is of the header, too, but not of a document. */
static wnw_turns turns_by(const struct serve_watched *w, int32_t seq, const struct serve_rule *rule)
{
    wnw_turns turns = serve_compress_turns(w, seq);
    turns.size = w->rule[seq].keep_rule.size;
    turns.n_counted = turns.n_header - serve_document_cells_shared(w, seq);
    turns.n_least = LEAST_KEPT;
    turns.keeps_previous = rule && keeps_previous(w, seq, rule);
    turns.all_queries = rule && serve_looks_with_all(&rule->keep_rule);
    return turns;
}

/* Compresses by the rule, or by the fallback where it is known that the rule cannot be had. */
static int compress_by(struct serve_watched *w, int32_t seq, const struct serve_rule *rule)
{
    const bool cannot =
        !sizes_itself(rule, &w->rule[seq].keep_rule.size) && strcmp(rule->keep_rule.recipe, w->cannot) == 0;
    const wnw_turns turns = turns_by(w, seq, cannot ? NULL : rule);
    const int32_t n_prefix = serve_document_cells_shared(w, seq) > 0 ? 0 : turns.n_header;
    wnw_turns_part parts[2];
    const int32_t n = wnw_turns_parts(parts, &turns);
    if (cannot)
        serve_slots_count_fallback();
    int rc = WNW_OK;
    for (int32_t i = 0; rc == WNW_OK && i < n; i++)
        rc = compress_part(w, seq, &parts[i], n_prefix, cannot || parts[i].fallback ? NULL : rule);
    return rc;
}

/* Notes by what a slot was compressed. */
static void note(struct serve_slot_cache *s, const struct serve_keep_rule *keep_rule, const char *taken)
{
    s->by = *keep_rule;
    if (serve_is_automatic(keep_rule))
        snprintf(s->by.taken, sizeof s->by.taken, "%s", taken);
}

bool serve_compress(struct serve_watched *w, int32_t seq)
{
    struct serve_slot_cache *s = &w->slot_cache[seq];
    const struct serve_sequence *q = &w->sequences.of[seq];
    const struct serve_keep_rule *keep_rule = &w->rule[seq].keep_rule;
    if (s->n_unknown > 0 || serve_keeps_all(keep_rule) || !wnw_turns_is_due(s->n_new, 0, true) ||
        q->n <= serve_compress_header(w, seq))
        return true;
    struct serve_rule chosen = {0};
    int rc = serve_is_automatic(keep_rule)
                 ? serve_choose_rule(&chosen, w, seq, q->n - serve_document_cells_shared(w, seq),
                                     w->sample[seq] != NULL)
                 : WNW_OK;
    const struct serve_rule *rule = chosen.policy ? &chosen : &w->rule[seq];
    if (rc == WNW_OK)
        rc = compress_by(w, seq, rule);
    s->n_new = 0;
    if (rc != WNW_OK) {
        fprintf(stderr, "winnow: slot %d is not compressed: %s\n", (int)seq, wnw_last_error());
    } else {
        s->compressed = true;
        s->n_judged = q->n;
        note(s, keep_rule, rule->keep_rule.recipe);
        count_all_entries(w);
        serve_watched_report(w, seq);
    }
    serve_watched_tell(w, rc == WNW_OK, rc != WNW_OK);
    wnw_policy_free(chosen.policy);
    return rc == WNW_OK;
}

bool serve_compress_middle(struct serve_watched *w, int32_t seq, int32_t from, int32_t to, int32_t n)
{
    struct serve_slot_cache *s = &w->slot_cache[seq];
    const wnw_turns_part middle = {
        .from = from, .to = to, .size = {.kind = WNW_SIZE_BUDGET, .budget = n > 0 ? n : 1}};
    if (compress_part(w, seq, &middle, from, NULL) != WNW_OK)
        return false;
    if (!s->compressed) { /* who goes on with it asked for something to be dropped */
        s->by = w->rule[seq].keep_rule;
        snprintf(s->by.taken, sizeof s->by.taken, "%s", SERVE_FALLBACK);
    }
    s->compressed = true;
    return true;
}

void serve_compress_parked(struct serve_watched *w, int32_t seq)
{
    struct serve_slot_cache *s = &w->slot_cache[seq];
    const struct serve_sequence *q = &w->sequences.of[seq];
    const int32_t n_header = serve_compress_header(w, seq);
    if (s->compressed || s->document_plus_1 > 0 || s->n_unknown > 0 ||
        !wnw_turns_is_due(q->n - n_header, 0, true))
        return;
    const wnw_turns_part rest = {.from = n_header,
                                 .to = q->n,
                                 .size = {.kind = WNW_SIZE_RATIO, .ratio = serve_settings()->park_ratio}};
    if (compress_part(w, seq, &rest, n_header, NULL) != WNW_OK) {
        fprintf(stderr, "winnow: slot %d is parked whole: %s\n", (int)seq, wnw_last_error());
        return;
    }
    /* Who goes on with it asked for more, and takes it. */
    s->compressed = true;
    s->n_judged = q->n;
    s->by = w->rule[seq].keep_rule;
    snprintf(s->by.taken, sizeof s->by.taken, "%s", SERVE_FALLBACK);
    serve_watched_count(w, seq);
    serve_watched_report(w, seq);
    serve_watched_tell(w, true, false);
}
