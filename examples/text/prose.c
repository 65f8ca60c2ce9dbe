/* SPDX-License-Identifier: MIT */
#include "prose.h"

#include "grammar.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SENTENCE = 512, /* bytes; patterns give at most half of it */
    MAX_PARAGRAPH = 4096,
    MAX_FOLLOWERS = 6,
    MIN_FOLLOWERS = 4,
    MAX_DRAWS = 400, /* attempts before no new sentence is assumed to be left */
    MAX_DEPTH = 3    /* nesting of slots within words drawn for slots */
};

/* ---- A set of 64-bit hashes, 0 left out ---- */

struct set {
    uint64_t *slots;
    size_t n, cap; /* cap is a power of two */
};

static bool set_has(const struct set *s, uint64_t hash)
{
    for (size_t i = hash & (s->cap - 1); s->cap > 0 && s->slots[i] != 0; i = (i + 1) & (s->cap - 1))
        if (s->slots[i] == hash)
            return true;
    return false;
}

static void put(uint64_t *slots, size_t cap, uint64_t hash)
{
    size_t i = hash & (cap - 1);
    while (slots[i] != 0 && slots[i] != hash)
        i = (i + 1) & (cap - 1);
    slots[i] = hash;
}

static bool set_add(struct set *s, uint64_t hash)
{
    if (2 * (s->n + 1) > s->cap) {
        const size_t cap = s->cap ? 2 * s->cap : 1024;
        uint64_t *slots = calloc(cap, sizeof *slots);
        if (!slots)
            return false;
        for (size_t i = 0; i < s->cap; i++)
            if (s->slots[i] != 0)
                put(slots, cap, s->slots[i]);
        free(s->slots);
        *s = (struct set){.slots = slots, .n = s->n, .cap = cap};
    }
    put(s->slots, s->cap, hash);
    s->n++;
    return true;
}

/* ---- Sentences ---- */

struct person {
    const char *first, *family;
    bool man, known; /* known: the paragraph has said both names */
};

struct prose {
    uint64_t random;
    struct set said; /* runs of words and whole sentences */
    size_t topic;
    struct person who[2]; /* {P} and {Q} of this paragraph */
    const char *town;
};

static uint64_t next_random(struct prose *p)
{
    uint64_t z = p->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t draw(struct prose *p, size_t n)
{
    return (size_t)(next_random(p) % n);
}

static const char *draw_word(struct prose *p, const char *name, size_t len)
{
    for (size_t i = 0; i < prose_n_lists; i++) {
        const struct list *l = &prose_lists[i];
        if (strlen(l->name) == len && memcmp(l->name, name, len) == 0)
            return l->items[draw(p, l->n)];
    }
    return "?"; /* a test looks for this mark */
}

static const char *name_person(struct person *who, char *buf, size_t cap)
{
    snprintf(buf, cap, "%s%s%s", who->first, who->known ? "" : " ", who->known ? "" : who->family);
    who->known = true;
    return buf;
}

static const char *draw_number(struct prose *p, char kind, char *buf, size_t cap)
{
    static const char *const words[] = {"three",   "four",    "five",      "six",      "seven",    "eight",
                                        "nine",    "ten",     "eleven",    "twelve",   "thirteen", "fourteen",
                                        "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"};
    if (kind == 'n')
        return words[draw(p, sizeof words / sizeof *words)];
    snprintf(buf, cap, "%zu", kind == 'y' ? 1790 + draw(p, 180) : 21 + draw(p, 960));
    return buf;
}

/* The text for the slot `name`, which is put together in buf where necessary. */
static const char *fill_slot(struct prose *p, const char *name, size_t len, char *buf, size_t cap)
{
    static const char *const pronouns[][3] = {
        {"he", "she", "he"}, {"his", "her", "his"}, {"him", "her", "him"}};
    if (len == 1)
        switch (*name) {
        case 'P':
        case 'p':
            return name_person(&p->who[0], buf, cap);
        case 'Q':
        case 'q':
            return name_person(&p->who[1], buf, cap);
        case 'T':
            return p->town;
        default:
            return draw_number(p, *name, buf, cap);
        }
    for (size_t i = 0; i < sizeof pronouns / sizeof *pronouns; i++)
        if (strlen(pronouns[i][0]) == len && tolower((unsigned char)*name) == 'h' &&
            memcmp(pronouns[i][0] + 1, name + 1, len - 1) == 0)
            return pronouns[i][p->who[0].man ? 0 : 1];
    return draw_word(p, name, len);
}

static bool append(char *out, size_t *len, const char *text, size_t n)
{
    if (*len + n >= MAX_SENTENCE)
        return false;
    memcpy(out + *len, text, n);
    *len += n;
    out[*len] = '\0';
    return true;
}

static bool expand(struct prose *p, const char *pattern, char *out, size_t *len, int depth)
{
    bool ok = depth <= MAX_DEPTH;
    while (ok && *pattern) {
        const size_t plain = strcspn(pattern, "{");
        ok = append(out, len, pattern, plain);
        pattern += plain;
        if (*pattern != '{')
            continue;
        char buf[64];
        const bool article = pattern[1] == '+';
        const char *name = pattern + 1 + article;
        const size_t n = strcspn(name, "}");
        const char *word = fill_slot(p, name, n, buf, sizeof buf);
        if (article)
            ok = ok && (strchr("aeiou", *word) ? append(out, len, "an ", 3) : append(out, len, "a ", 2));
        ok = ok && expand(p, word, out, len, depth + 1);
        pattern = name + n + 1;
    }
    return ok;
}

/* The FNV-1a hash of the letters and digits up to the next blank, 0 at the end; *at is moved behind the
 * blank. */
static uint64_t hash_word(const char **at)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    while (**at == ' ')
        ++*at;
    if (**at == '\0')
        return 0;
    for (; **at && **at != ' '; ++*at)
        if (isalnum((unsigned char)**at))
            h = (h ^ (uint64_t)tolower((unsigned char)**at)) * UINT64_C(0x100000001b3);
    return h ? h : 1;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    const uint64_t h = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

/* Goes through the runs of words of a sentence and the sentence as a whole. With add, they are added to the
 * set, and false means that memory ran out; without it, false means that one of them is in the set
 * already. */
static bool walk(struct set *said, const char *sentence, bool add)
{
    uint64_t last[PROSE_RUN] = {0}, whole = 1;
    bool ok = true;
    for (uint64_t word; ok && (word = hash_word(&sentence)) != 0;) {
        uint64_t run = PROSE_RUN;
        memmove(last, last + 1, sizeof last - sizeof *last);
        last[PROSE_RUN - 1] = word;
        whole = mix(whole, word);
        for (int i = 0; i < PROSE_RUN; i++)
            run = mix(run, last[i]);
        if (last[0] != 0)
            ok = add ? set_add(said, run | 1) : !set_has(said, run | 1);
    }
    return ok && (add ? set_add(said, whole | 1) : !set_has(said, whole | 1));
}

/* Makes a new sentence from one of the patterns from..to-1 whose bit in *used is not set. */
static bool say(struct prose *p, size_t from, size_t to, uint32_t *used, char *out)
{
    const struct topic *topic = &prose_topics[p->topic];
    for (int i = 0; i < MAX_DRAWS; i++) {
        const size_t which = from + draw(p, to - from);
        const struct person before[2] = {p->who[0], p->who[1]};
        size_t len = 0;
        if (*used >> which & 1u)
            continue;
        out[0] = '\0';
        if (expand(p, topic->patterns[which], out, &len, 0) && walk(&p->said, out, false)) {
            *used |= 1u << which;
            out[0] = (char)toupper((unsigned char)out[0]);
            return walk(&p->said, out, true);
        }
        memcpy(p->who, before, sizeof before);
    }
    return false;
}

/* ---- Paragraphs ---- */

static void begin(struct prose *p)
{
    p->topic = (p->topic + 1 + draw(p, prose_n_topics - 1)) % prose_n_topics; /* never the same twice */
    for (int i = 0; i < 2; i++) {
        const bool man = next_random(p) >> 63;
        p->who[i] = (struct person){.man = man, .family = draw_word(p, "family", 6)};
        do
            p->who[i].first = man ? draw_word(p, "man", 3) : draw_word(p, "woman", 5);
        while (i == 1 && p->who[0].first == p->who[1].first);
    }
    p->town = draw_word(p, "town", 4);
}

char *prose_next(struct prose *p)
{
    char sentence[MAX_SENTENCE], text[MAX_PARAGRAPH];
    uint32_t used = 0;
    size_t len = 0;
    begin(p);
    const struct topic *topic = &prose_topics[p->topic];
    const size_t n = MIN_FOLLOWERS + draw(p, MAX_FOLLOWERS - MIN_FOLLOWERS + 1);
    for (size_t i = 0; i <= n; i++) {
        if (!say(p, i == 0 ? 0 : topic->n_first, i == 0 ? topic->n_first : topic->n, &used, sentence))
            return NULL;
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", i == 0 ? "" : " ", sentence);
    }
    return strdup(text);
}

struct prose *prose_new(uint64_t seed)
{
    struct prose *p = calloc(1, sizeof *p);
    if (p)
        p->random = seed;
    return p;
}

void prose_free(struct prose *p)
{
    if (p)
        free(p->said.slots);
    free(p);
}
