/* SPDX-License-Identifier: MIT */
/* What is compared: policies at sizes, with types of cache, by what the compressor may see. */
#ifndef WNW_EVAL_CONFIG_H
#define WNW_EVAL_CONFIG_H

#include "app/kv.h"
#include "app/text.h"
#include "eval/args.h"
#include "eval/base/contrast.h"
#include "eval/run/suite.h"
#include "winnow_study.h"

#include <jansson.h>

/* What is read before the cache is compressed; the rest of the prompt is read afterwards and stays whole. */
enum eval_mode {
    EVAL_AGNOSTIC,   /* chat head and context */
    EVAL_TASK,       /* the context, and policies with a second pass know the question */
    EVAL_AWARE,      /* and the question */
    EVAL_AWARE_FULL, /* the whole prompt, the beginning of the answer included */
    EVAL_N_MODES
};
const char *eval_mode_name(enum eval_mode mode);

/* Query heads that are switched off. */
struct eval_mask {
    char *text; /* as the option names them; NULL = no heads. Owned, as heads is */
    wnw_mask_phase phase;
    wnw_mask_form form;
    wnw_head *heads; /* [n]; found in a model by eval_masks_open */
    int32_t n;
};

struct eval_config {
    char id[17];  /* 16 hexadecimal digits of the hash of `json` */
    json_t *json; /* the settings that the id names, owned */
    const wnw_policy *policy;
    const char *recipe; /* as people read it */
    const char *asked;  /* as it was asked for */
    const char *plans;  /* folder of keep-plans that were made elsewhere; NULL = the policy makes them */
    uint64_t plans_hash;
    char size_text[40]; /* "ratio=0.5", "budget=256", "bytes=8388608", "own"; "full" */
    wnw_size size;
    struct app_kv kv;
    char kv_text[APP_KV_WORD]; /* "f16", "q4_0:128" */
    enum eval_mode mode;
    wnw_phase phase;
    int32_t chunk, every;
    const char *every_text; /* as --evict-every names the rule; NULL = none */
    double slack;           /* of chunks: wnw_run_more.chunk_slack */
    int64_t target;
    double every_ratio;
    bool every_ratio_read;
    const struct eval_mask *mask; /* NULL = no heads are masked */
    bool full;                    /* keeps everything */
    bool own_read;        /* by itself: it drops entries while it reads or generates, or its times count */
    bool has_tasks;       /* its second pass asks what is expected to be asked */
    int32_t group;        /* configs of one group can be observed in one reading */
    int32_t reference;    /* number of the full cache's config in the same mode */
    wnw_profile *profile; /* calibration results, owned by the first config that uses them; NULL = none */
    bool owns_profile;
};

enum { EVAL_MAX_TYPES = 8, EVAL_MAX_MASKS = 64, EVAL_MAX_RULES = 8 };

struct eval_configs {
    const wnw_registry *registry; /* of plugins, borrowed; NULL = none */
    /* [n], owned. Configs that can share a reading are adjacent (eval_configs_share_reading). The full cache's is the first of
     * them in each mode. */
    struct eval_config *items;
    int32_t n;
    struct app_kv types[EVAL_MAX_TYPES];
    int32_t n_types;
    struct eval_mask masks[EVAL_MAX_MASKS]; /* the first is that without heads */
    int32_t n_masks;
    char *every[EVAL_MAX_RULES]; /* [n_every] rules of --evict-every as they are named, owned */
    int32_t n_every;
    bool masks_profiled;   /* calibration results name masked heads */
    uint64_t mask_profile; /* their hash */
    struct eval_recipe {
        wnw_policy *policy;
        char *text;  /* the shortest form */
        char *asked; /* as it was named first */
        const char *
            plans; /* a part of `asked`: the folder of `plan:DIR`, whose policy keeps everything; NULL = none */
        uint64_t plans_hash;
        int32_t group;
    } * recipes; /* [n_recipes], owned */
    int32_t n_recipes, n_groups;
    struct app_text notes; /* combinations that were left out, one per line */
};

enum { EVAL_MAX_BATCH = 64 };

/* Reads the lists of the options; what they do not name is as in the suite (may be NULL). Returns an exit
 * code; the caller closes in any case. */
int eval_configs_open(struct eval_configs *c, const struct eval_args *args, const struct eval_suite *suite);
void eval_configs_close(struct eval_configs *c);
/* The hash of calibration results: names, shapes and values of all tables. Returns false if memory runs out. */
bool eval_profile_hash(uint64_t *out, const wnw_profile *p);
/* What the run is to decide: the lines of --contrasts, or of a study whose lists of policies, sizes and modes are its own; NULL in *out
 * if there are none. Returns an exit code. */
int eval_contrasts_open(json_t **out, const struct eval_args *args, const struct eval_suite *suite);
/* Whether a policy is among the configs, in whichever words. */
bool eval_configs_have(const struct eval_configs *c, const char *recipe);
/* Whether both policies of a contrast are among the configs, with entries that go at the end and no masked heads, as it means them. */
bool eval_contrast_is_compared(const struct eval_configs *c, const struct eval_contrast *x);
/* Whether options replace what a study compares. */
bool eval_replaces_study(const struct eval_args *args);

/* Finds the masked heads in the model; p has the scores that wnw_heads_profiles asks for. Returns an exit code. */
int eval_masks_open(struct eval_configs *c, const wnw_model *m, const wnw_profile *p);
/* Whether two configs go on from one and the same reading: caches of one type, and no heads that are masked while
 * reading, or the same. */
bool eval_configs_share_reading(const struct eval_config *a, const struct eval_config *b);
/* Whether the config is the full cache as its reading left it: what answers once for all modes. */
bool eval_config_is_uncompressed(const struct eval_config *c);

#endif
