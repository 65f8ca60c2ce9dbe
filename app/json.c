/* SPDX-License-Identifier: MIT */
/* JSON that commands print. */
#include "app/json.h"

#include "app/console.h"
#include "app/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool app_json_append(json_t **list, json_t *item)
{
    /* The call takes the item over in any case and refuses NULL. */
    if (json_array_append_new(*list, item) == 0)
        return true;
    json_decref(*list);
    *list = NULL;
    return false;
}

bool app_json_set(json_t **o, const char *key, json_t *value)
{
    if (json_object_set_new(*o, key, value) == 0) /* takes the value over in any case, as above */
        return true;
    json_decref(*o);
    *o = NULL;
    return false;
}

json_t *app_json_text(const char *s)
{
    struct app_text text = {0};
    const bool whole = app_text_add_utf8(&text, s, strlen(s)) && app_text_add(&text, "", 0);
    json_t *o = whole ? json_stringn(text.s, text.len) : NULL;
    free(text.s);
    return o;
}

json_t *app_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void app_put_json(const char *text)
{
    if (isatty(STDOUT_FILENO) != 1) {
        fputs(text, stdout);
        return;
    }
    while (*text) {
        const size_t n = *text != '\n' ? app_control_bytes(text) : 0;
        if (n > 0)
            printf("\\u%04x", app_control_code(text, n));
        else
            putchar(*text);
        text += n > 0 ? n : 1;
    }
}

int app_print_json(json_t *o)
{
    if (!o)
        return app_fail(APP_FAILED, "out of memory for the JSON object");
    errno = 0;
    char *text = json_dumps(o, JSON_REAL_PRECISION(10));
    const bool whole = text != NULL;
    if (text)
        app_put_json(text);
    free(text);
    json_decref(o);
    putchar('\n');
    const int rc = app_finish_stdout();
    return rc == APP_OK && !whole ? app_fail(APP_FAILED, "out of memory for the JSON object") : rc;
}
