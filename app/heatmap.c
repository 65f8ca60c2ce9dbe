/* SPDX-License-Identifier: MIT */
#include "app/heatmap.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Sizes in pixels. */
enum { CELL = 16, LEFT = 64, TOP = 56, LEGEND = 44, RIGHT = 24, LEAST_WIDTH = 420 };

struct range {
    double low, high;
};

static struct range range_of(const struct app_heatmap *m)
{
    struct range r = {0, 0};
    for (int64_t i = 0; i < (int64_t)m->n_row * m->n_column; i++) {
        if (isfinite(m->value[i])) {
            r.low = fmin(r.low, m->value[i]);
            r.high = fmax(r.high, m->value[i]);
        }
    }
    return r;
}

/* Where a value lies on the scale, 0 .. 1; negative where there is no value. */
static double level(const struct range *r, double value)
{
    if (!isfinite(value))
        return -1;
    return r->high > r->low ? (value - r->low) / (r->high - r->low) : 0;
}

/* ---- The picture ---- */

/* Three colours, light to dark, between which the scale is interpolated. */
static const int stops[3][3] = {{247, 251, 255}, {107, 174, 214}, {8, 48, 107}};

static void print_colour(FILE *f, double x)
{
    if (x < 0) {
        fputs("none", f);
        return;
    }
    const int s = x < 0.5 ? 0 : 1;
    const double t = 2 * x - s;
    int rgb[3];
    for (int c = 0; c < 3; c++)
        rgb[c] = (int)lround(stops[s][c] + t * (stops[s + 1][c] - stops[s][c]));
    fprintf(f, "#%02x%02x%02x", (unsigned)rgb[0], (unsigned)rgb[1], (unsigned)rgb[2]);
}

static void print_escaped(FILE *f, const char *s)
{
    for (; *s; s++) {
        switch (*s) {
        case '&':
            fputs("&amp;", f);
            break;
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        default:
            fputc((unsigned char)*s < 0x20 ? ' ' : *s, f);
        }
    }
}

static void print_text(FILE *f, int x, int y, const char *anchor, const char *text)
{
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">", x, y, anchor);
    print_escaped(f, text);
    fputs("</text>\n", f);
}

static void print_number(FILE *f, int x, int y, const char *anchor, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", value);
    print_text(f, x, y, anchor, text);
}

/* Every n-th row or column has a label, so that labels do not overlap. */
static int32_t label_step(int32_t n)
{
    if (n <= 16)
        return 1;
    if (n <= 48)
        return 4;
    return 8;
}

static void print_axes(FILE *f, const struct app_heatmap *m, int y)
{
    char text[128];
    print_text(f, LEFT, y + 20, "start", m->title);
    snprintf(text, sizeof text, "%.40s across, %.40s down", m->column, m->row);
    print_text(f, LEFT, y + 36, "start", text);
    for (int32_t c = 0; c < m->n_column; c += label_step(m->n_column))
        print_number(f, LEFT + c * CELL + CELL / 2, y + TOP - 4, "middle", c);
    for (int32_t r = 0; r < m->n_row; r += label_step(m->n_row))
        print_number(f, LEFT - 6, y + TOP + r * CELL + CELL - 4, "end", r);
}

static void print_legend(FILE *f, const struct range *range, int y)
{
    enum { STEPS = 10 };
    print_number(f, LEFT - 6, y + 13, "end", range->low);
    for (int i = 0; i <= STEPS; i++) {
        fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"", LEFT + i * CELL, y, CELL,
                CELL);
        print_colour(f, i / (double)STEPS);
        fputs("\"/>\n", f);
    }
    print_number(f, LEFT + (STEPS + 1) * CELL + 6, y + 13, "start", range->high);
}

static void print_map(FILE *f, const struct app_heatmap *m, int y)
{
    const struct range range = range_of(m);
    print_axes(f, m, y);
    for (int32_t r = 0; r < m->n_row; r++)
        for (int32_t c = 0; c < m->n_column; c++) {
            const double value = m->value[(int64_t)r * m->n_column + c];
            fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"", LEFT + c * CELL,
                    y + TOP + r * CELL, CELL - 1, CELL - 1);
            print_colour(f, level(&range, value));
            fprintf(f, "\"><title>");
            print_escaped(f, m->row);
            fprintf(f, " %d, ", r);
            print_escaped(f, m->column);
            fprintf(f, " %d: %.4g</title></rect>\n", c, value);
        }
    print_legend(f, &range, y + TOP + m->n_row * CELL + 10);
}

static int height_of(const struct app_heatmap *m)
{
    return TOP + m->n_row * CELL + LEGEND;
}

void app_heatmap_svg(FILE *f, const struct app_heatmap *maps, int n)
{
    int width = LEAST_WIDTH, height = 0;
    for (int i = 0; i < n; i++) {
        const int wide = LEFT + maps[i].n_column * CELL + RIGHT;
        width = wide > width ? wide : width;
        height += height_of(&maps[i]);
    }
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"11\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
            width, height, width, height, width, height);
    for (int i = 0, y = 0; i < n; y += height_of(&maps[i]), i++)
        print_map(f, &maps[i], y);
    fputs("</svg>\n", f);
}

/* ---- Text ---- */

void app_heatmap_print(FILE *f, const struct app_heatmap *m)
{
    static const char shades[] = ".:-=+*#%@"; /* light to dark */
    const int n_shade = (int)strlen(shades);
    const struct range range = range_of(m);
    fprintf(f, "%s\n  %s across, %s down; '%c' = %.4g .. '%c' = %.4g\n", m->title, m->column, m->row,
            shades[0], range.low, shades[n_shade - 1], range.high);
    for (int32_t r = 0; r < m->n_row; r++) {
        fprintf(f, "  %4d  ", r);
        for (int32_t c = 0; c < m->n_column; c++) {
            const double x = level(&range, m->value[(int64_t)r * m->n_column + c]);
            const int shade = (int)(x * n_shade);
            if (x < 0)
                fputc(' ', f);
            else
                fputc(shades[shade < n_shade ? shade : n_shade - 1], f);
        }
        fputc('\n', f);
    }
}
