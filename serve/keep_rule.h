/* SPDX-License-Identifier: MIT */
/*
 * What is kept of a sequence: a recipe and a size. A recipe is parsed where it comes in; what is asked of it afterwards, when slots are
 * chosen and while batches run, was noted then.
 */
#ifndef WNW_SERVE_KEEP_RULE_H
#define WNW_SERVE_KEEP_RULE_H

#include "winnow.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SERVE_RECIPE = 512, SERVE_FORM = 1024 };

struct serve_keep_rule {
    char recipe[SERVE_RECIPE]; /* as it was written; "full": everything; "auto...": serve/automatic.h */
    char taken[SERVE_RECIPE];  /* what "auto" came to where something was compressed; else "" */
    wnw_size size;
    int32_t n_protected; /* tokens of the header */
    int32_t n_most;      /* tokens that the prompt has at most; 0 = not known */
    /* What serve_keep_rule_set notes of the recipe. */
    /* with every default written out, so that one policy has one form; "": not known */
    char form[SERVE_FORM];
    uint32_t needs;     /* WNW_NEED_ flags; all of them where it cannot be told */
    uint64_t adapters;  /* a mark of the scales of the server's adapters; 0: it has none */
    bool keeps_quality; /* it drops a share of the scores of all entries that it judges */
    bool chunks;        /* it can compress a prompt while that is read */
    bool by_blocks;     /* it keeps some of every block, so that a size is no limit of what it keeps */
    int32_t chunk; /* tokens after which it does that for this request's prompt; 0: at the prompt's end */
};

/* Parses a recipe of less than SERVE_RECIPE bytes and takes it into *keep_rule. *policy is the caller's, NULL for "full" and for
 * what begins with "auto", which serve_automatic_settle completes; policy may be NULL.
 * After an error, which is one of wnw_policy_parse, *keep_rule has the recipe, as one that may need everything. */
int serve_keep_rule_set(struct serve_keep_rule *keep_rule, const char *recipe, wnw_policy **policy);

/* The recipe that something was compressed by, for people. */
const char *serve_keep_rule_taken(const struct serve_keep_rule *keep_rule);
/* Whether the recipe is "auto..." (serve/automatic.h). */
bool serve_is_automatic(const struct serve_keep_rule *keep_rule);
/* Whether nothing is ever dropped. */
bool serve_keeps_all(const struct serve_keep_rule *keep_rule);
/* Whether recipes are the same, however they are written; and sizes, too. */
bool serve_same_recipe(const struct serve_keep_rule *a, const struct serve_keep_rule *b);
bool serve_same_keep_rule(const struct serve_keep_rule *a, const struct serve_keep_rule *b);
/* Whether a rule looks at the end of the prompt, where the question is. */
bool serve_looks_at_question(const struct serve_keep_rule *keep_rule);
/* Whether it looks with the queries of the whole prompt, or with any. */
bool serve_looks_with_all(const struct serve_keep_rule *keep_rule);
bool serve_looks_with_queries(const struct serve_keep_rule *keep_rule);
/* Whether queries that are kept for these needs together are rounded to f16. */
bool serve_rounds_queries(uint32_t needs);
/* Whether it needs what must have been noted while the whole prompt was read. */
bool serve_looks_back(const struct serve_keep_rule *keep_rule);

/* What compresses where the rule that is wanted refuses: it asks for nothing but keys, and takes any size. */
#define SERVE_FALLBACK "keydiff"

#ifdef __cplusplus
}
#endif

#endif
