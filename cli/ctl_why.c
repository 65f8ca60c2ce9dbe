/* SPDX-License-Identifier: MIT */
/* winnow ctl why: where the tokens of a running server's last requests came from, and why prompts were read again. */
#include "app/args.h"
#include "app/console.h"
#include "app/shown.h"
#include "base/err.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/http.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long long number(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

/* Prints a text of the prompt in quotes, if the server shows it to this key. */
static void print_text(const json_t *request, const char *key)
{
    char *text = json_dumps(json_object_get(request, key), JSON_ENCODE_ANY);
    struct app_shown shown;
    if (text) {
        printf("  %-7s", key);
        app_shown_begin(&shown, stdout);
        (void)(app_shown_write(&shown, text, strlen(text)) && app_shown_end(&shown));
        putchar('\n');
    }
    free(text);
}

static void print_request(const json_t *request)
{
    const char *cause = json_string_value(json_object_get(request, "cause"));
    printf("slot %lld: %lld tokens read, %lld from the slot, %lld parked, %lld of a document\n",
           number(request, "slot"), number(request, "read"), number(request, "from_slot"),
           number(request, "parked"), number(request, "document"));
    if (!cause)
        return;
    const bool differs = json_object_get(request, "differs_at") != NULL;
    if (differs)
        printf("  differs from token %lld on: ", number(request, "differs_at"));
    else
        fputs("  read again: ", stdout);
    struct app_shown shown;
    app_shown_begin(&shown, stdout);
    (void)(app_shown_write(&shown, cause, strlen(cause)) && app_shown_end(&shown));
    putchar('\n');
    if (!differs)
        return;
    print_text(request, "before");
    print_text(request, "was");
    print_text(request, "is");
}

static int print_requests(const struct app_text *body)
{
    json_t *o = body->s ? json_loadb(body->s, body->len, 0, NULL) : NULL;
    const json_t *list = json_object_get(o, "requests"), *request;
    const bool known = json_is_array(list);
    size_t i;
    json_array_foreach(list, i, request)
    {
        print_request(request);
    }
    if (known && json_array_size(list) == 0)
        app_note("the server has read no prompt yet");
    json_decref(o);
    return known ? APP_OK
                 : app_fail(APP_BAD_INPUT,
                            "the server lists no requests; is it `winnow serve`, and this version of it?");
}

int cli_ctl_why(const struct app_args *app)
{
    const struct cli_args *args = (const struct cli_args *)app;
    struct cli_server server;
    struct app_text body = {0};
    int status = 0;
    WNW_TRY(cli_server_parse(&server, args->url));
    server.key = args->api_key ? args->api_key : getenv("LLAMA_API_KEY");
    int rc = cli_server_get(&server, "/winnow/kv", &status, &body);
    if (rc == APP_OK)
        rc = status == 200 ? print_requests(&body) : cli_server_refused(status, &body);
    free(body.s);
    return rc;
}
