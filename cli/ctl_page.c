/* SPDX-License-Identifier: MIT */
/* winnow ctl page: the page of what a slot or a document of a running server holds. */
#include "app/args.h"
#include "app/console.h"
#include "app/output.h"
#include "base/err.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/http.h"

#include <stdio.h>
#include <stdlib.h>

static int make_path(struct app_text *path, const struct cli_args *args)
{
    bool good;
    if (args->document)
        good = app_text_put(path, "/winnow/page?document=") && cli_server_escape(path, args->document);
    else
        good =
            app_text_put(path, "/winnow/page?slot=%d", args->of_slot == APP_UNSET ? 0 : (int)args->of_slot);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

static int write_page(const struct app_text *page, const char *path)
{
    struct app_out out = {0};
    WNW_TRY(app_out_open(&out, path, NULL));
    if (fwrite(page->s, 1, page->len, out.f) == page->len)
        return app_out_commit(&out);
    app_out_abort(&out);
    return app_fail(APP_FAILED, "writing '%s' failed", path);
}

/* Gets the page from the server and writes it. The caller frees the texts. */
static int fetch_page(struct app_text *path, struct app_text *page, const struct cli_args *args)
{
    struct cli_server server;
    int status = 0;
    WNW_TRY(app_out_check(args->app.out, NULL));
    WNW_TRY(cli_server_parse(&server, args->url));
    server.key = args->api_key ? args->api_key : getenv("LLAMA_API_KEY");
    WNW_TRY(make_path(path, args));
    WNW_TRY(cli_server_get(&server, path->s, &status, page));
    return status == 200 ? write_page(page, args->app.out) : cli_server_refused(status, page);
}

int cli_ctl_page(const struct app_args *app)
{
    const struct cli_args *args = (const struct cli_args *)app;
    struct app_text path = {0}, page = {0};
    if (!app->out)
        return app_fail(APP_BAD_INPUT, "where is the page to be written? Name a file with -o");
    if (args->document && args->of_slot != APP_UNSET)
        return app_fail(APP_BAD_INPUT, "--slot and --document exclude each other; give one of them");
    const int rc = fetch_page(&path, &page, args);
    free(path.s);
    free(page.s);
    return rc;
}
