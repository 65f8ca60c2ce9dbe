/* SPDX-License-Identifier: MIT */
/* Heat maps of numbers per layer and head: as a picture, and as shades of text for a terminal. */
#ifndef WNW_APP_HEATMAP_H
#define WNW_APP_HEATMAP_H

#include <stdint.h>
#include <stdio.h>

struct app_heatmap {
    const char *title;        /* UTF-8 */
    const char *row, *column; /* what a row and a column is, such as "layer" and "head" */
    const double *value;      /* [n_row][n_column]; NAN = no value; borrowed */
    int32_t n_row, n_column;
};

/* Writes an SVG picture of n maps, one below the other. The scale of each goes from 0, or from its lowest
 * value if that is negative, to its highest. ferror(f) says whether writing succeeded. */
void app_heatmap_svg(FILE *f, const struct app_heatmap *maps, int n);
/* Prints a map as text, one line per row, on the same scale. */
void app_heatmap_print(FILE *f, const struct app_heatmap *map);

#endif
