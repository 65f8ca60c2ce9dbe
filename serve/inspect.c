/* SPDX-License-Identifier: MIT */
#include "serve/inspect.h"

#include <llama.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tickets ---- */

static const char file_prefix[] = "winnow-look.";

/* Requests that wait. */
struct wait {
    int32_t ticket;
    json_t *seen;
    char why[SERVE_TEXT];
    struct wait *next;
};

/* One for the process. */
static struct {
    pthread_mutex_t lock;
    struct wait *first;
    int32_t n;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

int32_t serve_inspect_begin(void)
{
    struct wait *x = calloc(1, sizeof *x);
    if (!x)
        return -1;
    strcpy(x->why, "the server could not look at it now");
    pthread_mutex_lock(&all.lock);
    x->ticket = all.n++;
    x->next = all.first;
    all.first = x;
    const int32_t ticket = x->ticket;
    pthread_mutex_unlock(&all.lock);
    return ticket;
}

static void give(int32_t ticket, json_t *seen, const char *why)
{
    pthread_mutex_lock(&all.lock);
    struct wait *x = all.first;
    while (x && x->ticket != ticket)
        x = x->next;
    if (x && !x->seen) {
        x->seen = seen;
        snprintf(x->why, sizeof x->why, "%s", why);
    } else {
        json_decref(seen); /* nobody waits any more */
    }
    pthread_mutex_unlock(&all.lock);
}

json_t *serve_inspect_end(int32_t ticket, char *why)
{
    json_t *seen = NULL;
    snprintf(why, SERVE_TEXT, "out of memory");
    pthread_mutex_lock(&all.lock);
    for (struct wait **at = &all.first; *at; at = &(*at)->next) {
        struct wait *x = *at;
        if (x->ticket != ticket)
            continue;
        seen = x->seen;
        memcpy(why, x->why, sizeof x->why);
        *at = x->next;
        free(x);
        break;
    }
    pthread_mutex_unlock(&all.lock);
    return seen;
}

void serve_inspect_file(int32_t ticket, int32_t document, char name[64])
{
    snprintf(name, 64, "%s%d.%d", file_prefix, (int)ticket, (int)document);
}

bool serve_inspect_of_file(const char *path, int32_t *ticket, int32_t *document)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int of_ticket, of_document, n = 0;
    if (strncmp(name, file_prefix, sizeof file_prefix - 1) != 0 ||
        sscanf(name + sizeof file_prefix - 1, "%d.%d%n", &of_ticket, &of_document, &n) != 2 ||
        name[sizeof file_prefix - 1 + (size_t)n])
        return false;
    *ticket = of_ticket;
    *document = of_document;
    return true;
}

/* ---- Texts of tokens ---- */

/* A character may be spread over several tokens: the first of them has its text, the others have "". After so many
 * tokens it is none. */
enum { MOST_PARTS = 8, PIECE = 512 };

/* The text of tokens from..to-1, which may be no UTF-8. */
static int32_t put_pieces(const struct serve_inspected *x, int32_t from, int32_t to, char *text, int32_t size)
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

static json_t *texts_of(const struct serve_inspected *x)
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
static json_t *bits_of(const struct serve_inspected *x, int32_t i, int32_t ih, const int32_t *place,
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
static json_t *layers_of(const struct serve_inspected *x, const int32_t *place, int32_t *cells)
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

static json_t *ids_of(const struct serve_inspected *x)
{
    json_t *ids = json_array();
    for (int32_t i = 0; i < x->n; i++)
        json_array_append_new(ids, json_integer(x->ids[i]));
    return ids;
}

static json_t *see(const struct serve_inspected *x)
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
                     "plans", "name", x->name, "model", x->model, "policy", x->by ? x->by->recipe : "full",
                     "moved", 0, "layers", layers);
}

void serve_inspect_look(int32_t ticket, const struct serve_inspected *x, const char *why)
{
    json_t *seen = why ? NULL : see(x);
    give(ticket, seen, why ? why : "no memory for the page, or layers with different numbers of heads");
}

/* ---- The page ---- */

/* Adds JSON such that no byte of it can end the element that it stands in. */
static void put_json(FILE *f, const char *json)
{
    for (; *json; json++)
        if (strchr("<>&", *json))
            fprintf(f, "\\u%04x", (unsigned)*json);
        else
            fputc(*json, f);
}

char *serve_inspect_page(const json_t *seen, size_t *n)
{
    static const char mark[] = "<script type=\"application/json\" id=\"data\">";
    const char *page = (const char *)serve_inspect_html, *end = page + serve_inspect_html_size;
    const char *at = memmem(page, serve_inspect_html_size, mark, sizeof mark - 1);
    char *text = NULL, *json = at ? json_dumps(seen, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    FILE *f = json ? open_memstream(&text, n) : NULL;
    if (f) {
        at += sizeof mark - 1;
        fwrite(page, 1, (size_t)(at - page), f);
        put_json(f, json);
        at += strcspn(at, "<"); /* what stands there without data */
        fwrite(at, 1, (size_t)(end - at), f);
    }
    free(json);
    if (f && fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}
