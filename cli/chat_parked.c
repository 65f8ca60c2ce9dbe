/* SPDX-License-Identifier: MIT */
/* Conversations that a server has parked (--state). */
#include "app/models.h"
#include "app/values.h"
#include "base/err.h"
#include "cli/chat.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

/* What goes into a server's folder is what libllama's cache can hold. */
static int check(const struct cli_chat *c)
{
    const struct cli_args *args = &c->args;
    const size_t n = args->resume ? strlen(args->resume) : 0;
    const char *given = APP_FIRST_GIVEN(
        {args->cache, "-c"}, {args->app.devices, "--devices"}, {args->store, "--store"},
        {args->app.kv_tail != 0, "--kv-tail"}, {cli_chat_wants_endless(c), "--context endless"},
        {n >= 4 && strcmp(args->resume + n - 4, ".wkv") == 0, "--resume FILE.wkv"},
        {args->resume && args->app.documents.n > 0, "-f"});
    return given ? app_fail(APP_BAD_INPUT, "--state keeps conversations as a server parks them; leave out %s",
                            given)
                 : APP_OK;
}

static int open_folder(struct cli_chat *c, const wnw_model *model, bool *ends)
{
    struct cli_args *args = &c->args;
    c->parked.profile = args->app.profile;
    WNW_TRY(cli_parked_open(&c->parked, args->state, model, args->api_key_file));
    *ends = args->resume && strcmp(args->resume, "list") == 0;
    if (*ends)
        return cli_parked_list(&c->parked);
    if (args->resume)
        WNW_TRY(cli_parked_find(&c->resumed, &c->parked, args->resume));
    if (c->resumed) {
        WNW_TRY(cli_parked_conversation(&c->st, &c->parked, c->resumed));
        args->cache = args->resume; /* what it is called */
    }
    return APP_OK;
}

int cli_chat_take_parked(struct cli_chat *c, bool *ends)
{
    const wnw_model_params params = {WNW_INIT(wnw_model_params), .repack = false};
    char *path = NULL;
    wnw_model *model = NULL;
    WNW_TRY(check(c));
    WNW_TRY(app_model_path(&path, c->args.app.model));
    int rc = app_status_code(app_model_open(&model, path, &params, NULL));
    if (rc == APP_OK) {
        c->parked.model_path = path;
        rc = open_folder(c, model, ends);
        c->parked.model_path = NULL;
        c->parked.model = NULL; /* the job opens it again, for computing */
    }
    wnw_model_free(model);
    free(path);
    return rc;
}
