/* SPDX-License-Identifier: MIT */
/*
 * A round of probes, for the kinds that score attention heads. A unit of work is a probe. Probes that the model
 * answers wrongly do not count. If too few are left, because the model is small, the answer is fed instead of
 * generated. Then those probes count whose answer the model predicts itself, token after token. This is not in the
 * papers, and the profile then says forced = true.
 */
#ifndef WNW_CALIBRATE_PROBE_ROUND_H
#define WNW_CALIBRATE_PROBE_ROUND_H

#include "calibrate/probe.h"

#include "winnow_method.h"

#include <stddef.h>

enum wnw__probe_chat { WNW_PROBE_CHAT_AUTO, WNW_PROBE_CHAT_NONE };
enum wnw__probe_forced { WNW_PROBE_FORCED_AUTO, WNW_PROBE_FORCED_NEVER, WNW_PROBE_FORCED_ALWAYS };
extern const char *const wnw__probe_chat_names[], *const wnw__probe_forced_names[]; /* end with NULL */

/* The options of every round; the first member of a kind's options. */
struct wnw__probe_options {
    int32_t facts, lengths, depths, shortest, longest, steps, chat, forced, least;
    double recall;
};

#define WNW_PROBE_INT(name, def, min, max, help) \
    WNW_KIND_INT(struct wnw__probe_options, name, def, min, max, help)
#define WNW_PROBE_ENUM(name, help) \
    WNW_KIND_ENUM(struct wnw__probe_options, name, wnw__probe_##name##_names, help)
/* Rows of a kind's table of options: which probes there are, and which of them count. */
#define WNW_PROBE_GRID_OPTIONS                                                                          \
    WNW_PROBE_INT(facts, 0, 0, WNW_PROBE_FACTS, "sentences that are hidden; 0 = as the effort says"),   \
        WNW_PROBE_INT(lengths, 0, 0, 100, "lengths of probes; 0 = as the effort says"),                 \
        WNW_PROBE_INT(depths, 0, 0, 100, "depths of the sentence in the text; 0 = as the effort says"), \
        WNW_PROBE_INT(shortest, 0, 0, 1 << 24, "tokens of the shortest probe; 0 = as the effort says"), \
        WNW_PROBE_INT(longest, 0, 0, 1 << 24, "tokens of the longest probe; 0 = as the effort says"),   \
        WNW_PROBE_INT(steps, 50, 1, 1000, "tokens that are generated at most")
#define WNW_PROBE_ANSWER_OPTIONS                                                                             \
    WNW_PROBE_ENUM(chat, "auto: prompts are in the model's chat template; none: plain text"),                \
        {"recall",                                                                                           \
         "per cent of the answer's words that must be generated for a probe to count, exclusive",            \
         WNW_OPT_REAL,                                                                                       \
         offsetof(struct wnw__probe_options, recall),                                                        \
         50,                                                                                                 \
         0,                                                                                                  \
         100,                                                                                                \
         NULL},                                                                                              \
        WNW_PROBE_INT(least, 20, 0, 1 << 20, "forced=auto: with fewer answered probes the answers are fed"), \
        WNW_PROBE_ENUM(forced,                                                                               \
                       "whether the answer is fed instead of asked for; always: and every probe counts")

/* What a kind makes of its probes. `user` is the round's. */
struct wnw__probe_scoring {
    const char *nothing; /* what cannot be done without answers: "nothing to score" */
    const char *numbers; /* what the report calls the results: "scores" */
    /* Clears the scores of one probe; then `look` adds the steps to them (see wnw__probe_play). */
    int (*begin)(void *user, const struct wnw__probe *p);
    void (*look)(void *user, int32_t il, int32_t h, const float *row, int32_t n, int32_t token);
    /* Adds to v, {"answered": ...}, what else is to be remembered of the probe. False: no memory. */
    bool (*write)(void *user, json_t *v);
    /* Reads that back, now or from a journal; false if v does not have the shape of it. Scores come this way
     * even if they were computed just now. */
    bool (*read)(void *user, const json_t *v);
    /* Adds a probe that counts, and was read, to the sums. */
    int (*take)(void *user, const struct wnw__probe *p);
    /* Clears the sums: all answers are fed after all. */
    void (*forget)(void *user);
};

struct wnw__probe_round {
    wnw_calibration *c;
    const struct wnw__probe_options *o;
    const struct wnw__probe_scoring *scoring;
    void *user;
    struct wnw__probe_grid grid;
    /* The current probe. */
    struct wnw__probe_play play; /* tokens[steps] are owned; its user sets stop_at_line */
    double recall;               /* while the result is written: share of the answer that was given, 0..1 */
    bool answered;
    /* The round. */
    int32_t n_answered; /* of themselves; 0 where nothing was asked */
    int32_t n_counted;  /* probes that were taken; take sees how many there were before */
    bool forced;        /* answers were fed */
};

/* Fills in the grid, notes it among the settings, reads the text and gets the memory. c, o, scoring, user and
 * play.stop_at_line are set; the rest of *r is 0. Errors as wnw__probe_grid_open. *r is released with
 * wnw__probe_round_free, after a failure too. */
int wnw__probe_round_open(struct wnw__probe_round *r);
void wnw__probe_round_free(struct wnw__probe_round *r);
/* Begins the work, and asks all probes; where too few are answered, feeds all answers. E_UNSUPPORTED: none
 * counts. */
int wnw__probe_round_run(struct wnw__probe_round *r);
/* Says how many probes were answered and fed. */
void wnw__probe_round_report(const struct wnw__probe_round *r, struct wnw__calibrate_text *report);
/* Adds how many probes there were and counted to the profile's results. False: no memory. */
bool wnw__probe_round_set(const struct wnw__probe_round *r, json_t *results);
/* Adds the lines "id,layer,head,a,b" of a probe to a dump; a and b [n_layer][n_head]. dump NULL: does nothing. */
void wnw__probe_round_dump(const struct wnw__probe_round *r, struct wnw__calibrate_text *dump,
                           const struct wnw__probe *p, const double *a, const double *b);

#endif
