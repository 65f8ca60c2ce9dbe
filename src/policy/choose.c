/* SPDX-License-Identifier: MIT */
/*
 * Which policy, where nobody names one: a table whose first row that holds decides. A row says what was measured for it
 * and where that is written down. Rows are ordered by how well answers survive in those runs; of two that cannot be told
 * apart there, the cheaper one comes first. `winnow methods --markdown` prints the table.
 */
#include "policy/policy.h"
#include "profile/profile.h"

#include <math.h>

/* The share that is taken to stay where no size is known, as wnw_size does. */
#define USUAL_KEPT 0.5
/* Entries that heads keep on average from which on the last 32 tokens and a chat header are no more than 0.3 of them, and
 * the share that is taken for it where no length is known. */
#define ROOM_ENTRIES 180
#define ROOM_KEPT    0.25
/* Gates on hidden states see a token and not what else there is: how much of it a long prompt needs must have been learned from long
 * texts. They are asked up to what their profile says, else up to PIECES times the length of those texts, else up to USUAL_REACH. */
#define PIECES      2
#define USUAL_REACH 2000
/* What is repeated of a prompt where a policy below says nothing else (a test compares it with theirs). */
static const wnw_sample_size usual_sample = {.least = 32, .most = 256, .every = 0, .place = 32};
/* The share below which keys that stand out, in heads of such a sample, answer as replay does, or more. */
#define KEYS_KEPT 0.75
/* The share below which norms of values tell more than they cost. */
#define VALUES_KEPT 0.25

static bool has(const wnw_policy_facts *f, uint32_t kinds)
{
    return (f->profiles & kinds) == kinds;
}

static double kept_of(const wnw_policy_facts *f)
{
    return f->kept > 0 ? f->kept : USUAL_KEPT;
}

/* Whether head budgets from a profile of shares were measured down to the size. */
static bool has_shares(const wnw_policy_facts *f)
{
    return has(f, 1u << WNW_PROFILE_SHARES) && kept_of(f) >= f->shares_least;
}

/* So little stays that values tell. */
static bool few(const wnw_policy_facts *f)
{
    return kept_of(f) < VALUES_KEPT;
}

static bool few_of_shares(const wnw_policy_facts *f)
{
    return has_shares(f) && few(f);
}

/* Whether a gate can be asked: it needs its profile and keys before RoPE, and works once all layers are read. */
static bool has_gate(const wnw_policy_facts *f)
{
    return has(f, 1u << WNW_PROFILE_GATE) && !f->rope_unknown && f->phase != WNW_PHASE_LAYER;
}

static bool beyond_context(const wnw_policy_facts *f)
{
    return f->phase == WNW_PHASE_CHUNK && f->n_ctx_train > 0 && f->n_tokens > f->n_ctx_train;
}

static int32_t reach_of(const wnw_policy_facts *f)
{
    return f->gate_reach > 0 ? f->gate_reach : USUAL_REACH;
}

static bool gate_in_shares(const wnw_policy_facts *f)
{
    return has_shares(f) && has_gate(f) && kept_of(f) >= f->gate_least;
}

/* Gates on hidden states are asked while tokens are read; `otherwise`: there is another gate for prompts beyond their reach. */
static bool has_input_gate(const wnw_policy_facts *f, bool otherwise)
{
    const bool better_later = f->n_tokens > reach_of(f) && !f->decodes && otherwise;
    return has(f, 1u << WNW_PROFILE_INPUTGATE) && !f->was_read && !better_later;
}

static bool input_gate_in_shares(const wnw_policy_facts *f)
{
    return has_shares(f) && has_input_gate(f, gate_in_shares(f));
}

/* Where heads have room for them the last tokens stay, on which what follows leans and of which no gate speaks. */
static bool input_gate_and_recent(const wnw_policy_facts *f)
{
    const bool room =
        f->n_tokens > 0 ? f->n_tokens >= ceil(ROOM_ENTRIES / kept_of(f)) : kept_of(f) >= ROOM_KEPT;
    return input_gate_in_shares(f) && (f->decodes || room);
}

/* What is asked is known, and nothing else will be. */
static bool known_alone(const wnw_policy_facts *f)
{
    return f->question_known && !f->more_questions;
}

static bool later_gate(const wnw_policy_facts *f)
{
    return !known_alone(f) && has_gate(f);
}

/* Replay needs the queries of the whole prompt, and positions behind it. */
static bool has_replay(const wnw_policy_facts *f)
{
    return !f->rope_unknown && !f->queries_unknown && f->phase == WNW_PHASE_END && !f->decodes &&
           !(f->n_ctx_train > 0 && f->n_tokens > f->n_ctx_train);
}

/* The tokens that are repeated in truth come after the prompt. */
static bool has_sample(const wnw_policy_facts *f)
{
    return f->feeds_again && f->phase == WNW_PHASE_END && !f->decodes &&
           !(f->n_ctx_train > 0 && f->n_tokens > f->n_ctx_train - wnw_sample_fed(&usual_sample, f->n_tokens));
}

static bool few_of_sample(const wnw_policy_facts *f)
{
    return has_sample(f) && few(f);
}

static bool some_of_sample(const wnw_policy_facts *f)
{
    return has_sample(f) && kept_of(f) < KEYS_KEPT;
}

static bool decodes_stats(const wnw_policy_facts *f)
{
    return f->decodes && !f->rope_unknown && has(f, 1u << WNW_PROFILE_STATS);
}

static bool always(const wnw_policy_facts *f)
{
    (void)f;
    return true;
}

#define KEYS_WHY   "keys that stand out, in heads that keep as much as 32 tokens say that are repeated in truth"
#define VALUES_WHY "keys that stand out and values of large norm, in heads that keep as much"

/* Gates, keys and samples from the middle of a text say nothing of what was asked at its end, and an answer needs it. */
#define LAST_STAY ":last=32,room=0.3"
/* Of few entries 0.3 are less than a chat header and a question have. */
#define LAST_OF_FEW_STAY ":last=32,room=0.5"

static const struct row {
    bool (*holds)(const wnw_policy_facts *f);
    const char *recipe, *reason, *when, *why, *evidence;
    const char *recipe_known; /* where the question is; NULL: the same */
} rows[] = {
    {beyond_context, "streaming_llm-rerotated",
     "the prompt is longer than the model was trained for and is read by chunks",
     "the prompt is longer than the trained context, and is read by chunks",
     "it alone gives kept tokens positions inside the context without comparing heads",
     "none: it is what can be done, and was not compared", NULL},
    {input_gate_and_recent, "kvzap:recent=32,room=0.3+shares",
     "the model has gates that judge tokens while they are read",
     "there are profiles of shares, measured down to the size, and of gates on hidden states, the prompt is "
     "still to be read, has at most twice the tokens of the pieces that these gates were learned from (or "
     "what their "
     "profile says, or 2000) if kvgate+shares could be taken, and heads keep 180 entries or more on "
     "average (a quarter, where no length is known); or the same at any length where entries go while "
     "decoding too",
     "a gate that predicts a second reading while the prompt is read, in heads that keep as much as it would "
     "leave them, and the last 32 tokens; costs next to nothing",
     "a half and a quarter left, question later: 85.6 and 81.4 of 87.7 points, kvzip, which reads twice, "
     "87.8 and 82.0, kvcompose, which does too, 85.7 and 74.2, kvgate+shares 85.9 and 75.4 (266 questions of "
     "five kinds); with 4096 tokens and a half, a quarter and an eighth left 70.3, 64.7 and 62.0 of 68.0, "
     "kvzip 68.0, 65.3 and 54.7, kvgate+shares 68.3, 56.3 and 44.7 (75): docs/results.md, Gates from longer "
     "pieces; texts that nobody "
     "generated: 0.008 and 0.020 nats from the full cache (50 pieces), kvzip 0.007 and 0.019, kvgate+shares "
     "0.008 and 0.024 (43 of them): docs/results.md, KVzip as the target; a half left, entries go after "
     "every 16 tokens, copies of UUIDs and 64 digits: 83.8 of 93.8 points, kvgate+shares 61.2, "
     "keydiff-shares 62.5 (80: docs/results.md, Gates from longer pieces), without the last 32 tokens, with "
     "KVzip+ as the target, 41.2 of 85.0 (80: docs/results.md, Gates that are asked while reading); "
     "SmolLM2-135M; Qwen2.5-Coder-0.5B, a quarter left: 93.3 of 99.7, kvzip 94.8, kvgate+shares 97.7 (150: "
     "docs/results.md, Gates from longer pieces); LongBench's documents, the same model, a half and a "
     "quarter left: 0.015 and 0.097 nats from the full cache, kvzip 0.015 and 0.129, kvgate+shares 0.020 and "
     "0.134, replay 0.010 and 0.083 (126: docs/results.md, Real documents); by layer and in chunks none",
     NULL},
    {input_gate_in_shares, "kvzap:recent=0+shares",
     "the model has gates that judge tokens while they are read, and few tokens stay",
     "the same, and less stays",
     "a gate that predicts a second reading while the prompt is read, in heads that keep as much as it would "
     "leave them; costs next to nothing",
     "an eighth left, question later: 68.6 of 87.7 points, kvzip, which reads twice, 66.2, kvcompose 43.0, "
     "kvgate+shares 64.7 (266 questions of five kinds, SmolLM2-135M): docs/results.md, Gates from longer "
     "pieces; with KVzip+ as "
     "the target 88.2 of 99.7, kvgate+shares 70.3, kvzip 50.2 (150, Qwen2.5-Coder-0.5B): docs/results.md, "
     "Gates from "
     "longer pieces; question known, with the last 32 tokens as far as they are 0.3 of the size: 50.2 of "
     "86.9 "
     "points, without 48.0, kvgate+shares with them 55.8 (128, SmolLM2-135M): docs/results.md, Gates and the "
     "question; 54.0 of 91.1, kvgate+shares 51.8 (103, SmolLM2-135M), 82.3 and 66.7 of 99.5 (94, "
     "Qwen2.5-Coder-0.5B): docs/results.md, Room for the question; by layer, in chunks and while decoding "
     "none",
     "kvzap:recent=32,room=0.3+shares"},
    {gate_in_shares, "kvgate+shares", "the model has gates that judge what is cached",
     "there are profiles of shares, measured down to the size, and of gate, which says that it is for that "
     "size, or nothing; not layer by layer",
     "a gate that predicts a second reading, in heads that keep as much as it would leave them",
     "a half, a quarter and an eighth left, question later: 87.7, 78.8 and 63.2 of 87.3 points, kvzip, which "
     "reads twice, 84.8, 81.6 and 69.3, keydiff-shares 86.1, 81.2 and 56.3 (266 questions of five kinds, "
     "asked after the choice was made: docs/results.md, The gate once more; the 123 before it: A gate within "
     "shares); question known: 91.1, 80.6 and 70.0 of 90.0, keydiff-shares "
     "92.2, 83.3 and 58.9, at half the divergence (46: docs/results.md, The question known); texts that "
     "nobody generated, a half left: 0.008 nats from the full cache, kvzip 0.007, keydiff-shares 0.024 (41 "
     "pieces); "
     "SmolLM2-135M; a quarter left on Qwen2.5-Coder-0.5B: 96.9 of 100, keydiff-shares 93.8 (31: "
     "docs/results.md, The second model); a half left on Gemma-3-270m: 67.8 of 100, kvzip 33.7 (29: "
     "docs/results.md, The third model), on other samples 56.2 of 88.1, keydiff-shares 77.1 (38: "
     "docs/results.md, Keys and values), so that its gates are for three quarters and more; those of "
     "Qwen2.5-Coder-1.5B are for a quarter and more, since with an eighth left keydiff-values-shares has "
     "89.8 and these 77.0 of 100 (22: docs/results.md, Gates, or keys and values); LongBench's documents, "
     "Qwen2.5-Coder-0.5B, a half left: 0.019 nats "
     "from the full cache, replay 0.009, keydiff-shares 0.055 (23: docs/results.md, Real documents); "
     "above twice the length of the pieces that gates on hidden states were learned from: with 4096 tokens "
     "and a half, a quarter and an eighth left 60.8, 57.8 and 48.0 of 60.8, those from pieces of 700 57.4, "
     "51.5 and 31.4 (51, SmolLM2-135M: docs/results.md, Longer prompts); "
     "in chunks and while decoding none; the whole prompt compressed, a half, a quarter and an eighth left: "
     "85.7, 83.0 and 53.2 of 85.5 points with the last 32 tokens, 84.8, 74.5 and 46.5 without (150, "
     "SmolLM2-135M: docs/results.md, The question stays)",
     "kvgate+shares" LAST_STAY},
    {few_of_shares, "keydiff-values-shares",
     "little stays, and it is known how much each head of the model keeps",
     "there is a profile of shares that was measured down to the size, and less than a quarter stays",
     VALUES_WHY " as a second reading would leave them; costs next to nothing",
     "an eighth left, question later: 83.0 of 100 points, keydiff-shares 51.2, kvgate+shares 59.6, kvzip, "
     "which reads twice, 44.5 (38 questions of five kinds, Qwen2.5-Coder-0.5B), 81.0, 67.0, 70.0 and 20.0 "
     "(24, Qwen2.5-Coder-1.5B), 54.2 of 90.0, 54.2, 62.5 and 75.0 (31, SmolLM2-135M); a quarter left 95.3, "
     "91.0 and 68.3, keydiff-shares 99.4, 86.0 and 78.3: docs/results.md, Keys and values; the "
     "whole prompt compressed, an eighth left: 80.5 of 99.5 with the last 32 tokens, as far as they are 0.3 "
     "of the size 71.6 (94, Qwen2.5-Coder-0.5B), 46.6 and 41.2 of 91.1 (103, SmolLM2-135M): "
     "docs/results.md, Room for the question; by layer, in chunks and while decoding none",
     "keydiff-values-shares" LAST_OF_FEW_STAY},
    {has_shares, "keydiff-shares",
     "it is known how much each head of the model keeps, and there are no gates for this prompt",
     "there is a profile of shares that was measured down to the size",
     "keys that stand out, in heads that keep as much as a second reading would leave them; costs next to "
     "nothing",
     "a half, a quarter and an eighth left, question later: 88.9, 78.5 and 59.5 of 91.1 points, replay 87.1, "
     "82.8 and 62.2, keydiff 21.6, 3.3 and 0.8; kvzip, which reads twice, 91.0, 87.8 and 74.1 (121 questions "
     "of "
     "five kinds: docs/results.md, The proof); question known: 92.2, 83.3 and 58.9 of 90.0, kvcompose, which "
     "reads twice, 90.0, 79.4 and 45.8, laq:kernel=31 56.7, 46.3 and 36.2 (46: docs/results.md, The question "
     "known); texts that nobody generated, a half left: 0.024 nats from the full cache, replay 0.009, "
     "keydiff 0.053 (41 pieces: docs/results.md, Texts that nobody generated); SmolLM2-135M; in chunks and "
     "while decoding none",
     "keydiff-shares" LAST_STAY},
    {later_gate, "kvgate", "the question comes later, and the model has gates that judge what is cached",
     "the question comes later, and there is a profile of gate; not layer by layer",
     "a gate predicts what a second reading would score",
     "87.5, 85.0 and 75.6 of 86.9 points with a half, a quarter and an eighth left (SmolLM2-135M, 40 "
     "questions): "
     "docs/results/older.md, What gates give; in chunks and while decoding none",
     NULL},
    {few_of_sample, "keydiff-values-sampled",
     "less than a quarter stays, tokens can be read again, and no profile helps",
     "compressed at the end, within the trained context, less than a quarter stays, and tokens can be fed a "
     "second time",
     VALUES_WHY " as 32 tokens say that are repeated in truth",
     "an eighth left, question later: 81.0 of 98.3 points, replay-sampled 73.3, replay 0.0 (29 questions of "
     "five kinds, Qwen2.5-Coder-0.5B), 58.8 of 87.3, 55.0, 69.2, kvzip, which reads twice, 72.0 (54, "
     "SmolLM2-135M); question known: 45.8 of 98.3, 50.3 and 0.0 (29), 63.9 of 89.1, 67.8, 63.2, kvzip 63.8 "
     "(53): "
     "docs/results.md, Budgets of heads from 32 tokens; the whole prompt compressed, with the last 32 "
     "tokens, 55.8 of 91.1, as far as they are 0.3 of the size 49.9, kvzip 54.0 (103, SmolLM2-135M), 69.3 "
     "and 65.5 of 99.5 (94, Qwen2.5-Coder-0.5B): docs/results.md, Room for the question; as far as 0.3 "
     "36.5 of 85.8, replay-sampled 37.5, replay 36.9, kvzip 53.3 (93, SmolLM2-135M): "
     "docs/results.md, The question known, without a profile; with 64 tokens, question later, 76.0, 47.0, "
     "0.0 and "
     "20.0 of 100 (24, Qwen2.5-Coder-1.5B): docs/results.md, Keys and values; where several layers read one "
     "cache none",
     "keydiff-values-sampled" LAST_OF_FEW_STAY},
    {some_of_sample, "keydiff-sampled",
     "less than three quarters stay, tokens can be read again, and no profile helps",
     "compressed at the end, within the trained context, less than three quarters stay, and tokens can be "
     "fed "
     "a second time",
     KEYS_WHY,
     "a half and a quarter left, question later: 85.9 and 71.9 of 87.3 points, replay 85.3 and 75.9, "
     "replay-sampled 85.9 and 79.4, kvzip, which reads twice, 84.6 and 84.4 (54 questions of five kinds, "
     "SmolLM2-135M), 100 and 93.3 of 98.3, replay 100 and 86.0, replay-sampled 100 and 97.5 (30, "
     "Qwen2.5-Coder-0.5B); question known: 85.3 and 80.1 of 89.1, replay 82.6 and 74.6, replay-sampled 87.7 "
     "and "
     "83.7 (53), 100 and 93.3 of 98.3, replay 100 and 94.3, replay-sampled 100 and 96.7 (29), which are not "
     "told "
     "apart: docs/results.md, Budgets of heads from 32 tokens; with 64 tokens, question later: 53.7 of 79.8, "
     "replay 30.5 (49, Gemma-3-270m, a half left): docs/results.md, Half kept without a profile; 100 and "
     "92.5 "
     "of 100, replay 90.0 and 52.5, replay-sampled 97.5 and 78.8 (21, Qwen2.5-Coder-1.5B): docs/results.md, "
     "Budgets of heads without a profile; between a half and three quarters none; the whole prompt "
     "compressed: 87.3 and 81.8 of 85.5 with the last 32 tokens, 88.0 and 70.5 without (150, SmolLM2-135M), "
     "100 and 89.4 of 100, 100 and 92.1 (58, Qwen2.5-Coder-0.5B): docs/results.md, The question stays; 87.1 "
     "and 78.6 of 85.8, replay-sampled 84.6 and 75.1, replay 83.3 and 67.8, snapkv:kernel=31 55.5 and 36.3, "
     "kvzip 83.7 and 78.6 (93, SmolLM2-135M): docs/results.md, The question known, without a profile",
     "keydiff-sampled" LAST_STAY},
    {has_replay, "replay", "the whole prompt's queries are there, and no profile helps at this size",
     "compressed at the end, within the trained context",
     "what repeating the prompt would attend to, from the queries and keys of the first reading",
     "a half, a quarter and an eighth left, question later: 87.1, 82.8 and 62.2 of 91.1 points, lagkv 38.3, "
     "14.0 and 7.0, keydiff 21.6, 3.3 and 0.8 (119 questions of five kinds: docs/results.md, The proof); "
     "question "
     "known: 86.1, 83.3 and 57.2 of 90.0, snapkv:kernel=31 57.2, 42.7 and 30.3 (46: docs/results.md, The "
     "question known); SmolLM2-135M. On Qwen2.5-Coder-1.5B 96.6, 57.9 and 0.0 of 100, where a profile of "
     "shares alone, by keydiff-shares, has 98.1, 91.2 and 64.6 (69: docs/results.md, A fourth model)",
     NULL},
    {has_sample, "keydiff-sampled", "tokens can be read again, and the prompt's queries cannot be had",
     "compressed at the end, within the trained context, and tokens can be fed a second time", KEYS_WHY,
     "a half, a quarter and an eighth left, question later: 100, 94.7 and 44.4 of 100 points (58 questions "
     "of five kinds, Qwen2.5-Coder-0.5B), 100, 92.5 and 50.0 (21, "
     "Qwen2.5-Coder-1.5B): docs/results.md, Budgets of heads without a profile; keydiff, on SmolLM2-135M, "
     "21.6, 3.3 and 0.8 of 91.1: "
     "docs/results.md, The proof; where several layers read one cache none",
     "keydiff-sampled" LAST_STAY},
    {known_alone, "snapkv:kernel=31", "the question is compressed too", "the question is compressed too",
     "what the question attends to, with enough behind it for an answer of a few tokens",
     "74, 72 and 63 of 88.5 points with a quarter, a half and three quarters gone (Qwen2.5-Coder-0.5B), 69, "
     "67 and 54 of 81.1 (SmolLM2-135M), the most of those then that read once: docs/results/older.md, Which "
     "method, at which size; numbers 92, 71 and 51 of 91 with a half, a quarter and an eighth left, copies "
     "of "
     "UUIDs and keys 6, 0 and 0 of 89 (46 questions, SmolLM2-135M: docs/results.md, The question known); by "
     "layer, in chunks and while decoding none",
     NULL},
    {decodes_stats, "triattention", "entries go while decoding, and the model has statistics of its queries",
     "the question comes later, entries go while decoding, and there is a profile of stats",
     "calibrated queries say what coming tokens will give a key by its distance",
     "none of ours; its paper has it above SnapKV and R-KV while generating", NULL},
    {always, "keydiff", "nothing that another policy needs is there", "nothing of that",
     "keys that stand out; asks for no profile, no question and no phase",
     "21.6, 3.3 and 0.8 of 91.1 points with a half, a quarter and an eighth left (121 questions of five "
     "kinds, "
     "SmolLM2-135M: docs/results.md, The proof); lagkv, which refuses sizes that leave its blocks nothing, "
     "38.3, "
     "14.0 and 7.0; by layer, in chunks and while decoding none",
     NULL},
};
enum { N_ROW = sizeof rows / sizeof *rows };

/* The policies that a quality can be kept by, by the scorer whose losses are measured. No gate on hidden states speaks of what
 * follows on the last tokens, so that these stay. */
static const char *const keepers[WNW_N_QUALITY] = {[WNW_QUALITY_REPLAY] = "replay",
                                                   [WNW_QUALITY_KVGATE] = "kvgate",
                                                   [WNW_QUALITY_INPUTGATE] = "kvzap:recent=32"};

const char *wnw__quality_recipe(int32_t scorer)
{
    return keepers[scorer];
}

double wnw__choice_share_below(const wnw_policy_facts *f)
{
    const double shares[] = {KEYS_KEPT, VALUES_KEPT, f->gate_least};
    double most = 0;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        if (shares[i] <= kept_of(f) && shares[i] > most)
            most = shares[i];
    return most;
}

static void give(wnw_policy_choice *out, const struct row *row, bool question_known, int32_t until)
{
    const char *const recipe_known = row->recipe_known ? row->recipe_known : row->recipe;
    const wnw_policy_choice own = {WNW_INIT(wnw_policy_choice),
                                   .recipe = question_known ? recipe_known : row->recipe,
                                   .recipe_known = recipe_known,
                                   .when = row->when,
                                   .why = row->why,
                                   .evidence = row->evidence,
                                   .until_tokens = until,
                                   .reason = row->reason};
    wnw__sized_give(out, &own);
}

static const struct row *find(const wnw_policy_facts *f)
{
    const struct row *row = rows;
    while (!row->holds(f))
        row++;
    return row;
}

/* What is chosen by, besides the facts. */
struct wish {
    const wnw_profile *p;
    double quality; /* 0: a size is wanted */
};

/* Which row, or which scorer. */
static const void *taken_for(const wnw_policy_facts *f, const struct wish *wish);

/* The longest prompt that fits into a context with its sample behind. */
static int32_t longest_sampled(int32_t n_ctx)
{
    int32_t n = n_ctx;
    while (n > 0 && n > n_ctx - wnw_sample_fed(&usual_sample, n))
        n--;
    return n;
}

/* The longest prompt up to which the same is chosen with whatever else f says: choices change where one of these lengths is reached. */
static int32_t until(const wnw_policy_facts *f, const struct wish *wish)
{
    const double room = ROOM_ENTRIES / kept_of(f);
    const int32_t last[] = {reach_of(f), f->n_ctx_train, longest_sampled(f->n_ctx_train),
                            room < INT32_MAX ? (int32_t)ceil(room) - 1 : 0};
    const void *taken = taken_for(f, wish);
    int32_t least = INT32_MAX;
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        wnw_policy_facts longer = *f;
        if (last[i] < f->n_tokens || last[i] >= least)
            continue;
        longer.n_tokens = last[i] + 1;
        if (taken_for(&longer, wish) != taken)
            least = last[i];
    }
    return least;
}

static int check(const wnw_policy_facts *f)
{
    if ((int)f->phase < WNW_PHASE_END || f->phase > WNW_PHASE_CHUNK)
        return wnw__fail(WNW_E_RANGE, "phase %d; a prompt is compressed at the end, by layer or by chunk",
                         (int)f->phase);
    if (f->n_tokens < 0 || f->n_ctx_train < 0 || f->gate_reach < 0)
        return wnw__fail(WNW_E_RANGE, "a prompt of %d tokens, a context of %d, gates for %d; give at least 0",
                         (int)f->n_tokens, (int)f->n_ctx_train, (int)f->gate_reach);
    if (!(f->kept >= 0 && f->kept <= 1) || !(f->shares_least >= 0 && f->shares_least <= 1))
        return wnw__fail(WNW_E_RANGE, "shares of %g and %g of the entries; give 0 to 1", f->kept,
                         f->shares_least);
    if (!(f->gate_least >= 0 && f->gate_least <= 1))
        return wnw__fail(WNW_E_RANGE, "gates for %g of the entries; give 0 to 1", f->gate_least);
    return WNW_OK;
}

/* Copies facts to *f, and refuses what cannot be chosen from or given to. */
static int take(wnw_policy_facts *f, const wnw_policy_facts *facts, const wnw_policy_choice *out)
{
    *f = wnw_policy_facts_default();
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_policy_choice, out));
    WNW_REQUIRE(facts);
    WNW_TRY(WNW_SIZED_TAKE(wnw_policy_facts, f, facts));
    return check(f);
}

int wnw_policy_choose(wnw_policy_choice *out, const wnw_policy_facts *facts)
{
    wnw_policy_facts f;
    WNW_TRY(take(&f, facts, out));
    give(out, find(&f), f.question_known, f.n_tokens > 0 ? until(&f, &(struct wish){0}) : 0);
    return WNW_OK;
}

/* The mean share of the entries that stays for the quality with a scorer; above 1 where that cannot be told. */
static double share_that_stays(const wnw_profile *p, int32_t scorer, double quality)
{
    if (!p || !p->quality_loss[scorer] || wnw__quality_is_foreign(p, scorer))
        return 2;
    const int32_t k = wnw__quality_share(p->quality_loss[scorer], p->n_quality, quality);
    return k < 0 ? 1 : p->quality_kept[scorer][k];
}

/* The scorer with which the fewest entries keep the quality; `replay`, whose refusal says what is missing, where none works. */
static int32_t keeper(const wnw_policy_facts *f, const struct wish *wish)
{
    const bool works[WNW_N_QUALITY] = {[WNW_QUALITY_REPLAY] = has_replay(f),
                                       [WNW_QUALITY_KVGATE] = has_gate(f),
                                       [WNW_QUALITY_INPUTGATE] = has_input_gate(f, has_gate(f))};
    int32_t best = WNW_QUALITY_REPLAY;
    double least = 2;
    for (int32_t i = 0; i < WNW_N_QUALITY; i++) {
        const double stays = works[i] ? share_that_stays(wish->p, i, wish->quality) : 2;
        best = stays < least ? i : best;
        least = stays < least ? stays : least;
    }
    return best;
}

static const void *taken_for(const wnw_policy_facts *f, const struct wish *wish)
{
    if (wish->quality > 0)
        return &keepers[keeper(f, wish)];
    return find(f);
}

int wnw_policy_choose_quality(wnw_policy_choice *out, const wnw_policy_facts *facts, const wnw_profile *p,
                              double quality)
{
    wnw_policy_facts f;
    const struct wish wish = {p, quality};
    WNW_TRY(take(&f, facts, out));
    if (!(quality > 0 && quality < 1))
        return wnw__fail(WNW_E_RANGE, "a quality of %g is to be kept; give one above 0 and below 1", quality);
    const struct row row = {NULL,
                            keepers[keeper(&f, &wish)],
                            "by calibration it keeps that quality with the fewest entries",
                            "a quality is to be kept",
                            "as few entries as calibration says, of the scorer with which fewer stay",
                            "the texts that the profile's calibration held out",
                            NULL};
    give(out, &row, f.question_known, f.n_tokens > 0 ? until(&f, &wish) : 0);
    return WNW_OK;
}

void wnw_policy_facts_add(wnw_policy_facts *facts, const wnw_profile *p)
{
    if (!facts || !p)
        return;
    facts->profiles |= wnw_profile_kinds(p);
    if (p->n_best > 0)
        facts->shares_least = p->best_size[p->n_best - 1];
    if (p->gate_weight)
        facts->gate_least = p->gate_least;
    if (p->inputs.n_reach > 0)
        facts->gate_reach = p->inputs.n_reach;
    else if (p->inputs.n_piece > 0)
        facts->gate_reach = p->inputs.n_piece < INT32_MAX / PIECES ? PIECES * p->inputs.n_piece : INT32_MAX;
}

bool wnw_policy_rule(int32_t i, wnw_policy_choice *out)
{
    if (!out || WNW_SIZED_CHECK(wnw_policy_choice, out) != WNW_OK || i < 0 || i >= N_ROW)
        return false;
    give(out, &rows[i], false, 0);
    return true;
}
