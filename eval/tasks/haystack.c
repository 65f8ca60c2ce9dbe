/* SPDX-License-Identifier: MIT */
/* The text that needles are hidden in. */
#include "eval/tasks/haystack.h"

#include "app/console.h"
#include "app/files.h"
#include "base/random.h"
#include "base/strings.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char eval_noise[] =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

/* Adds the words of text[len]; white space of any length between them becomes one blank. */
static bool add_words(struct eval_spaced *w, const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = 0;
        while (i + n < len && !isspace((unsigned char)text[i + n]))
            n++;
        if (n > 0) {
            if (!eval_grow(&w->word, w->n, sizeof *w->word) ||
                (w->text.len > 0 && !app_text_add(&w->text, " ", 1)))
                return false;
            w->word[w->n++] = w->text.len;
            if (!app_text_add(&w->text, text + i, n))
                return false;
        }
        i += n + 1;
    }
    return true;
}

/* Length of the first n words. */
static size_t length_of(const struct eval_spaced *w, size_t n)
{
    if (n >= w->n)
        return w->text.len;
    return n > 0 ? w->word[n] - 1 : 0;
}

static void clear_words(struct eval_spaced *w)
{
    free(w->text.s);
    free(w->word);
    *w = (struct eval_spaced){.n = 0};
}

static int add_file(struct eval_haystack *h, const char *path)
{
    char *data;
    size_t len;
    WNW_TRY(app_read_file(&data, &len, path));
    const bool good = add_words(&h->own, data, len);
    free(data);
    return good ? APP_OK : eval_no_memory("the haystack");
}

static int add_folder(struct eval_haystack *h, const char *path)
{
    char **paths;
    int n, rc = app_list_texts(&paths, &n, path);
    for (int i = 0; rc == APP_OK && i < n; i++)
        rc = add_file(h, paths[i]);
    app_free_paths(paths, n);
    return rc;
}

int eval_haystack_open(struct eval_haystack *h, const char *source)
{
    struct stat st;
    int rc = APP_OK;
    *h = (struct eval_haystack){.generated = strcmp(source, "prose") == 0,
                                .noise = strcmp(source, "noise") == 0};
    if (h->generated || h->noise) {
        snprintf(h->name, sizeof h->name, "%s", source);
        if (h->noise && !add_words(&h->own, eval_noise, strlen(eval_noise)))
            rc = eval_no_memory("the haystack");
    } else if (stat(source, &st) != 0) {
        rc = app_fail(APP_BAD_INPUT, "--haystack '%s' is neither prose, noise nor a file: %s", source,
                      strerror(errno));
    } else {
        rc = S_ISDIR(st.st_mode) ? add_folder(h, source) : add_file(h, source);
        if (rc == APP_OK && h->own.n == 0)
            rc = app_fail(APP_BAD_INPUT, "--haystack '%s' has no words", source);
        memcpy(h->name, "file:", 5);
        eval_hash_text(h->name + 5, wnw__hash_of(h->own.text.s ? h->own.text.s : "", h->own.text.len));
    }
    if (rc != APP_OK)
        eval_haystack_close(h);
    return rc;
}

void eval_haystack_close(struct eval_haystack *h)
{
    eval_prose_close(&h->prose);
    clear_words(&h->now);
    clear_words(&h->own);
    *h = (struct eval_haystack){.next = 0};
}

/* ---- The text of a sample ---- */

/* The first word of a sample's piece of the user's text: pieces are as many words long as the sample has tokens, and those of
 * consecutive samples follow each other; tasks, lengths and seeds begin at different ones. A piece begins with a sentence if one
 * begins soon. */
static size_t piece_begin(const struct eval_haystack *h, const struct eval_sample *s)
{
    enum { SOON = 64 };
    const size_t n_pieces = h->own.n / (size_t)(s->n_target > 0 ? s->n_target : 1);
    char of_run[EVAL_MAX_SAMPLE_KEY];
    if (n_pieces < 2 || h->noise)
        return 0;
    eval_sample_key(of_run, &(struct eval_sample){.task = s->task, .n_target = s->n_target, .seed = s->seed});
    const uint64_t first = wnw__hash_of(of_run, strlen(of_run)) % n_pieces;
    const size_t begin = (size_t)((first + (uint64_t)s->index) % n_pieces) * (size_t)s->n_target;
    for (size_t i = begin; i < begin + SOON && i > 0 && i < h->own.n; i++)
        if (strchr(".!?", h->own.text.s[h->own.word[i] - 2]))
            return i;
    return begin;
}

void eval_haystack_begin(struct eval_haystack *h, const struct eval_sample *s)
{
    char key[EVAL_MAX_SAMPLE_KEY], text[EVAL_MAX_SAMPLE_KEY + 80];
    eval_sample_key(key, s);
    if (strcmp(key, h->key) == 0)
        return;
    eval_prose_close(&h->prose);
    eval_prose_open(&h->prose, key);
    h->now.n = h->now.text.len = 0;
    h->next = piece_begin(h, s);
    snprintf(text, sizeof text, "%s|%zu|%s", h->name, h->next, h->generated ? key : "");
    h->id = h->noise ? 0 : wnw__hash_of(text, strlen(text));
    memcpy(h->key, key, sizeof h->key);
}

/* Adds words of the user's text, or of the noise, up to its end or until there are n. */
static bool add_own(struct eval_haystack *h, size_t n)
{
    const size_t left = h->own.n - h->next, want = n - h->now.n, take = want < left ? want : left;
    const size_t from = h->own.word[h->next], to = length_of(&h->own, h->next + take);
    h->next = take < left ? h->next + take : 0;
    return add_words(&h->now, h->own.text.s + from, to - from);
}

static bool add_sentence(struct eval_haystack *h)
{
    struct app_text sentence = {0};
    const bool good = eval_prose_next(&h->prose, &sentence) && add_words(&h->now, sentence.s, sentence.len);
    free(sentence.s);
    return good;
}

int eval_haystack_reserve(struct eval_haystack *h, size_t n)
{
    while (h->now.n < n)
        if (!(h->generated ? add_sentence(h) : add_own(h, n)))
            return eval_no_memory("the haystack");
    return APP_OK;
}

size_t eval_haystack_length(const struct eval_haystack *h, size_t n)
{
    return length_of(&h->now, n);
}

bool eval_haystack_says(const struct eval_haystack *h, size_t n, const char *text)
{
    return h->now.text.s && memmem(h->now.text.s, length_of(&h->now, n), text, strlen(text));
}

/* ---- Sentences ---- */

/* Whether the word that ends with the full stop text[stop] is an abbreviation. */
static bool is_abbreviation(const char *text, size_t stop)
{
    static const char *const words[] = {"Mr.", "Mrs.", "Ms.",  "Dr.",  "Prof.", "St.",
                                        "vs.", "etc.", "e.g.", "i.e.", "U.S.",  "No."};
    size_t from = stop;
    while (from > 0 && text[from - 1] != ' ')
        from--;
    while (from < stop && strchr("\"'([", text[from]))
        from++;
    const size_t n = stop - from + 1;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (wnw__is_name(text + from, n, words[i]))
            return true;
    return n == 2 && isupper((unsigned char)text[from]);
}

size_t eval_sentence_length(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (!strchr(".!?", text[i]) || text[i] == '\0')
            continue;
        size_t end = i + 1;
        if (end < len && strchr("\"')]", text[end]))
            end++;
        if (end + 1 >= len)
            return len;
        const unsigned char next = (unsigned char)text[end + 1];
        if (text[end] == ' ' && (isupper(next) || isdigit(next) || strchr("\"'([", next)) &&
            !(text[i] == '.' && is_abbreviation(text, i)))
            return end;
    }
    return len;
}

size_t eval_count_sentences(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t next = 0; next < len; n++)
        next += eval_sentence_length(text + next, len - next) + 1;
    return n;
}

/* ---- Hiding ---- */

/* A context while lines are put between its pieces. */
struct hiding {
    struct eval_sample *s;
    const struct eval_lines *lines;
    const size_t *places;
    size_t next, n_pieces; /* of the lines; so far */
    char between;
};

static void put_between(struct hiding *h, const char *text, size_t len, bool evidence)
{
    if (h->n_pieces > 0 || h->next > 0)
        eval_put_n(h->s, &h->s->context, &h->between, 1);
    eval_put_piece(h->s, text, len, evidence);
}

/* Puts the lines that go before the next piece, or all that are left. */
static void put_lines(struct hiding *h, bool all)
{
    const struct eval_lines *l = h->lines;
    for (; h->next < l->n && (all || h->places[h->next] <= h->n_pieces); h->next++)
        put_between(h, l->at[h->next], strlen(l->at[h->next]), !l->evidence || l->evidence[h->next]);
}

static void put_piece(struct hiding *h, const char *text, size_t len)
{
    put_lines(h, false);
    put_between(h, text, len, false);
    h->n_pieces++;
}

void eval_put_in_noise(struct eval_sample *s, size_t n_blocks, const struct eval_lines *lines,
                       const size_t *places)
{
    struct hiding h = {.s = s, .lines = lines, .places = places, .between = '\n'};
    while (h.n_pieces < n_blocks)
        put_piece(&h, eval_noise, strlen(eval_noise));
    put_lines(&h, true);
}

void eval_put_in_text(struct eval_sample *s, const char *text, size_t len, const struct eval_lines *lines,
                      const size_t *places)
{
    struct hiding h = {.s = s, .lines = lines, .places = places, .between = ' '};
    for (size_t from = 0; from < len;) {
        const size_t n = eval_sentence_length(text + from, len - from);
        put_piece(&h, text + from, n);
        from += n + 1;
    }
    put_lines(&h, true);
}
