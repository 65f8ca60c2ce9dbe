/* SPDX-License-Identifier: MIT */
/* Primary contrasts: what a run is to decide, written down before it begins. Reports correct them for their number (Holm) and call
 * everything else exploratory. */
#ifndef WNW_EVAL_CONTRAST_H
#define WNW_EVAL_CONTRAST_H

#include <jansson.h>
#include <stdint.h>

/* "A vs B mode=MODE size=SIZE", with kv=TYPE and N=LENGTH where they are not f16 and all lengths: policy A minus policy B under a
 * protocol at a size, the mean over the informative tasks. With evict=RULE or evict=RULE/RULE, where rules of eviction differ: that of
 * both sides, or that of A and that of B. */
struct eval_contrast {
    char *text;                                /* owned; what follows points into it */
    const char *a, *b, *mode, *size, *kv_type; /* as records have them */
    const char *evict_a, *evict_b; /* "end", "chunk:512"; NULL: the run's only rule, or else none */
    int32_t n_target;              /* 0 = all lengths */
};

/* Reads a line; `where` names it in messages. Returns an exit code; the caller clears in any case. */
int eval_contrast_read(struct eval_contrast *out, const char *line, const char *where);
void eval_contrast_clear(struct eval_contrast *c);
/* The lines of a file, or of a list of lines, as JSON texts; those that are empty or begin with # are left out, all others checked.
 * NULL in *out if there are none. Returns an exit code. */
int eval_contrasts_file(json_t **out, const char *path);
int eval_contrasts_lines(json_t **out, const char *lines, const char *where);

#endif
