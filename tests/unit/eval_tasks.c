/* SPDX-License-Identifier: MIT */
/* Samples of the evaluation's tasks: what they say is true, they have the length that was asked for, and they stay. */
#include "asserts.h"
#include "files.h"

#include "app/console.h"
#include "eval/base/jsonl.h"
#include "eval/tasks/grade.h"
#include "eval/tasks/lists.h"
#include "eval/tasks/task.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- A tokenizer without a model: every word, with the white space before it, is a token ---- */

enum { SLOTS = 1 << 18 };
static char *words[SLOTS]; /* by hash */
static size_t lengths_of_words[SLOTS];

static size_t slot_of(const char *text, size_t len)
{
    size_t i = wnw__hash_of(text, len) % SLOTS;
    while (words[i] && (lengths_of_words[i] != len || memcmp(words[i], text, len) != 0))
        i = (i + 1) % SLOTS;
    if (!words[i])
        words[i] = strndup(text, len);
    lengths_of_words[i] = len;
    return i;
}

static int toy_encode(const struct eval_tokenizer *t, const char *text, size_t len, int32_t **ids, int32_t *n)
{
    (void)t;
    *ids = malloc((len + 1) * sizeof **ids);
    *n = 0;
    for (size_t at = 0; at < len;) {
        size_t end = at;
        while (end < len && isspace((unsigned char)text[end]))
            end++;
        while (end < len && !isspace((unsigned char)text[end]))
            end++;
        (*ids)[(*n)++] = (int32_t)slot_of(text + at, end - at);
        at = end;
    }
    return APP_OK;
}

static int toy_decode(const struct eval_tokenizer *t, const int32_t *ids, int32_t n, char **text)
{
    struct app_text out = {0};
    (void)t;
    assert_true(app_text_add(&out, "", 0));
    for (int32_t i = 0; i < n; i++)
        assert_true(app_text_add(&out, words[ids[i]], lengths_of_words[ids[i]]));
    *text = out.s;
    return APP_OK;
}

/* Plain text: context and question are two pieces; what goes on after an answer is one. */
static void toy_ask_one(const struct eval_tokenizer *t, const struct eval_before *b,
                        const struct eval_asked *a, struct eval_prompt *p)
{
    struct app_text first = {0}, second = {0};
    int32_t *more, n_more;
    assert_true(app_text_put(&first, "%s", b->answer ? "" : b->context));
    assert_true(app_text_put(&second, "%s%s%s%s", b->answer ? b->answer : "", b->answer ? "\n\n" : "",
                             a->question, a->begin));
    assert_int_equal(t->encode(t, first.s, first.len, &p->ids, &p->n_context), APP_OK);
    assert_int_equal(t->encode(t, second.s, second.len, &more, &n_more), APP_OK);
    p->n = p->n_context + n_more;
    p->ids = realloc(p->ids, ((size_t)p->n + 1) * sizeof *p->ids);
    assert_non_null(p->ids);
    memcpy(p->ids + p->n_context, more, (size_t)n_more * sizeof *more);
    free(first.s);
    free(second.s);
    free(more);
}

static int toy_ask(const struct eval_tokenizer *t, const struct eval_chat *c, const struct eval_before *b,
                   const struct eval_asked *a, struct eval_prompt *p, int32_t n)
{
    (void)c;
    for (int32_t i = 0; i < n; i++)
        toy_ask_one(t, b, &a[i], &p[i]);
    return APP_OK;
}

static const struct eval_tokenizer toy = {
    .encode = toy_encode, .ask = toy_ask, .decode = toy_decode, .bos = -1};
static char empty[] = "";
static const struct eval_chat plain = {.head = empty, .tail = empty, .raw = true};

static struct eval_source source;

static int set_up(void **state)
{
    (void)state;
    source = (struct eval_source){.seed = 42,
                                  .tokenizer = &toy,
                                  .chat = &plain,
                                  .depths = {0, 25, 50, 75, 100},
                                  .n_depths = 5,
                                  .n_trials = 1,
                                  .needle = "rand"};
    return eval_haystack_open(&source.haystack, "prose");
}

static int tear_down(void **state)
{
    (void)state;
    eval_haystack_close(&source.haystack);
    for (size_t i = 0; i < SLOTS; i++)
        free(words[i]);
    return 0;
}

/* How many of n samples are looked at: under AddressSanitizer one, for what all of them have in common is no matter of memory. */
static int32_t samples_of(int32_t n)
{
    return test_looks_at_memory() ? 1 : n;
}

/* Tasks that need no files of the user. */
static const struct eval_task *own_task(int32_t *i)
{
    const struct eval_task *t;
    while ((t = eval_task_get((*i)++)) &&
           t->flags & (EVAL_WANTS_SQUAD | EVAL_WANTS_HOTPOT | EVAL_WANTS_DOCUMENTS | EVAL_IS_SET))
        ;
    return t;
}

/* How many units make a length. It takes many samples to find out, so each is found once, for whichever tests ask. */
static int fit_of(struct eval_fit *fit, const struct eval_task *t, int32_t n)
{
    enum { MOST = 1024 };
    static struct known {
        const struct eval_task *task;
        int32_t n, n_ctx;
        bool takes_turns;
        int rc;
        struct eval_fit fit;
    } known[MOST];
    static int n_known;
    int i = 0;
    while (i < n_known && (known[i].task != t || known[i].n != n || known[i].n_ctx != source.n_ctx ||
                           known[i].takes_turns != source.chat->takes_turns))
        i++;
    assert_cmp(i, <, MOST);
    if (i == n_known) {
        known[i] =
            (struct known){.task = t, .n = n, .n_ctx = source.n_ctx, .takes_turns = source.chat->takes_turns};
        known[i].rc = eval_task_fit(&known[i].fit, &source, t, n);
        n_known++;
    }
    *fit = known[i].fit;
    return known[i].rc;
}

static struct eval_sample sample_of(const struct eval_task *t, const struct eval_fit *fit, int32_t n,
                                    int32_t index)
{
    struct eval_sample s;
    assert_int_equal(eval_task_sample(&s, &source, t, fit, n, index), APP_OK);
    assert_false(s.no_memory);
    return s;
}

static int32_t meta_int(const struct eval_sample *s, const char *key)
{
    return (int32_t)json_integer_value(json_object_get(s->meta, key));
}

/* ---- Lists and prose ---- */

static void test_words_are_no_part_of_another(void **state)
{
    const char *all[2000];
    size_t n = 0;
    (void)state;
    assert_cmp(eval_adjectives.n, >=, 200);
    assert_cmp(eval_nouns.n, >=, 600);
    assert_cmp(eval_verbs.n, >=, 300);
    for (size_t i = 0; i < eval_adjectives.n; i++)
        all[n++] = eval_adjectives.at[i];
    for (size_t i = 0; i < eval_nouns.n; i++)
        all[n++] = eval_nouns.at[i];
    for (size_t i = 0; i < eval_verbs.n; i++)
        all[n++] = eval_verbs.at[i];
    for (size_t i = 0; i < n; i++) {
        assert_in_range(strlen(all[i]), 3, 9);
        assert_int_equal(strspn(all[i], "abcdefghijklmnopqrstuvwxyz"), strlen(all[i]));
        for (size_t k = 0; k < n; k++)
            if (i != k && strstr(all[i], all[k]))
                fail_msg("%s has %s in it", all[i], all[k]);
    }
}

enum { PROSE_WORDS = 20000, RUN = 12, MOST_RUNS = 6 };

static int compare_hashes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* How often the most frequent of n numbers comes, and how many different ones there are. */
static size_t most_equal(uint64_t *v, size_t n, size_t *n_distinct)
{
    size_t most = 0, run = 0;
    *n_distinct = 0;
    qsort(v, n, sizeof *v, compare_hashes);
    for (size_t i = 0; i < n; i++) {
        run = i > 0 && v[i] == v[i - 1] ? run + 1 : 1;
        *n_distinct += run == 1;
        most = run > most ? run : most;
    }
    return most;
}

static void test_prose(void **state)
{
    static const char *const banned[] = {"magic",  "special", "pass",     "key",
                                         "number", "uuid",    "sandwich", "needle"};
    static uint64_t one[PROSE_WORDS], runs[PROSE_WORDS], sentences[PROSE_WORDS];
    const struct eval_spaced *h = &source.haystack.now;
    size_t n_runs = PROSE_WORDS - RUN + 1, n_sentences = 0, n_distinct;
    (void)state;
    eval_haystack_begin(&source.haystack, &(struct eval_sample){.task = "prose", .seed = 42});
    assert_int_equal(eval_haystack_reserve(&source.haystack, PROSE_WORDS), APP_OK);
    const size_t len = eval_haystack_length(&source.haystack, PROSE_WORDS);
    for (size_t i = 0; i < PROSE_WORDS; i++) {
        one[i] =
            wnw__hash_of(h->text.s + h->word[i], eval_haystack_length(&source.haystack, i + 1) - h->word[i]);
        if (i < n_runs)
            runs[i] = wnw__hash_of(h->text.s + h->word[i],
                                   eval_haystack_length(&source.haystack, i + RUN) - h->word[i]);
    }
    assert_cmp(most_equal(runs, n_runs, &n_distinct), <=, MOST_RUNS);
    most_equal(one, PROSE_WORDS, &n_distinct);
    assert_cmp(n_distinct, >, (size_t)(PROSE_WORDS / 25));
    for (size_t at = 0; at < len;) {
        const size_t n = eval_sentence_length(h->text.s + at, len - at);
        size_t n_words = 1;
        for (size_t i = 0; i < n; i++)
            n_words += h->text.s[at + i] == ' ';
        if (at + n < len) { /* the last is cut off */
            assert_in_range(n_words, 9, 20);
            assert_non_null(strchr(".?", h->text.s[at + n - 1]));
            assert_true(isupper((unsigned char)h->text.s[at]));
        }
        sentences[n_sentences++] = wnw__hash_of(h->text.s + at, n);
        at += n + 1;
    }
    assert_int_equal(most_equal(sentences, n_sentences, &n_distinct), 1);
    assert_int_equal(strcspn(h->text.s, "0123456789{}"), h->text.len);
    for (size_t i = 0; i < sizeof banned / sizeof *banned; i++)
        for (const char *at = h->text.s; (at = strcasestr(at, banned[i])); at++)
            if ((at == h->text.s || !isalpha((unsigned char)at[-1])) &&
                !isalpha((unsigned char)at[strlen(banned[i])]))
                fail_msg("the prose says %s", banned[i]);
}

static void test_sentences(void **state)
{
    static const char text[] =
        "Dr. A. Smith went. He (Prof. B) said \"Fine.\" Then nothing? 3 left! e.g. this one";
    static const char *const want[] = {"Dr. A. Smith went.", "He (Prof. B) said \"Fine.\"", "Then nothing?",
                                       "3 left! e.g. this one"};
    size_t at = 0;
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        const size_t n = eval_sentence_length(text + at, sizeof text - 1 - at);
        if (n != strlen(want[i]) || memcmp(text + at, want[i], n) != 0)
            fail_msg("sentence %zu is '%.*s', not '%s'", i, (int)n, text + at, want[i]);
        at += n + 1;
    }
    assert_int_equal(at, sizeof text);
}

static void test_noise_starts_again(void **state)
{
    struct eval_haystack h;
    (void)state;
    assert_int_equal(eval_haystack_open(&h, "noise"), APP_OK);
    eval_haystack_begin(&h, &(struct eval_sample){.task = "noise", .n_target = 4, .index = 3, .seed = 42});
    assert_int_equal(eval_haystack_reserve(&h, 40), APP_OK);
    assert_int_equal(strncmp(h.now.text.s, eval_noise, strlen(eval_noise)), 0);
    assert_int_equal(strncmp(h.now.text.s + strlen(eval_noise) + 1, eval_noise, strlen(eval_noise)), 0);
    assert_cmp(h.id, ==, 0);
    eval_haystack_close(&h);
}

/* Sets the text of a sample of niah_single_2 with `index`; returns its first 200 words. */
static char *first_words(struct eval_haystack *h, int32_t index)
{
    eval_haystack_begin(
        h, &(struct eval_sample){.task = "niah_single_2", .n_target = 1000, .index = index, .seed = 42});
    assert_int_equal(eval_haystack_reserve(h, 200), APP_OK);
    char *text = strndup(h->now.text.s, eval_haystack_length(h, 200));
    assert_non_null(text);
    return text;
}

/* A file of 3500 numbered words in sentences of ten has three pieces of 1000 words: samples 0 to 2 have one each, sample 3 the first
 * again, and each begins with a sentence. */
static void test_pieces_of_a_file(void **state)
{
    struct eval_haystack h;
    char path[] = "/tmp/unit_eval_tasks-XXXXXX", *text[4];
    uint64_t id[4];
    bool at_start = false;
    (void)state;
    test_file_new(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 3500; i++)
        fprintf(f, "%s%d%s\n", i % 10 ? "w" : "W", i, i % 10 == 9 ? "." : "");
    assert_int_equal(fclose(f), 0);
    assert_int_equal(eval_haystack_open(&h, path), APP_OK);
    unlink(path);
    for (int i = 0; i < 4; i++) {
        text[i] = first_words(&h, i);
        id[i] = h.id;
        assert_int_equal(text[i][0], 'W');
        assert_int_equal(strtol(text[i] + 1, NULL, 10) % 1000, 0);
        at_start = at_start || strtol(text[i] + 1, NULL, 10) == 0;
        for (int k = 0; k < i; k++)
            assert_int_equal(id[i] == id[k], i == 3 && k == 0);
    }
    assert_true(at_start);
    assert_string_equal(text[3], text[0]);
    assert_true(eval_haystack_says(&h, 200, text[3] + 1));
    assert_false(eval_haystack_says(&h, 199, text[3]));
    /* After its last word the file begins again. */
    assert_int_equal(eval_haystack_reserve(&h, 3600), APP_OK);
    assert_int_equal(strncmp(h.now.text.s + h.now.word[3500], text[0], 100), 0);
    for (int i = 0; i < 4; i++)
        free(text[i]);
    eval_haystack_close(&h);
}

/* ---- Every task ---- */

static bool contains(const struct app_text *t, const char *part)
{
    return t->s && strstr(t->s, part) != NULL;
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

/* References whose text is not simply there: numbers that are worked out, and several lines. */
static bool is_worked_out(const struct eval_task *t)
{
    return strcmp(t->metric, "number") == 0 || strcmp(t->metric, "repeat_lines") == 0 ||
           strcmp(t->metric, "leading_lines") == 0 || strcmp(t->metric, "json_call") == 0;
}

static void check_sample(const struct eval_task *t, const struct eval_sample *s, int32_t n)
{
    assert_cmp(s->n_turns, >, 0);
    assert_string_equal(s->metric, t->metric);
    for (int32_t i = 0; i < s->n_turns; i++) {
        const struct eval_turn *turn = &s->turns[i];
        assert_cmp(turn->n_refs, >, 0);
        for (int32_t k = 0; k < turn->n_refs; k++) {
            if (!is_worked_out(t) && !contains(&s->context, turn->refs[k]))
                fail_msg("%s %d/%d: '%s' is not in the context", t->name, n, s->index, turn->refs[k]);
            if (strcmp(t->metric, "number") != 0 &&
                (contains(&turn->question, turn->refs[k]) || contains(&turn->prefix, turn->refs[k])))
                fail_msg("%s %d/%d: the question says '%s'", t->name, n, s->index, turn->refs[k]);
        }
    }
    size_t end = 0;
    for (int32_t i = 0; i < s->n_spans; i++) { /* ascending, without overlap */
        assert_cmp(s->spans[i].from, >=, end);
        assert_cmp(s->spans[i].to, >, s->spans[i].from);
        end = s->spans[i].to;
    }
    assert_cmp(end, <=, s->context.len);
    const bool has_json = strcmp(t->group, "scb") == 0 || strcmp(t->group, "tools") == 0;
    assert_null(memchr(s->context.s, '{', s->context.len) && !has_json ? s->context.s : NULL);
}

/* Sample 0 fills its length up to one unit; no sample is longer. */
static void check_length(const struct eval_task *t, const struct eval_sample *s, const struct eval_fit *fit,
                         int32_t n)
{
    struct eval_fit one_more = {.units = fit->units + 1};
    struct eval_sample next;
    const int32_t tokens = meta_int(s, "tokens");
    assert_cmp(tokens, <=, n);
    if (s->index > 0 || t->units_at_once == 0)
        return;
    /* With one unit more the sample is too long, and is made with fewer. */
    assert_int_equal(eval_task_sample(&next, &source, t, &one_more, n, 0), APP_OK);
    assert_cmp(meta_int(&next, "units"), <=, fit->units);
    assert_cmp(n - tokens, <=, (double)tokens / (double)fit->units + 0.03 * n);
    eval_sample_clear(&next);
}

static void test_every_task(void **state)
{
    static const int32_t lengths[] = {1024, 4096};
    const struct eval_task *t;
    (void)state;
    for (int32_t i = 0; (t = own_task(&i));)
        for (int l = 0; l < 2; l++) {
            struct eval_fit fit;
            assert_int_equal(fit_of(&fit, t, lengths[l]), APP_OK);
            for (int32_t index = 0; index < samples_of(5); index++) {
                struct eval_sample s = sample_of(t, &fit, lengths[l], index),
                                   again = sample_of(t, &fit, lengths[l], index);
                check_sample(t, &s, lengths[l]);
                check_length(t, &s, &fit, lengths[l]);
                assert_string_equal(s.context.s, again.context.s);
                assert_string_equal(s.turns[0].question.s, again.turns[0].question.s);
                eval_sample_clear(&again);
                eval_sample_clear(&s);
            }
        }
}

/* Another seed, another sample. */
static void test_seeds_differ(void **state)
{
    const struct eval_task *t;
    (void)state;
    for (int32_t i = 0; (t = own_task(&i));) {
        struct eval_fit fit;
        assert_int_equal(fit_of(&fit, t, 1024), APP_OK);
        struct eval_sample a = sample_of(t, &fit, 1024, 0), b = sample_of(t, &fit, 1024, 5);
        source.seed = 43;
        struct eval_sample c = sample_of(t, &fit, 1024, 0);
        source.seed = 42;
        assert_true(strcmp(a.context.s, b.context.s) != 0);
        assert_true(strcmp(a.context.s, c.context.s) != 0);
        eval_sample_clear(&a);
        eval_sample_clear(&b);
        eval_sample_clear(&c);
    }
}

static void test_too_short(void **state)
{
    const struct eval_task *t;
    (void)state;
    for (int32_t i = 0; (t = own_task(&i));) {
        struct eval_fit fit;
        if (test_takes_sizes((size_t)i))
            assert_int_equal(fit_of(&fit, t, 30), APP_BAD_INPUT);
    }
}

/* The evidence occurs once, and contains the answer. */
static void test_needles_stand_once(void **state)
{
    const struct eval_task *t;
    (void)state;
    for (int32_t i = 0; (t = own_task(&i));) {
        const bool needle = strncmp(t->name, "niah_", 5) == 0 || strncmp(t->name, "scb_niah", 8) == 0 ||
                            strncmp(t->name, "scb_kv", 6) == 0 || strncmp(t->name, "scb_prefix", 10) == 0;
        struct eval_fit fit;
        if (!needle)
            continue;
        assert_int_equal(fit_of(&fit, t, 1024), APP_OK);
        for (int32_t index = 0; index < samples_of(20); index++) {
            struct eval_sample s = sample_of(t, &fit, 1024, index);
            int n_refs = 0;
            for (int32_t k = 0; k < s.n_turns; k++) {
                n_refs += s.turns[k].n_refs;
                for (int32_t r = 0; r < s.turns[k].n_refs; r++)
                    assert_int_equal(count_of(s.context.s, s.turns[k].refs[r]), 1);
            }
            assert_int_equal(s.n_spans, n_refs);
            for (int32_t k = 0; k < s.n_spans; k++) {
                char *span = strndup(s.context.s + s.spans[k].from, s.spans[k].to - s.spans[k].from);
                int n_held = 0;
                for (int32_t turn = 0; turn < s.n_turns; turn++)
                    for (int32_t r = 0; r < s.turns[turn].n_refs; r++)
                        n_held += strstr(span, s.turns[turn].refs[r]) != NULL;
                assert_int_equal(n_held, 1);
                assert_int_equal(count_of(s.context.s, span), 1);
                free(span);
            }
            eval_sample_clear(&s);
        }
    }
}

/* ---- Answers worked out again ---- */

static struct eval_sample make(const char *name, int32_t n, int32_t index)
{
    struct eval_fit fit;
    const struct eval_task *t = eval_task_find(name);
    assert_non_null(t);
    assert_int_equal(fit_of(&fit, t, n), APP_OK);
    return sample_of(t, &fit, n, index);
}

/* Tokens of a sample's conversation. After each question the longer one of answer and references stays. */
static int32_t count_talk(const struct eval_sample *s)
{
    struct eval_prompt *p = calloc((size_t)s->n_turns, sizeof *p);
    int32_t n = 0;
    assert_non_null(p);
    assert_int_equal(eval_prompts_first(p, &toy, source.chat, s), APP_OK);
    n = p[0].n_context;
    for (int32_t turn = 0; turn < s->n_turns; turn++) {
        int32_t n_gold;
        struct app_text gold = {0};
        assert_true(eval_refs_text(&gold, &s->turns[turn], s->turns[turn].prefix.s));
        assert_int_equal(eval_count_tokens(&n_gold, &toy, gold.s, gold.len), APP_OK);
        n += p[turn].n - p[turn].n_context + (n_gold > s->max_new ? n_gold : s->max_new);
        free(gold.s);
        eval_prompt_clear(&p[turn]);
    }
    free(p);
    return n;
}

/* Where the model's context is as long as a sample, it holds all of the sample's questions with their answers; samples of
 * which a longer context holds them are those that no limit changes. */
static void test_conversations_fit_the_context(void **state)
{
    const struct eval_chat talk = {.head = empty, .tail = empty, .takes_turns = true, .raw = true};
    const struct eval_task *t;
    (void)state;
    source.chat = &talk;
    for (int32_t i = 0; (t = own_task(&i));) {
        if (strcmp(t->group, "scb") != 0)
            continue;
        struct eval_sample free_one = make(t->name, 2048, 1);
        source.n_ctx = 2048;
        struct eval_sample s = make(t->name, 2048, 1);
        source.n_ctx = 4096;
        struct eval_sample same_one = make(t->name, 2048, 1);
        source.n_ctx = 0;
        assert_cmp(count_talk(&free_one), >, 2048);
        assert_in_range(count_talk(&s), 2048 - 82, 2048); /* 3 %, and a unit */
        assert_string_equal(same_one.context.s, free_one.context.s);
        eval_sample_clear(&free_one);
        eval_sample_clear(&s);
        eval_sample_clear(&same_one);
    }
    source.chat = &plain;
}

/* Times a word between blanks or line ends comes in text. */
static int count_word(const char *text, const char *word)
{
    const size_t len = strlen(word);
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at++)
        n += (at == text || isspace((unsigned char)at[-1])) &&
             (at[len] == '\0' || isspace((unsigned char)at[len]));
    return n;
}

static void test_common_words(void **state)
{
    static const struct {
        int32_t n;
        int often, seldom;
    } rows[] = {{1024, 6, 1}, {8192, 30, 3}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct eval_sample s = make("cwe", rows[i].n, 3);
        const char *task = strstr(s.context.s + 1, "\n\nBelow is a numbered list");
        assert_non_null(task);
        for (int32_t k = 0; k < 10; k++)
            assert_int_equal(count_word(task, s.turns[0].refs[k]), rows[i].often);
        /* No other word comes as often: 60 words of the list at most have more than `seldom`. */
        const char *at = strstr(task, " 2. ") + 4;
        char word[32];
        assert_int_equal(sscanf(at, "%31s", word), 1);
        const int n = count_word(task, word);
        assert_true(n == rows[i].often || n == rows[i].seldom);
        eval_sample_clear(&s);
    }
}

static void test_frequent_words(void **state)
{
    static const int32_t lengths[] = {512, 1024, 4096};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct eval_sample s = make("fwe", lengths[i], 1);
        int n[3], dots = count_word(s.context.s, "...");
        for (int k = 0; k < 3; k++)
            n[k] = count_word(s.context.s, s.turns[0].refs[k]);
        assert_cmp(dots, >, n[0]);
        assert_cmp(n[0], >, n[1]);
        assert_cmp(n[1], >=, n[2]);
        /* No other word of six letters is as frequent as the third. */
        int n_as_frequent = 0;
        char *copy = strdup(strstr(s.context.s, "words. ") + 7), *save = NULL;
        for (char *w = strtok_r(copy, " \n", &save); w; w = strtok_r(NULL, " \n", &save))
            n_as_frequent += strcmp(w, "...") != 0 && count_word(s.context.s, w) >= n[2];
        assert_int_equal(n_as_frequent, n[0] + n[1] + n[2]);
        free(copy);
        eval_sample_clear(&s);
    }
}

/* The names that hold the value, from the lines of the text: refs in any order. */
static void check_chain(const struct eval_sample *s, const struct eval_turn *turn, const char *value)
{
    char name[16], line[64];
    snprintf(line, sizeof line, " = %s\n", value);
    const char *at = strstr(s->context.s, line);
    assert_non_null(at);
    const char *from = at;
    while (from > s->context.s && from[-1] != ' ')
        from--;
    snprintf(name, sizeof name, "%.*s", (int)(at - from), from);
    for (int32_t k = 0; k < turn->n_refs; k++) {
        assert_string_equal(name, turn->refs[k]);
        snprintf(line, sizeof line, " = VAR %s \n", name);
        const char *next = strstr(s->context.s, line);
        assert_true((next != NULL) == (k + 1 < turn->n_refs));
        if (!next)
            break;
        from = next;
        while (from[-1] != ' ')
            from--;
        snprintf(name, sizeof name, "%.*s", (int)(next - from), from);
    }
}

static void test_chains(void **state)
{
    static const char *const tasks[] = {"vt", "scb_vt_syn"};
    (void)state;
    for (size_t t = 0; t < 2; t++) {
        struct eval_sample s = make(tasks[t], 1024, 2);
        for (int32_t i = 0; i < s.n_turns; i++) {
            char value[16];
            assert_int_equal(sscanf(strstr(s.turns[i].question.s, "value ") + 6, "%15s", value), 1);
            assert_int_equal(s.turns[i].n_refs, 5);
            check_chain(&s, &s.turns[i], value);
        }
        eval_sample_clear(&s);
    }
}

/* Each line is one of the list, and begins where the one before it ended; the first, with which the answer begins, where it is said. */
static void test_steps(void **state)
{
    struct eval_sample s = make("steps_syn", 4096, 1);
    char from[64], to[64], line[160], last[64];
    int32_t n = 0, asked;
    (void)state;
    assert_int_equal(
        sscanf(s.turns[0].question.s, "\nStart at %63s and follow the list for %d", from, &asked), 2);
    assert_int_equal(sscanf(s.turns[0].prefix.s, "\n%63s leads to %63[^.].", last, to), 2);
    assert_string_equal(last, from);
    for (const char *at = s.turns[0].refs[0]; *at; at = strchr(at, '\n') + 1, n++) {
        assert_int_equal(sscanf(at, "%63s leads to %63[^.].", from, last), 2);
        assert_string_equal(from, to);
        snprintf(line, sizeof line, "\n%s leads to %s.\n", from, last);
        assert_non_null(strstr(s.context.s, line));
        memcpy(to, last, sizeof to);
    }
    assert_int_equal(n + 1, asked);
    assert_cmp(n, >, 100);
    assert_cmp(s.max_new, >, 10 * n);
    eval_sample_clear(&s);
}

/* Who is where by sentences of a text, and what; "": nobody has said it. */
struct told {
    char name[16][16], room[16][16], before[16][16], holds[16][16];
    int n;
};

static int person_of(struct told *t, const char *name)
{
    int i = 0;
    while (i < t->n && strcmp(t->name[i], name) != 0)
        i++;
    if (i == t->n)
        snprintf(t->name[t->n++], sizeof t->name[0], "%s", name);
    return i;
}

static void bring(struct told *t, const char *what, const char *room)
{
    const int i = person_of(t, what);
    if (strcmp(t->room[i], room) != 0) {
        memcpy(t->before[i], t->room[i], sizeof t->room[i]);
        snprintf(t->room[i], sizeof t->room[i], "%s", room);
    }
}

/* Follows one sentence, if it is one of those; things are people who do not go by themselves. */
static void follow(struct told *t, const char *sentence)
{
    static const char *const people = "Anna Boris Clara David Elena Felix Greta Hugo Irene Jonas";
    char who[16], how[16], what[16];
    int end = 0;
    if (sscanf(sentence, "%15s", who) != 1 || !strstr(people, who))
        return;
    if (sscanf(sentence, "%15s %15s to the %15[a-z].%n", who, how, what, &end) == 3 && end > 0) {
        bring(t, who, what);
        for (int i = 0; i < t->n; i++)
            if (strcmp(t->holds[i], who) == 0)
                bring(t, t->name[i], what);
    } else if (sscanf(sentence, "%15s picked up the %15s there.%n", who, what, &end) == 2 && end > 0) {
        const int i = person_of(t, what);
        bring(t, what, t->room[person_of(t, who)]);
        snprintf(t->holds[i], sizeof t->holds[i], "%s", who);
    } else if (sscanf(sentence, "%15s put down the %15s there.%n", who, what, &end) == 2 && end > 0) {
        t->holds[person_of(t, what)][0] = '\0';
    }
}

/* What is asked for, by what was told. */
static const char *answer_of(struct told *t, const struct eval_sample *s)
{
    char what[16];
    if (sscanf(s->turns[0].question.s, "\nWhere is the %15s now?", what) == 1 ||
        sscanf(s->turns[0].question.s, "\nWhere is %15s now?", what) == 1)
        return t->room[person_of(t, what)];
    assert_int_equal(sscanf(s->turns[0].question.s, "\nWhere was the %15s before", what), 1);
    return t->before[person_of(t, what)];
}

/* The whole text answers, and so does the evidence alone; without its last sentence it does not always. */
static void test_stories(void **state)
{
    static const char *const tasks[] = {"babi_syn_1", "babi_syn_2", "babi_syn_3"};
    (void)state;
    for (int k = 0; k < 3; k++) {
        int n_same = 0;
        for (int32_t index = 0; index < samples_of(20); index++) {
            struct eval_sample s = make(tasks[k], 1024, index);
            struct told all = {0}, evidence = {0}, less = {0};
            for (const char *at = s.context.s; *at; at += strcspn(at, ".?\n"), at += strspn(at, ".?\n "))
                follow(&all, at);
            assert_string_equal(answer_of(&all, &s), s.turns[0].refs[0]);
            assert_in_range(s.n_spans, k + 1, k + 2);
            for (int32_t i = 0; i < s.n_spans; i++) {
                follow(&evidence, s.context.s + s.spans[i].from);
                if (i + 1 < s.n_spans)
                    follow(&less, s.context.s + s.spans[i].from);
            }
            assert_string_equal(answer_of(&evidence, &s), s.turns[0].refs[0]);
            n_same += strcmp(answer_of(&less, &s), s.turns[0].refs[0]) == 0;
            eval_sample_clear(&s);
        }
        assert_cmp(n_same, <, 10);
    }
}

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void test_ranks(void **state)
{
    struct eval_sample s = make("scb_mf_syn", 1024, 4);
    int v[2048];
    int32_t n = 0, used;
    (void)state;
    for (const char *at = strchr(s.context.s, '[') + 1; sscanf(at, "%d%n", &v[n], &used) == 1;
         at += used + 2) {
        n++;
        if (at[used] == ']')
            break;
    }
    assert_int_equal(n % 2, 1);
    qsort(v, (size_t)n, sizeof *v, compare_ints);
    const int want[] = {v[n - 1], v[0], v[n - 2], v[1], v[n - 3], v[n / 2]};
    for (int i = 0; i < 6; i++)
        assert_int_equal(atoi(s.turns[i].refs[0]), want[i]);
    assert_true(v[0] < v[1] && v[1] < v[2] && v[n - 1] > v[n - 2] && v[n - 2] > v[n - 3] &&
                v[n - 3] > v[n - 4]);
    eval_sample_clear(&s);
}

/* Two hops: the answer is in one of the two gold documents alone. */
static void test_two_hops(void **state)
{
    (void)state;
    for (int32_t index = 0; index < samples_of(10); index++) {
        struct eval_sample s = make("qa_syn_2", 1024, index);
        assert_int_equal(s.n_spans, 2);
        assert_int_equal(count_of(s.context.s, s.turns[0].refs[0]), 1);
        const char *who = strstr(s.turns[0].question.s, "employs ") + 8;
        char *name = strndup(who, strcspn(who, "?") - strlen(" based"));
        for (int i = 0; i < 2; i++) {
            const char *span = s.context.s + s.spans[i].from;
            const size_t len = s.spans[i].to - s.spans[i].from;
            const bool person = memmem(span, len, name, strlen(name)) != NULL;
            const bool answer = memmem(span, len, s.turns[0].refs[0], strlen(s.turns[0].refs[0])) != NULL;
            assert_true(person != answer);
        }
        free(name);
        eval_sample_clear(&s);
    }
}

/* Depths of 200 samples cover the text: chi-square over ten bins, p > 1e-4. */
static void test_depths(void **state)
{
    static const char *const tasks[] = {"niah_single_1", "niah_single_2", "niah_multikey_1",
                                        "niah_multikey_2"};
    enum { N = 200, BINS = 10 };
    (void)state;
    if (test_looks_at_memory()) /* a distribution */
        skip();
    for (size_t t = 0; t < sizeof tasks / sizeof *tasks; t++) {
        struct eval_fit fit;
        const struct eval_task *task = eval_task_find(tasks[t]);
        int bins[BINS] = {0};
        double chi = 0.0;
        assert_int_equal(fit_of(&fit, task, 1024), APP_OK);
        for (int32_t i = 0; i < N; i++) {
            struct eval_sample s = sample_of(task, &fit, 1024, i);
            const double depth = json_real_value(json_object_get(s.meta, "depth"));
            bins[depth >= 1.0 ? BINS - 1 : (int)(depth * BINS)]++;
            eval_sample_clear(&s);
        }
        for (int b = 0; b < BINS; b++)
            chi += (bins[b] - (double)N / BINS) * (bins[b] - (double)N / BINS) / ((double)N / BINS);
        if (chi > 33.72)
            fail_msg("%s: chi-square of depths is %g", tasks[t], chi);
    }
}

/* Depth and length of the grid, joined after a full stop. */
static void test_grid(void **state)
{
    struct eval_fit fit;
    const struct eval_task *task = eval_task_find("niah_grid");
    (void)state;
    assert_int_equal(fit_of(&fit, task, 1024), APP_OK);
    assert_int_equal(fit.units, 1024 - 200);
    for (int32_t i = 0; i < 5; i++) {
        struct eval_sample s = sample_of(task, &fit, 1024, i);
        const struct eval_span needle = s.spans[0];
        const size_t from = strlen("This is a very long story book: <book> "),
                     to = s.context.len - strlen(" </book>.\n");
        const double depth = (double)(needle.from - from) / (double)(to - from - (needle.to - needle.from));
        assert_near(depth, source.depths[i] / 100, 0.03);
        assert_true(i == 0   ? needle.from == from
                    : i == 4 ? needle.to == to
                             : s.context.s[needle.from - 1] == '.');
        eval_sample_clear(&s);
    }
}

/* Whether the text begins like the haystack. */
static bool begins_haystack(const char *text, size_t len)
{
    const size_t first = eval_haystack_length(&source.haystack, 1);
    return first > 0 && len >= first && memcmp(text, source.haystack.now.text.s, first) == 0;
}

/* The words of a text, and 20 tokens more where `more` holds. */
static bool (*more)(const char *text, size_t len);

static int drifting_encode(const struct eval_tokenizer *t, const char *text, size_t len, int32_t **ids,
                           int32_t *n)
{
    enum { MORE = 20 };
    const int rc = toy_encode(t, text, len, ids, n);
    if (!more(text, len))
        return rc;
    *ids = realloc(*ids, ((size_t)*n + MORE) * sizeof **ids);
    assert_non_null(*ids);
    for (int i = 0; i < MORE; i++)
        (*ids)[(*n)++] = (int32_t)slot_of(" more", 5);
    return rc;
}

/* Long texts. */
static bool is_long(const char *text, size_t len)
{
    (void)text;
    return len > 1000;
}

/* A text that becomes other tokens when the needle is put in begins a word later, and where that does not help the sample is
 * left out; nothing ends the run. */
static void test_drift(void **state)
{
    static const struct eval_tokenizer drifting = {
        .encode = drifting_encode, .ask = toy_ask, .decode = toy_decode, .bos = -1};
    struct eval_fit fit;
    const struct eval_task *task = eval_task_find("niah_grid");
    (void)state;
    assert_int_equal(fit_of(&fit, task, 1024), APP_OK);
    source.tokenizer = &drifting;
    more = begins_haystack;
    struct eval_sample later = sample_of(task, &fit, 1024, 2);
    more = is_long;
    struct eval_sample none = sample_of(task, &fit, 1024, 2);
    source.tokenizer = &toy;
    struct eval_sample plain_one = sample_of(task, &fit, 1024, 2);
    assert_true(none.unmade);
    assert_false(later.unmade);
    assert_in_range(abs(meta_int(&later, "drift")), 0, 8);
    assert_int_equal(later.n_spans, 1);
    assert_string_equal(later.turns[0].refs[0], plain_one.turns[0].refs[0]);
    const char *book = "<book> ", *first = strstr(plain_one.context.s, book) + strlen(book);
    assert_true(begins_haystack(first, strlen(first)));
    const char *second = strstr(later.context.s, book) + strlen(book);
    const size_t n_first = eval_haystack_length(&source.haystack, 1);
    assert_int_equal(strncmp(second, first + n_first, 200), 0); /* the same text without its first word */
    eval_sample_clear(&later);
    eval_sample_clear(&none);
    eval_sample_clear(&plain_one);
}

/* Five depths and two trials by hand: a step of 3 from the middle. For any numbers every sample comes once, and every depth
 * before one comes again. */
static void test_order_of_grids(void **state)
{
    static const int32_t want[10] = {4, 0, 6, 2, 8, 5, 1, 7, 3, 9};
    (void)state;
    for (int32_t k = 0; k < 10; k++)
        assert_int_equal(eval_grid_index(5, 2, k), want[k]);
    for (int32_t n_depths = 1; n_depths <= EVAL_MAX_DEPTHS; n_depths++)
        for (int32_t n_trials = 1; n_trials <= 3; n_trials++) {
            bool seen[EVAL_MAX_DEPTHS * 3] = {false};
            for (int32_t k = 0; k < n_depths * n_trials; k++) {
                const int32_t i = eval_grid_index(n_depths, n_trials, k);
                assert_in_range(i, 0, n_depths * n_trials - 1);
                assert_false(seen[i]);
                seen[i] = true;
                assert_int_equal(i % n_trials, k / n_depths);
            }
        }
}

/* ---- Samples that are made of different texts ---- */

/* Hashes of the sentences of a context, with their lengths: the texts between full stops, question marks and line breaks, without
 * numbered headings. */
struct sentences {
    uint64_t *hash;
    size_t *len, n, n_bytes;
};

static struct sentences sentences_of(const struct eval_sample *s)
{
    const char *text = s->context.s;
    struct sentences out = {calloc(s->context.len + 1, sizeof *out.hash),
                            calloc(s->context.len + 1, sizeof *out.len), 0, s->context.len};
    assert_true(out.hash && out.len);
    for (size_t at = 0, n; at < s->context.len; at += n) {
        n = strcspn(text + at, ".?\n");
        const bool heading = n > 0 && text[at + n - 1] == ':';
        n += at + n < s->context.len;
        if (heading)
            continue;
        out.hash[out.n] = wnw__hash_of(text + at, n);
        out.len[out.n++] = n;
    }
    return out;
}

/* The share of a's text that occurs in sentences of b. */
static double shared(const struct sentences *a, const struct sentences *b)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) {
        bool found = false;
        for (size_t k = 0; !found && k < b->n; k++)
            found = a->hash[i] == b->hash[k];
        n += found ? a->len[i] : 0;
    }
    return (double)n / (double)a->n_bytes;
}

/* Two samples of a task have next to nothing in common but the words that say what is to be done, unless the task is made of
 * repeated sentences. */
static void test_texts_of_their_own(void **state)
{
    enum { N = 2048, SAMPLES = 4 };
    const struct eval_task *t;
    (void)state;
    if (test_looks_at_memory()) /* shares of texts */
        skip();
    for (int32_t i = 0; (t = own_task(&i));) {
        struct eval_fit fit;
        struct sentences of[SAMPLES];
        double most = 0;
        assert_int_equal(fit_of(&fit, t, N), APP_OK);
        for (int32_t k = 0; k < SAMPLES; k++) {
            struct eval_sample s = sample_of(t, &fit, N, k + (k == 3 ? 900000 : 0));
            assert_int_equal(s.text != 0, (t->flags & EVAL_HIDES_IN_TEXT) != 0);
            of[k] = sentences_of(&s);
            for (int32_t b = 0; b < k; b++)
                most = fmax(most, shared(&of[k], &of[b]));
            eval_sample_clear(&s);
        }
        const bool repeats = strcmp(t->unit, "block of noise") == 0 || strcmp(t->name, "fwe") == 0;
        if (repeats) /* noise, and the dots between coded words */
            assert_cmp(most, >, 0.4);
        else if (most >= 0.1)
            fail_msg("%s: two samples share %.0f %% of their text", t->name, 100 * most);
        for (int32_t k = 0; k < SAMPLES; k++) {
            free(of[k].hash);
            free(of[k].len);
        }
    }
}

/* A sample does not depend on samples that were made before it. */
static void test_samples_are_made_alone(void **state)
{
    const struct eval_task *t;
    (void)state;
    for (int32_t i = 0; (t = own_task(&i));) {
        struct eval_fit fit;
        assert_int_equal(fit_of(&fit, t, 1024), APP_OK);
        struct eval_sample first = sample_of(t, &fit, 1024, 7), other = sample_of(t, &fit, 1024, 8);
        eval_haystack_close(&source.haystack);
        assert_int_equal(eval_haystack_open(&source.haystack, "prose"), APP_OK);
        struct eval_sample alone = sample_of(t, &fit, 1024, 7);
        assert_string_equal(first.context.s, alone.context.s);
        assert_string_equal(first.turns[0].refs[0], alone.turns[0].refs[0]);
        assert_cmp(first.text, ==, alone.text);
        assert_true(t->flags & EVAL_HIDES_IN_TEXT ? first.text != other.text : first.text == 0);
        eval_sample_clear(&first);
        eval_sample_clear(&other);
        eval_sample_clear(&alone);
    }
}

/* ---- Samples that stay ---- */

/* tests/eval/samples.jsonl has sample 0 of every task at 1024 tokens, hashes.txt those of three lengths. Written again if
 * WNW_WRITE_SAMPLES is set: to be read before it is committed. Returns NULL if the task does not fit the length. */
static char *sample_text(const struct eval_task *t, int32_t n, int32_t index)
{
    struct eval_fit fit;
    if (fit_of(&fit, t, n) == APP_BAD_INPUT)
        return NULL;
    struct eval_sample s = sample_of(t, &fit, n, index);
    json_t *o = eval_sample_json(&s);
    char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    assert_non_null(text);
    json_decref(o);
    eval_sample_clear(&s);
    return text;
}

static void test_samples_stay(void **state)
{
    static const struct {
        int32_t n, index;
    } kept[] = {{512, 0}, {512, 1}, {1024, 0}, {1024, 1}, {4096, 2}, {4096, 3}};
    const struct eval_task *t;
    const bool write = getenv("WNW_WRITE_SAMPLES") != NULL;
    FILE *whole = fopen(WNW_TEST_SOURCE_DIR "/tests/eval/samples.jsonl", write ? "w" : "r");
    FILE *hashes = fopen(WNW_TEST_SOURCE_DIR "/tests/eval/hashes.txt", write ? "w" : "r");
    char *line = NULL;
    size_t cap = 0;
    (void)state;
    assert_non_null(whole);
    assert_non_null(hashes);
    for (int32_t i = 0; (t = own_task(&i));) {
        char *text = sample_text(t, 1024, 0);
        assert_non_null(text);
        if (write) {
            fprintf(whole, "%s\n", text);
        } else {
            assert_cmp(getline(&line, &cap, whole), >, 0);
            line[strcspn(line, "\n")] = '\0';
            assert_string_equal(text, line);
        }
        free(text);
        for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
            char want[128], hash[17] = "too short";
            text = sample_text(t, kept[k].n, kept[k].index);
            if (text)
                snprintf(hash, sizeof hash, "%016llx", (unsigned long long)wnw__hash_of(text, strlen(text)));
            snprintf(want, sizeof want, "%s %d %d %s\n", t->name, kept[k].n, kept[k].index, hash);
            if (write) {
                fputs(want, hashes);
            } else {
                assert_cmp(getline(&line, &cap, hashes), >, 0);
                assert_string_equal(line, want);
            }
            free(text);
        }
    }
    free(line);
    fclose(whole);
    fclose(hashes);
}

/* ---- Grades ---- */

/* Grades what a model that knows everything, and one that says nothing, would answer. */
static void grade(double *knows, double *silent, const struct eval_sample *s, int32_t turn)
{
    struct app_text gold = {0}, nothing = {0};
    struct eval_grade g;
    assert_true(eval_refs_text(&gold, &s->turns[turn], NULL));
    assert_true(eval_grade_trim(&gold, s));
    assert_true(eval_grade_trim(&nothing, s));
    assert_int_equal(eval_grade_turn(&g, s, turn, &gold), APP_OK);
    *knows = g.score;
    json_decref(g.scores);
    assert_int_equal(eval_grade_turn(&g, s, turn, &nothing), APP_OK);
    *silent = g.score;
    json_decref(g.scores);
    assert_false(eval_grade_is_final(s, turn, &nothing));
    free(gold.s);
    free(nothing.s);
}

static void test_references_score_100_and_nothing_scores_0(void **state)
{
    const struct eval_task *t;
    (void)state;
    for (int32_t i = 0; (t = own_task(&i));) {
        struct eval_fit fit;
        assert_int_equal(fit_of(&fit, t, 2048), APP_OK);
        for (int32_t index = 0; index < 3; index++) {
            struct eval_sample s = sample_of(t, &fit, 2048, index);
            for (int32_t turn = 0; turn < s.n_turns; turn++) {
                double knows, silent;
                grade(&knows, &silent, &s, turn);
                if (knows != 1 || silent != 0)
                    fail_msg("%s: references score %g, nothing scores %g", t->name, knows, silent);
            }
            eval_sample_clear(&s);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_are_no_part_of_another),
        cmocka_unit_test(test_prose),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_noise_starts_again),
        cmocka_unit_test(test_pieces_of_a_file),
        cmocka_unit_test(test_every_task),
        cmocka_unit_test(test_conversations_fit_the_context),
        cmocka_unit_test(test_seeds_differ),
        cmocka_unit_test(test_too_short),
        cmocka_unit_test(test_needles_stand_once),
        cmocka_unit_test(test_common_words),
        cmocka_unit_test(test_frequent_words),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_stories),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_two_hops),
        cmocka_unit_test(test_depths),
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_order_of_grids),
        cmocka_unit_test(test_texts_of_their_own),
        cmocka_unit_test(test_samples_are_made_alone),
        cmocka_unit_test(test_samples_stay),
        cmocka_unit_test(test_references_score_100_and_nothing_scores_0),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
