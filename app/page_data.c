/* SPDX-License-Identifier: MIT */
/* Data in a page, wherever the page comes from. */
#include "app/page.h"

#include <stdlib.h>
#include <string.h>

/* Where the data goes in the page. */
static const char mark[] = "<script type=\"application/json\" id=\"data\">";

/* The escape for the character at s, whose length is *len; NULL if it needs none. Markup begins with '<';
 * U+2028 and U+2029 end a line of a script in older browsers. All of them occur in strings, where escapes are allowed. */
static const char *escape_of(const char *s, size_t *len)
{
    static const struct {
        const char *of, *escape;
    } list[] = {{"<", "\\u003c"},
                {">", "\\u003e"},
                {"&", "\\u0026"},
                {"\xe2\x80\xa8", "\\u2028"},
                {"\xe2\x80\xa9", "\\u2029"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        *len = strlen(list[i].of);
        if (strncmp(s, list[i].of, *len) == 0)
            return list[i].escape;
    }
    return NULL;
}

bool app_page_data(struct app_text *t, const char *json)
{
    const char *plain = json;
    bool good = true;
    for (const char *at = json; good && *at;) {
        size_t len;
        const char *escape = escape_of(at, &len);
        if (!escape) {
            at++;
            continue;
        }
        good = app_text_add(t, plain, (size_t)(at - plain)) && app_text_add(t, escape, strlen(escape));
        plain = at += len;
    }
    return good && app_text_add(t, plain, strlen(plain));
}

bool app_page_fill(struct app_text *t, const char *page, size_t n, const json_t *data, bool *placed)
{
    const char *end = page + n, *at = memmem(page, n, mark, sizeof mark - 1);
    *placed = at != NULL;
    char *json = at ? json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(8)) : NULL;
    if (!json)
        return false;
    at += sizeof mark - 1;
    bool good = app_text_add(t, page, (size_t)(at - page)) && app_page_data(t, json);
    while (at < end && *at != '<') /* skips the placeholder of a page without data */
        at++;
    good = good && app_text_add(t, at, (size_t)(end - at));
    free(json);
    return good;
}
