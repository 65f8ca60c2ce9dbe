/* SPDX-License-Identifier: MIT */
/* RULER's questions about one of many documents: the user's documents (qa_1, qa_2; doc_qa of any length), or made-up people and
 * companies (qa_syn_1, qa_syn_2). */
#include "eval/tasks/makers.h"

#include "app/console.h"
#include "eval/base/grow.h"
#include "eval/tasks/records.h"

#include <stdlib.h>
#include <string.h>

/* Documents of one sample before they are put in order. */
struct docs {
    struct doc {
        char *text; /* owned */
        bool evidence;
        /* Its answers tell which paragraphs are the evidence; NULL: all or none are. */
        const struct eval_question *asked;
    } * at; /* [n], owned */
    size_t n;
};

/* Takes text over; NULL counts as out of memory. */
static bool add_doc(struct docs *d, char *text, bool evidence)
{
    if (!text || !eval_grow(&d->at, d->n, sizeof *d->at)) {
        free(text);
        return false;
    }
    d->at[d->n++] = (struct doc){.text = text, .evidence = evidence};
    return true;
}

static void free_docs(struct docs *d)
{
    for (size_t i = 0; i < d->n; i++)
        free(d->at[i].text);
    free(d->at);
}

/* The paragraphs of a document. Those with an answer are the evidence. */
static void put_paragraphs(struct eval_sample *s, const char *text, const struct eval_question *asked)
{
    for (size_t len; *text; text += len) {
        const char *end = strstr(text, "\n\n");
        len = end ? (size_t)(end - text) + strspn(end, "\n") : strlen(text);
        eval_put_piece(s, text, len, eval_records_answer(asked, text, len));
    }
}

/* Context and question around the documents, in random order. */
static bool put_docs(struct eval_sample *s, const struct docs *d, const char *question, struct eval_random *r)
{
    size_t *order = eval_iota(d->n);
    if (!order)
        return false;
    eval_random_shuffle(r, order, d->n);
    eval_put(s, &s->context, "%s", eval_form_qa.at[EVAL_CONTEXT]);
    for (size_t i = 0; i < d->n; i++) {
        const struct doc *doc = &d->at[order[i]];
        eval_put(s, &s->context, "%sDocument %zu:\n", i > 0 ? "\n\n" : "", i + 1);
        if (doc->asked)
            put_paragraphs(s, doc->text, doc->asked);
        else
            eval_put_piece(s, doc->text, strlen(doc->text), doc->evidence);
    }
    eval_put(s, &s->context, "\n\n");
    eval_ask(s, &eval_form_qa, (const char *const[]){"question", question, NULL});
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

/* Chooses the documents that hold the evidence, as many of the question's other documents as fit, and random ones. If the file
 * has too few, they are repeated. */
static bool choose_docs(struct docs *d, const struct eval_records *records, const struct eval_question *q,
                        size_t n, struct eval_random *r)
{
    size_t *more = eval_iota((size_t)q->n_more), *others = eval_iota((size_t)records->n_docs);
    bool good = more && others;
    for (int32_t i = 0; good && i < q->n_evidence; i++)
        good = add_doc(d, strdup(eval_records_text(records, q->evidence[i])), true);
    const size_t room = n > d->n ? n - d->n : 0, n_more = (size_t)q->n_more < room ? (size_t)q->n_more : room;
    if (good)
        eval_random_sample(r, more, (size_t)q->n_more, n_more);
    for (size_t i = 0; good && i < n_more; i++)
        good = add_doc(d, strdup(eval_records_text(records, q->more[more[i]])), false);
    if (good)
        eval_random_shuffle(r, others, (size_t)records->n_docs);
    for (size_t i = 0, fresh = 0; good && d->n < n; i++) {
        const int32_t doc = (int32_t)others[i % (size_t)records->n_docs];
        const bool other = !is_among(q->evidence, q->n_evidence, doc) && !is_among(q->more, q->n_more, doc);
        fresh += other;
        if (other || (i >= (size_t)records->n_docs && fresh == 0)) /* no other ones: repeat these */
            good = add_doc(d, strdup(eval_records_text(records, doc)),
                           !other && is_among(q->evidence, q->n_evidence, doc));
    }
    free(more);
    free(others);
    return good;
}

/* The turn that put_docs has made, or `lost` where there was no memory for it. */
static struct eval_turn *only_turn(struct eval_sample *s)
{
    return s->n_turns > 0 ? &s->turns[0] : &s->lost;
}

static void add_answers(struct eval_sample *s, const struct eval_question *q)
{
    const json_t *answers = json_object_get(q->record, "answers");
    for (size_t i = 0; i < json_array_size(answers); i++)
        eval_add_ref(s, only_turn(s), json_string_value(json_array_get(answers, i)));
}

int eval_make_documents(struct eval_sample *s, struct eval_draft *draft)
{
    const struct eval_task *task = draft->task;
    const struct eval_records *records = task->flags & EVAL_WANTS_SQUAD ? draft->w->squad : draft->w->hotpot;
    if (s->index >= records->n_questions)
        return app_fail(APP_BAD_INPUT, "%s has %d questions; lower --samples", task->name,
                        records->n_questions);
    const struct eval_question *q = &records->questions[s->index];
    struct docs d = {0};
    s->too_few = draft->units < q->n_evidence;
    if (s->too_few)
        return APP_OK;
    const bool good = choose_docs(&d, records, q, (size_t)draft->units, &draft->r) &&
                      put_docs(s, &d, json_string_value(json_object_get(q->record, "question")), &draft->r);
    if (good)
        add_answers(s, q);
    free_docs(&d);
    return good ? APP_OK : eval_no_memory("documents");
}

/* ---- A folder of documents ---- */

/* Adds documents in random order until there are n letters of text. The last one is cut off after a line. */
static bool add_others(struct docs *d, const struct eval_records *records, int32_t asked, size_t n,
                       struct eval_random *r)
{
    size_t *order = eval_iota((size_t)records->n_docs), room = n;
    bool good = order != NULL;
    if (good)
        eval_random_shuffle(r, order, (size_t)records->n_docs);
    for (int32_t i = 0; good && room > 0 && i < records->n_docs; i++) {
        const char *text = eval_records_text(records, (int32_t)order[i]);
        size_t len = strlen(text);
        if ((int32_t)order[i] == asked)
            continue;
        if (len > room)
            for (len = room; len > 0 && text[len - 1] != '\n'; len--)
                ;
        if (len > 0)
            good = add_doc(d, strndup(text, len), false);
        room = strlen(text) > room ? 0 : room - len;
    }
    free(order);
    return good;
}

/* The document that answers, whole, and others around it. A sample whose document is longer than its length is left out. */
int eval_make_folder(struct eval_sample *s, struct eval_draft *draft)
{
    const struct eval_records *records = draft->w->folder;
    const struct eval_question *q = &records->questions[s->index % records->n_questions];
    const char *text = eval_records_text(records, q->evidence[0]);
    const json_t *id = json_object_get(q->record, "id");
    const size_t len = strlen(text);
    struct docs d = {0};
    s->unmade = len > (size_t)draft->units;
    if (s->unmade)
        return APP_OK;
    bool good = add_doc(&d, strdup(text), true);
    if (good) {
        d.at[0].asked = q;
        good = add_others(&d, records, q->evidence[0], (size_t)draft->units - len, &draft->r) &&
               put_docs(s, &d, json_string_value(json_object_get(q->record, "question")), &draft->r);
    }
    if (good)
        add_answers(s, q);
    if (id)
        eval_set_meta(s, "id", json_deep_copy(id));
    s->text = wnw__hash_of(text, len);
    free_docs(&d);
    return good ? APP_OK : eval_no_memory("documents");
}

/* ---- People and companies ---- */

enum { N_FACTS = 4 };

enum { MAX_NAME = 2 * EVAL_MAX_NAME };

/* Names of one sample, all different. */
struct names {
    char (*at)[MAX_NAME]; /* [n], owned */
    size_t n;
};

/* Writes a new name of one or two words. Returns false if memory runs out. */
static bool new_name(char out[MAX_NAME], struct names *names, struct eval_random *r, int n_syllables,
                     bool two_words)
{
    char first[EVAL_MAX_NAME], last[EVAL_MAX_NAME] = "";
    bool fresh = false;
    if (!eval_grow(&names->at, names->n, sizeof *names->at))
        return false;
    while (!fresh) {
        eval_name_draw(first, r, n_syllables);
        if (two_words)
            eval_name_draw(last, r, n_syllables);
        snprintf(out, MAX_NAME, "%s%s%s", first, two_words ? " " : "", last);
        fresh = true;
        for (size_t i = 0; fresh && i < names->n; i++)
            fresh = !strcasestr(names->at[i], out) && !strcasestr(out, names->at[i]);
    }
    memcpy(names->at[names->n++], out, MAX_NAME);
    return true;
}

/* Thing number i of n; all differ and none is a part of another. */
enum { MAX_THING = 32 };
static void nth_thing(char out[MAX_THING], size_t i, size_t n)
{
    const bool plain = n <= eval_nouns.n;
    snprintf(out, MAX_THING, "%s%s%s", plain ? "" : eval_adjectives.at[i / eval_nouns.n % eval_adjectives.n],
             plain ? "" : " ", eval_nouns.at[i % eval_nouns.n]);
}

/* How many things there are for the professions and the hobbies of n people. */
static size_t n_things(size_t n)
{
    return 2 * n < eval_nouns.n ? eval_nouns.n : 2 * n;
}

/* Draws two things for each of n people, in random order. The caller frees them; NULL: out of memory. */
static size_t *draw_things(struct eval_random *r, size_t n)
{
    size_t *things = eval_iota(n_things(n));
    if (things)
        eval_random_sample(r, things, n_things(n), 2 * n);
    return things;
}

struct person {
    char name[MAX_NAME], town[MAX_NAME], company[MAX_NAME], pet[MAX_NAME];
    char makes[MAX_THING], carves[MAX_THING]; /* of the profession and the hobby */
};

/* Draws one of n people; makes and carves are numbers of things. */
static bool draw_person(struct person *p, struct names *names, struct eval_random *r, size_t n, size_t makes,
                        size_t carves)
{
    nth_thing(p->makes, makes, n_things(n));
    nth_thing(p->carves, carves, n_things(n));
    return new_name(p->name, names, r, 2, true) && new_name(p->town, names, r, 3, false) &&
           new_name(p->company, names, r, 3, false) && new_name(p->pet, names, r, 3, false);
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
    char question[128], work[MAX_THING + 8], hobby[MAX_THING + 8];
    const char *const answers[N_FACTS] = {p->town, work, p->company, hobby};
    snprintf(work, sizeof work, "%s maker", p->makes);
    snprintf(hobby, sizeof hobby, "%s carving", p->carves);
    snprintf(question, sizeof question, forms[fact], p->name);
    if (!put_docs(s, d, question, r))
        return false;
    eval_add_ref(s, only_turn(s), answers[fact]);
    return true;
}

static int end_docs(struct names *names, struct docs *docs, bool good)
{
    free(names->at);
    free_docs(docs);
    return good ? APP_OK : eval_no_memory("documents");
}

int eval_make_people(struct eval_sample *s, struct eval_draft *d)
{
    struct docs docs = {0};
    struct names names = {0};
    struct person who = {0}, p;
    const size_t n = (size_t)d->units, asked = (size_t)eval_random_below(&d->r, n);
    const int fact = (int)eval_random_below(&d->r, N_FACTS);
    size_t *things = draw_things(&d->r, n);
    bool good = things != NULL;
    for (size_t i = 0; good && i < n; i++) {
        good = draw_person(&p, &names, &d->r, n, things[2 * i], things[2 * i + 1]) &&
               add_doc(&docs, person_text(&p), i == asked);
        if (i == asked)
            who = p;
    }
    good = good && put_question_about(s, &docs, &who, fact, &d->r);
    free(things);
    return end_docs(&names, &docs, good);
}

/* Questions with two hops: a person's document names the company, the company's document names the town. The
 * unit is a pair of documents. */
int eval_make_companies(struct eval_sample *s, struct eval_draft *d)
{
    struct docs docs = {0};
    struct names names = {0};
    const size_t n = (size_t)d->units, asked = (size_t)eval_random_below(&d->r, n);
    char question[160] = "", answer[MAX_NAME] = "", home[MAX_NAME];
    size_t *things = draw_things(&d->r, n);
    bool good = things != NULL;
    for (size_t i = 0; good && i < n; i++) {
        struct person p;
        char *text = NULL;
        good = draw_person(&p, &names, &d->r, n, things[2 * i], things[2 * i + 1]) &&
               add_doc(&docs, person_text(&p), i == asked) && new_name(home, &names, &d->r, 3, false) &&
               asprintf(&text, "%s\n%s is a company with its seat in the town of %s. %s is known for its %s.",
                        p.company, p.company, home, p.company, eval_draw(&d->r, &eval_products)) >= 0 &&
               add_doc(&docs, text, i == asked);
        if (good && i == asked) {
            snprintf(question, sizeof question, "In which town is the company that employs %s based?",
                     p.name);
            memcpy(answer, home, sizeof answer);
        }
    }
    good = good && put_docs(s, &docs, question, &d->r);
    if (good)
        eval_add_ref(s, only_turn(s), answer);
    free(things);
    return end_docs(&names, &docs, good);
}
