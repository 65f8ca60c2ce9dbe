/* SPDX-License-Identifier: MIT */
/* Heat maps: the picture has a cell per value, its colours and the shades of text follow the value. */
#include "asserts.h"

#include "app/heatmap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a map prints, as text; the caller frees it. */
static char *drawn(const struct app_heatmap *maps, int n, bool picture)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    if (picture)
        app_heatmap_svg(f, maps, n);
    else
        app_heatmap_print(f, maps);
    fclose(f);
    return text;
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

static void test_picture(void **state)
{
    (void)state;
    const double value[] = {0, 1, 2, 4, 3, NAN};
    const struct app_heatmap maps[] = {
        {.title = "a < b & c", .row = "layer", .column = "head", .value = value, .n_row = 2, .n_column = 3},
        {.title = "again", .row = "layer", .column = "head", .value = value, .n_row = 3, .n_column = 2}};
    char *svg = drawn(maps, 2, true);
    assert_int_equal(strncmp(svg, "<svg ", 5), 0);
    assert_int_equal(count(svg, "<rect "), 1 + 2 * (6 + 11)); /* background, cells, legends */
    assert_int_equal(count(svg, "</title></rect>"), 12);
    assert_contains(svg, "a &lt; b &amp; c");
    assert_contains(svg, "<title>layer 0, head 2: 2</title>");
    assert_contains(svg, "<title>layer 2, head 0: 3</title>");
    assert_contains(svg, "fill=\"#f7fbff\"><title>layer 0, head 0: 0</title>");
    assert_contains(svg, "fill=\"#6baed6\"><title>layer 0, head 2: 2</title>"); /* half of 4 */
    assert_contains(svg, "fill=\"#08306b\"><title>layer 1, head 0: 4</title>");
    assert_contains(svg, "fill=\"none\"><title>layer 1, head 2: nan</title>");
    assert_contains(svg, "</svg>\n");
    free(svg);
}

static void test_text(void **state)
{
    (void)state;
    const double value[] = {-1, 3, NAN, 1};
    const struct app_heatmap map = {
        .title = "signed", .row = "layer", .column = "head", .value = value, .n_row = 2, .n_column = 2};
    char *text = drawn(&map, 1, false);
    assert_string_equal(text,
                        "signed\n  head across, layer down; '.' = -1 .. '@' = 3\n     0  .@\n     1   +\n");
    free(text);
}

/* A map of equal values has no scale: every cell is light. */
static void test_flat(void **state)
{
    (void)state;
    const double value[] = {0, 0};
    const struct app_heatmap map = {
        .title = "flat", .row = "layer", .column = "head", .value = value, .n_row = 1, .n_column = 2};
    char *text = drawn(&map, 1, false), *svg = drawn(&map, 1, true);
    assert_contains(text, "     0  ..\n");
    assert_contains(svg, "fill=\"#f7fbff\"><title>layer 0, head 1: 0</title>");
    free(text);
    free(svg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_picture),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
