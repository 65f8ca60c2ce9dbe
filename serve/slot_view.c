/* SPDX-License-Identifier: MIT */
#include "serve/slot_view.h"

#include "app/inspect_data.h"
#include "app/json.h"

#include <llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Something that is held: cells [n] in the order of its tokens. Pointers are borrowed. */
struct held_tokens {
    const struct serve_watched *w;
    const struct llama_vocab *vocab;
    const int32_t *cells, *ids; /* [n]; ids NULL: which tokens they are is not known */
    int32_t n, n_header;        /* n_header: first tokens, which the chat template wrote */
    char name[80], model[128];
    const char *policy;
};

/* ---- Looking ---- */

/* Adds the text of a token, or a square for a piece of an image or a sound, which the server notes as no token: libllama ends the process
 * where it is asked for the text of one that the vocabulary does not have. Returns a wnw_status. */
static int add_piece(struct app_text *t, int32_t i, void *user)
{
    static const char square[] = "\xe2\x96\xa6";
    const struct held_tokens *x = user;
    enum { MOST = 512 }; /* bytes of a token */
    char text[MOST];
    if (x->ids[i] < 0 || x->ids[i] >= llama_vocab_n_tokens(x->vocab))
        return app_text_add(t, square, sizeof square - 1) ? WNW_OK : WNW_E_NOMEM;
    const int32_t n = llama_token_to_piece(x->vocab, x->ids[i], text, MOST, 0, true);
    const bool good = app_text_add(t, text, n > 0 ? (size_t)n : 0);
    return good ? WNW_OK : WNW_E_NOMEM;
}

/* Scratch of one layer after the other. */
struct scratch {
    int32_t *place;      /* [n_cells] number of the cell's token, -1 = none */
    int32_t *cells;      /* [n_cells] of a head */
    unsigned char *kept; /* [n] */
};

/* What a head has kept. NULL: no memory. */
static json_t *digits_of(const struct held_tokens *x, int32_t i, int32_t ih, const struct scratch *s)
{
    int32_t n = 0;
    if (wnw_bridge_cells(x->w->cache, i, 0, ih, s->cells, x->w->sequences.n_cells, &n) != WNW_OK)
        return NULL;
    memset(s->kept, 0, (size_t)x->n);
    for (int32_t k = 0; k < n; k++)
        if (s->place[s->cells[k]] >= 0)
            s->kept[s->place[s->cells[k]]] = 1;
    return app_inspect_digits(s->kept, x->n);
}

/* Layers whose cells are those of the sequences, in the model's order. NULL: no memory, or heads that differ. */
static json_t *layers_of(const struct held_tokens *x, const struct scratch *s)
{
    json_t *layers = json_array();
    int32_t n_heads = 0;
    for (int32_t i = 0; layers && i < wnw_bridge_n_layers(x->w->cache); i++) {
        wnw_bridge_layer l;
        if (!serve_watched_whole_layer(x->w, i, &l))
            continue;
        json_t *heads = n_heads == 0 || n_heads == l.n_heads ? json_array() : NULL;
        for (int32_t ih = 0; heads && ih < l.n_heads; ih++)
            app_json_append(&heads, digits_of(x, i, ih, s));
        app_json_append(&layers, heads);
        n_heads = l.n_heads;
    }
    if (n_heads > 0)
        return layers;
    json_decref(layers);
    return NULL;
}

/* What a policy keeps of the tokens, as the one plan of a list. */
static json_t *plans_of(const struct held_tokens *x, const struct scratch *s)
{
    json_t *plans = json_array();
    for (int32_t i = 0; i < x->w->sequences.n_cells; i++)
        s->place[i] = -1;
    for (int32_t i = 0; i < x->n; i++)
        s->place[x->cells[i]] = i;
    app_json_append(&plans, app_inspect_plan(&(struct app_inspect_plan){.name = x->name,
                                                                        .model = x->model,
                                                                        .policy = json_string(x->policy),
                                                                        .layers = layers_of(x, s)}));
    return plans;
}

static json_t *see(struct held_tokens *x)
{
    const size_t n_cells = (size_t)x->w->sequences.n_cells;
    struct scratch s = {.place = malloc(2 * n_cells * sizeof *s.place), .kept = malloc((size_t)x->n)};
    struct app_inspect_data data = {.n = x->n};
    if (x->n_header > 0 && x->n_header < x->n) {
        data.first = x->n_header;
        data.end = x->n;
    }
    json_t *seen = NULL;
    s.cells = s.place ? s.place + n_cells : NULL;
    bool good = s.place && s.kept && (data.plans = plans_of(x, &s)) != NULL;
    if (good && x->ids) {
        good = app_inspect_texts(&data.texts, x->n, add_piece, x) == WNW_OK;
        data.ids = json_array();
        for (int32_t i = 0; i < x->n; i++)
            app_json_append(&data.ids, json_integer(x->ids[i]));
        good = good && data.ids;
    }
    if (good)
        seen = app_inspect_data(&data);
    json_decref(data.plans);
    json_decref(data.texts);
    json_decref(data.ids);
    free(s.place);
    free(s.kept);
    return seen;
}

/* ---- Which ---- */

/* The ids of a slot's tokens in the server's notes. A mark, a version and their number may come before them. */
static const llama_token *ids_in(const llama_token *notes, size_t n_notes, int32_t *n)
{
    enum { HEAD = 3 };
    const bool marked = n_notes >= HEAD && notes[0] == LLAMA_TOKEN_NULL;
    const size_t most = marked ? n_notes - HEAD : n_notes;
    const size_t said = marked && notes[2] >= 0 ? (size_t)notes[2] : most;
    *n = (int32_t)(said < most ? said : most);
    return marked ? notes + HEAD : notes;
}

/* The recipe by which a sequence was compressed, or the document that it begins with. */
static const char *policy_of(const struct serve_watched *w, const struct serve_slot_cache *s)
{
    const int32_t document = s->document_plus_1 > 0 ? serve_watched_document(w, s->document_plus_1) : -1;
    const struct serve_slot_cache *d = document >= 0 ? &w->slot_cache[document] : NULL;
    if (s->compressed)
        return serve_keep_rule_taken(&s->by);
    return d && d->compressed ? serve_keep_rule_taken(&d->by) : "full";
}

/* Number of the chat template's first tokens; 0: not known. The template's tokens between later turns are not marked. */
static int32_t header_of(const struct serve_watched *w, int32_t document, int32_t seq)
{
    const int32_t d = document >= 0 ? document : w->slot_cache[seq].document_plus_1 - 1;
    return d >= 0 ? serve_document_n_header(d) : w->rule[seq].keep_rule.n_protected;
}

json_t *serve_look(const struct serve_watched *w, int32_t document, int32_t slot, const int32_t *notes,
                   size_t n_notes, const char **why)
{
    const int32_t seq = document >= 0 ? w->n_slots + document : slot;
    const struct serve_sequence *q = &w->sequences.of[seq];
    const struct llama_model *model = llama_get_model(w->ctx);
    int32_t n;
    const int32_t *ids = document >= 0 ? serve_document_tokens(document, &n) : ids_in(notes, n_notes, &n);
    if (document < 0 && serve_sequences_removed(&w->sequences, seq) > 0)
        ids = q->token;
    else if (n < q->n)
        ids = NULL;
    struct held_tokens x = {.w = w,
                            .vocab = llama_model_get_vocab(model),
                            .cells = q->cell,
                            .ids = ids,
                            .n = q->n,
                            .n_header = header_of(w, document, seq),
                            .policy = policy_of(w, &w->slot_cache[seq])};
    (void)llama_model_meta_val_str(model, "general.name", x.model, sizeof x.model);
    if (document >= 0)
        snprintf(x.name, sizeof x.name, "%s", serve_document_name(document));
    else
        snprintf(x.name, sizeof x.name, "slot %d", (int)slot);
    if (q->n > 0)
        *why = "no memory for the page, or layers with different numbers of heads";
    else if (w->slot_cache[seq].n_unknown > 0)
        *why = "it was restored from a file, and shows what it holds once it is asked";
    else
        *why = document >= 0 ? "it is being read" : "it is empty";
    return q->n > 0 ? see(&x) : NULL;
}
