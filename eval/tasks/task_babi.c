/* SPDX-License-Identifier: MIT */
/*
 * People who go about and carry things, told in a few sentences that are hidden in text, as BABILong (arXiv 2406.10149) hides those of
 * bAbI (arXiv 1502.05698): where somebody is, where a thing is that somebody took, and where it was before. One, two and three of the
 * sentences answer. People, rooms and things are ours.
 */
#include "eval/tasks/makers.h"

#include "app/console.h"
#include "base/err.h"

#include <stdio.h>
#include <string.h>

enum { N_PEOPLE = 4, N_ROOMS = 6, N_THINGS = 3, MAX_FACTS = 20, MAX_TRIES = 1000, LINE = 96 };

static const char *const people[] = {"Anna",  "Boris", "Clara", "David", "Elena",
                                     "Felix", "Greta", "Hugo",  "Irene", "Jonas"};
static const char *const rooms[] = {"attic",  "bakery",  "cellar", "chapel", "garage",
                                    "museum", "library", "stable", "school", "theatre"};
static const char *const things[] = {"lantern", "violin", "compass", "teapot", "umbrella", "hammer"};
static const char *const ways[] = {"went", "walked", "hurried", "moved"};

/* A room where a thing was with the person who carried it, and the sentence that brought both there. */
struct stay {
    int room, line;
};

struct thing {
    const char *name;
    int holder, n_takes; /* holder: -1 = nobody */
    int taken, dropped;  /* the last sentences that say so, -1 = none */
    struct stay stay[MAX_FACTS];
    int n_stays; /* 0: nobody has said where it is */
};

struct person {
    const char *name;
    struct stay at; /* room -1: nobody has said where */
};

struct story {
    struct person person[N_PEOPLE];
    struct thing thing[N_THINGS];
    const char *room[N_ROOMS];
    char line[MAX_FACTS][LINE];
    int n;
};

/* ---- What happens ---- */

/* Draws n of the names, such as the text does not say, as long as there are enough of them. */
static void draw_names(const char **out, size_t n, const char *const *names, size_t n_names,
                       struct eval_draft *d)
{
    size_t order[16], n_good = 0, n_said = 0, said[16];
    for (size_t i = 0; i < n_names; i++)
        order[i] = i;
    eval_random_shuffle(&d->r, order, n_names);
    for (size_t i = 0; i < n_names; i++)
        if (eval_haystack_says(&d->w->haystack, (size_t)d->units, names[order[i]]))
            said[n_said++] = order[i];
        else if (n_good < n)
            out[n_good++] = names[order[i]];
    for (size_t i = 0; n_good < n; i++)
        out[n_good++] = names[said[i]];
}

static void begin(struct story *t, const char *const *person, const char *const *thing,
                  const char *const *room)
{
    *t = (struct story){.n = 0};
    for (int i = 0; i < N_PEOPLE; i++)
        t->person[i] = (struct person){.name = person[i], .at = {-1, -1}};
    for (int i = 0; i < N_THINGS; i++)
        t->thing[i] = (struct thing){.name = thing[i], .holder = -1, .taken = -1, .dropped = -1};
    memcpy(t->room, room, sizeof t->room);
}

static void add_stay(struct thing *o, struct stay stay)
{
    if (o->n_stays == 0 || o->stay[o->n_stays - 1].room != stay.room)
        o->stay[o->n_stays++] = stay;
}

static void move(struct story *t, int who, struct eval_random *r)
{
    struct person *p = &t->person[who];
    int room;
    do
        room = (int)eval_random_below(r, N_ROOMS);
    while (room == p->at.room);
    p->at = (struct stay){room, t->n};
    for (int i = 0; i < N_THINGS; i++)
        if (t->thing[i].holder == who)
            add_stay(&t->thing[i], p->at);
    snprintf(t->line[t->n++], LINE, "%s %s to the %s.", p->name,
             ways[eval_random_below(r, sizeof ways / sizeof *ways)], t->room[room]);
}

/* Takes a thing that may be where the person is, or puts it down. False: neither can be. */
static bool handle(struct story *t, int who, struct thing *o)
{
    const struct person *p = &t->person[who];
    const bool here = o->n_stays == 0 || o->stay[o->n_stays - 1].room == p->at.room;
    if (o->holder == who) {
        o->holder = -1;
        o->dropped = t->n;
    } else if (o->holder < 0 && p->at.room >= 0 && here) {
        o->holder = who;
        o->taken = t->n;
        o->n_takes++;
        o->dropped = -1;
        add_stay(o, p->at);
    } else {
        return false;
    }
    snprintf(t->line[t->n++], LINE, "%s %s the %s there.", p->name,
             o->holder == who ? "picked up" : "put down", o->name);
    return true;
}

static void tell(struct story *t, int n_facts, struct eval_random *r)
{
    while (t->n < n_facts) {
        const int who = (int)eval_random_below(r, N_PEOPLE);
        struct thing *o = &t->thing[eval_random_below(r, N_THINGS)];
        if (eval_random_below(r, 2) == 0 || !handle(t, who, o))
            move(t, who, r);
    }
}

/* ---- What is asked ---- */

struct question {
    const char *who, *what, *where, *answer;
    bool evidence[MAX_FACTS];
};

/* Somebody of whom it is known. */
static bool ask_person(struct question *q, const struct story *t, struct eval_random *r)
{
    const struct person *p = &t->person[eval_random_below(r, N_PEOPLE)];
    if (p->at.room < 0)
        return false;
    q->who = p->name;
    q->answer = t->room[p->at.room];
    q->evidence[p->at.line] = true;
    return true;
}

/* Something that was taken once, so that it is clear which sentences tell; n_stays: of how many rooms they speak. */
static bool ask_thing(struct question *q, const struct story *t, int n_stays, struct eval_random *r)
{
    const struct thing *o = &t->thing[eval_random_below(r, N_THINGS)];
    const struct stay *last = o->stay + o->n_stays - 1;
    /* Taken where it is asked for, the question is about one person and one room. */
    if (o->n_takes != 1 || o->n_stays < 2)
        return false;
    for (int i = 0; i + 1 < o->n_stays; i++)
        if (n_stays == 2 && o->stay[i].room == last->room)
            return false;
    q->what = o->name;
    q->where = t->room[last->room];
    q->answer = t->room[last[1 - n_stays].room];
    q->evidence[o->taken] = true;
    if (o->dropped >= 0)
        q->evidence[o->dropped] = true;
    for (int i = 0; i < n_stays; i++)
        q->evidence[last[-i].line] = true;
    return true;
}

static bool find_question(struct question *q, const struct story *t, int n_facts_needed,
                          struct eval_random *r)
{
    *q = (struct question){.who = "", .what = "", .where = ""};
    return n_facts_needed == 1 ? ask_person(q, t, r) : ask_thing(q, t, n_facts_needed - 1, r);
}

/* ---- The sample ---- */

static void put(struct eval_sample *s, struct story *t, const struct question *q, struct eval_draft *d)
{
    struct eval_haystack *hay = &d->w->haystack;
    /* Before sentences alone: the last one may be cut off. */
    const size_t len = eval_haystack_length(hay, (size_t)d->units),
                 n_places = eval_count_sentences(hay->now.text.s, len);
    size_t places[MAX_FACTS];
    char *lines[MAX_FACTS];
    for (int i = 0; i < t->n; i++)
        lines[i] = t->line[i];
    s->too_few = n_places == 0;
    if (s->too_few || !eval_draw_ascending(s, places, &d->r, n_places + (size_t)t->n - 1, (size_t)t->n))
        return;
    for (size_t i = 0; i < (size_t)t->n; i++) /* several may go before one sentence */
        places[i] -= i;
    eval_put_in_text(s, hay->now.text.s, len,
                     &(struct eval_lines){.at = lines, .n = (size_t)t->n, .evidence = q->evidence}, places);
}

int eval_make_babi(struct eval_sample *s, struct eval_draft *d)
{
    static const struct eval_list *const forms[] = {&eval_form_babi_person, &eval_form_babi_thing,
                                                    &eval_form_babi_before};
    static const int n_facts[] = {8, 12, MAX_FACTS};
    const int needed = *(const int *)d->task->params;
    const struct eval_list *form = forms[needed - 1];
    const char *person[N_PEOPLE], *thing[N_THINGS], *room[N_ROOMS];
    struct story t;
    struct question q;
    bool found = false;
    WNW_TRY(eval_haystack_reserve(&d->w->haystack, (size_t)d->units));
    draw_names(person, N_PEOPLE, people, sizeof people / sizeof *people, d);
    draw_names(thing, N_THINGS, things, sizeof things / sizeof *things, d);
    draw_names(room, N_ROOMS, rooms, sizeof rooms / sizeof *rooms, d);
    for (int i = 0; i < MAX_TRIES && !found; i++) {
        begin(&t, person, thing, room);
        tell(&t, n_facts[needed - 1], &d->r);
        found = find_question(&q, &t, needed, &d->r);
    }
    s->unmade = !found;
    eval_put(s, &s->context, "%s", form->at[EVAL_CONTEXT]);
    if (found)
        put(s, &t, &q, d);
    eval_put(s, &s->context, "\n");
    if (found && !s->too_few)
        eval_add_ref(
            s, eval_ask(s, form, (const char *const[]){"who", q.who, "what", q.what, "where", q.where, NULL}),
            q.answer);
    return APP_OK;
}
