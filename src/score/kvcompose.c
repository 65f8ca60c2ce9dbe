/* SPDX-License-Identifier: MIT */
/*
 * KVCompose: what attends to an entry when the context, or a task, is read a second time on top of the filled
 * cache. Paper: "KVCompose: Efficient Structured KV Cache Compression with Composite Tokens" (arXiv
 * 2509.05165). With a(l,h,c,m) the probability that query head h gives entry c from task token m:
 *
 *     S_task(h,c) = max over m of a(h,c,m)                       not renormalised over the context;
 *     S_grp(j,c)  = mean of S_task over the query heads of KV head j;
 *     S(j,c)      = S_grp(j,c) + mean over all KV heads i of S_grp(i,c)
 *
 * The maximum comes before the mean. Scores of query heads are this file's, the other two lines are those of
 * group_mean with cross_head=1. value_norm multiplies S_task by ||v||_2 (an option of kvpress, not in the
 * paper, off). kvpress rounds probabilities to the model's type; here they stay float32, so there are hardly
 * any ties. Nothing is protected: the first token stays because it is attended to.
 * The paper's task-aware setting reads context and question again, as its evaluation code does, where the
 * question is a part of the context: task=both. Observes a second pass. Range 0..2 without value_norm. Cost: the pass
 * and O(H_q n).
 */
#include "base/vectors.h"
#include "policy/part.h"

enum task { TASK_CONTEXT, TASK_QUESTION, TASK_BOTH };
enum agg_task { TASK_MAX, TASK_MEAN };

struct opts {
    int32_t task;
    int32_t agg_task;
    int32_t value_norm;
};

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_SECOND_PASS | (o->value_norm ? WNW_NEED_VALUES : 0u);
    static const int32_t passes[] = {
        [TASK_CONTEXT] = WNW_PASS_CONTEXT, [TASK_QUESTION] = WNW_PASS_TASK, [TASK_BOTH] = WNW_PASS_BOTH};
    out->second_pass = passes[o->task];
}

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n;
}

static void value_norms(const wnw_observation *obs, int32_t ih, float *norm)
{
    const float *v = obs->values(obs, ih);
    for (int32_t i = 0; i < obs->n_entry[ih]; i++)
        norm[i] = (float)wnw__norm(v + (int64_t)i * obs->n_embd_head, obs->n_embd_head);
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *norm)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv;
    const bool mean = o->agg_task == TASK_MEAN;
    const float scale = mean && obs->n_pass2 > 0 ? 1.0f / (float)obs->n_pass2 : 1.0f;
    for (int32_t h = 0; h < obs->n_head; h++) {
        const float *a = (mean ? obs->pass2_sum : obs->pass2_max) + (int64_t)h * obs->n;
        float *out = score + (int64_t)h * obs->n;
        if (o->value_norm && h % group == 0)
            value_norms(obs, h / group, norm);
        for (int32_t i = 0; i < obs->n; i++) {
            const float by = o->value_norm ? norm[i] : 1;
            out[i] = i < obs->n_entry[h / group] ? a[i] * scale * by : 0;
        }
    }
    return WNW_OK;
}

static const char *const tasks[] = {"context", "question", "both", NULL};
static const char *const agg_tasks[] = {"max", "mean", NULL};

static const wnw_option options[] = {
    {.name = "task",
     .help = "what is read a second time: the context itself, the questions that are expected, or both",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, task),
     .def = TASK_CONTEXT,
     .choices = tasks},
    {.name = "agg_task",
     .help = "over the tokens of the second pass",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, agg_task),
     .def = TASK_MAX,
     .choices = agg_tasks},
    {.name = "value_norm",
     .help = "weigh by the norm of the value",
     .type = WNW_OPT_BOOL,
     .offset = offsetof(struct opts, value_norm)},
    {0}};

const wnw_scorer wnw__scorer_kvcompose = {
    .part =
        {WNW_SCORER_INIT, .name = "kvcompose",
         .about = "The highest attention an entry receives while the context is read a second time.",
         .paper = "KVCompose, arXiv 2509.05165",
         .details =
             "With `a(h,c,m)` the attention of task token `m` to entry `c`, `S_task(h,c) = max_m "
             "a(h,c,m)`, "
             "`S_grp(j,c)` its mean over the query heads of KV head `j`, and `S(j,c) = S_grp(j,c) + "
             "mean_i "
             "S_grp(i,c)` over the KV heads of the layer. Rows are softmaxed over everything visible and "
             "not "
             "renormalised over the context; scores of all layers are compared as they are.\n\n"
             "`task=context` feeds what was read once more after itself (task-agnostic). `task=both` "
             "feeds "
             "the expected questions after that, each for itself (task-aware: in the evaluation code the "
             "question is a part of the context); a question that what was read ends with is read again "
             "with it, not twice. `task=question` feeds the questions alone, each on top of what was "
             "read, "
             "and forgets what they do not ask for; kvpress has a switch for that which does nothing. "
             "Probabilities stay float32, where kvpress rounds them to the model's type and gets ties.\n\n"
             "The pass costs as much as a prefill of its tokens, and about three times the attention with "
             "`task=context` and `both`; the cache is twice as long while it runs. Scoring `O(H_q n)`.",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_ATTENTION, .needs = needs},
    .scratch = scratch_size,
    .score = score,
};
