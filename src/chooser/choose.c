/* SPDX-License-Identifier: MIT */
/*
 * Which policy is used where nobody names one: the first row of a table whose condition holds. Rows are ordered by how
 * well answers survived in the runs that their links describe; of two without a significant difference, the cheaper
 * one comes first. Numbers are in the records and not here, so that a new run changes no code.
 */
#include "chooser/chooser.h"

#include "policy/policy.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

#include <math.h>

/* The share that is taken to stay where no size is known, as wnw_size does. */
#define USUAL_KEPT 0.5
/* If heads keep this number of entries on average, the last 32 tokens and a chat header are at most 0.3 of them. The
 * share below is used where no length is known. */
#define ROOM_ENTRIES 180
#define ROOM_KEPT    0.25
/* Gates on hidden states score a token without its context, so they hold up only near the length of the texts that they learned
 * from. They are used up to what their profile says, else up to PIECES times that length, else up to USUAL_REACH. */
#define PIECES      2
#define USUAL_REACH 2000
/* Prompts with more tokens are read in chunks of this number where head budgets were measured, whose scorers judge a token by itself. */
#define LONG_PROMPT 8192
#define LONG_CHUNK  2048
/* What is repeated of a prompt where a policy below says nothing else (a test compares it with theirs). */
static const wnw_sample_size usual_sample = {.least = 32, .most = 256, .every = 0, .place = 32};
/* Below this share unusual keys (keydiff), with heads by such a sample, answer at least as many questions as
 * replay. */
#define KEYS_KEPT 0.75
/* The share below which norms of values tell more than they cost. */
#define VALUES_KEPT 0.25

static bool has_profiles(const wnw_policy_facts *f, uint32_t kinds)
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
    return has_profiles(f, 1u << WNW_PROFILE_SHARES) && kept_of(f) >= f->shares_least;
}

/* So little stays that values tell. */
static bool small_budget(const wnw_policy_facts *f)
{
    return kept_of(f) < VALUES_KEPT;
}

static bool few_of_shares(const wnw_policy_facts *f)
{
    return has_shares(f) && small_budget(f);
}

/* Whether a gate can be asked: it needs its profile and keys before RoPE, and works once all layers are read. */
static bool has_gate(const wnw_policy_facts *f)
{
    return has_profiles(f, 1u << WNW_PROFILE_GATE) && !f->rope_unknown && f->phase != WNW_PHASE_LAYER;
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
    return has_profiles(f, 1u << WNW_PROFILE_INPUTGATE) && !f->was_read && !better_later;
}

static bool input_gate_in_shares(const wnw_policy_facts *f)
{
    return has_shares(f) && has_input_gate(f, gate_in_shares(f));
}

/* If heads have room for them, the last tokens stay: the following text depends on them, and gates do not see
 * that. */
static bool input_gate_and_recent(const wnw_policy_facts *f)
{
    const bool room =
        f->n_tokens > 0 ? f->n_tokens >= ceil(ROOM_ENTRIES / kept_of(f)) : kept_of(f) >= ROOM_KEPT;
    return input_gate_in_shares(f) && (f->decodes || room);
}

/* What is asked is known, and nothing else will be. Chunks before the last one end with other tokens than the question. */
static bool question_only(const wnw_policy_facts *f)
{
    return f->question_known && !f->more_questions && f->phase != WNW_PHASE_CHUNK;
}

/* Replay needs the queries of the whole prompt, and positions after it. */
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
    return has_sample(f) && small_budget(f);
}

static bool most_by_replay(const wnw_policy_facts *f)
{
    return has_sample(f) && has_replay(f) && kept_of(f) >= KEYS_KEPT;
}

static bool always(const wnw_policy_facts *f)
{
    (void)f;
    return true;
}

/* Gates, keys and samples from the middle of a text say nothing of what was asked at its end, and an answer needs it. */
#define LAST_STAY ":last=32,room=0.3"
/* Of few entries 0.3 are less than a chat header and a question have. */
#define LAST_OF_FEW_STAY ":last=32,room=0.5"

/* Where the records of a row are shown. */
#define SHOWN(heading)  "docs/research/auto.md#" heading
#define TRAINED         SHOWN("with-trained-scorers-and-head-budgets-like-kvzip-at-half-the-readings")
#define QUESTION_STAYS  SHOWN("where-the-question-is-known-its-last-32-tokens-stay")
#define HEAD_BUDGETS    SHOWN("head-budgets-alone-distinct-keys")
#define KEYS_AND_VALUES SHOWN("distinct-keys-and-large-values-where-little-is-kept")
#define NO_PROFILE      SHOWN("without-a-profile-32-repeated-tokens-set-the-budgets")
#define QUESTION_KNOWN  SHOWN("the-question-known-and-no-other-one-what-it-attends-to")

/* Questions that several rows ask. */
#define BUDGETS "the model has head budgets measured for this size: "
#define AGAIN   "tokens can be read again: "

/* `when` is a question that begins with the same words in rows of one branch, and after a colon what else the row asks for.
 * scripts/choice_tree.py draws the questions as a tree. */
static const struct row {
    bool (*holds)(const wnw_policy_facts *f);
    const char *recipe;
    const char *recipe_known; /* where the question is known; NULL: the same */
    const char *when, *why, *reason;
    const char *evidence; /* links, with blanks between */
} rows[] = {
    {beyond_context, "streaming_llm-rerotated", NULL,
     "the prompt is longer than the trained context and read by chunks",
     "It keeps positions inside the trained context.", "the prompt is longer than the trained context",
     "none"},
    {input_gate_and_recent, "kvzap:recent=32,room=0.3+shares", NULL,
     BUDGETS "a gate on hidden states, for this length",
     "A scorer trained for this model judges tokens while they are read, and the last 32 tokens stay.",
     "a scorer trained for this model", TRAINED},
    {input_gate_in_shares, "kvzap:recent=0+shares", "kvzap:recent=32,room=0.3+shares",
     BUDGETS "the same gate, and heads keep fewer than 180 entries",
     "The last 32 tokens would take too much of what is kept.", "a scorer trained for this model", TRAINED},
    {gate_in_shares, "kvgate+shares", "kvgate+shares" LAST_STAY, BUDGETS "a gate on cached keys and values",
     "A scorer trained for this model judges what is cached.", "a scorer trained for this model",
     TRAINED " " QUESTION_STAYS},
    {few_of_shares, "keydiff-values-shares", "keydiff-values-shares" LAST_OF_FEW_STAY,
     BUDGETS "less than a quarter is kept",
     "Distinct keys and large values are kept, in head budgets measured for this model.",
     "head budgets measured for this model", KEYS_AND_VALUES},
    {has_shares, "keydiff-shares", "keydiff-shares" LAST_STAY, BUDGETS "otherwise",
     "Distinct keys are kept, in head budgets measured for this model.",
     "head budgets measured for this model", HEAD_BUDGETS},
    {few_of_sample, "keydiff-values-sampled", "keydiff-values-sampled" LAST_OF_FEW_STAY,
     AGAIN "less than a quarter is kept",
     "Distinct keys and large values are kept, in head budgets that 32 repeated tokens measure.",
     "head budgets measured on this prompt", NO_PROFILE},
    {most_by_replay, "replay", NULL, AGAIN "three quarters or more are kept, and all queries are recorded",
     "It predicts what a repetition of the prompt would attend to.", "the prompt's own queries are recorded",
     HEAD_BUDGETS},
    {has_sample, "keydiff-sampled", "keydiff-sampled" LAST_STAY, AGAIN "otherwise",
     "Distinct keys are kept, in head budgets that 32 repeated tokens measure.",
     "head budgets measured on this prompt", NO_PROFILE " " QUESTION_STAYS},
    {has_replay, "replay", NULL, "all queries of the prompt are recorded",
     "It predicts what a repetition of the prompt would attend to.", "the prompt's own queries are recorded",
     HEAD_BUDGETS},
    {question_only, "snapkv:kernel=31", NULL,
     "the question is known, no other follows, and the prompt is not read in chunks",
     "It keeps what the question attends to.", "what the question attends to is kept", QUESTION_KNOWN},
    {always, "keydiff", NULL, "everything else", "Distinct keys are kept; it needs nothing but keys.",
     "distinct keys are kept", HEAD_BUDGETS},
};
enum { N_ROW = sizeof rows / sizeof *rows };

/* The policies that a quality can be kept by, by the scorer whose losses are measured. No gate on hidden states speaks of what
 * follows on the last tokens, so that these stay. */
static const char *const quality_scorers[WNW_N_QUALITY] = {[WNW_QUALITY_REPLAY] = "replay",
                                                           [WNW_QUALITY_KVGATE] = "kvgate",
                                                           [WNW_QUALITY_INPUTGATE] = "kvzap:recent=32"};

const char *wnw__quality_recipe(int32_t scorer)
{
    return quality_scorers[scorer];
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

static void give(wnw_policy_choice *out, const struct row *row, bool question_known, int32_t valid_until)
{
    const char *const recipe_known = row->recipe_known ? row->recipe_known : row->recipe;
    const wnw_policy_choice own = {WNW_INIT(wnw_policy_choice),
                                   .recipe = question_known ? recipe_known : row->recipe,
                                   .recipe_known = recipe_known,
                                   .when = row->when,
                                   .why = row->why,
                                   .evidence = row->evidence,
                                   .until_tokens = valid_until,
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

/* What the choice depends on in addition to the facts. */
struct request {
    const wnw_profile *p;
    double quality; /* 0: a size is wanted */
};

/* Which row, or which scorer. */
static const void *choice_key(const wnw_policy_facts *f, const struct request *request);

/* The longest prompt that fits into a context with its sample after it. */
static int32_t longest_sampled(int32_t n_ctx)
{
    int32_t n = n_ctx;
    while (n > 0 && n > n_ctx - wnw_sample_fed(&usual_sample, n))
        n--;
    return n;
}

/* The longest prompt up to which the choice stays the same, other facts unchanged. Choices change where one of these lengths is
 * reached. */
static int32_t valid_until(const wnw_policy_facts *f, const struct request *request)
{
    const double room = ROOM_ENTRIES / kept_of(f);
    const int32_t last[] = {reach_of(f), f->n_ctx_train, longest_sampled(f->n_ctx_train),
                            room < INT32_MAX ? (int32_t)ceil(room) - 1 : 0};
    const void *taken = choice_key(f, request);
    int32_t least = INT32_MAX;
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        wnw_policy_facts longer = *f;
        if (last[i] < f->n_tokens || last[i] >= least)
            continue;
        longer.n_tokens = last[i] + 1;
        if (choice_key(&longer, request) != taken)
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
    give(out, find(&f), f.question_known, f.n_tokens > 0 ? valid_until(&f, &(struct request){0}) : 0);
    return WNW_OK;
}

int32_t wnw_policy_chunk(const wnw_policy_facts *facts)
{
    wnw_policy_facts f = wnw_policy_facts_default();
    if (!facts || WNW_SIZED_TAKE(wnw_policy_facts, &f, facts) != WNW_OK || check(&f) != WNW_OK)
        return 0;
    const bool fits = f.n_ctx_train == 0 || f.n_tokens <= f.n_ctx_train;
    const bool drops = f.kept < 1; /* else there is nothing to gain */
    return has_shares(&f) && f.phase == WNW_PHASE_END && !f.decodes && fits && drops &&
                   f.n_tokens > LONG_PROMPT
               ? LONG_CHUNK
               : 0;
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
static int32_t quality_scorer(const wnw_policy_facts *f, const struct request *request)
{
    const bool works[WNW_N_QUALITY] = {[WNW_QUALITY_REPLAY] = has_replay(f),
                                       [WNW_QUALITY_KVGATE] = has_gate(f),
                                       [WNW_QUALITY_INPUTGATE] = has_input_gate(f, has_gate(f))};
    int32_t best = WNW_QUALITY_REPLAY;
    double least = 2;
    for (int32_t i = 0; i < WNW_N_QUALITY; i++) {
        const double stays = works[i] ? share_that_stays(request->p, i, request->quality) : 2;
        best = stays < least ? i : best;
        least = stays < least ? stays : least;
    }
    return best;
}

static const void *choice_key(const wnw_policy_facts *f, const struct request *request)
{
    if (request->quality > 0)
        return &quality_scorers[quality_scorer(f, request)];
    return find(f);
}

int wnw_policy_choose_quality(wnw_policy_choice *out, const wnw_policy_facts *facts, const wnw_profile *p,
                              double quality)
{
    wnw_policy_facts f;
    const struct request request = {p, quality};
    WNW_TRY(take(&f, facts, out));
    if (!(quality > 0 && quality < 1))
        return wnw__fail(WNW_E_RANGE, "a quality of %g is to be kept; give one above 0 and below 1", quality);
    const struct row row = {.recipe = quality_scorers[quality_scorer(&f, &request)],
                            .when = "a quality is to be kept",
                            .why = "By calibration this scorer keeps that quality with the fewest entries.",
                            .reason = "by calibration it keeps that quality with the fewest entries",
                            .evidence = "the texts that the profile's calibration held out"};
    give(out, &row, f.question_known, f.n_tokens > 0 ? valid_until(&f, &request) : 0);
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
