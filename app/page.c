/* SPDX-License-Identifier: MIT */
#include "app/page.h"

#include "app/console.h"
#include "app/files.h"
#include "app/share.h"

#include <stdlib.h>
#include <string.h>

/* Where the data goes in the page. */
static const char mark[] = "<script type=\"application/json\" id=\"data\">";

/* What stands for the character at s, whose length is *len; NULL if the character stands for itself. Markup begins with '<';
 * U+2028 and U+2029 end a line of a script in older readers. All of them stand in strings, where the escapes are allowed. */
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

int app_page_make(struct app_text *t, const char *tail, const json_t *data)
{
    char *path = NULL, *page = NULL;
    size_t len;
    int rc = app_share_find(&path, tail, NULL);
    if (rc == APP_OK)
        rc = app_read_file(&page, &len, path);
    char *at = rc == APP_OK ? strstr(page, mark) : NULL;
    if (rc == APP_OK && !at)
        rc = app_fail(APP_BAD_INPUT, "'%s' is not the page that comes with winnow: it has no place for data",
                      path);
    char *json = rc == APP_OK ? json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(8)) : NULL;
    if (rc == APP_OK) {
        const char *rest = at + strlen(mark);
        bool good = json && app_text_add(t, page, (size_t)(rest - page)) && app_page_data(t, json);
        rest += strcspn(rest, "<"); /* what stands there without data */
        good = good && app_text_add(t, rest, strlen(rest));
        if (!good)
            rc = app_fail(APP_FAILED, "out of memory while the page was made");
    }
    free(json);
    free(page);
    free(path);
    return rc;
}
