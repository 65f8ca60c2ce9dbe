/* SPDX-License-Identifier: MIT */
/* What the server keeps of slots and sequences (serve/): claims, the cap, reuse, cells that die. */
#include "files.h"
#include "helpers.h"
#include "serve/automatic.h"
#include "serve/batches.h"
#include "serve/bodies.h"
#include "serve/documents.h"
#include "serve/request.h"
#include "serve/sequences.h"
#include "serve/tickets.h"
#include "winnow_calibrate.h"
#include "winnow_method.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct serve_config config;

const struct serve_config *serve_settings(void)
{
    return &config;
}

static bool refuse_policies;

int serve_check_policy(const wnw_policy *policy)
{
    return !policy ? WNW_E_ARG : refuse_policies ? WNW_E_MISMATCH : WNW_OK;
}

/* Takes a recipe that is one. */
static void set_recipe(struct serve_keep_rule *keep_rule, const char *recipe)
{
    assert_int_equal(serve_keep_rule_set(keep_rule, recipe, NULL), WNW_OK);
}

/* ---- Sequences ---- */

static void test_cells_of_a_state(void **state)
{
    (void)state;
    const bool two_parts[8] = {false, true, true, false, false, true, true, true};
    const bool some[8] = {false, true, true, true, true, false, false, false};
    int32_t split[] = {2, 5, 6}, gap[] = {1, 5, 6}, taken[] = {2, 3, 5}, all[] = {1, 2, 5, 6, 7},
            holes[] = {1, 5, 7}, round[] = {1, 2, 6, 7};
    assert_true(serve_sequences_order(two_parts, 8, split, 3));
    assert_int_equal(split[0], 2);
    assert_int_equal(split[2], 6);
    assert_true(serve_sequences_order(two_parts, 8, split, 1));
    assert_false(serve_sequences_order(two_parts, 8, gap, 3));
    assert_false(serve_sequences_order(two_parts, 8, holes, 3));
    assert_false(serve_sequences_order(two_parts, 8, taken, 3));
    assert_false(serve_sequences_order(two_parts, 8, all, 5));  /* it may have begun at any of them */
    assert_true(serve_sequences_order(two_parts, 8, round, 4)); /* it went on at the first cell */
    const int32_t ordered[] = {6, 7, 1, 2};
    assert_memory_equal(round, ordered, sizeof ordered);
    int32_t block[] = {1, 2, 3, 4};
    assert_false(serve_sequences_order(some, 8, block, 4));
    assert_true(serve_sequences_order(some, 8, block, 3));
    assert_true(serve_sequences_order(NULL, 8, block, 4));
    assert_false(serve_sequences_order(NULL, 8, split, 3));
}

static void test_cells_die_with_their_last_owner(void **state)
{
    (void)state;
    struct serve_sequences s;
    assert_true(serve_sequences_init(&s, 2, 8));
    for (int32_t i = 0; i < 4; i++)
        assert_true(serve_sequences_add(&s, 0, i, 7 - i, 10 + i)); /* positions 0 1 2 3 in cells 7 6 5 4 */
    assert_false(serve_sequences_add(&s, 0, 4, 8, 14));
    assert_true(serve_sequences_cp(&s, 0, 1, 1, 3)); /* 1 2 */
    assert_int_equal(s.of[1].n, 2);
    assert_int_equal(s.of[1].token[0], 11);
    assert_int_equal(s.of[1].token[1], 12);
    assert_int_equal(s.n_live, 4);
    serve_sequences_rm(&s, 0, 2, -1); /* 2 lives on, 3 dies */
    assert_int_equal(s.n_dead, 1);
    assert_int_equal(s.dead[0], 4);
    serve_sequences_shift(&s, 1, 2, -1, -2); /* 1 2 -> 1 0 */
    serve_sequences_rm(&s, 1, 0, 1);
    assert_int_equal(s.of[1].token[0], 11);
    assert_int_equal(serve_sequences_removed(&s, 1), 0);
    serve_sequences_close_up(&s, 1); /* 1 -> 0, which the server still counts as 1 */
    assert_int_equal(s.of[1].pos[0], 0);
    assert_int_equal(serve_sequences_removed(&s, 1), 1);
    assert_int_equal(s.n_dead, 2);
    assert_int_equal(s.dead[1], 5);
    serve_sequences_rm(&s, -1, -1, -1);
    assert_int_equal(s.n_dead, 4);
    assert_int_equal(s.n_live, 0);
    assert_int_equal(s.of[0].n + s.of[1].n, 0);
    serve_sequences_free(&s);
}

static void test_what_failed_is_taken_back(void **state)
{
    (void)state;
    struct serve_sequences s;
    assert_true(serve_sequences_init(&s, 1, 2000));
    for (int32_t i = 0; i < 1000; i++)
        assert_true(serve_sequences_add(&s, 0, i, i, -1));
    serve_sequences_cut(&s, 0, 10);
    assert_int_equal(s.of[0].n, 10);
    assert_int_equal(s.n_dead, 990);
    serve_sequences_free(&s);
}

/* ---- Batches ---- */

static void test_rows_of_batches(void **state)
{
    (void)state;
    enum { ROWS = 1300 };
    struct serve_batches all = {0};
    static const int of[SERVE_MAX_BATCHES + 1];
    struct serve_batch *b = serve_batches_find(&all, &of[0]);
    for (int32_t i = 0; i < ROWS; i++)
        serve_batch_add(b, i, i < 1000 ? 0 : 63, i + 5);
    serve_batch_add(b, ROWS + 1, 0, 1); /* libllama has refused one before it */
    serve_batch_add(b, -1, 0, 1);
    serve_batch_add(b, ROWS, 64, 1);
    assert_int_equal(b->n, ROWS);
    assert_int_equal(serve_batch_row(b, 7)->token, 12);
    serve_batch_row(b, 7)->seqs |= 2;
    serve_batch_row(b, 999)->output = true;
    struct serve_rows r = serve_batch_rows_of(b, 0);
    assert_int_equal(r.n, 1000);
    assert_int_equal(r.n_silent, 999);
    assert_true(r.ends);
    r = serve_batch_rows_of(b, 63);
    assert_int_equal(r.n, ROWS - 1000);
    assert_false(r.ends);
    assert_int_equal(serve_batch_rows_of(b, 1).n, 1);
    assert_int_equal(serve_batch_rows_of(b, 2).n, 0);
    assert_null(serve_batch_row(b, ROWS));
    assert_null(serve_batch_row(NULL, 0));
    for (int32_t i = 1; i < SERVE_MAX_BATCHES; i++)
        assert_non_null(serve_batches_find(&all, &of[i]));
    assert_null(serve_batches_find(&all, &of[SERVE_MAX_BATCHES]));
    serve_batches_forget(&all, &of[0]);
    assert_int_equal(serve_batches_find(&all, &of[SERVE_MAX_BATCHES])->n, 0);
    for (int32_t i = 0; i <= SERVE_MAX_BATCHES; i++)
        serve_batches_forget(&all, &of[i]);
    assert_int_equal(all.n, 0);
}

/* ---- Recipes ---- */

static int n_parsed;

int __real_wnw_policy_parse(wnw_policy **out, const char *recipe, const wnw_registry *registry);
int __wrap_wnw_policy_parse(wnw_policy **out, const char *recipe, const wnw_registry *registry);

int __wrap_wnw_policy_parse(wnw_policy **out, const char *recipe, const wnw_registry *registry)
{
    n_parsed++;
    return __real_wnw_policy_parse(out, recipe, registry);
}

static void test_wants(void **state)
{
    (void)state;
    struct serve_keep_rule a = {0}, b = {0};
    set_recipe(&a, "snapkv");
    set_recipe(&b, "snapkv:window=32");
    assert_true(serve_same_keep_rule(&a, &b)); /* it is the default */
    assert_true(serve_looks_at_question(&a) && serve_looks_with_queries(&a) && !serve_looks_with_all(&a));
    set_recipe(&b, "snapkv:window=33");
    assert_false(serve_same_keep_rule(&a, &b));
    set_recipe(&b, "snapkv");
    b.size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    assert_true(serve_same_recipe(&a, &b));
    assert_false(serve_same_keep_rule(&a, &b));
    set_recipe(&a, "replay");
    assert_true(serve_looks_with_all(&a) && serve_looks_back(&a) && !serve_looks_at_question(&a));
    set_recipe(&a, "h2o");
    assert_true(serve_looks_back(&a) && !serve_looks_with_queries(&a));
    set_recipe(&a, "full");
    assert_true(serve_keeps_all(&a) && !serve_looks_back(&a) && !serve_looks_with_queries(&a));
    /* What is none may need everything, and is the same as nothing but itself. */
    assert_int_equal(serve_keep_rule_set(&a, "of another version", NULL), WNW_E_ARG);
    assert_true(serve_looks_back(&a) && serve_looks_at_question(&a) && serve_looks_with_all(&a));
    b = a;
    assert_true(serve_same_keep_rule(&a, &b));
    assert_int_equal(serve_keep_rule_set(&b, "of a third one", NULL), WNW_E_ARG);
    assert_false(serve_same_keep_rule(&a, &b));
}

/* ---- Slots ---- */

static bool has_left(void *user)
{
    return user == NULL;
}

static struct serve_ask ask_of(const char *key)
{
    static int here;
    struct serve_ask ask = {
        .key = key, .key_len = strlen(key), .slot = -1, .n_slots = 1, .client_left = has_left, .user = &here};
    set_recipe(&ask.keep_rule, "keydiff");
    return ask;
}

static struct serve_claim claimed(const struct serve_ask *ask)
{
    char why[SERVE_TEXT] = "";
    struct serve_claim claim;
    assert_int_equal(serve_slots_claim(ask, &claim, why), SERVE_CLAIMED);
    return claim;
}

static void open_slots(int32_t n, uint64_t cap)
{
    config = (struct serve_config){.cap = cap};
    set_recipe(&config.keep_rule, "keydiff");
    serve_slots_open(
        n, &(struct serve_room){.row_bytes = 100, .row_entries = 10, .n_cells = 4096, .most_text = 100000},
        true);
}

static void test_a_slot_that_begins_alike_is_chosen(void **state)
{
    (void)state;
    open_slots(3, 0);
    struct serve_ask a = ask_of("the first document and a question"), b = ask_of("some other text");
    struct serve_claim x = claimed(&a), y = claimed(&b);
    assert_int_not_equal(x.slot, y.slot);
    serve_slots_release(&x);
    serve_slots_release(&y);
    struct serve_ask c = ask_of("the first document and another question");
    struct serve_claim z = claimed(&c);
    assert_int_equal(z.slot, x.slot);
    assert_false(z.no_reuse);
    struct serve_ask d = ask_of("quite new"); /* the slot that was never used */
    struct serve_claim v = claimed(&d);
    assert_int_not_equal(v.slot, x.slot);
    assert_int_not_equal(v.slot, y.slot);
    serve_slots_release(&z);
    serve_slots_release(&v);
}

/* A request that has begun and ended: its slot, which has n_tokens then. */
static int32_t ended(const struct serve_ask *ask, int32_t n_tokens)
{
    const struct serve_claim claim = claimed(ask);
    serve_slots_report(claim.slot,
                       &(struct serve_content){.n_tokens = n_tokens, .entries = 10 * (int64_t)n_tokens});
    serve_slots_release(&claim);
    return claim.slot;
}

/* Conversations stay where another slot is empty or has a document as it was read for all. */
static void test_conversations_are_replaced_last(void **state)
{
    (void)state;
    open_slots(3, 0);
    struct serve_ask talk = ask_of("a conversation that goes on"), novel = ask_of("the novel"),
                     diary = ask_of("dear diary"), later = ask_of("quite another one"),
                     fourth = ask_of("fourth"), fifth = ask_of("no slot is spare"),
                     sixth = ask_of("what was erased holds nothing");
    novel.stores = 1;
    diary.stores = 2;
    const int32_t x = ended(&talk, 50), y = ended(&novel, 80), z = ended(&later, 50);
    assert_int_not_equal(y, x);
    assert_int_not_equal(z, x);
    assert_int_not_equal(z, y); /* it was never used */
    for (int i = 0; i < 2; i++) /* the slot of the novel, though that of the first conversation is older */
        assert_int_equal(ended(&diary, 80), y);
    assert_int_equal(ended(&fourth, 50), y);
    assert_int_equal(ended(&fifth, 0), x);
    assert_int_equal(ended(&sixth, 0), x);
}

/* A request that waits on a thread of its own. */
struct waiting {
    struct serve_ask ask;
    struct serve_claim claim;
    enum serve_answer answer;
    pthread_t thread;
    atomic_bool asked, done;
};

/* Called while it waits, with the slots locked. */
static bool has_begun(void *user)
{
    atomic_store(&((struct waiting *)user)->asked, true);
    return false;
}

static void *wait_for_slots(void *user)
{
    struct waiting *w = user;
    char why[SERVE_TEXT];
    w->answer = serve_slots_claim(&w->ask, &w->claim, why);
    atomic_store(&w->done, true);
    return NULL;
}

/* Starts one, which waits when this returns. */
static void begin_waiting(struct waiting *w, int32_t slot, int32_t n_slots)
{
    *w = (struct waiting){.ask = ask_of("x")};
    w->ask.slot = slot;
    w->ask.n_slots = n_slots;
    w->ask.client_left = has_begun;
    w->ask.user = w;
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_slots, w), 0);
    while (!atomic_load(&w->asked))
        usleep(1000);
    assert_false(atomic_load(&w->done));
}

static void end_waiting(struct waiting *w, uint64_t slots)
{
    assert_int_equal(pthread_join(w->thread, NULL), 0);
    assert_int_equal(w->answer, SERVE_CLAIMED);
    assert_int_equal(w->claim.slots, slots);
    serve_slots_release(&w->claim);
}

static struct serve_claim claimed_slot(int32_t slot)
{
    struct serve_ask ask = ask_of("x");
    ask.slot = slot;
    return claimed(&ask);
}

static void test_who_waits_for_whom(void **state)
{
    (void)state;
    struct waiting named, again, any, several;
    struct serve_ask a = ask_of("x");
    open_slots(2, 0);
    struct serve_claim zero = claimed_slot(0), one;
    begin_waiting(&named, 0, 1);
    begin_waiting(&again, 0, 2);
    for (int i = 0; i < 3; i++) { /* the other slot is for all others */
        one = claimed(&a);
        assert_int_equal(one.slot, 1);
        serve_slots_release(&one);
        one = claimed_slot(1);
        serve_slots_release(&one);
    }
    serve_slots_release(&zero);
    end_waiting(&named, 1);
    end_waiting(&again, 3);
    /* One that wants several slots is overtaken by those that want one, so often and no more. */
    zero = claimed_slot(0);
    begin_waiting(&several, -1, 2);
    for (int i = 0; i < 256; i++) {
        one = claimed(&a);
        assert_int_equal(one.slot, 1);
        serve_slots_release(&one);
    }
    begin_waiting(&any, -1, 1);
    serve_slots_release(&zero);
    end_waiting(&several, 3);
    assert_int_equal(pthread_join(any.thread, NULL), 0);
    serve_slots_release(&any.claim);
    /* Who came first has what becomes free, if it takes it. */
    zero = claimed_slot(0);
    one = claimed_slot(1);
    begin_waiting(&named, 0, 1);
    begin_waiting(&any, -1, 1);
    begin_waiting(&again, 1, 1);
    serve_slots_release(&one);
    end_waiting(&any, 2);
    end_waiting(&again, 2);
    assert_false(atomic_load(&named.done));
    serve_slots_release(&zero);
    end_waiting(&named, 1);
}

static void test_a_visit_leaves_what_is_there(void **state)
{
    (void)state;
    open_slots(2, 1000);
    struct serve_ask a = ask_of("the first document and a question");
    a.n_prompt = 5;
    struct serve_claim x = claimed(&a), visit;
    struct waiting waits;
    begin_waiting(&waits, x.slot, 1);
    assert_int_equal(serve_slots_hold(-1, has_left, &a, &visit), SERVE_CLAIMED);
    assert_int_not_equal(visit.slot, x.slot);
    assert_true(serve_slots_is_claimed(visit.slot));
    struct serve_claim none;
    assert_int_equal(serve_slots_hold(visit.slot, has_left, NULL, &none), SERVE_GONE);
    serve_slots_release(&visit);
    serve_slots_release(&x);
    end_waiting(&waits, UINT64_C(1) << x.slot);
    x = claimed(&a);
    serve_slots_release(&x);
    struct serve_keep_rule keep_rule;
    (void)serve_slots_keep_rule(x.slot, false, &keep_rule);
    assert_int_equal(serve_slots_hold(x.slot, has_left, &a, &visit), SERVE_CLAIMED);
    assert_int_equal(visit.slot, x.slot);
    assert_false(serve_slots_keep_rule(x.slot, false, &keep_rule));
    serve_slots_release(&visit);
    struct serve_claim y = claimed(&a); /* the same slot, which begins alike */
    assert_int_equal(y.slot, x.slot);
    assert_false(y.no_reuse);
    serve_slots_release(&y);
}

static void test_slots_of_one_request(void **state)
{
    (void)state;
    open_slots(3, 0);
    struct serve_ask a = ask_of("x");
    a.slot = 1;
    a.n_slots = 2;
    struct serve_claim x = claimed(&a);
    assert_int_equal(x.slot, 1);
    assert_int_equal(x.slots, 3); /* 0 and 1 */
    a.slot = -1;
    a.user = NULL; /* who has left does not wait for a second slot */
    char why[SERVE_TEXT];
    struct serve_claim y;
    assert_int_equal(serve_slots_claim(&a, &y, why), SERVE_GONE);
    serve_slots_release(&x);
    a.user = &a;
    y = claimed(&a);
    serve_slots_release(&y);
}

/* Adds "recipe until;" */
static int write_row(const char *recipe, const wnw_policy_choice *row, void *user)
{
    char *text = user;
    const size_t n = strlen(text);
    snprintf(text + n, 256 - n, "%s %d;", recipe, (int)row->until_tokens);
    return WNW_OK;
}

static int refuse_row(const char *recipe, const wnw_policy_choice *row, void *user)
{
    *(int *)user += strlen(recipe) > 0 && row->recipe;
    return WNW_E_NOMEM;
}

static int each(const struct serve_keep_rule *keep_rule, bool fed, wnw_automatic_what *what, void *user)
{
    wnw_policy_facts facts;
    const wnw_automatic of = serve_automatic_of(&facts, keep_rule, fed);
    return wnw_automatic_each(&of, what, user);
}

/* A prompt of any length gets what was told of it in `rows`, "RECIPE UNTIL;" each. */
static void check_each_length(const struct serve_keep_rule *keep_rule, bool fed, const char *rows)
{
    wnw_policy_facts facts;
    const wnw_automatic of = serve_automatic_of(&facts, keep_rule, fed);
    const char *row = rows;
    for (int32_t n = 1; n <= 3000; n++) {
        char *recipe, told[SERVE_RECIPE];
        int until = 0;
        while (sscanf(row, "%255s %d", told, &until) == 2 && n > until)
            row = strchr(row, ';') + 1;
        assert_int_equal(wnw_automatic_choose(&recipe, &of, n, false), WNW_OK);
        if (strcmp(recipe, told) != 0)
            fail_msg("%d tokens: %s, not %s of '%s'", (int)n, recipe, told, rows);
        wnw_free(recipe);
    }
}

/* By each prompt's length and size; all that may come is observed. */
static void test_automatic(void **state)
{
    enum {
        SHARES = 1 << WNW_PROFILE_SHARES,
        GATE = 1 << WNW_PROFILE_GATE,
        INPUTS = 1 << WNW_PROFILE_INPUTGATE
    };
    static const struct {
        uint32_t profiles;
        wnw_size size;
        const char *rows;
    } cases[] = {{0, {.kind = WNW_SIZE_NONE}, "replay 2147483647;"},
                 {SHARES, {.kind = WNW_SIZE_RATIO, .ratio = 0.75}, "keydiff-shares 2147483647;"},
                 {SHARES, {.kind = WNW_SIZE_RATIO, .ratio = 0.99}, "replay 2147483647;"},
                 {SHARES | GATE | INPUTS,
                  {.kind = WNW_SIZE_RATIO, .ratio = 0.75},
                  "kvzap:recent=0+shares 719;kvzap:recent=32,room=0.3+shares 2000;kvgate+shares 2147483647;"},
                 {SHARES | GATE | INPUTS,
                  {.kind = WNW_SIZE_BUDGET, .budget = 200},
                  "kvzap:recent=0+shares 179;kvzap:recent=32,room=0.3+shares 2000;kvgate+shares 2147483647;"},
                 {SHARES | GATE | INPUTS,
                  {.kind = WNW_SIZE_BUDGET, .budget = 100},
                  "kvzap:recent=0+shares 2000;kvgate+shares 2147483647;"},
                 {SHARES, {.kind = WNW_SIZE_RATIO, .ratio = 0.76}, "keydiff-values-shares 2147483647;"},
                 {SHARES,
                  {.kind = WNW_SIZE_BUDGET, .budget = 300},
                  "keydiff-shares 1200;keydiff-values-shares 2147483647;"},
                 {SHARES, {.kind = WNW_SIZE_BUDGET, .budget = INT32_MAX}, "keydiff-shares 2147483647;"},
                 {SHARES,
                  {.kind = WNW_SIZE_BUDGET, .budget = 1},
                  "keydiff-shares 4;keydiff-values-shares 2147483647;"}};
    (void)state;
    open_slots(1, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256] = "";
        struct serve_keep_rule keep_rule = {.size = cases[i].size};
        config.facts = (wnw_policy_facts){WNW_INIT(wnw_policy_facts), .profiles = cases[i].profiles,
                                          .shares_least = 0.03};
        set_recipe(&keep_rule, "auto");
        assert_true(serve_is_automatic(&keep_rule) && !serve_keeps_all(&keep_rule));
        assert_int_equal(each(&keep_rule, false, write_row, text), WNW_OK);
        assert_string_equal(text, cases[i].rows);
        check_each_length(&keep_rule, false, text);
        assert_int_equal(serve_automatic_settle(&keep_rule), WNW_OK);
        assert_int_equal(serve_looks_with_all(&keep_rule), strstr(text, "replay") != NULL);
        assert_int_equal(!!(keep_rule.needs & WNW_NEED_INPUT_GATE), strstr(text, "kvzap") != NULL);
        assert_int_equal(!!(keep_rule.needs & WNW_NEED_QUERY_STATS), strstr(text, "kvgate") != NULL);
        assert_false(serve_looks_at_question(&keep_rule));
        keep_rule.n_most = 64; /* a short prompt is not observed for what long ones need */
        assert_int_equal(serve_automatic_settle(&keep_rule), WNW_OK);
        assert_int_equal(!!(keep_rule.needs & WNW_NEED_INPUT_GATE), strstr(text, "kvzap") != NULL);
        assert_false(keep_rule.needs & WNW_NEED_QUERY_STATS);
        keep_rule.n_most = 2001;
        assert_int_equal(serve_automatic_settle(&keep_rule), WNW_OK);
        assert_int_equal(!!(keep_rule.needs & WNW_NEED_QUERY_STATS), strstr(text, "kvgate") != NULL);
        keep_rule.n_most = 0;
        int n = 0;
        assert_int_equal(each(&keep_rule, false, refuse_row, &n), WNW_E_NOMEM);
        assert_int_equal(n, 1);
    }
    /* Gates that are for much alone: a budget is less of longer prompts. */
    char text[256] = "";
    struct serve_keep_rule much = {.size = {.kind = WNW_SIZE_BUDGET, .budget = 300}};
    config.facts.profiles = SHARES | GATE;
    config.facts.gate_least = 0.75;
    set_recipe(&much, "auto");
    assert_int_equal(each(&much, false, write_row, text), WNW_OK);
    assert_string_equal(text, "kvgate+shares 400;keydiff-shares 1200;keydiff-values-shares 2147483647;");
    check_each_length(&much, false, text);
    /* What is never left, since shares were not measured so far down, is no end of a row. */
    config.facts.shares_least = 0.25;
    text[0] = '\0';
    assert_int_equal(each(&much, false, write_row, text), WNW_OK);
    assert_string_equal(text, "kvgate+shares 400;keydiff-shares 2147483647;");
    check_each_length(&much, false, text);
    config.facts.gate_least = 0.2;
    text[0] = '\0';
    assert_int_equal(each(&much, false, write_row, text), WNW_OK);
    assert_string_equal(text, "kvgate+shares 2147483647;");
    check_each_length(&much, false, text);
    config.facts.gate_least = 0;
    config.facts.shares_least = 0.03;
    /* A request's size counts, in any place. Entries kept by the same rule count as the same, for any achieved size. */
    config.keep_rule = (struct serve_keep_rule){.size = {.kind = WNW_SIZE_RATIO, .ratio = 0.75}};
    set_recipe(&config.keep_rule, "auto");
    config.facts.profiles = SHARES;
    assert_int_equal(serve_automatic_settle(&config.keep_rule), WNW_OK);
    for (int first = 0; first < 3; first++) {
        static const char *const bodies[] = {
            "{\"prompt\":\"x\",\"winnow\":{\"policy\":\"auto\",\"ratio\":0.99}}",
            "{\"prompt\":\"x\",\"winnow\":{\"ratio\":0.99,\"policy\":\"auto\"}}",
            "{\"prompt\":\"x\",\"winnow\":{\"ratio\":0.99}}"};
        char why[SERVE_TEXT];
        const char *param;
        struct serve_request r;
        assert_int_equal(
            serve_request_read(&r, SERVE_FORM_PROMPT, bodies[first], strlen(bodies[first]), why, &param), 0);
        assert_true(serve_looks_with_all(&r.ask.keep_rule));
        struct serve_keep_rule by = r.ask.keep_rule;
        strcpy(by.taken, "replay");
        assert_true(serve_same_keep_rule(&by, &r.ask.keep_rule) &&
                    !serve_same_keep_rule(&config.keep_rule, &r.ask.keep_rule));
        assert_string_equal(serve_keep_rule_taken(&by), "replay");
        serve_request_free(&r);
    }
    assert_false(serve_looks_with_all(&config.keep_rule));
    config = (struct serve_config){0};
}

/* Prompts with a sample may get a policy that needs one, and the others may not; both are observed. */
static void test_automatic_of_samples(void **state)
{
    static const struct {
        uint32_t profiles;
        wnw_size size;
        const char *rows, *fed_rows;
    } cases[] = {
        {0, {.kind = WNW_SIZE_RATIO, .ratio = 0.75}, "replay 2147483647;", "keydiff-sampled 2147483647;"},
        {0,
         {.kind = WNW_SIZE_RATIO, .ratio = 0.9},
         "replay 2147483647;",
         "keydiff-values-sampled 2147483647;"},
        {0,
         {.kind = WNW_SIZE_BUDGET, .budget = 300},
         "replay 2147483647;",
         "replay 400;keydiff-sampled 1200;keydiff-values-sampled 2147483647;"},
        {0, {.kind = WNW_SIZE_NONE}, "replay 2147483647;", "keydiff-sampled 2147483647;"},
        {1u << WNW_PROFILE_SHARES,
         {.kind = WNW_SIZE_RATIO, .ratio = 0.99},
         "replay 2147483647;",
         "keydiff-values-sampled 2147483647;"},
        {1u << WNW_PROFILE_SHARES,
         {.kind = WNW_SIZE_RATIO, .ratio = 0.75},
         "keydiff-shares 2147483647;",
         "keydiff-shares 2147483647;"}};
    (void)state;
    open_slots(1, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256] = "", fed_text[256] = "";
        struct serve_keep_rule keep_rule = {.size = cases[i].size};
        config.facts = (wnw_policy_facts){WNW_INIT(wnw_policy_facts), .profiles = cases[i].profiles,
                                          .shares_least = 0.03};
        set_recipe(&keep_rule, "auto");
        assert_int_equal(each(&keep_rule, false, write_row, text), WNW_OK);
        assert_int_equal(each(&keep_rule, true, write_row, fed_text), WNW_OK);
        assert_string_equal(text, cases[i].rows);
        assert_string_equal(fed_text, cases[i].fed_rows);
        check_each_length(&keep_rule, true, fed_text);
        assert_int_equal(serve_automatic_settle(&keep_rule), WNW_OK);
        assert_int_equal(!!(keep_rule.needs & WNW_NEED_SECOND_PASS), strstr(fed_text, "sampled") != NULL);
        assert_int_equal(serve_looks_with_all(&keep_rule), strstr(text, "replay") != NULL);
    }
    config = (struct serve_config){0};
}

/* By the losses that the profiles say; a quality that nobody has measured cannot be asked for. */
static void test_quality(void **state)
{
    static const char *const files[] = {"quality", "gate", "inputgate"};
    char path[256], text[256] = "", why[SERVE_TEXT];
    (void)state;
    open_slots(1, 0);
    config.facts = wnw_policy_facts_default();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, WNW_TEST_SOURCE_DIR "/share/profiles/smollm2-135m/%s.json", files[i]);
        assert_int_equal(config.profile ? wnw_profile_add_file(config.profile, path)
                                        : wnw_profile_open(&config.profile, path),
                         WNW_OK);
    }
    wnw_policy_facts_add(&config.facts, config.profile);
    struct serve_keep_rule keep_rule = {.n_most = 0};
    set_recipe(&keep_rule, "auto+quality:q=0.9");
    assert_true(serve_is_automatic(&keep_rule) && serve_asks_quality(&keep_rule) &&
                !serve_keeps_all(&keep_rule));
    assert_int_equal(each(&keep_rule, false, write_row, text), WNW_OK);
    assert_string_equal(text, "kvzap:recent=32+quality:q=0.9 6000;kvgate+quality:q=0.9 2147483647;");
    assert_int_equal(serve_automatic_settle(&keep_rule), WNW_OK);
    assert_int_equal(keep_rule.needs & (WNW_NEED_INPUT_GATE | WNW_NEED_QUERY_STATS),
                     WNW_NEED_INPUT_GATE | WNW_NEED_QUERY_STATS);
    struct serve_keep_rule taken = {0};
    wnw_policy_facts facts;
    const wnw_automatic of = serve_automatic_of(&facts, &keep_rule, false);
    char *recipe;
    assert_int_equal(wnw_automatic_choose(&recipe, &of, 100, true), WNW_OK); /* of a slot from a file */
    assert_string_equal(recipe, "kvgate+quality:q=0.9");
    set_recipe(&taken, recipe);
    wnw_free(recipe);
    assert_true(taken.keeps_quality && !serve_is_automatic(&taken) && !serve_asks_quality(&taken));
    set_recipe(&taken, "keydiff");
    assert_false(taken.keeps_quality);
    refuse_policies = true; /* as without losses */
    assert_int_equal(serve_automatic_settle(&keep_rule), WNW_E_MISMATCH);
    set_recipe(&keep_rule, "auto");
    assert_false(serve_asks_quality(&keep_rule));
    assert_int_equal(serve_automatic_settle(&keep_rule), WNW_OK);
    refuse_policies = false;
    static const char *const bad[] = {"auto+quality",         "auto+quality:q=1",     "auto+quality:q=0",
                                      "auto+quality:q=",      "auto+quality:q=0.9,",  "auto+quality:q=nan",
                                      "auto+quality:q=0.9 x", "auto+shares",          "automatic",
                                      "auto+quality:q=-0.5",  "auto+quality:q=0.9+x", "auto "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char body[128];
        const char *param;
        struct serve_request r;
        snprintf(body, sizeof body, "{\"prompt\":\"x\",\"winnow\":{\"policy\":\"%s\"}}", bad[i]);
        assert_int_equal(serve_request_read(&r, SERVE_FORM_PROMPT, body, strlen(body), why, &param), 400);
        assert_string_equal(param, "winnow.policy");
        assert_non_null(strstr(why, "+quality:q=Q"));
        serve_request_free(&r);
    }
    wnw_profile_free(config.profile);
    config = (struct serve_config){0};
}

/* The want of a request whose rendered prompt has n bytes. */
static struct serve_keep_rule bound(enum serve_form form, const char *body, const char *chat, size_t n)
{
    char why[SERVE_TEXT];
    const char *param;
    struct serve_request r;
    assert_int_equal(serve_request_read(&r, form, body, strlen(body), why, &param), 0);
    if (chat)
        assert_true(serve_request_set_chat(&r, chat));
    r.ask.key_len = n;
    assert_int_equal(serve_request_bound(&r), WNW_OK);
    const struct serve_keep_rule keep_rule = r.ask.keep_rule;
    serve_request_free(&r);
    return keep_rule;
}

#define PARTS(what)                                                                                   \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"user\",\"content\":[{\"type\":" \
    "\"text\",\"text\":\"x\"}" what "]}]}"
#define IMAGE ",{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,AA\"}}"

/* A prompt's bytes bound its tokens, but not those of images, which are one short word in it; and of a prompt that no request has
 * claimed nothing is known. */
static void test_bounds(void **state)
{
    struct serve_keep_rule keep_rule;
    (void)state;
    open_slots(1, 0);
    config.facts = (wnw_policy_facts){WNW_INIT(wnw_policy_facts),
                                      .profiles = 1u << WNW_PROFILE_SHARES | 1u << WNW_PROFILE_GATE |
                                                  1u << WNW_PROFILE_INPUTGATE,
                                      .shares_least = 0.03};
    config.keep_rule = (struct serve_keep_rule){.size = {.kind = WNW_SIZE_RATIO, .ratio = 0.5}};
    set_recipe(&config.keep_rule, "auto");
    assert_int_equal(serve_automatic_settle(&config.keep_rule), WNW_OK);
    assert_true(config.keep_rule.needs & WNW_NEED_QUERY_STATS);
    keep_rule = bound(SERVE_FORM_PROMPT, "{\"prompt\":\"x\"}", NULL, 100);
    assert_int_equal(keep_rule.n_most, 164);
    assert_false(keep_rule.needs & WNW_NEED_QUERY_STATS);
    keep_rule = bound(SERVE_FORM_CHAT, PARTS(""), NULL, 100);
    assert_false(keep_rule.needs & WNW_NEED_QUERY_STATS);
    keep_rule = bound(SERVE_FORM_CHAT, PARTS(""), NULL, 2000);
    assert_true(keep_rule.needs & WNW_NEED_QUERY_STATS);
    keep_rule = bound(SERVE_FORM_CHAT, PARTS(IMAGE), NULL, 100);
    assert_int_equal(keep_rule.n_most, 0);
    assert_int_equal(keep_rule.needs, config.keep_rule.needs);
    /* Of other vendors' bodies the chat that they become is looked at. */
    keep_rule = bound(SERVE_FORM_MESSAGES, "{\"messages\":[]}", PARTS(IMAGE), 100);
    assert_int_equal(keep_rule.n_most, 0);
    /* A short prompt, and then one that nobody has claimed: the rule is the same, but more is to be observed. */
    struct serve_ask a = ask_of("short");
    a.keep_rule = bound(SERVE_FORM_PROMPT, "{\"prompt\":\"x\"}", NULL, 100);
    const struct serve_claim x = claimed(&a);
    assert_true(serve_slots_keep_rule(0, false, &keep_rule));
    assert_false(keep_rule.needs & WNW_NEED_QUERY_STATS);
    serve_slots_release(&x);
    assert_true(serve_slots_keep_rule(0, false, &keep_rule));
    assert_int_equal(keep_rule.needs, config.keep_rule.needs);
    assert_false(serve_slots_keep_rule(0, false, &keep_rule));
    config = (struct serve_config){0};
}

/* Reports a slot as compressed by what holds for it. */
static void compressed(int32_t slot, int32_t n_tokens, int64_t entries)
{
    struct serve_keep_rule keep_rule;
    assert_true(serve_slots_keep_rule(slot, false, &keep_rule)); /* nobody has asked since it was claimed */
    serve_slots_report(
        slot, &(struct serve_content){.n_tokens = n_tokens, .entries = entries, .compressed_by = &keep_rule});
}

static void test_reuse(void **state)
{
    static const struct {
        const char *recipe, *key;
        enum serve_reuse reuse;
        int64_t budget;
        bool refused;
    } rows[] = {{"keydiff", "doc q1", SERVE_REUSE_SAME, 0, false},
                {"keydiff", "doc q2", SERVE_REUSE_SAME, 0, false},
                {"keydiff", "doc q2", SERVE_REUSE_NEVER, 0, true},
                {"keydiff", "doc q2", SERVE_REUSE_SAME, 9, true},
                {"snapkv", "doc q1", SERVE_REUSE_SAME, 0, false},
                {"snapkv", "doc q1 and on", SERVE_REUSE_SAME, 0, false},
                {"h2o", "doc q1", SERVE_REUSE_SAME, 0, false},
                {"snapkv", "doc q2", SERVE_REUSE_SAME, 0, true},
                {"snapkv", "doc q2", SERVE_REUSE_ANY, 0, false}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        open_slots(1, 0);
        struct serve_ask a = ask_of("doc q1");
        set_recipe(&a.keep_rule, rows[i].recipe);
        struct serve_claim x = claimed(&a);
        compressed(0, 50, 100);
        serve_slots_release(&x);
        a.key = rows[i].key;
        a.key_len = strlen(a.key);
        a.reuse = rows[i].reuse;
        a.keep_rule.size.budget = rows[i].budget;
        x = claimed(&a);
        print_message("%s, %s, %d\n", rows[i].recipe, rows[i].key, (int)rows[i].reuse);
        assert_int_equal(x.no_reuse, rows[i].refused);
        serve_slots_release(&x);
    }
}

/* 100 bytes a token, room for 50 tokens. */
static void test_the_cap(void **state)
{
    (void)state;
    char why[SERVE_TEXT] = "";
    struct serve_claim x, y;
    open_slots(3, 5000);
    struct serve_ask a = ask_of("x");
    a.n_prompt = 45;
    a.n_predict = 6;
    assert_int_equal(serve_slots_claim(&a, &x, why), SERVE_TOO_LONG);
    assert_non_null(strstr(why, "5100 bytes"));
    a.n_predict = 5;
    x = claimed(&a);
    a.n_prompt = 1;
    assert_int_equal(serve_slots_claim(&a, &y, why), SERVE_BUSY);
    assert_non_null(strstr(why, "600 bytes are wanted, 0 of 5000"));
    /* Once compressed to 10 tokens' worth, with 5 more to come, 35 are free. */
    compressed(x.slot, 45, 100);
    a.n_prompt = 31;
    assert_int_equal(serve_slots_claim(&a, &y, why), SERVE_BUSY);
    a.n_prompt = 30;
    y = claimed(&a);
    serve_slots_release(&x);
    serve_slots_release(&y);
    /* Queries of 50 bytes a token count for rules that look with all of them, of prompts alone. */
    serve_slots_set_query_numbers(25);
    a.n_prompt = 30;
    a.n_predict = 5;
    set_recipe(&a.keep_rule, "replay");
    x = claimed(&a);
    serve_slots_release(&x);
    a.n_prompt = 31;
    assert_int_equal(serve_slots_claim(&a, &x, why), SERVE_TOO_LONG);
    assert_non_null(strstr(why, "5150 bytes"));
    set_recipe(&a.keep_rule, "keydiff");
    x = claimed(&a);
    serve_slots_release(&x);
    serve_slots_set_query_numbers(0);
    char *json = serve_slots_json(NULL), *metrics = serve_slots_metrics();
    assert_non_null(strstr(json, "\"entries\": 10.0"));
    assert_non_null(strstr(metrics, "winnow:kv_bytes_cap 5000\n"));
    free(json);
    free(metrics);
}

/* What layers that slide hold at most is kept for them, and is no part of what a token takes. */
static void test_the_cap_with_windows(void **state)
{
    (void)state;
    char why[SERVE_TEXT] = "";
    struct serve_claim x;
    open_slots(1, 5000);
    serve_slots_open(1, &(struct serve_room){.row_bytes = 100, .row_entries = 10, .window_bytes = 2000},
                     true);
    struct serve_ask a = ask_of("x");
    a.n_prompt = 31;
    assert_int_equal(serve_slots_claim(&a, &x, why), SERVE_TOO_LONG);
    assert_non_null(strstr(why, "takes 3100 bytes"));
    assert_non_null(strstr(why, "documents take 0 and sliding windows 2000"));
    a.n_prompt = 30;
    x = claimed(&a);
    compressed(x.slot, 30, 100);
    serve_slots_count(true, false,
                      &(struct serve_cached){.bytes = 1500, .window_bytes = 500, .n_tokens = 30});
    char *json = serve_slots_json(NULL);
    assert_non_null(strstr(json, "\"bytes\": 1500, \"bytes_uncompressed\": 3500,"));
    assert_non_null(strstr(json, "\"entries\": 10.0, \"bytes\": 1000"));
    free(json);
    serve_slots_release(&x);
}

/* What a slot still holds of an earlier request counts until its next one has begun: others wait, and are not refused. */
static void test_the_cap_with_what_is_left(void **state)
{
    (void)state;
    static const int32_t n_left[] = {40, 15}; /* tokens of 5000 / 100 */
    struct serve_claim x;
    struct waiting waits;
    open_slots(2, 5000);
    serve_slots_open(2, &(struct serve_room){.row_bytes = 100, .row_entries = 10}, true);
    struct serve_ask a = ask_of("x");
    for (int32_t i = 0; i < 2; i++) {
        a.slot = i;
        a.n_prompt = n_left[i];
        x = claimed(&a);
        serve_slots_report(i, &(struct serve_content){.n_tokens = n_left[i], .entries = 10 * n_left[i]});
        serve_slots_release(&x);
    }
    a.slot = 0;
    a.n_prompt = 5;
    x = claimed(&a); /* nobody else asks for anything */
    begin_waiting(&waits, 1, 1);
    serve_slots_report(0, &(struct serve_content){.n_tokens = 5, .entries = 50});
    end_waiting(&waits, 2);
    serve_slots_release(&x);
}

/* Two answers of one prompt have room for both once it was compressed. */
static void test_the_cap_of_several_answers(void **state)
{
    (void)state;
    char why[SERVE_TEXT] = "";
    struct serve_claim x, y;
    open_slots(3, 5000);
    struct serve_ask a = ask_of("x");
    a.n_prompt = 20;
    a.n_predict = 10;
    a.n_slots = 2;
    x = claimed(&a);
    compressed(x.slot, 20, 100); /* 10 tokens' worth; 20 more will come */
    a.n_slots = 1;
    a.n_predict = 0;
    a.n_prompt = 21;
    assert_int_equal(serve_slots_claim(&a, &y, why), SERVE_BUSY);
    a.n_prompt = 20;
    y = claimed(&a);
    serve_slots_release(&x);
    serve_slots_release(&y);
}

/* What slots without a request hold is given up, the one that was unused for longest first. The server erases such a slot before it is used. */
static void test_what_is_given_up(void **state)
{
    (void)state;
    struct serve_park_about about;
    bool parks = true;
    open_slots(3, 0);
    struct serve_ask a = ask_of("a prompt");
    for (int32_t i = 2; i >= 0; i--) {
        a.slot = i;
        const struct serve_claim x = claimed(&a);
        serve_slots_report(i, &(struct serve_content){.n_tokens = 20, .document_plus_1 = i == 1 ? 7 : 0});
        if (i > 0)
            serve_slots_release(&x);
    } /* slot 0 stays claimed */
    assert_int_equal(serve_slots_give_up(1 << 2, &about, &parks), 1);
    assert_false(parks); /* nothing is parked here */
    assert_int_equal(serve_slots_give_up(0, &about, &parks), 2);
    assert_int_equal(serve_slots_give_up(0, &about, &parks), -1);
    a.slot = 1;
    a.document_plus_1 = 7; /* the slot had it */
    struct serve_claim x = claimed(&a);
    assert_int_equal(x.erase, 1 << 1);
    assert_true(x.must_restore);
    serve_slots_release(&x);
    a.document_plus_1 = 0;
    x = claimed(&a);
    assert_int_equal(x.erase, 0);
    serve_slots_release(&x);
    struct serve_claim visit;
    assert_int_equal(serve_slots_hold(2, has_left, &a, &visit), SERVE_CLAIMED);
    assert_int_equal(visit.erase, 1 << 2);
    serve_slots_release(&visit);
}

/* The server puts further answers into any free slots. Those of other requests that have not begun are among them, unless these wait. */
static void test_several_answers_begin_alone(void **state)
{
    (void)state;
    struct serve_keep_rule keep_rule;
    struct waiting waits;
    open_slots(4, 5000);
    serve_slots_open(4, &(struct serve_room){.row_bytes = 100, .row_entries = 10}, true);
    struct serve_ask a = ask_of("x");
    a.n_prompt = 5;
    a.slot = 3;
    struct serve_claim one = claimed(&a);
    serve_slots_report(3, &(struct serve_content){.n_tokens = 5, .entries = 50});
    begin_waiting(&waits, -1, 2);
    /* Rows of a further answer that the server has put there: the request has not begun. */
    assert_false(serve_slots_keep_rule(3, true, &keep_rule));
    assert_false(atomic_load(&waits.done));
    assert_true(serve_slots_keep_rule(3, false, &keep_rule));
    end_waiting(&waits, 3);
    serve_slots_release(&one);
    a.slot = 0;
    a.n_slots = 2;
    struct serve_claim two = claimed(&a);
    assert_int_equal(two.slots, 3);
    assert_int_equal(two.erase, 0);
    begin_waiting(&waits, 2, 1);
    assert_false(atomic_load(&waits.done));
    assert_true(serve_slots_keep_rule(0, false, &keep_rule));
    end_waiting(&waits, 4);
    serve_slots_release(&two);
    serve_slots_report(1, &(struct serve_content){.n_tokens = 5, .entries = 50});
    two = claimed(&a);
    assert_int_equal(two.erase, 2); /* it would be there while the prompt is read */
    serve_slots_release(&two);
}

static void test_policies_of_requests_that_nobody_claimed(void **state)
{
    (void)state;
    struct serve_keep_rule keep_rule;
    open_slots(1, 0);
    struct serve_ask a = ask_of("x");
    set_recipe(&a.keep_rule, "knorm");
    struct serve_claim x = claimed(&a);
    assert_true(serve_slots_keep_rule(0, false, &keep_rule));
    assert_string_equal(keep_rule.recipe, "knorm");
    assert_false(serve_slots_keep_rule(0, false, &keep_rule));
    serve_slots_release(&x);
    assert_true(serve_slots_keep_rule(0, false, &keep_rule));
    assert_string_equal(keep_rule.recipe, "keydiff");
    assert_false(serve_slots_keep_rule(0, false, &keep_rule));
    /* A header that was protected is so for its request alone. */
    set_recipe(&a.keep_rule, "keydiff");
    a.keep_rule.n_protected = 30;
    x = claimed(&a);
    assert_true(serve_slots_keep_rule(0, false, &keep_rule));
    assert_int_equal(keep_rule.n_protected, 30);
    serve_slots_release(&x);
    assert_true(serve_slots_keep_rule(0, false, &keep_rule));
    assert_int_equal(keep_rule.n_protected, 0);
    /* What holds before any request is printed, too. */
    open_slots(1, 0);
    assert_true(serve_slots_keep_rule(0, false, &keep_rule));
    assert_string_equal(keep_rule.recipe, "keydiff");
}

/* A request's recipe is parsed when it is read. No claim, no step of the thread that decodes and no report does it again. */
static void test_a_recipe_is_parsed_once(void **state)
{
    static const char body[] = "{\"prompt\":\"x\",\"winnow\":{\"policy\":\"replay\",\"budget\":9}}";
    (void)state;
    struct serve_keep_rule keep_rule;
    open_slots(2, 5000);
    serve_slots_set_query_numbers(1);
    n_parsed = 0;
    for (int i = 1; i <= 3; i++) {
        struct serve_request r;
        char why[SERVE_TEXT] = "";
        const char *param = NULL;
        assert_int_equal(serve_request_read(&r, SERVE_FORM_PROMPT, body, strlen(body), why, &param), 0);
        assert_int_equal(n_parsed, i);
        r.ask.key = r.key;
        r.ask.key_len = strlen(r.key);
        r.ask.n_prompt = r.ask.n_predict = 1;
        struct serve_claim x = claimed(&r.ask);
        serve_request_free(&r);
        assert_true(serve_slots_keep_rule(x.slot, false, &keep_rule));
        for (int step = 0; step < 5; step++) {
            assert_false(serve_slots_keep_rule(x.slot, false, &keep_rule));
            serve_slots_report(x.slot, &(struct serve_content){.n_tokens = 50, .compressed_by = &keep_rule});
        }
        serve_slots_release(&x);
        free(serve_slots_json(NULL));
    }
    for (int32_t slot = 0; slot < 2; slot++)
        serve_slots_keep_rule(slot, false, &keep_rule); /* back to the server's own */
    assert_int_equal(n_parsed, 3);
}

/* ---- Documents ---- */

/* Loads NAME=FILE with these bytes. */
static bool load(const char *name, const char *bytes, size_t n, char *why)
{
    char path[] = "/tmp/winnow-document-XXXXXX", line[200];
    test_file_of(path, bytes, n);
    snprintf(line, sizeof line, "%s=%s\n", name, path);
    const bool ok = serve_documents_load(line, why);
    unlink(path);
    return ok;
}

static void test_documents_that_are_none(void **state)
{
    static const struct {
        const char *name, *bytes, *why;
        size_t n;
    } rows[] = {{"a", " \n", "empty", 2},
                {"a", "x\0y", "NUL byte (at byte 1)", 3},
                {"a", "\xff\xfex\0", "UTF-16", 4},
                {"a", "\xfe\xff\0x", "UTF-16", 4},
                {"a", "\xef\xbb\xbf \n", "empty", 5},
                {"a b", "x", "letters, digits", 1},
                {"", "x", "letters, digits", 1}};
    (void)state;
    char why[SERVE_TEXT];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_false(load(rows[i].name, rows[i].bytes, rows[i].n, why));
        assert_non_null(strstr(why, rows[i].why));
        serve_documents_free();
    }
    assert_false(serve_documents_load("a=/no/such/file", why));
    assert_non_null(strstr(why, "/no/such/file"));
    serve_documents_free();
    assert_false(serve_documents_load("a=/tmp", why));
    serve_documents_free();
    assert_false(serve_documents_load("no name", why));
    assert_false(serve_documents_load("a=x.wkv", why));
    assert_non_null(strstr(why, "stored"));
    serve_documents_free();
}

/* They are cleaned as texts of all commands are. */
static void test_documents_are_cleaned(void **state)
{
    static const struct {
        const char *bytes, *text, *says;
    } rows[] = {
        {"\xef\xbb\xbfhello there\n", "hello there", NULL},
        {"caf\xe9 th\xea", "caf\xef\xbf\xbd th\xef\xbf\xbd",
         "2 sequences that are not UTF-8, the first at byte 3"},
        {"\xc0\xaf\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "not UTF-8"},
        {"x\xe2\x82", "x\xef\xbf\xbd", "1 sequence that is not UTF-8, the first at byte 1"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct test_stderr err;
        char why[SERVE_TEXT], said[1000];
        test_stderr_begin(&err);
        const bool good = load("a", rows[i].bytes, strlen(rows[i].bytes), why);
        const size_t n = test_stderr_end(&err, said, sizeof said);
        assert_true(good);
        assert_string_equal(serve_document_text(0), rows[i].text);
        assert_true(rows[i].says ? strstr(said, rows[i].says) && strstr(said, "warning: '/tmp/") : n == 0);
        serve_documents_free();
    }
}

static void test_documents(void **state)
{
    (void)state;
    char why[SERVE_TEXT], name[32];
    const int32_t tokens[3] = {5, 6, 7};
    int32_t n;
    assert_true(load("novel", "\n  caf\xc3\xa9 \xf0\x9f\x99\x82\n", 13, why));
    assert_true(load("a.b-c_1", "x", 1, why));
    assert_false(load("novel", "y", 1, why));
    assert_non_null(strstr(why, "two of that name"));
    assert_int_equal(serve_documents_n(), 2);
    assert_int_equal(serve_documents_find("a.b-c_1"), 1);
    assert_int_equal(serve_documents_find("nove"), -1);
    assert_string_equal(serve_document_text(0), "caf\xc3\xa9 \xf0\x9f\x99\x82");
    assert_null(serve_document_tokens(0, &n));
    assert_true(serve_document_set_tokens(0, tokens, 3, 1));
    assert_memory_equal(serve_document_tokens(0, &n), tokens, sizeof tokens);
    assert_false(serve_document_wait(0, has_left, NULL));
    serve_document_kept(0, 20, &config.keep_rule);
    assert_true(serve_document_wait(0, has_left, NULL));
    assert_int_equal(serve_documents_entries(), 20);
    serve_document_file(1, name);
    assert_int_equal(serve_document_of_file(name), 1);
    assert_int_equal(serve_document_of_file("/proc/winnow-document.2"), -1);
    assert_int_equal(serve_document_of_file("winnow-document."), -1);
    serve_documents_free();
}

/* A header of 2 tokens, and a document of n; its ends differ where it follows another one. */
static void write_document(int32_t *ids, int32_t n, int32_t first)
{
    ids[0] = 1;
    ids[1] = 2;
    for (int32_t k = 0; k < n; k++)
        ids[2 + k] = first + k;
}

static void test_plan_of_several_documents(void **state)
{
    (void)state;
    enum { A = 40, B = 200 };
    int32_t a[2 + A], b[2 + B], prompt[2 + A + 1 + B + 5] = {0}, total, wrong;
    struct app_join_part parts[2];
    write_document(a, A, 100);
    write_document(b, B, 1000);
    memcpy(prompt, a, sizeof a);
    prompt[2 + A] = 7; /* an empty line */
    memcpy(prompt + 2 + A + 1, b + 2, B * sizeof *b);
    prompt[2 + A + 1] = 8;         /* its first token is written otherwise here, */
    prompt[2 + A + 1 + B - 1] = 9; /* and its last one */
    const struct app_join_source of[] = {{a, 2 + A, 2}, {b, 2 + B, 2}};
    const int32_t n = (int32_t)(sizeof prompt / sizeof *prompt);
    assert_true(app_join_plan(parts, of, 2, prompt, n, 0.5, &total, &wrong));
    assert_int_equal(parts[0].n, 2 + A);
    assert_int_equal(parts[1].from, 2 + 101); /* more than half of them are read */
    assert_int_equal(parts[1].at, 2 + A + 1 + 101);
    assert_int_equal(parts[1].n, B - 101 - 1);
    assert_int_equal(total, 2 + A + 1 + B - 1);
    assert_true(app_join_plan(parts, of, 2, prompt, n, 0.01, &total, &wrong));
    assert_int_equal(parts[1].from, 2 + APP_JOIN_LEAST);
    assert_true(app_join_plan(parts, of, 2, prompt, n, 0.0, &total, &wrong));
    assert_int_equal(parts[1].from, 3); /* its first token is another one here */
    assert_true(app_join_plan(parts, of, 2, prompt, n, 1.0, &total, &wrong));
    assert_int_equal(parts[1].n, 0);
    assert_int_equal(total, 2 + A + 1 + B - 1);
    prompt[2 + A + 100] = 8; /* it is another text */
    assert_false(app_join_plan(parts, of, 2, prompt, n, 0.5, &total, &wrong));
    assert_int_equal(wrong, 1);
    prompt[20] = 8;
    assert_false(app_join_plan(parts, of, 2, prompt, n, 0.5, &total, &wrong));
    assert_int_equal(wrong, 0);
    assert_false(app_join_plan(parts, of, 2, a, 10, 0.5, &total, &wrong));
}

/* Any number of documents that are too short to be taken may be between two others. */
static void test_plan_with_short_documents(void **state)
{
    (void)state;
    enum { A = 40, SHORT = 20, N_SHORT = 6, N = N_SHORT + 2 };
    int32_t ids[N][2 + A], prompt[2 + N * (A + 1)] = {0}, n = 0, total, wrong;
    struct app_join_part parts[N];
    struct app_join_source of[N];
    for (int32_t i = 0; i < N; i++) {
        const int32_t n_text = i == 0 || i == N - 1 ? A : SHORT;
        write_document(ids[i], n_text, 100 * (i + 1));
        of[i] = (struct app_join_source){ids[i], 2 + n_text, 2};
        if (i == 0)
            memcpy(prompt, ids[i], 2 * sizeof **ids);
        n += i == 0 ? 2 : 1; /* an empty line is before later ones */
        memcpy(prompt + n, ids[i] + 2, (size_t)n_text * sizeof **ids);
        n += n_text;
    }
    assert_true(app_join_plan(parts, of, N, prompt, n, 0.0, &total, &wrong));
    assert_int_equal(total, n);
    for (int32_t i = 1; i <= N_SHORT; i++)
        assert_int_equal(parts[i].n, 0);
    assert_int_equal(parts[N - 1].n, A);
    assert_int_equal(parts[N - 1].at, n - A);
    prompt[n - A / 2] = 8; /* the last one is another text */
    assert_false(app_join_plan(parts, of, N, prompt, n, 0.0, &total, &wrong));
    assert_int_equal(wrong, N - 1);
}

static void test_lists_of_documents(void **state)
{
    (void)state;
    char why[SERVE_TEXT], name[SERVE_JOIN_NAME + 1], file[32];
    int32_t n, held[SERVE_MAX_JOINS];
    const int32_t both[] = {1, 0}, other[] = {0, 1};
    assert_true(load("a", "one", 3, why));
    assert_int_equal(serve_joins_n(), 0); /* one document follows no other */
    assert_true(load("b", "two", 3, why));
    const int32_t d = serve_join_take(both, 2, 0.25);
    assert_true(serve_document_is_join(d));
    assert_int_equal(serve_join_take(both, 2, 0.25), d);
    assert_string_equal(serve_document_text(d), "two\n\none");
    assert_int_equal(serve_join_documents(d, &n)[0], 1);
    assert_int_equal(n, 2);
    serve_document_show(d, name);
    assert_string_equal(name, "b+a");
    serve_document_file(d, file);
    assert_int_equal(serve_document_of_file(file), d);
    for (int32_t i = 1; i < SERVE_MAX_JOINS; i++)
        assert_true((held[i] = serve_join_take(other, 2, i / 100.0)) > 0);
    assert_int_equal(serve_join_take(other, 2, 0.5), -1); /* all places are held */
    serve_join_give_back(held[3]);
    const int32_t last = serve_join_take(other, 2, 0.5); /* the place of that, under a number of its own */
    assert_int_equal(serve_join_place(last), serve_join_place(d) + 3);
    assert_true(last != held[3]);
    serve_document_show(held[3], name);
    assert_string_equal(name, "");
    assert_null(serve_document_tokens(held[3], &n));
    serve_document_kept(held[3], 5, &config.keep_rule); /* nobody's */
    serve_documents_free();
}

/* Documents of 20 and 40 tokens that were compressed to half. 10 tokens of the second one are read again. */
static int32_t list_of_two(void)
{
    static const struct app_join_part parts[SERVE_JOINED] = {{.n = 20}, {.at = 30, .from = 10, .n = 30}};
    static const int32_t both[] = {0, 1};
    char why[SERVE_TEXT];
    int32_t ids[60] = {0};
    assert_true(load("a", "one", 3, why));
    assert_true(load("b", "two", 3, why));
    assert_true(serve_document_set_tokens(0, ids, 20, 0));
    assert_true(serve_document_set_tokens(1, ids, 40, 0));
    serve_document_kept(0, 100, &config.keep_rule);
    serve_document_kept(1, 200, &config.keep_rule);
    const int32_t d = serve_join_take(both, 2, 0.25);
    serve_join_set_parts(d, parts);
    assert_true(serve_document_set_tokens(d, ids, 60, 0));
    return d;
}

/* 100 bytes a token, 10 entries of it. A list counts once for all requests that begin with it, and for none it counts nothing. */
static void test_the_cap_with_lists_of_documents(void **state)
{
    (void)state;
    char why[SERVE_TEXT] = "";
    struct serve_claim x, y, idle;
    struct serve_keep_rule by;
    int32_t n;
    int64_t entries;
    open_slots(3, 8000);
    const int32_t d = list_of_two();
    struct serve_ask a = ask_of("one two who"), b = ask_of("one two what");
    a.document_plus_1 = b.document_plus_1 = d + 1;
    a.n_prompt = b.n_prompt = 5;
    a.n_predict = b.n_predict = 5;
    a.slot = 0;
    b.slot = 1;
    assert_int_equal(serve_slots_claim(&a, &x, why), SERVE_TOO_LONG); /* 3000 and 4100, and 1000 of its own */
    assert_non_null(strstr(why, "takes 5100 bytes"));
    assert_non_null(strstr(why, "one after the other takes 4100 of"));
    open_slots(3, 8100);
    x = claimed(&a);
    assert_true(x.must_restore);
    assert_int_equal(serve_slots_claim(&b, &y, why), SERVE_BUSY);
    serve_document_kept(d, 400, &config.keep_rule); /* it is made: 30 tokens' worth more than the first one */
    y = claimed(&b);
    serve_slots_report(0, &(struct serve_content){.n_tokens = 65, .entries = 450, .document_plus_1 = d + 1});
    assert_false(serve_slots_give_up_list(d));
    serve_slots_release(&x);
    assert_false(serve_slots_give_up_list(d));
    serve_slots_release(&y);
    x = claimed(&a); /* it is there */
    assert_false(x.must_restore);
    serve_slots_release(&x);
    /* No request has it, so that it is given up, and is made again. */
    assert_true(serve_slots_give_up_list(d));
    assert_false(serve_document_look(d, &n, &entries, &by));
    serve_slots_report(0, &(struct serve_content){.n_tokens = 0});
    serve_slots_report(2, &(struct serve_content){.n_tokens = 30, .entries = 300});
    x = claimed(&a);
    assert_true(x.must_restore);
    assert_true(serve_slots_claim_in_way(x.slot, &idle));
    assert_int_equal(idle.slot, 2);
    serve_slots_report(2, &(struct serve_content){.n_tokens = 0});
    serve_slots_release(&idle);
    assert_false(serve_slots_claim_in_way(x.slot, &idle));
    serve_slots_release(&x);
    serve_documents_free();
}

/* 100 bytes a token, 10 entries of it. */
static void test_slots_behind_documents(void **state)
{
    (void)state;
    char why[SERVE_TEXT] = "";
    struct serve_claim x, y;
    assert_true(load("novel", "x", 1, why));
    open_slots(1, 5000);
    serve_document_kept(0, 100, &config.keep_rule); /* 10 tokens' worth */
    struct serve_ask a = ask_of("novel who");
    a.n_prompt = 41;
    assert_int_equal(serve_slots_claim(&a, &x, why), SERVE_TOO_LONG);
    assert_non_null(strstr(why, "documents take 1000"));
    a.n_prompt = 40;
    a.document_plus_1 = 1;
    x = claimed(&a);
    assert_true(x.must_restore);
    assert_false(x.no_reuse);
    serve_slots_report(0, &(struct serve_content){.n_tokens = 50, .entries = 500, .document_plus_1 = 1});
    serve_slots_release(&x);
    x = claimed(&a); /* it is there */
    assert_false(x.must_restore);
    char *json = serve_slots_json(NULL);
    assert_non_null(strstr(json, "\"document\": \"novel\""));
    free(json);
    serve_slots_release(&x);
    a.reuse = SERVE_REUSE_NEVER;
    x = claimed(&a);
    assert_true(x.must_restore);
    serve_slots_release(&x);
    a.document_plus_1 = 0; /* a slot that continues a document is for nobody else, unless asked for */
    a.reuse = SERVE_REUSE_SAME;
    y = claimed(&a);
    assert_true(y.no_reuse);
    serve_slots_release(&y);
    a.reuse = SERVE_REUSE_ANY;
    y = claimed(&a);
    assert_false(y.no_reuse);
    serve_slots_release(&y);
    serve_documents_free();
}

/* ---- Bodies ---- */

/* Reads a body, puts its document, and compares what is passed on. */
static void passes(enum serve_form form, const char *body, const char *keep_rule)
{
    struct serve_request r;
    char why[SERVE_TEXT] = "";
    const char *param = NULL;
    const struct serve_claim claim = {.slot = 2};
    assert_int_equal(serve_request_read(&r, form, body, strlen(body), why, &param), 0);
    assert_non_null(r.body);
    if (r.ask.document_plus_1 > 0)
        assert_true(serve_request_put_document(&r));
    char *passed = serve_request_passed(&r, &claim);
    assert_string_equal(passed, keep_rule);
    free(passed);
    serve_request_free(&r);
}

static void test_bodies(void **state)
{
    (void)state;
    char why[SERVE_TEXT];
    assert_true(load("novel", "Once", 4, why));
    open_slots(3, 0);
    passes(SERVE_FORM_CHAT, "{\"messages\":[{\"role\":\"user\"}]}",
           "{\"messages\":[{\"role\":\"user\"}],\"id_slot\":2}");
    passes(SERVE_FORM_CHAT, "{\"winnow\":{\"document\":\"novel\"},\"messages\":[{\"role\":\"user\"}]}",
           "{\"messages\":[{\"role\":\"system\",\"content\":\"Once\"},{\"role\":\"user\"}],\"id_slot\":2,"
           "\"cache_prompt\":true}");
    passes(SERVE_FORM_CHAT,
           "{\"winnow\":{\"document\":\"novel\"},\"messages\":[{\"role\":\"system\",\"content\":\"Be\"}]}",
           "{\"messages\":[{\"role\":\"system\",\"content\":\"Once\\n\\nBe\"}],\"id_slot\":2,\"cache_"
           "prompt\":true}");
    passes(SERVE_FORM_MESSAGES,
           "{\"winnow\":{\"document\":\"novel\"},\"system\":[{\"type\":\"text\",\"text\":\"Be\"}],"
           "\"messages\":[]}",
           "{\"system\":[{\"type\":\"text\",\"text\":\"Once\\n\\n\"},{\"type\":\"text\",\"text\":\"Be\"}],"
           "\"messages\":[],\"id_slot\":2,\"cache_prompt\":true}");
    passes(SERVE_FORM_RESPONSES, "{\"winnow\":{\"document\":\"novel\"},\"input\":\"x\"}",
           "{\"input\":\"x\",\"instructions\":\"Once\",\"id_slot\":2,\"cache_prompt\":true}");
    /* Where there is a cap, who does not say how much gets as much as was counted. */
    config.cap = 1000;
    passes(SERVE_FORM_CHAT, "{\"max_completion_tokens\":-1,\"messages\":[]}",
           "{\"messages\":[],\"id_slot\":2,\"n_predict\":1024}");
    passes(SERVE_FORM_CHAT, "{\"max_tokens\":7,\"messages\":[]}",
           "{\"max_tokens\":7,\"messages\":[],\"id_slot\":2}");
    passes(SERVE_FORM_MESSAGES, "{\"max_tokens\":-1,\"messages\":[]}",
           "{\"messages\":[],\"id_slot\":2,\"max_tokens\":1024}");
    serve_documents_free();
}

static void test_removed_in_events(void **state)
{
    static const struct {
        const char *events, *expected;
    } cases[] = {
        {"data: {\"usage\":{\"a\":1}}\n\ndata: [DONE]\n\n",
         "data: {\"usage\":{\"a\":1,\"winnow\":{\"removed\":7}}}\n\ndata: [DONE]\n\n"},
        {"event: x\ndata: {\"response\":{\"usage\":{}}}\n\n",
         "event: x\ndata: {\"response\":{\"usage\":{\"winnow\":{\"removed\":7}}}}\n\n"},
        {"data: {\"usage\":{}}", "data: {\"usage\":{\"winnow\":{\"removed\":7}}}"},
        {"data: {\"x\":\"\\\"usage\\\"\"}\n\n", NULL},
        {"data: {\"usage\":null}\n\n", NULL},
        {"data: {\"usage\":{}\n\n", NULL},
        {"{\"usage\":{}}\n", NULL},
        {"", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *said = serve_events_add_removed(cases[i].events, strlen(cases[i].events), 7);
        if (cases[i].expected)
            assert_string_equal(said, cases[i].expected);
        else
            assert_null(said);
        free(said);
    }
}

/* What is cut off within a character, and what is no text at all, is said as well as anything. */
static void test_errors_are_json(void **state)
{
    static const char *const keys[] = {"document", "policy", NULL};
    char why[SERVE_TEXT] = "";
    (void)state;
    assert_true(load("novel", "Once", 4, why));
    open_slots(3, 0);
    for (int unit = 1; unit <= 3;
         unit++) /* of the 60 or so bytes that are shown, each number is in front of the first euro once */
        for (int k = 0; k < 3; k++) {
            char body[400];
            const char *param = NULL;
            struct serve_request r;
            int n =
                snprintf(body, sizeof body, "{\"messages\": [], \"winnow\": {\"%s", keys[k] ? keys[k] : "");
            n += snprintf(body + n, sizeof body - (size_t)n, "%s%.*s", keys[k] ? "\": \"" : "", unit, "aaa");
            for (int i = 0; i < 60; i++)
                n += snprintf(body + n, sizeof body - (size_t)n, "\xe2\x82\xac");
            snprintf(body + n, sizeof body - (size_t)n, "%s}}", keys[k] ? "\"" : "\": 1");
            assert_int_equal(serve_request_read(&r, SERVE_FORM_CHAT, body, strlen(body), why, &param), 400);
            char *text = serve_error(400, why, param);
            assert_non_null(text);
            assert_non_null(strstr(text, "\"code\":400"));
            free(text);
            serve_request_free(&r);
        }
    char *text = serve_error(400, "there is no document '\xff'", NULL);
    assert_non_null(text);
    assert_non_null(strstr(text, "there is no document '\xef\xbf\xbd'"));
    free(text);
    serve_documents_free();
}

/* ---- Files ---- */

/* The start does not wait for a pipe in place of a document. */
static void test_pipes(void **state)
{
    (void)state;
    char folder[] = "/tmp/winnow-pipes-XXXXXX", path[64], line[96], why[SERVE_TEXT];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/slot", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(line, sizeof line, "a=%s", path);
    assert_false(serve_documents_load(line, why));
    assert_non_null(strstr(why, "cannot read"));
    assert_non_null(strstr(why, "not a regular file"));
    assert_false(serve_documents_load("b=/dev/zero", why));
    assert_non_null(strstr(why, "not a regular file"));
    serve_documents_free();
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

/* What is given comes to who has the ticket, once. */
static void test_tickets(void **state)
{
    (void)state;
    struct serve_tickets all = SERVE_TICKETS;
    int a = 0, b = 0;
    int32_t ticket, other;
    char name[SERVE_TICKET_NAME], path[SERVE_TICKET_NAME + 8];
    const int32_t first = serve_ticket_new(&all), second = serve_ticket_new(&all);
    assert_int_not_equal(first, second);
    assert_true(serve_ticket_give(&all, second, &b));
    assert_false(serve_ticket_give(&all, second, &a));
    assert_ptr_equal(serve_ticket_end(&all, second), &b);
    assert_null(serve_ticket_end(&all, second));
    assert_false(serve_ticket_give(&all, second, &b));
    assert_null(serve_ticket_end(&all, first));
    assert_null(all.first);
    serve_ticket_file(name, "winnow-x.", 12, -1);
    snprintf(path, sizeof path, "a/b/%s", name);
    assert_true(serve_ticket_of_file(path, "winnow-x.", &ticket, &other));
    assert_int_equal(ticket, 12);
    assert_int_equal(other, -1);
    const char *const no[] = {"winnow-y.1.2", "winnow-x.1", "winnow-x.1.2x", "winnow-x.", "x"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(serve_ticket_of_file(no[i], "winnow-x.", &ticket, &other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells_of_a_state),
        cmocka_unit_test(test_cells_die_with_their_last_owner),
        cmocka_unit_test(test_what_failed_is_taken_back),
        cmocka_unit_test(test_rows_of_batches),
        cmocka_unit_test(test_wants),
        cmocka_unit_test(test_automatic),
        cmocka_unit_test(test_automatic_of_samples),
        cmocka_unit_test(test_quality),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_a_slot_that_begins_alike_is_chosen),
        cmocka_unit_test(test_conversations_are_replaced_last),
        cmocka_unit_test(test_slots_of_one_request),
        cmocka_unit_test(test_who_waits_for_whom),
        cmocka_unit_test(test_a_visit_leaves_what_is_there),
        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_the_cap),
        cmocka_unit_test(test_the_cap_of_several_answers),
        cmocka_unit_test(test_the_cap_with_windows),
        cmocka_unit_test(test_the_cap_with_lists_of_documents),
        cmocka_unit_test(test_the_cap_with_what_is_left),
        cmocka_unit_test(test_what_is_given_up),
        cmocka_unit_test(test_several_answers_begin_alone),
        cmocka_unit_test(test_a_recipe_is_parsed_once),
        cmocka_unit_test(test_policies_of_requests_that_nobody_claimed),
        cmocka_unit_test(test_documents_that_are_none),
        cmocka_unit_test(test_documents_are_cleaned),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_plan_of_several_documents),
        cmocka_unit_test(test_plan_with_short_documents),
        cmocka_unit_test(test_lists_of_documents),
        cmocka_unit_test(test_slots_behind_documents),
        cmocka_unit_test(test_errors_are_json),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_removed_in_events),
        cmocka_unit_test(test_pipes),
        cmocka_unit_test(test_tickets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
