/* SPDX-License-Identifier: MIT */
/* Options that the kinds of calibration share. */
#include "calibration/args.h"

#define AT(field) offsetof(struct calibrate_args, field)

static const struct app_option work_options[] = {
    {"model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL, "GGUF file, or a name from `winnow models`",
     AT(app.model), 0, 0, NULL},
    {"file", 'f', APP_TEXT, "TEXT", NULL, "a text that comes with winnow",
     "what the model reads: UTF-8 text, or a folder of *.txt", AT(app.file), 0, 0, NULL},
    {"output", 'o', APP_TEXT, "FILE", NULL, "the cache folder's, where methods look for it",
     "where to write the profile; a folder gets it under its usual name", AT(app.out), 0, 0, NULL},
    {"effort", 0, APP_TEXT, "HOW", "normal", NULL,
     "how much is measured: quick, normal, or paper (as much as the method's authors)", AT(effort), 0, 0,
     NULL},
    {"threads", 't', APP_INT, "THREADS", NULL, "usable cores", "threads to compute with", AT(app.threads), 1,
     512, "1 to 512"},
    {"kv-type", 0, APP_TEXT, "TYPE", "f16", NULL, "cache type: f16, q8_0, q4_0 or f32", AT(app.kv_type), 0, 0,
     NULL},
    {"seed", 0, APP_INT, "S", "42", NULL, "seed of what is drawn at random", AT(app.seed), 0, 4294967295.0,
     "0 to 4294967295"},
};
APP_GROUP(calibrate_group_work, "Calibration", work_options);

#define PROFILE(whose)                                                                                      \
    {                                                                                                       \
        "profile", 0, APP_TEXT, "PATH", NULL, "the cache folder's, then shipped ones",                      \
            "calibration results that " whose " needs: a file, or a folder of them", AT(app.profile), 0, 0, \
            NULL                                                                                            \
    }
static const struct app_option policy_options[] = {
    {"policy", 0, APP_TEXT, "RECIPE", NULL, "the kind's own",
     "policy whose choice of entries is measured; `winnow methods` lists the parts", AT(app.policy), 0, 0,
     NULL},
    PROFILE("this policy"),
};
APP_GROUP(calibrate_group_policy, "Policy", policy_options);

static const struct app_option profile_options[] = {PROFILE("kvgate")};
APP_GROUP(calibrate_group_profile, "Profile", profile_options);

static const struct app_option set_options[] = {
    {"set", 0, APP_TEXT, "LIST", NULL, NULL, "settings of this kind: key=value,...", AT(set), 0, 0, NULL},
};
APP_GROUP(calibrate_group_set, "Settings", set_options);

static const struct app_option set_all_options[] = {
    {"set", 0, APP_TEXT, "LIST", NULL, NULL, "settings of the kinds: kind.key=value,...", AT(set), 0, 0,
     NULL},
};
APP_GROUP(calibrate_group_set_all, "Settings", set_all_options);

static const struct app_option dump_options[] = {
    {"dump", 0, APP_TEXT, "FILE", NULL, NULL, "write the single measurements, CSV", AT(dump), 0, 0, NULL},
};
APP_GROUP(calibrate_group_dump, "Measurements", dump_options);

static const struct app_option map_options[] = {
    {"map", 0, APP_TEXT, "FILE", NULL, NULL, "draw the results, layers x heads, SVG", AT(map), 0, 0, NULL},
};
APP_GROUP(calibrate_group_map, "Picture", map_options);
