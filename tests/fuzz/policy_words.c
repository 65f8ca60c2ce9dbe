/* SPDX-License-Identifier: MIT */
/* Prints the words of recipes as a dictionary for libFuzzer: signs, names of presets and parts, slots, options and their
 * choices. They come from the catalogue, so that no list of them has to be kept. */
#include "peek_plan.h"
#include "winnow_method.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, LENGTH = 64 };

struct words {
    char word[MOST][LENGTH];
    size_t n;
};

/* Adds text[len] and, after it, `sign`, unless it is there. */
static void add(struct words *w, const char *text, size_t len, const char *sign)
{
    if (len == 0 || w->n == MOST)
        return;
    snprintf(w->word[w->n], LENGTH, "%.*s%s", (int)len, text, sign);
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->word[i], w->word[w->n]) == 0)
            return;
    w->n++;
}

/* The words of a recipe in its long form, which names slots and options with a "=" after them. */
static void add_recipe(struct words *w, const char *recipe)
{
    while (*recipe) {
        const size_t len = strcspn(recipe, "+:,=");
        add(w, recipe, len, recipe[len] == '=' ? "=" : "");
        recipe += len + (recipe[len] != '\0');
    }
}

static void add_method(struct words *w, const wnw_method_info *info)
{
    add(w, info->name, strlen(info->name), "");
    add_recipe(w, info->recipe);
    for (const wnw_option *o = info->options; o && o->name; o++) {
        add(w, o->name, strlen(o->name), "=");
        for (int i = 0; o->type == WNW_OPT_ENUM && o->choices[i]; i++)
            add(w, o->choices[i], strlen(o->choices[i]), "");
    }
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

int main(void)
{
    static const char *const signs[] = {"+", ":", ",", "="};
    struct words *w = calloc(1, sizeof *w);
    wnw_method_info info = wnw_method_info_default();
    if (!w)
        return 1;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        add(w, signs[i], 1, "");
    for (int32_t kind = 0; kind < WNW_N_PART_KINDS; kind++)
        add(w, wnw__slot_name(kind), strlen(wnw__slot_name(kind)), "=");
    for (int32_t i = 0; wnw_method_get(i, &info); i++)
        add_method(w, &info);
    qsort(w->word, w->n, sizeof w->word[0], compare);
    for (size_t i = 0; i < w->n; i++)
        printf("\"%s\"\n", w->word[i]);
    const bool full = w->n == MOST;
    free(w);
    return full || fflush(stdout) != 0;
}
