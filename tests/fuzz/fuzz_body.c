/* SPDX-License-Identifier: MIT */
/*
 * The input is a body of a request: a byte for its form, and the JSON. It is refused with a sentence, or read; what is passed on is read
 * again as the same request, within the same bounds.
 */
#include "fuzz.h"

#include "serve/bodies.h"
#include "serve/parse.h"
#include "serve/request.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* What `winnow serve` would have set; the functions are config.c's, which needs a server. */
const struct serve_config *serve_settings(void)
{
    static struct serve_config config;
    return &config;
}

int serve_check_policy(const wnw_policy *policy)
{
    return policy ? WNW_OK : WNW_E_ARG;
}

enum { MOST_TEXT = 3000 };

static void open_slots(void)
{
    serve_slots_open(
        4, &(struct serve_room){.row_bytes = 100, .row_entries = 10, .n_cells = 500, .most_text = MOST_TEXT},
        true);
}

static void check_refused(int status, const char *why)
{
    fuzz_require(status == 400 || status == 500, "a body with another status");
    fuzz_require(strlen(why) > 5, "a refusal without a sentence");
}

/* What an error of the server's becomes is an error in JSON. */
static void check_words(const char *reply, size_t n)
{
    int status = 500;
    char *said = serve_error_in_words(reply, n, false, &status);
    json_t *o = said ? json_loads(said, 0, NULL) : NULL;
    fuzz_require(!said || json_is_object(json_object_get(o, "error")), "an error that is no JSON");
    json_decref(o);
    free(said);
}

static void check_again(const struct serve_request *r, enum serve_form form)
{
    const struct serve_claim claim = {.slot = 1};
    struct serve_request again;
    char why[SERVE_TEXT] = "";
    const char *param = NULL;
    char *passed = serve_request_passed(r, &claim), *tokenize = r->key ? serve_request_tokenize(r) : NULL;
    fuzz_require(passed != NULL, "a request that cannot be passed on");
    fuzz_require(!r->key || tokenize, "a prompt that cannot be counted");
    const int status = serve_request_read(&again, form, passed, strlen(passed), why, &param);
    fuzz_require(status == 0, "a request that is not read as it was passed on");
    fuzz_require(again.ask.n_slots == r->ask.n_slots && again.ask.n_predict == r->ask.n_predict &&
                     again.ask.n_prompt == r->ask.n_prompt && again.n_prompts == r->n_prompts,
                 "a request that counts otherwise when it is read again");
    fuzz_require(again.ask.n_slots >= 1 && again.ask.n_slots <= 4 && again.ask.slot == 1,
                 "slots that are none");
    serve_request_free(&again);
    free(passed);
    free(tokenize);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    const enum serve_form form = (enum serve_form)(fuzz_u8(&in) % (SERVE_FORM_INFILL + 1));
    const char *body = (const char *)in.at, *param = NULL;
    char why[SERVE_TEXT] = "";
    struct serve_request r;
    json_t *o;
    open_slots();
    const int status = serve_request_read(&r, form, body, in.n, why, &param);
    if (status)
        check_refused(status, why);
    else
        check_again(&r, form);
    serve_request_free(&r);
    check_words(body, in.n);
    free(serve_body_get_file(body, in.n));
    if (serve_parse(&o, body, in.n, why) == 0) {
        const int other = serve_request_check_other(o, -1, why, &param);
        if (other)
            check_refused(other, why);
    }
    json_decref(o);
    return 0;
}
