/* SPDX-License-Identifier: MIT */
/* What is shown of slots and documents: GET /winnow/kv and the lines for Prometheus. */
#include "serve/documents.h"
#include "serve/parks.h"
#include "serve/slots_impl.h"
#include "serve/why.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void print_size(FILE *f, const wnw_size *size)
{
    if (size->kind == WNW_SIZE_BUDGET)
        fprintf(f, ", \"budget\": %" PRId64, size->budget);
    else if (size->kind == WNW_SIZE_RATIO)
        fprintf(f, ", \"ratio\": %.6g", size->ratio);
    else if (size->kind == WNW_SIZE_BYTES)
        fprintf(f, ", \"kv_bytes\": %" PRIu64, size->bytes);
}

/* Recipes have no characters that JSON would have to escape: they were parsed. */
static void print_slot(FILE *f, const struct serve_slots *all, int32_t i)
{
    char document[SERVE_JOIN_NAME + 1];
    const struct serve_slot *s = &all->slot[i];
    const double each = all->row_entries > 0 ? (double)s->entries / (double)all->row_entries : 0.0;
    fprintf(f,
            "%s\n  {\"id\": %d, \"busy\": %s, \"tokens\": %d, \"entries\": %.1f, \"bytes\": %.0f, "
            "\"compressed\": %s, \"policy\": \"%s\"",
            i > 0 ? "," : "", (int)i, s->claimed ? "true" : "false", (int)s->n_tokens, each,
            each * (double)all->row_bytes, s->compressed ? "true" : "false", s->keep_rule.recipe);
    if (s->compressed && *s->compressed_by.taken)
        fprintf(f, ", \"taken\": \"%s\"", s->compressed_by.taken);
    print_size(f, &s->keep_rule.size);
    fprintf(f, ", \"protected\": %d", (int)s->keep_rule.n_protected);
    if (s->keep_rule.chunk > 0)
        fprintf(f, ", \"chunk\": %d", (int)s->keep_rule.chunk);
    if (s->n_removed > 0)
        fprintf(f, ", \"removed\": %d", (int)s->n_removed);
    if (s->document_plus_1 > 0) {
        serve_document_show(s->document_plus_1 - 1, document);
        fprintf(f, ", \"document\": \"%s\"", document);
    }
    fputc('}', f);
}

/* Names have no characters that JSON would have to escape either. */
static void print_document(FILE *f, const struct serve_slots *all, int32_t d)
{
    int32_t n_tokens;
    int64_t entries;
    struct serve_keep_rule by;
    const bool is_read = serve_document_look(d, &n_tokens, &entries, &by);
    const double each = all->row_entries > 0 ? (double)entries / (double)all->row_entries : 0.0;
    fprintf(f,
            "%s\n  {\"name\": \"%s\", \"ready\": %s, \"stored\": %s, \"tokens\": %d, \"entries\": %.1f, "
            "\"bytes\": %.0f, \"policy\": \"%s\"",
            d > 0 ? "," : "", serve_document_name(d), is_read ? "true" : "false",
            serve_document_is_stored(d) ? "true" : "false", (int)n_tokens, each,
            each * (double)all->row_bytes, serve_keep_rule_taken(&by));
    print_size(f, &by.size);
    fputc('}', f);
}

/* Tokens that several slots share count once, as they do in memory. */
static double uncompressed(const struct serve_slots *all)
{
    return (double)all->n_tokens * (double)all->row_bytes + (double)all->window_held;
}

/* Closes what was written to memory. Returns the text, NULL if memory ran out. */
static char *finish(FILE *f, char **text)
{
    if (fclose(f) == 0)
        return *text;
    free(*text);
    return NULL;
}

char *serve_slots_json(const struct serve_owner *owner)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return NULL;
    const struct serve_slots *all = serve_slots_lock();
    fprintf(f,
            "{\"bytes\": %" PRIu64 ", \"bytes_uncompressed\": %.0f, \"bytes_of_a_token\": %" PRIu64
            ", \"cap\": %" PRIu64 ", \"compressions\": %" PRIu64 ", \"compressions_failed\": %" PRIu64
            ", \"compressions_by_fallback\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"policy\": \"%s\"",
            all->bytes, uncompressed(all), all->row_bytes, serve_settings()->cap, all->n_compressed,
            all->n_failed, all->n_fallback, all->n_refused, serve_policy_of_all(all->by_request));
    print_size(f, &serve_settings()->keep_rule.size);
    fputs(", \"parked\": ", f);
    serve_parks_print(f);
    fputs(", \"requests\": ", f);
    serve_why_print(f, owner);
    fputs(", \"documents\": [", f);
    for (int32_t d = 0; d < serve_documents_n(); d++)
        print_document(f, all, d);
    fputs("], \"slots\": [", f);
    for (int32_t i = 0; i < all->n_slots; i++)
        print_slot(f, all, i);
    fputs("]}\n", f);
    serve_slots_unlock();
    return finish(f, &text);
}

static void print_metric(FILE *f, const char *name, const char *type, const char *help, double value)
{
    fprintf(f, "# HELP winnow:%s %s\n# TYPE winnow:%s %s\nwinnow:%s %.0f\n", name, help, name, type, name,
            value);
}

char *serve_slots_metrics(void)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return NULL;
    const struct serve_slots *all = serve_slots_lock();
    print_metric(f, "kv_bytes", "gauge", "Bytes mapped for keys and values.", (double)all->bytes);
    print_metric(f, "kv_bytes_uncompressed", "gauge",
                 "Bytes that the slots' tokens would take without compression.", uncompressed(all));
    print_metric(f, "kv_bytes_cap", "gauge", "Bytes that requests may take, 0 = no cap.",
                 (double)serve_settings()->cap);
    print_metric(f, "compressions_total", "counter", "Sequences that were compressed.",
                 (double)all->n_compressed);
    print_metric(f, "compressions_failed_total", "counter",
                 "Sequences that stay as they are, for a reason in the log.", (double)all->n_failed);
    print_metric(f, "compressions_by_fallback_total", "counter",
                 "Compressions by keydiff, because the policy that was wanted refused.",
                 (double)all->n_fallback);
    print_metric(f, "refused_total", "counter", "Requests that were refused because memory was short.",
                 (double)all->n_refused);
    serve_parks_print_metrics(f);
    fputs("# HELP winnow:slot_tokens Tokens of a slot.\n# TYPE winnow:slot_tokens gauge\n", f);
    for (int32_t i = 0; i < all->n_slots; i++)
        fprintf(f, "winnow:slot_tokens{slot=\"%d\"} %d\n", (int)i, (int)all->slot[i].n_tokens);
    fputs(
        "# HELP winnow:slot_entries Entries of a slot, mean over heads.\n# TYPE winnow:slot_entries gauge\n",
        f);
    for (int32_t i = 0; i < all->n_slots; i++)
        fprintf(f, "winnow:slot_entries{slot=\"%d\"} %.1f\n", (int)i,
                all->row_entries > 0 ? (double)all->slot[i].entries / all->row_entries : 0.0);
    serve_slots_unlock();
    return finish(f, &text);
}
