/* SPDX-License-Identifier: MIT */
/* What `winnow serve` set, read from the environment once, before main. */
#ifndef WNW_SERVE_CONFIG_H
#define WNW_SERVE_CONFIG_H

#include "app/model_files.h"
#include "serve/keep_rule.h"
#include "winnow_tools.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SERVE_FIRST 1000 /* of constructors: the settings before what needs them */
enum { SERVE_MAX_SLOTS = 64, SERVE_TEXT = 512 /* bytes of a sentence */ };

struct serve_config {
    struct serve_keep_rule keep_rule; /* of requests that do not say */
    wnw_policy_facts facts;           /* what is known of all prompts, for "auto" */
    wnw_profile *profile;             /* what the files of profiles hold; NULL: nothing */
    uint64_t cap;                     /* bytes of keys and values over all slots, 0 = none */
    /* tokens of a prompt after which it is compressed while it is read; 0: never; -1: where the whole prompt would not fit under the cap */
    int32_t chunk;
    const char *saves;                   /* the folder of saved slots; NULL: they are not saved */
    uint64_t park, park_disk;            /* bytes of parked prompts, in memory and on disk */
    const char *state;                   /* the folder of parked prompts; NULL: they are in memory alone */
    double park_ratio;                   /* what is removed of a whole slot that is parked; 0 = nothing */
    bool makes_room;                     /* where a conversation is longer than the context (stretch.h) */
    char device[64];                     /* that the model is on; the first of several */
    bool media;                          /* images or sounds may come, in texts of any length */
    const char *profiles;                /* files, with ':' between them; "" = none */
    const char *fingerprint;             /* of the model, for what was stored; "" where nobody has said it */
    const struct app_model_files *files; /* of the model that has it; NULL: nobody has said it */
    const char *names;   /* of this host, by which requests may call it, with ',' between them; "" = none */
    const char *origins; /* of pages of others that may ask, with ',' between them; "" = none */
};

/* ---- settings.c ---- */

const struct serve_config *serve_settings(void);
/* The same, for config.c, which sets them before main. */
struct serve_config *serve_settings_begin(void);
/* Whether a policy works in this server with the available profiles: WNW_OK, or wnw_last_error() says why not. Any thread. */
int serve_check_policy(const wnw_policy *policy);
/* Prints one line and exits: for settings that the server must not start with. The exit code is 1. serve_refuse_input, for invalid
 * options and documents, exits with 2. */
void serve_refuse(const char *what) __attribute__((noreturn));
void serve_refuse_input(const char *what) __attribute__((noreturn));

/* ---- config.c ---- */

/* Logs what "auto" may choose for prompts with a sample that is fed again. */
void serve_print_fed(void);

#ifdef __cplusplus
}
#endif

#endif
