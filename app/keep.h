/* SPDX-License-Identifier: MIT */
/* What a session keeps of its tokens, and when it removes the others: from options to the rules of a session. */
#ifndef WNW_APP_KEEP_H
#define WNW_APP_KEEP_H

#include "app/args.h"
#include "app/files.h"
#include "app/kv.h"
#include "app/peak.h"
#include "app/text.h"
#include "winnow.h"
#include "winnow_calibrate.h"
#include "winnow_tools.h"

struct app_keep {
    wnw_policy *policy;   /* NULL until app_keep_prepare where it is chosen */
    bool automatic;       /* no policy was named, or auto: it is chosen once the prompt is known */
    bool was_read;        /* the session has entries that were read for another policy or none */
    double chunk_slack;   /* of a stored document that is read on; 0 = that of --chunk-slack */
    wnw_profile *profile; /* NULL = none */
    wnw_policy_choice choice;
    char *recipe; /* owned: for --keep-quality; NULL = none is asked for, or not chosen yet */
    wnw_size size;
    bool size_assumed;    /* no size was given and the policy has no rule of its own: ratio 0.5 */
    bool size_ignored;    /* a size was given for the policy that keeps everything */
    int32_t own_chunk;    /* tokens of a chunk if `auto` has decided so, else 0 */
    wnw_run run;          /* the session's rules: policy, size, when to compress, prompt */
    wnw_run_more more;    /* of `run`, which points to it once it is prepared */
    struct app_peak peak; /* what --kv-peak led to */
};

/* What the rules are completed for. */
struct app_keep_of {
    const struct app_args *args;
    const wnw_model *model;
    const char *model_path;
    const wnw_model_info *info;
    const struct app_kv *kv;
    const wnw_prompt *prompt; /* NULL = none */
    /* Tokens of expected questions: expected[i] has n_expected_tokens[i], i < n_expected. */
    const int32_t *const *expected;
    const int32_t *n_expected_tokens;
    int32_t n_expected;
    struct app_inputs *inputs; /* files that were named; profiles that are found are added */
    int32_t n;                 /* tokens that are compressed */
    bool stores;               /* the session will be stored and may be continued later */
    bool talks;                /* what follows the first tokens is compressed too */
    bool no_profiles;          /* auto chooses among policies that read no calibration results */
    bool
        reads_once; /* one prompt is read and answered, and nothing is stored: `auto` may read it in chunks */
    bool on_devices; /* a sequence of libllama reads the prompt once (--devices) */
};

/* The argument of --evict, or its default. */
const char *app_keep_when(const struct app_args *args);
/* Reads the arguments of --evict and --evict-every (NULL = not given) into the rules. Returns an exit code. */
int app_keep_rules(wnw_run *rules, const char *when, const char *every);
/* Fails if the policy cannot compress in a phase that the rules ask for. `when` is the text that the rules were parsed from. */
int app_keep_allowed(const wnw_policy *policy, const wnw_run *rules, const char *when);
/* The option that gives a size; NULL = none does. */
const char *app_keep_size_option(const struct app_args *args);
/* Reads rules, size and policy from the options. Returns an exit code, like all functions here. */
int app_keep_check(struct app_keep *keep, const struct app_args *args);
/* Whether a policy scores the document by the question. NULL = one that is chosen later, and does not. */
bool app_keep_by_question(const wnw_policy *policy);
/* Refuses such a policy, where the question is not known. */
int app_keep_check_blind(const wnw_policy *policy);
/* Whether the prompt may be longer than the context: read by chunks, and kept tokens get new positions. */
bool app_keep_is_endless(const struct app_keep *keep);
/* Reads the profile that the policy needs and completes keep->run. Remarks of the library are added to *remarks. */
int app_keep_prepare(struct app_keep *keep, struct app_text *remarks, const struct app_keep_of *of);
/* Whether a policy was chosen among those that do without the profile that helps most (docs/research/auto.md). */
bool app_keep_lacks_shares(const struct app_keep *keep, const struct app_args *args);
void app_keep_clear(struct app_keep *keep);

#endif
