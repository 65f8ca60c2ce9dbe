/* SPDX-License-Identifier: MIT */
/*
 * FINCH: what the question after the document attends to. Paper: "FINCH: Prompt-guided Key-Value Cache
 * Compression for Large Language Models" (arXiv 2408.00167). SnapKV with the question as its window, each query
 * weighed by how much it could see. So queries that share their attention among more entries do not count less. For
 * the R question tokens t and entries j before them:
 *
 *     score[j] = mean over the query heads of the KV head of (1 / R) sum_t m_t a_t[j]
 *     m_t      = entries that were there before t
 *
 * Scores are not pooled and not renormalised. The question's own entries rank first, the last ones before the
 * others. The length of the question is known for prompts of two pieces (wnw_run); elsewhere
 * the option `question` gives it, or else the last 32 tokens take its place. Of a longer question the last
 * `window` queries are observed. kvpress finds the border by a delimiter token and turns the kept keys to new
 * positions, which +rerotate does here; without it they keep their positions. The paper selects chunk by
 * chunk while it reads: +chunk does so at the end.
 * Observes window attention. Cost O(H_q R n).
 */
#include "method/window.h"

struct opts {
    int32_t window;
    int32_t question;
};

enum { LAST_TOKENS = 32 };

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_WINDOW_ATTN;
    out->window = o->question > 0 && o->question < o->window ? o->question : o->window;
}

/* Tokens of the question, all of them. */
static int32_t question_length(const struct opts *o, const wnw_observation *obs)
{
    const int32_t known = obs->n_question > 0 ? obs->n_question : LAST_TOKENS,
                  n = o->question > 0 ? o->question : known;
    return n < obs->n_past ? n : obs->n_past;
}

/* Weight of the query at position `query`: entries of the head before it. */
static float count_before(const int32_t *pos, int32_t n_entry, int32_t query)
{
    while (n_entry > 0 && pos[n_entry - 1] >= query)
        n_entry--;
    return (float)n_entry;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv, n_question = question_length(o, obs);
    const int32_t n_row = wnw__window_rows(obs, n_question < o->window ? n_question : o->window);
    float best = 0;
    (void)scratch;
    for (int64_t i = 0; i < (int64_t)obs->n_head * obs->n; i++)
        score[i] = 0;
    for (int32_t h = 0; h < obs->n_head; h++) {
        const int32_t ih = h / group, n_old = wnw__window_n_old(obs, ih, n_question);
        float *out = score + (int64_t)h * obs->n;
        for (int32_t w = obs->n_window - n_row; w < obs->n_window; w++) {
            const float *a = wnw__window_of(obs, h) + (int64_t)w * obs->n;
            const float m = count_before(obs->pos + (int64_t)ih * obs->n, obs->n_entry[ih],
                                         obs->n_past - obs->n_window + w);
            for (int32_t j = 0; j < n_old; j++)
                out[j] += m * a[j] / (float)n_row;
        }
        for (int32_t j = 0; j < n_old; j++)
            best = out[j] > best ? out[j] : best;
    }
    for (int32_t h = 0; h < obs->n_head; h++) {
        const int32_t n = obs->n_entry[h / group];
        for (int32_t j = wnw__window_n_old(obs, h / group, n_question); j < n; j++)
            score[(int64_t)h * obs->n + j] = (best + 1) * (1 + (float)j / (float)n);
    }
    return WNW_OK;
}

static const wnw_option options[] = {
    {.name = "window",
     .help = "queries that are observed at most, the last ones of the question",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, window),
     .def = 128,
     .min = 1,
     .max = 4096},
    {.name = "question",
     .help =
         "tokens of the question at the end of the prompt; 0: the prompt's second piece, else the last 32",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, question),
     .def = 0,
     .min = 0,
     .max = 1048576},
    {0}};

const wnw_scorer wnw__scorer_finch = {
    .part = {WNW_SCORER_INIT, .name = "finch", .about = "What the question after the document attends to.",
             .paper = "FINCH, arXiv 2408.00167",
             .details =
                 "`score[j] = mean (1/R) sum_t m_t a_t[j]` over the `R` question tokens `t` and the query "
                 "heads "
                 "of "
                 "a KV head; `m_t` counts the entries before `t`. The question's own entries come first.\n\n"
                 "kvpress finds the border by a delimiter token and turns kept keys to new positions; here "
                 "the "
                 "prompt's second piece is the question and keys stay where they were unless `+rerotate` is "
                 "added. "
                 "The paper selects chunk by chunk: add `+chunk`.\n\n`O(H_q R n)`.",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_PROMPT_ONLY, .needs = needs},
    .score = score,
};
