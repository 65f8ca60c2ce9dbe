/* SPDX-License-Identifier: MIT */
/* RULER's questions about one of many documents: the user's (qa_1, qa_2), and made-up people and companies
 * that stand in for them (qa_syn_1, qa_syn_2). */
#include "eval/tasks/task.h"

#include "app/console.h"
#include "eval/tasks/records.h"
#include "eval/tasks/wordlist.h"

#include <stdlib.h>
#include <string.h>

static const char rule[] = "Answer the question based on the given documents. Only give me the answer and do "
                           "not output any other words.\n\n";

/* Documents of one sample before they are put in order. */
struct docs {
    char **text; /* [n], owned */
    bool *gold;  /* [n], owned */
    size_t n, cap;
};

/* Takes text over; NULL counts as out of memory. */
static bool add_doc(struct docs *d, char *text, bool gold)
{
    if (d->n == d->cap) {
        const size_t cap = d->cap > 0 ? 2 * d->cap : 64;
        char **texts = realloc(d->text, cap * sizeof *texts);
        d->text = texts ? texts : d->text;
        bool *golds = texts ? realloc(d->gold, cap * sizeof *golds) : NULL;
        if (!golds) {
            free(text);
            return false;
        }
        d->gold = golds;
        d->cap = cap;
    }
    if (!text)
        return false;
    d->gold[d->n] = gold;
    d->text[d->n++] = text;
    return true;
}

static void free_docs(struct docs *d)
{
    for (size_t i = 0; i < d->n; i++)
        free(d->text[i]);
    free(d->text);
    free(d->gold);
}

/* Context and question around the documents, in random order. */
static bool put_docs(struct eval_sample *s, const struct docs *d, const char *question, struct eval_random *r)
{
    size_t *order = eval_iota(d->n);
    struct eval_turn *turn = eval_add_turn(s);
    if (!order || !turn) {
        free(order);
        return false;
    }
    eval_random_shuffle(r, order, d->n);
    eval_put(s, &s->context, "%sThe following are given documents.\n\n", rule);
    for (size_t i = 0; i < d->n; i++) {
        const char *text = d->text[order[i]];
        eval_put(s, &s->context, "%sDocument %zu:\n", i > 0 ? "\n\n" : "", i + 1);
        if (d->gold[order[i]])
            eval_put_evidence(s, text, strlen(text));
        else
            eval_put_n(s, &s->context, text, strlen(text));
    }
    eval_put(s, &s->context, "\n\n");
    eval_put(s, &turn->question, "%sQuestion: %s", rule, question);
    eval_put(s, &turn->prefix, " Answer:");
    free(order);
    return true;
}

/* ---- The user's documents ---- */

static bool is_among(const int32_t *list, int32_t n, int32_t x)
{
    for (int32_t i = 0; i < n; i++)
        if (list[i] == x)
            return true;
    return false;
}

/* Chooses the gold documents, as many of the question's other documents as fit, and random ones. If the file
 * has too few, they are repeated. */
static bool choose_docs(struct docs *d, const struct eval_records *records, const struct eval_question *q,
                        size_t n, struct eval_random *r)
{
    size_t *more = eval_iota((size_t)q->n_more), *others = eval_iota((size_t)records->n_docs);
    bool good = more && others;
    for (int32_t i = 0; good && i < q->n_gold; i++)
        good = add_doc(d, strdup(eval_records_text(records, q->gold[i])), true);
    const size_t room = n > d->n ? n - d->n : 0, n_more = (size_t)q->n_more < room ? (size_t)q->n_more : room;
    if (good)
        eval_random_sample(r, more, (size_t)q->n_more, n_more);
    for (size_t i = 0; good && i < n_more; i++)
        good = add_doc(d, strdup(eval_records_text(records, q->more[more[i]])), false);
    if (good)
        eval_random_shuffle(r, others, (size_t)records->n_docs);
    for (size_t i = 0, fresh = 0; good && d->n < n; i++) {
        const int32_t doc = (int32_t)others[i % (size_t)records->n_docs];
        const bool other = !is_among(q->gold, q->n_gold, doc) && !is_among(q->more, q->n_more, doc);
        fresh += other;
        if (other || (i >= (size_t)records->n_docs && fresh == 0)) /* no other ones: repeat these */
            good = add_doc(d, strdup(eval_records_text(records, doc)),
                           !other && is_among(q->gold, q->n_gold, doc));
    }
    free(more);
    free(others);
    return good;
}

static int make_from_records(struct eval_sample *s, bool *fits, struct eval_world *w,
                             const struct eval_task *task, int64_t units, struct eval_random *r)
{
    const struct eval_records *records = task->flags & EVAL_WANTS_SQUAD ? w->squad : w->hotpot;
    if (s->index >= records->n_questions)
        return app_fail(APP_BAD_INPUT, "%s has %d questions; lower --samples", task->name,
                        records->n_questions);
    const struct eval_question *q = &records->questions[s->index % records->n_questions];
    struct docs d = {0};
    *fits = units >= q->n_gold;
    if (!*fits)
        return APP_OK;
    const bool good = choose_docs(&d, records, q, (size_t)units, r) &&
                      put_docs(s, &d, json_string_value(json_object_get(q->record, "question")), r);
    const json_t *answers = json_object_get(q->record, "answers");
    for (size_t i = 0; good && i < json_array_size(answers); i++)
        eval_add_ref(s, &s->turns[0], json_string_value(json_array_get(answers, i)));
    free_docs(&d);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory for documents");
}

/* ---- People and companies ---- */

static const char *const products[] = {"lamps",   "kettles", "ropes", "boots",   "clocks",
                                       "saddles", "bricks",  "pumps", "mirrors", "violins",
                                       "ladders", "stoves",  "tents", "buttons"};

enum { N_FACTS = 4 };

/* Names of one sample, all different. */
struct taken {
    char (*name)[2 * EVAL_MAX_NAME]; /* [n], owned */
    size_t n, cap;
};

/* A new name of one or two words, valid until the next call; NULL if memory runs out. */
static const char *new_name(struct taken *t, struct eval_random *r, int n_syllables, bool two_words)
{
    char first[EVAL_MAX_NAME], last[EVAL_MAX_NAME] = "";
    bool fresh;
    if (t->n == t->cap) {
        const size_t cap = t->cap > 0 ? 2 * t->cap : 256;
        void *grown = realloc(t->name, cap * sizeof *t->name);
        if (!grown)
            return NULL;
        t->name = grown;
        t->cap = cap;
    }
    do {
        eval_name_draw(first, r, n_syllables);
        if (two_words)
            eval_name_draw(last, r, n_syllables);
        snprintf(t->name[t->n], sizeof t->name[0], "%s%s%s", first, two_words ? " " : "", last);
        fresh = true;
        for (size_t i = 0; fresh && i < t->n; i++)
            fresh = !strcasestr(t->name[i], t->name[t->n]) && !strcasestr(t->name[t->n], t->name[i]);
    } while (!fresh);
    return t->name[t->n++];
}

/* Thing number i of n; all differ and none is a part of another. The caller frees it; NULL if memory runs
 * out. */
static char *nth_thing(size_t i, size_t n)
{
    char *out;
    const char *noun = eval_nouns[i % eval_n_nouns];
    if (n <= eval_n_nouns)
        return strdup(noun);
    return asprintf(&out, "%s %s", eval_adjectives[i / eval_n_nouns % eval_n_adjectives], noun) < 0 ? NULL
                                                                                                    : out;
}

struct person {
    char name[2 * EVAL_MAX_NAME], town[2 * EVAL_MAX_NAME], company[2 * EVAL_MAX_NAME], pet[2 * EVAL_MAX_NAME];
    char *makes, *carves; /* of the profession and the hobby, owned */
};

/* Draws a person; makes and carves are indices of things below n_things. */
static bool draw_person(struct person *p, struct taken *t, struct eval_random *r, size_t makes, size_t carves,
                        size_t n_things)
{
    char *const to[] = {p->name, p->town, p->company, p->pet};
    for (int i = 0; i < 4; i++) {
        const char *name = new_name(t, r, i == 0 ? 2 : 3, i == 0);
        if (!name)
            return false;
        strcpy(to[i], name);
    }
    p->makes = nth_thing(makes, n_things);
    p->carves = nth_thing(carves, n_things);
    return p->makes && p->carves;
}

static char *person_text(const struct person *p)
{
    char *text;
    const int n = asprintf(&text,
                           "%s\n%s was born in the town of %s. The profession of %s is %s maker. The "
                           "employer is a company called "
                           "%s. The favourite pastime is %s carving. At home there is a pet named %s.",
                           p->name, p->name, p->town, p->name, p->makes, p->company, p->carves, p->pet);
    return n < 0 ? NULL : text;
}

static bool put_question_about(struct eval_sample *s, const struct docs *d, const struct person *p, int fact,
                               struct eval_random *r)
{
    static const char *const forms[N_FACTS] = {"In which town was %s born?", "What does %s work as?",
                                               "Which company does %s work for?", "What is the hobby of %s?"};
    char question[128], work[64], hobby[64];
    const char *const answers[N_FACTS] = {p->town, work, p->company, hobby};
    snprintf(work, sizeof work, "%s maker", p->makes);
    snprintf(hobby, sizeof hobby, "%s carving", p->carves);
    snprintf(question, sizeof question, forms[fact], p->name);
    if (!put_docs(s, d, question, r))
        return false;
    eval_add_ref(s, &s->turns[0], answers[fact]);
    return true;
}

static void free_person(struct person *p)
{
    free(p->makes);
    free(p->carves);
}

static int make_people(struct eval_sample *s, bool *fits, struct eval_world *w, const struct eval_task *task,
                       int64_t units, struct eval_random *r)
{
    struct docs d = {0};
    struct taken t = {0};
    struct person who = {0};
    const size_t n = (size_t)units, n_things = 2 * n < eval_n_nouns ? eval_n_nouns : 2 * n;
    const size_t asked = (size_t)eval_random_below(r, n);
    const int fact = (int)eval_random_below(r, N_FACTS);
    size_t *things = eval_iota(n_things);
    bool good = things != NULL;
    (void)w;
    (void)task;
    (void)fits;
    if (good)
        eval_random_sample(r, things, n_things, 2 * n);
    for (size_t i = 0; good && i < n; i++) {
        struct person p = {0};
        good = draw_person(&p, &t, r, things[2 * i], things[2 * i + 1], n_things) &&
               add_doc(&d, person_text(&p), i == asked);
        if (i == asked)
            who = p;
        else
            free_person(&p);
    }
    good = good && put_question_about(s, &d, &who, fact, r);
    free_person(&who);
    free(things);
    free(t.name);
    free_docs(&d);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory for documents");
}

/* Questions with two hops: a person's document names the company, the company's document names the town. The
 * unit is a pair of documents. */
static int make_companies(struct eval_sample *s, bool *fits, struct eval_world *w,
                          const struct eval_task *task, int64_t units, struct eval_random *r)
{
    struct docs d = {0};
    struct taken t = {0};
    const int64_t asked = (int64_t)eval_random_below(r, (uint64_t)units);
    const size_t n_things = 2 * (size_t)units < eval_n_nouns ? eval_n_nouns : 2 * (size_t)units;
    char question[160] = "", answer[2 * EVAL_MAX_NAME] = "";
    bool good = true;
    (void)w;
    (void)task;
    (void)fits;
    for (int64_t i = 0; good && i < units; i++) {
        struct person p = {0};
        char *text = NULL, home[2 * EVAL_MAX_NAME];
        good = draw_person(&p, &t, r, 2 * (size_t)i, 2 * (size_t)i + 1, n_things) &&
               add_doc(&d, person_text(&p), i == asked);
        const char *name = good ? new_name(&t, r, 3, false) : NULL;
        good = name != NULL;
        if (good) {
            strcpy(home, name);
            good = asprintf(&text,
                            "%s\n%s is a company with its seat in the town of %s. It is known for its %s.",
                            p.company, p.company, home,
                            products[eval_random_below(r, sizeof products / sizeof *products)]) >= 0 &&
                   add_doc(&d, text, i == asked);
        }
        if (good && i == asked) {
            snprintf(question, sizeof question, "In which town is the company that employs %s based?",
                     p.name);
            strcpy(answer, home);
        }
        free_person(&p);
    }
    good = good && put_docs(s, &d, question, r);
    if (good)
        eval_add_ref(s, &s->turns[0], answer);
    free(t.name);
    free_docs(&d);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory for documents");
}

const struct eval_task eval_tasks_qa[] = {
    {"qa_1", "ruler", "questions about one of many documents, of --squad", "documents", "string_match_part",
     32, 1024, EVAL_WANTS_SQUAD, 10, make_from_records, NULL, NULL},
    {"qa_2", "ruler", "questions over two of many documents, of --hotpot", "documents", "string_match_part",
     32, 2048, EVAL_WANTS_HOTPOT, 10, make_from_records, NULL, NULL},
    {"qa_syn_1", "ruler", "a fact about one of many made-up people; stands in for qa_1", "documents",
     "string_match_part", 32, 1024, EVAL_STANDS_IN, 10, make_people, NULL, NULL},
    {"qa_syn_2", "ruler", "a fact over two made-up documents; stands in for qa_2", "pairs of documents",
     "string_match_part", 32, 1024, EVAL_STANDS_IN, 10, make_companies, NULL, NULL},
    {.name = NULL},
};
