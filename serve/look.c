/* SPDX-License-Identifier: MIT */
#include "serve/look.h"

#include <llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Something that is held: cells [n] in the order of its tokens. Pointers are borrowed. */
struct held_tokens {
    const wnw_bridge *cache;
    const struct llama_vocab *vocab;
    const int32_t *cells, *ids; /* [n]; ids NULL: which tokens they are is not known */
    int32_t n, n_cells;         /* of the cache */
    char name[80], model[128];
    const char *policy;
};

/* ---- Texts of tokens ---- */

/* A character may be spread over several tokens: the first of them has its text, the others have "". After so many
 * tokens it is none. */
enum { MOST_PARTS = 8, PIECE = 512 };

/* The text of tokens from..to-1, which may be no UTF-8. */
static int32_t put_pieces(const struct held_tokens *x, int32_t from, int32_t to, char *text, int32_t size)
{
    int32_t at = 0;
    for (int32_t i = from; i < to; i++) {
        const int32_t n = llama_token_to_piece(x->vocab, x->ids[i], text + at, size - at, 0, true);
        at += n > 0 ? n : 0;
    }
    return at;
}

/* The bytes as text; those that are no UTF-8 become question marks. */
static json_t *any_text(char *text, int32_t n)
{
    json_t *s = json_stringn(text, (size_t)n);
    for (int32_t i = 0; !s && i < n; i++)
        if (text[i] & 0x80)
            text[i] = '?';
    return s ? s : json_stringn(text, (size_t)n);
}

static json_t *texts_of(const struct held_tokens *x)
{
    json_t *texts = json_array();
    char text[MOST_PARTS * PIECE];
    for (int32_t i = 0, parts; i < x->n; i += parts) {
        json_t *s = NULL;
        for (parts = 0; !s && parts < MOST_PARTS && i + parts < x->n;) {
            parts++;
            s = json_stringn(text, (size_t)put_pieces(x, i, i + parts, text, (int32_t)sizeof text));
        }
        if (!s) /* no character begins here */
            s = any_text(text, put_pieces(x, i, i + (parts = 1), text, (int32_t)sizeof text));
        json_array_append_new(texts, s);
        for (int32_t k = 1; k < parts; k++)
            json_array_append_new(texts, json_string(""));
    }
    return texts;
}

/* ---- Looking ---- */

/* The kept tokens of a head as digits (cli/inspect_page.c). place[cell]: number of its token, -1 = none. cells: room for
 * those of a head. */
static json_t *bits_of(const struct held_tokens *x, int32_t i, int32_t ih, const int32_t *place,
                       int32_t *cells)
{
    static const char digits[] = "0123456789abcdef";
    const size_t len = ((size_t)x->n + 3) / 4;
    int32_t n = 0;
    unsigned char *bits = calloc(len + 1, 1);
    if (!bits || wnw_bridge_cells(x->cache, i, 0, ih, cells, x->n_cells, &n) != WNW_OK) {
        free(bits);
        return NULL;
    }
    for (int32_t k = 0; k < n; k++) {
        const int32_t at = place[cells[k]];
        if (at >= 0)
            bits[at / 4] = (unsigned char)(bits[at / 4] | 1U << (at % 4));
    }
    for (size_t k = 0; k < len; k++)
        bits[k] = (unsigned char)digits[bits[k]];
    json_t *out = json_stringn((const char *)bits, len);
    free(bits);
    return out;
}

/* Layers whose cells are those of the sequences, in the model's order. NULL: no memory, or heads that differ. */
static json_t *layers_of(const struct held_tokens *x, const int32_t *place, int32_t *cells)
{
    json_t *layers = json_array();
    int32_t n_heads = 0;
    bool good = layers != NULL;
    for (int32_t i = 0; good && i < wnw_bridge_n_layers(x->cache); i++) {
        wnw_bridge_layer l = {WNW_INIT(wnw_bridge_layer)};
        if (wnw_bridge_get_layer(x->cache, i, &l) != WNW_OK || !l.ragged || l.n_cells != x->n_cells)
            continue;
        json_t *heads = json_array();
        for (int32_t ih = 0; ih < l.n_heads; ih++)
            good = json_array_append_new(heads, bits_of(x, i, ih, place, cells)) == 0 && good;
        good = json_array_append_new(layers, heads) == 0 && good && (n_heads == 0 || n_heads == l.n_heads);
        n_heads = l.n_heads;
    }
    if (good && n_heads > 0)
        return layers;
    json_decref(layers);
    return NULL;
}

static json_t *ids_of(const struct held_tokens *x)
{
    json_t *ids = json_array();
    for (int32_t i = 0; i < x->n; i++)
        json_array_append_new(ids, json_integer(x->ids[i]));
    return ids;
}

static json_t *see(const struct held_tokens *x)
{
    int32_t *place = malloc(2 * (size_t)x->n_cells * sizeof *place);
    if (!place)
        return NULL;
    for (int32_t i = 0; i < x->n_cells; i++)
        place[i] = -1;
    for (int32_t i = 0; i < x->n; i++)
        place[x->cells[i]] = i;
    json_t *layers = layers_of(x, place, place + x->n_cells);
    free(place);
    if (!layers)
        return NULL;
    return json_pack("{s:s, s:i, s:o?, s:o?, s:[{s:s, s:s, s:s, s:b, s:o}]}", "winnow", wnw_version(), "n",
                     (int)x->n, "texts", x->ids ? texts_of(x) : NULL, "ids", x->ids ? ids_of(x) : NULL,
                     "plans", "name", x->name, "model", x->model, "policy", x->policy, "moved", 0, "layers",
                     layers);
}

/* ---- Which ---- */

/* The ids of a slot's tokens in what the server notes of it: they follow a mark, a version and their number, or stand alone. */
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
static const char *policy_of(const struct serve_watched *w, const struct serve_held *s)
{
    const struct serve_held *d = s->behind > 0 ? &w->held[w->n_slots + s->behind - 1] : NULL;
    return s->compressed ? s->by.recipe : d && d->compressed ? d->by.recipe : "full";
}

json_t *serve_look(const struct serve_watched *w, int32_t document, int32_t slot, const int32_t *notes,
                   size_t n_notes, const char **why)
{
    const int32_t seq = document >= 0 ? w->n_slots + document : slot;
    const struct serve_sequence *q = &w->sequences.of[seq];
    const struct llama_model *model = llama_get_model(w->ctx);
    int32_t n;
    const int32_t *ids = document >= 0 ? serve_document_tokens(document, &n) : ids_in(notes, n_notes, &n);
    struct held_tokens x = {.cache = w->cache,
                            .vocab = llama_model_get_vocab(model),
                            .cells = q->cell,
                            .ids = n >= q->n ? ids : NULL,
                            .n = q->n,
                            .n_cells = w->sequences.n_cells,
                            .policy = policy_of(w, &w->held[seq])};
    (void)llama_model_meta_val_str(model, "general.name", x.model, sizeof x.model);
    if (document >= 0)
        snprintf(x.name, sizeof x.name, "%s", serve_document_name(document));
    else
        snprintf(x.name, sizeof x.name, "slot %d", (int)slot);
    *why = q->n > 0 ? "no memory for the page, or layers with different numbers of heads"
           : w->held[seq].n_unknown > 0
               ? "it was restored from a file, and shows what it holds once it is asked"
           : document >= 0 ? "it is being read"
                           : "it is empty";
    return q->n > 0 ? see(&x) : NULL;
}
