/* SPDX-License-Identifier: MIT */
/* The table of kinds of calibration. */
#include "calibration/commands.h"

#include "calibration/args.h"

#define RESUMES                                                                                            \
    "Finished parts are kept in a file next to the profile. An interrupted command continues from there\n" \
    "and writes the same bytes in the end."

static const struct app_group *const srh_groups[] = {&calibrate_group_work,
                                                     &calibrate_group_set,
                                                     &calibrate_group_dump,
                                                     &calibrate_group_probes,
                                                     &calibrate_group_map,
                                                     &app_group_common,
                                                     NULL};

static const struct app_group *const policy_groups[] = {&calibrate_group_work, &calibrate_group_policy,
                                                        &calibrate_group_set,  &calibrate_group_dump,
                                                        &app_group_common,     NULL};

static const struct app_group *const compiler_groups[] = {&calibrate_group_work, &calibrate_group_compiler,
                                                          &calibrate_group_set, &app_group_common, NULL};
static const struct app_group *const plain_groups[] = {&calibrate_group_work, &calibrate_group_set,
                                                       &app_group_common, NULL};

static const struct app_group *const heads_groups[] = {&calibrate_group_work, &calibrate_group_set,
                                                       &calibrate_group_dump, &app_group_common, NULL};
static const struct app_group *const shares_groups[] = {&calibrate_group_work, &calibrate_group_target,
                                                        &calibrate_group_set,  &calibrate_group_dump,
                                                        &app_group_common,     NULL};
static const struct app_group *const quality_groups[] = {&calibrate_group_work, &calibrate_group_profile,
                                                         &calibrate_group_set, &app_group_common, NULL};
static const struct app_group *const all_groups[] = {&calibrate_group_work, &calibrate_group_set_all,
                                                     &app_group_common, NULL};

const struct app_command calibrate_commands[] = {
    {.name = "calibrate srh",
     .first = "model file output effort threads map help",
     .about = "Finds semantic and traditional retrieval heads, for compresskv and compresskv-traditional.",
     .usage = "[-m MODEL] [-f TEXT] [-o FILE] [--effort quick|normal|paper] [options]",
     .notes = RESUMES,
     .groups = srh_groups,
     .args_size = sizeof(struct srh_args),
     .run = calibrate_run_srh},
    {.name = "calibrate layers",
     .first = "model file output effort policy threads help",
     .about =
         "Measures how much every layer's output suffers when few entries are left, for CompressKV's layer "
         "budgets.",
     .usage = "[-m MODEL] [-f TEXT] [--policy RECIPE] [-o FILE] [--effort quick|normal|paper] [options]",
     .notes =
         "CompressKV's choice of entries needs retrieval heads: run `winnow calibrate srh` first. Settings:\n"
         "keep, length, samples, generate, agg=mean|sum, tokens=greedy|text.",
     .groups = policy_groups,
     .args_size = sizeof(struct calibrate_args),
     .run = calibrate_run_layers},
    {.name = "calibrate compiler",
     .first = "model file output effort budget threads help",
     .about = "Learns CompilerKV's head weights and risk thresholds for a budget, for compilerkv.",
     .usage = "[-m MODEL] [-f TEXT] --budget N[,N...] [-o FILE] [options]",
     .notes =
         "Settings: items, held_out, length, next, head_trials, tau_trials, entropy_bins, ppl_bins, window,\n"
         "floor, cell_prompts, accept=checked|always.",
     .groups = compiler_groups,
     .args_size = sizeof(struct compiler_args),
     .run = calibrate_run_compiler},
    {.name = "calibrate heads",
     .about = "Measures how important heads are: for headkv, criticalkv-headkv and duoattention.",
     .usage = "[-m MODEL] [-f TEXT] [-o FILE] [--effort quick|normal|paper] [options]",
     .notes = RESUMES,
     .groups = heads_groups,
     .args_size = sizeof(struct calibrate_args),
     .run = calibrate_run_heads},
    {.name = "calibrate stats",
     .about = "Measures the queries of every head: for expected_attention-stats and qfilters.",
     .usage = "[-m MODEL] [-f TEXT] [-o FILE] [--effort HOW] [--set pieces=N,length=N]",
     .notes = "Reads pieces of a text, of 2048 tokens each: 16 of them, quick 8 of 1024, paper 20.",
     .groups = plain_groups,
     .args_size = sizeof(struct calibrate_args),
     .run = calibrate_run_stats},
    {.name = "calibrate all",
     .about = "Makes every profile that methods read and this model does not have.",
     .usage = "[-m MODEL] [-f TEXT] [-o FOLDER] [--effort quick|normal|paper] [options]",
     .notes = "Profiles go to the cache folder, or to FOLDER. Each kind is measured with its own defaults,\n"
              "unless --set changes them, e.g. srh.facts=2. CompilerKV's tables are those of --budget 512.",
     .groups = all_groups,
     .args_size = sizeof(struct calibrate_args),
     .run = calibrate_run_all},
    {.name = "calibrate curves",
     .first = "model file output effort policy threads help",
     .about = "Measures how much every KV head should keep at any size, from the later use of a scorer's "
              "choice, for LU-KV.",
     .usage = "[-m MODEL] [-f TEXT] [--policy RECIPE] [-o FILE] [--effort quick|normal|paper] [options]",
     .notes =
         "The curves are for the policy's scorer; without --policy for that of the preset lukv,\n"
         "expected_attention:epsilon=0.02. Settings: length, samples, questions, generate, norm=layer|none.",
     .groups = policy_groups,
     .args_size = sizeof(struct calibrate_args),
     .run = calibrate_run_curves},
    {.name = "calibrate shares",
     .about =
         "Measures what every KV head would keep if KVzip chose the entries, for the head budget shares.",
     .usage =
         "[-m MODEL] [-f TEXT] [--target kvzip|kvcompose] [-o FILE] [--effort quick|normal|paper] [options]",
     .notes = "Without -f it reads prose, dialogue, code and records that come with winnow; every text of a "
              "folder is\n"
              "a kind of its own in the report. Settings: pieces, shortest, longest, extra.",
     .groups = shares_groups,
     .args_size = sizeof(struct shares_args),
     .run = calibrate_run_shares},
    {.name = "calibrate gate",
     .about = "Learns to predict KVzip's scores from a cache that was read once, for kvgate.",
     .usage = "[-m MODEL] [-f TEXT] [-o FILE] [--effort quick|normal|paper] [--set features=all|scalars] "
              "[options]",
     .notes =
         "Without -f it reads prose, dialogue, code and records that come with winnow; the last piece of "
         "every\n"
         "text is held out, and the report says how predicted and true scores agree on it. A run that was\n"
         "interrupted reads finished pieces once more, without the second reading. Settings: features,\n"
         "pieces, length.",
     .groups = plain_groups,
     .args_size = sizeof(struct calibrate_args),
     .run = calibrate_run_gate},
    {.name = "calibrate inputgate",
     .about =
         "Learns to predict KVzip's scores from the hidden states that layers read, for kvzap and inputgate.",
     .usage = "[-m MODEL] [-f TEXT] [-o FILE] [--effort quick|normal|paper] [--set target=kvzip_plus|kvzip] "
              "[options]",
     .notes =
         "Without -f it reads prose, dialogue, code and records that come with winnow; the last piece of "
         "every\n"
         "text is held out, and the report says how predicted and true scores agree on it. A run that was\n"
         "interrupted reads finished pieces once more, without the second reading. Settings: target,\n"
         "pieces, length, reach.",
     .groups = plain_groups,
     .args_size = sizeof(struct calibrate_args),
     .run = calibrate_run_inputgate},
    {.name = "calibrate quality",
     .about = "Measures what is lost when entries are dropped by the scores of replay and of gates, for "
              "--keep-quality.",
     .usage = "[-m MODEL] [-f TEXT] [-o FILE] [--profile PATH] [--effort quick|normal|paper] [options]",
     .notes =
         "Without -f it reads prose, dialogue, code and records that come with winnow; every third piece is "
         "held\n"
         "out, and the report says in how many of these the bounds hold. kvgate and inputgate are measured "
         "where\n"
         "profiles of kind gate and inputgate are found. An interrupted run continues where it was. "
         "Settings: pieces, length, next.",
     .groups = quality_groups,
     .args_size = sizeof(struct calibrate_args),
     .run = calibrate_run_quality},
    {.name = "calibrate gradient",
     .about = "Measures how much the last hidden states depend on every layer, for kvzip:norm=gradient.",
     .usage = "[-m MODEL] [-f TEXT] [-o FILE] [--effort quick|normal|paper] [options]",
     .notes =
         "Without -f it reads prose, dialogue, code and records that come with winnow. Pieces are read, "
         "then\n"
         "repeated with moved hidden states, without a backward pass. The report has the factors of two\n"
         "halves of the pieces. Settings: pieces, length, draws, step.",
     .groups = plain_groups,
     .args_size = sizeof(struct calibrate_args),
     .run = calibrate_run_gradient},
    {.name = NULL},
};
