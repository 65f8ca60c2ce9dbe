/* SPDX-License-Identifier: MIT */
#include "serve/grammar.h"

#include "serve/config.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What is read ---- */

/* An item of a sequence: characters or a token (rule = -1), or what a rule says. Indices of -1 end lists. */
struct item {
    int32_t rule, next;
    uint32_t least, most; /* times that it is repeated; most = UINT32_MAX: any number */
    uint32_t n;           /* elements that llama.cpp makes of it once */
};
struct alternative {
    int32_t first, next;
};
enum walked { UNSEEN, OPEN, DONE };
struct rule {
    int32_t first;     /* alternative */
    bool empty;        /* may be nothing */
    enum walked state; /* of the count of choices */
    uint64_t choices;
};

struct grammar {
    const char *at, *begin;
    char *why;
    json_t *names; /* the index of a rule */
    struct item *item;
    struct alternative *alternative;
    struct rule *rule;
    int32_t n_item, n_alternative, n_rule;
    uint64_t n_made, n_elements; /* rules that repetitions make, and all elements */
};

static bool complain(struct grammar *g, const char *what)
{
    if (g->why[0] == '\0')
        snprintf(g->why, SERVE_TEXT, "%s, at byte %zu of the grammar", what, (size_t)(g->at - g->begin));
    return false;
}

/* Makes room for one more of n; sizes are powers of two. NULL: no memory, and the old room stays. */
static void *grown(void *room, int32_t n, size_t size)
{
    if ((n > 0 && n < 16) || (n & (n - 1)) != 0)
        return room;
    return realloc(room, (n == 0 ? 16 : 2 * (size_t)n) * size);
}

static int32_t add_rule(struct grammar *g)
{
    struct rule *room = grown(g->rule, g->n_rule, sizeof *room);
    if (!room || g->n_rule >= SERVE_GRAMMAR_RULES) {
        complain(g, room ? "it has more than 20000 rules and groups" : "out of memory");
        return -1;
    }
    g->rule = room;
    g->rule[g->n_rule] = (struct rule){.first = -1};
    return g->n_rule++;
}

static int32_t add_alternative(struct grammar *g)
{
    struct alternative *room = grown(g->alternative, g->n_alternative, sizeof *room);
    if (!room) {
        complain(g, "out of memory");
        return -1;
    }
    g->alternative = room;
    g->alternative[g->n_alternative] = (struct alternative){-1, -1};
    return g->n_alternative++;
}

static int32_t add_item(struct grammar *g, int32_t rule, uint32_t n)
{
    struct item *room = grown(g->item, g->n_item, sizeof *room);
    if (!room) {
        complain(g, "out of memory");
        return -1;
    }
    g->item = room;
    g->item[g->n_item] = (struct item){.rule = rule, .next = -1, .least = 1, .most = 1, .n = n};
    return g->n_item++;
}

/* The rule of a name, which may come later. -1: a fault. */
static int32_t rule_named(struct grammar *g, const char *name, size_t n)
{
    char key[256];
    if (n >= sizeof key) {
        complain(g, "a rule's name has more than 255 bytes");
        return -1;
    }
    memcpy(key, name, n);
    key[n] = '\0';
    const json_t *known = json_object_get(g->names, key);
    if (known)
        return (int32_t)json_integer_value(known);
    const int32_t i = add_rule(g);
    if (i >= 0 && json_object_set_new(g->names, key, json_integer(i)) != 0) {
        complain(g, "out of memory");
        return -1;
    }
    return i;
}

/* ---- Words ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || is_digit(c);
}

static void skip_space(struct grammar *g, bool lines)
{
    for (;; g->at++)
        if (*g->at == '#')
            g->at += strcspn(g->at, "\r\n") - 1;
        else if (*g->at != ' ' && *g->at != '\t' && !(lines && (*g->at == '\r' || *g->at == '\n')))
            return;
}

/* Passes what is in quotes or brackets, with escapes; *n becomes how many bytes there are in it at most. False where it does not end. */
static bool pass_to(struct grammar *g, char end, uint32_t *n)
{
    *n = 0;
    for (g->at++; *g->at != end; g->at++, ++*n) {
        g->at += *g->at == '\\';
        if (*g->at == '\0')
            return complain(g, "a literal, a class of characters or a token does not end");
    }
    g->at++;
    return true;
}

/* A number of repetitions. */
static bool read_times(struct grammar *g, uint32_t *n)
{
    *n = 0;
    if (!is_digit(*g->at))
        return complain(g, "a number of repetitions is missing");
    for (; is_digit(*g->at); g->at++) {
        *n = 10 * *n + (uint32_t)(*g->at - '0');
        if (*n > SERVE_GRAMMAR_REPEATS)
            return complain(g, "an item is repeated more than 2000 times");
    }
    return true;
}

/* {m}, {m,} and {m,n}. */
static bool read_braces(struct grammar *g, uint32_t *least, uint32_t *most, bool lines)
{
    g->at++;
    skip_space(g, lines);
    if (!read_times(g, least))
        return false;
    *most = *least;
    skip_space(g, lines);
    if (*g->at == ',') {
        g->at++;
        skip_space(g, lines);
        *most = UINT32_MAX;
        if (is_digit(*g->at) && !read_times(g, most))
            return false;
        skip_space(g, lines);
    }
    if (*g->at != '}')
        return complain(g, "a number of repetitions has no }");
    g->at++;
    return *least <= *most || complain(g, "the least number of repetitions is above the most");
}

/* How often an item is repeated at most that is repeated `a` times, and all of it `b` times. */
static uint32_t times(uint32_t a, uint32_t b)
{
    const uint64_t n = (uint64_t)a * b;
    if (a == UINT32_MAX || b == UINT32_MAX)
        return UINT32_MAX;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX - 1;
}

/* Applies repetitions to an item, as often as they follow it: each makes one of what was made before. */
static bool repeat(struct grammar *g, struct item *last, uint32_t least, uint32_t most)
{
    const uint64_t n_optional = most == UINT32_MAX ? 1 : most - least;
    g->n_made += n_optional;
    g->n_elements += (uint64_t)last->n * least + n_optional * ((uint64_t)last->n + 3);
    if (g->n_made > SERVE_GRAMMAR_MADE)
        return complain(g, "its repetitions make more than 50000 rules");
    if (g->n_elements > SERVE_GRAMMAR_ELEMENTS)
        return complain(g, "it has more than 2000000 elements, with what is repeated");
    last->n = last->n * (least > 0 ? least : 1) + 1;
    last->least = least == 0 ? 0 : last->least;
    last->most = times(last->most, most);
    return true;
}

/* ---- Sequences ---- */

static bool read_alternatives(struct grammar *g, int32_t rule, int32_t depth);

/* One item; false: a fault. *item = -1: there is none here. */
static bool read_item(struct grammar *g, int32_t depth, int32_t *item)
{
    const char *const begin = g->at;
    uint32_t n = 1;
    int32_t rule = -1;
    *item = -1;
    if (*begin == '"' || *begin == '[') {
        if (!pass_to(g, *begin == '"' ? '"' : ']', &n))
            return false;
    } else if (*begin == '<' || *begin == '!') {
        g->at += *begin == '!';
        if (*g->at != '<')
            return complain(g, "a < is missing after !");
        if (!pass_to(g, '>', &n))
            return false;
        n = 1;
    } else if (*begin == '.') {
        g->at++;
    } else if (is_word(*begin)) {
        while (is_word(*g->at))
            g->at++;
        rule = rule_named(g, begin, (size_t)(g->at - begin));
        if (rule < 0)
            return false;
    } else if (*begin == '(') {
        g->at++;
        if (depth == SERVE_GRAMMAR_DEPTH)
            return complain(g, "it has groups in each other, more than 128 deep");
        rule = add_rule(g);
        if (rule < 0 || !read_alternatives(g, rule, depth + 1))
            return false;
        if (*g->at != ')')
            return complain(g, "a ) is missing");
        g->at++;
    } else {
        return true;
    }
    g->n_elements += n;
    *item = add_item(g, rule, n);
    return *item >= 0;
}

static bool read_repeats(struct grammar *g, int32_t item, bool lines)
{
    for (;;) {
        uint32_t least = 0, most = UINT32_MAX;
        skip_space(g, lines);
        switch (*g->at) {
        case '+':
            least = 1;
            break;
        case '*':
            break;
        case '?':
            most = 1;
            break;
        case '{':
            if (!read_braces(g, &least, &most, lines))
                return false;
            g->at--;
            break;
        default:
            return true;
        }
        g->at++;
        if (!repeat(g, &g->item[item], least, most))
            return false;
    }
}

static bool read_sequence(struct grammar *g, int32_t alternative, int32_t depth)
{
    int32_t last = -1;
    for (;;) {
        int32_t item;
        if (!read_item(g, depth, &item))
            return false;
        if (item < 0)
            return true;
        if (last < 0)
            g->alternative[alternative].first = item;
        else
            g->item[last].next = item;
        last = item;
        if (!read_repeats(g, item, depth > 0))
            return false;
    }
}

static bool read_alternatives(struct grammar *g, int32_t rule, int32_t depth)
{
    int32_t last = -1;
    do {
        g->at += last >= 0; /* the | */
        skip_space(g, true);
        const int32_t one = add_alternative(g);
        if (one < 0)
            return false;
        if (last < 0)
            g->rule[rule].first = one; /* of two rules with one name the last holds, as for llama.cpp */
        else
            g->alternative[last].next = one;
        last = one;
        if (!read_sequence(g, one, depth))
            return false;
    } while (*g->at == '|');
    return true;
}

static bool read_rules(struct grammar *g)
{
    for (skip_space(g, true); *g->at; skip_space(g, true)) {
        const char *const name = g->at;
        while (is_word(*g->at))
            g->at++;
        const int32_t rule = g->at > name ? rule_named(g, name, (size_t)(g->at - name)) : -1;
        if (rule < 0)
            return complain(g, "the name of a rule is missing");
        skip_space(g, false);
        if (strncmp(g->at, "::=", 3) != 0)
            return complain(g, "::= is missing after the name of a rule");
        g->at += 3;
        if (!read_alternatives(g, rule, 0))
            return false;
        if (*g->at && *g->at != '\r' && *g->at != '\n')
            return complain(g, "a new line or the end is missing");
    }
    return true;
}

/* ---- Choices ---- */

static bool may_be_empty(const struct grammar *g, const struct item *i)
{
    return i->least == 0 || (i->rule >= 0 && g->rule[i->rule].empty) || (i->rule < 0 && i->n == 0);
}

/* Finds which rules may be nothing: passes over all until none changes. */
static void find_empty(struct grammar *g)
{
    bool changed = true;
    for (int32_t pass = 0; changed && pass <= g->n_rule; pass++) {
        changed = false;
        for (int32_t r = 0; r < g->n_rule; r++)
            for (int32_t a = g->rule[r].first; a >= 0 && !g->rule[r].empty; a = g->alternative[a].next) {
                int32_t i = g->alternative[a].first;
                while (i >= 0 && may_be_empty(g, &g->item[i]))
                    i = g->item[i].next;
                changed = changed || i < 0;
                g->rule[r].empty = i < 0;
            }
    }
}

static uint64_t least_of(uint64_t a, uint64_t most)
{
    return a < most ? a : most;
}

/* The ways into an item that its rule is known of: each place of a repetition is one of its own where what comes before may be nothing. */
static uint64_t choices_of(const struct grammar *g, const struct item *i)
{
    const uint64_t one = i->rule >= 0 ? g->rule[i->rule].choices : 1;
    const bool passes = i->rule >= 0 && g->rule[i->rule].empty && i->most != UINT32_MAX;
    return passes ? one * i->most : one;
}

/* A rule that is being counted: where it is. */
struct place {
    int32_t rule, alternative, item;
};

/* Counts the ways into every rule; those of a rule that it begins with come first. A chain of rules may have any length, so this function
 * does not recurse. */
static bool count_from(struct grammar *g, int32_t root, struct place *stack)
{
    int32_t n = 0;
    stack[n++] = (struct place){root, -1, -1};
    g->rule[root].state = OPEN;
    while (n > 0) {
        struct place *p = &stack[n - 1];
        struct rule *r = &g->rule[p->rule];
        if (p->item < 0) {
            p->alternative = p->alternative < 0 ? r->first : g->alternative[p->alternative].next;
            if (p->alternative < 0) {
                r->choices += r->choices == 0;
                r->state = DONE;
                n--;
                continue;
            }
            p->item = g->alternative[p->alternative].first;
            r->choices += p->item < 0;
            continue;
        }
        const struct item *i = &g->item[p->item];
        struct rule *next = i->rule >= 0 ? &g->rule[i->rule] : NULL;
        if (next && next->state == OPEN)
            return complain(g, "a rule begins with itself, which llama.cpp does not take");
        if (next && next->state == UNSEEN) {
            next->state = OPEN;
            stack[n++] = (struct place){i->rule, -1, -1};
            continue;
        }
        r->choices = least_of(r->choices + choices_of(g, i), SERVE_GRAMMAR_CHOICES + 1);
        if (r->choices > SERVE_GRAMMAR_CHOICES)
            return complain(g, "there are more than 4096 ways to go on from one place");
        p->item = may_be_empty(g, i) ? i->next : -1;
    }
    return true;
}

static bool check_choices(struct grammar *g)
{
    struct place *stack = malloc(((size_t)g->n_rule + 1) * sizeof *stack);
    bool good = stack != NULL || complain(g, "out of memory");
    find_empty(g);
    for (int32_t r = 0; good && r < g->n_rule; r++)
        good = g->rule[r].state == DONE || count_from(g, r, stack);
    free(stack);
    return good;
}

bool serve_grammar_check(const char *text, char *why)
{
    struct grammar g = {.at = text, .begin = text, .why = why, .names = json_object()};
    why[0] = '\0';
    bool good = g.names != NULL || complain(&g, "out of memory");
    if (good && strlen(text) > SERVE_GRAMMAR_BYTES) {
        snprintf(why, SERVE_TEXT, "it has %zu bytes, and %d is the most", strlen(text),
                 (int)SERVE_GRAMMAR_BYTES);
        good = false;
    }
    good = good && read_rules(&g) && check_choices(&g);
    json_decref(g.names);
    free(g.item);
    free(g.alternative);
    free(g.rule);
    return good;
}
