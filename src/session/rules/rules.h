/* SPDX-License-Identifier: MIT */
/* Following the rules of a session (timeline/eviction.h): what is dropped, and when. */
#ifndef WNW_RULES_H
#define WNW_RULES_H

#include "session/timeline/eviction.h"

/* A budget that holds everything. */
#define WNW_KEEP_ALL INT64_MAX

/* The policy and size of one compression, which the rules come down to. ratio_base: tokens that a ratio
 * counts; 0 = the entries there. A budget of WNW_KEEP_ALL is no compression. */
struct wnw__compression {
    const wnw_policy *policy;
    wnw_size size;
    int32_t ratio_base;
};

/* How a policy is followed. Functions that are NULL have nothing to do. */
struct wnw__rule {
    /* Refuses rules that could not be followed to the end. */
    int (*check)(const wnw_session *s, const struct wnw__eviction *ev);
    bool replans; /* while decoding it plans at fixed intervals, with queries of generated tokens */
    bool chunks_follow_blocks; /* how long the next chunk is follows from what was kept of the last ones */
    /* Is called before a piece of n tokens is read, with the report's warning to fill in. */
    int (*before_piece)(wnw_session *s, int32_t n, char *warning);
    /* The policy and size for compressing a prompt when all but its last n_coming tokens were read. */
    struct wnw__compression (*compression)(const wnw_session *s, int32_t n_coming);
    /* Tokens of the next chunk where the rules name no number. */
    int32_t (*next_chunk)(const wnw_session *s);
    int (*after_piece)(wnw_session *s);
    /* Is called after each decoded token; the report gets warnings. */
    int (*after_token)(wnw_session *s, wnw_report *report);
};
extern const struct wnw__rule wnw__rule_every, wnw__rule_blocks, wnw__rule_slide;
const struct wnw__rule *wnw__rule_of(const wnw_policy *p);

/* `compression` and `next_chunk` of rules that have none of their own: the rules' policy and size; 512 tokens. */
struct wnw__compression wnw__rules_compression(const wnw_session *s, int32_t n_coming);
int32_t wnw__rules_chunk(const wnw_session *s);
/* Plans and applies; `room` is that of wnw__session_apply. One that keeps everything does nothing. */
int wnw__rules_compress(wnw_session *s, const struct wnw__compression *compression, int32_t room,
                        wnw_report *report);

/* Checks whether the session can follow the rules with the profile (NULL = none). Errors as
 * wnw_session_begin. */
int wnw__rules_check(const wnw_session *s, const struct wnw__eviction *ev, const wnw_profile *profile);
/* Makes the session follow rules that were checked (wnw__rules_check) and whose policy records what it needs. own: that policy
 * where the rules are to own it, else NULL. goes_on: with the counts of the rules before, also over rules without a policy. */
void wnw__rules_set(wnw_session *s, const struct wnw__eviction *ev, wnw_policy *own, bool goes_on);
/* Whether the rules plan again at fixed intervals while decoding, so that queries of generated tokens
 * count. */
bool wnw__rules_replan(const struct wnw__eviction *ev);
/* Does what the rules want after each decoded token. */
int wnw__rules_after_decode(wnw_session *s);

/* ---- How many entries the size of the rules leaves (size.c) ---- */

/* Number of layers that the policy compresses. */
int32_t wnw__rules_n_layers(const wnw_session *s, const wnw_policy *p);
/* Entries per layer and head that the size of the rules leaves of n tokens, at least 1; more than n where the size
 * holds them all. */
int32_t wnw__rules_n_keep(const wnw_session *s, const struct wnw__eviction *ev, int32_t n);
/* The size while chunks follow: `slack` times the size of the rules. */
wnw_size wnw__rules_size_between(const struct wnw__eviction *ev);
/* Entries of the longest head among the layers without a sliding window. */
int32_t wnw__rules_longest_head(const wnw_session *s);

#endif
