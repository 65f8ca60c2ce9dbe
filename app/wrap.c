/* SPDX-License-Identifier: MIT */
/* Text that is broken between words, for help texts. */
#include "app/wrap.h"

#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LEAST_COLUMNS = 40, MOST_COLUMNS = 100, PLAIN_COLUMNS = 80 };

int app_wrap_columns(FILE *f)
{
    struct winsize size;
    if (!isatty(fileno(f)) || ioctl(fileno(f), TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return PLAIN_COLUMNS;
    if (size.ws_col < LEAST_COLUMNS)
        return LEAST_COLUMNS;
    return size.ws_col < MOST_COLUMNS ? size.ws_col : MOST_COLUMNS;
}

void app_wrap(FILE *f, const char *text, int at, int indent, int width)
{
    bool first = true; /* the next word is the first of its line */
    while (*text) {
        const int n_blank = (int)strspn(text, " \n");
        const int n = (int)strcspn(text + n_blank, " \n");
        const bool ends = strncmp(text, "\n\n", 2) == 0 || (!first && at + 1 + n > width);
        if (ends && n > 0) {
            fprintf(f, "\n%*s", indent, "");
            at = indent;
        } else if (!first && n > 0) {
            putc(' ', f);
            at++;
        }
        fwrite(text + n_blank, 1, (size_t)n, f);
        at += n;
        first = false;
        text += n_blank + n;
    }
    putc('\n', f);
}
