/* SPDX-License-Identifier: MIT */
/* Primary contrasts: what a run is to decide, written down before it begins. Reports correct them for their number (Holm) and call
 * everything else exploratory. */
#ifndef WNW_EVAL_CONTRAST_H
#define WNW_EVAL_CONTRAST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* What is compared: a policy at a size, as records have them. */
struct eval_contrast_side {
    const char *policy, *size, *kv_type;
    const char *evict; /* a rule of --evict; NULL = the one rule of the run, or else none */
    const char *every; /* a rule of --evict-every; NULL = the same */
};

/* "A vs B mode=MODE size=SIZE", with kv=TYPE, evict=RULE, every=RULE and N=LENGTH where they are not f16, the one rule of the run and all
 * lengths: policy A minus policy B under a protocol, the mean over the informative tasks. size=, kv=, evict= and every= may have two values
 * with a slash between them, that of A and that of B. of=kl means their KL divergence from the full cache, over all tasks, in place of scores:
 * the smaller one is better. */
struct eval_contrast {
    char *text; /* owned; what follows points into it */
    struct eval_contrast_side a, b;
    const char *mode;
    const char *of;   /* "kl"; NULL or "score" = scores */
    int32_t n_target; /* 0 = all lengths */
};
bool eval_contrast_of_kl(const struct eval_contrast *c);

/* Reads a line; `where` names it in messages. Returns an exit code; the caller clears in any case. */
int eval_contrast_read(struct eval_contrast *out, const char *line, const char *where);
void eval_contrast_clear(struct eval_contrast *c);
/* The lines of a file, or of a list of lines, as JSON texts; those that are empty or begin with # are left out, all others checked.
 * NULL in *out if there are none. Returns an exit code. */
int eval_contrasts_file(json_t **out, const char *path);
int eval_contrasts_lines(json_t **out, const char *lines, const char *where);

#endif
