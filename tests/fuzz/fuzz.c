/* SPDX-License-Identifier: MIT */
#include "fuzz.h"
#include "peek_prompt.h"
#include "winnow_method.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void fuzz_require(bool holds, const char *sentence)
{
    if (holds)
        return;
    fprintf(stderr, "%s (last error: \"%s\")\n", sentence, wnw_last_error());
    abort();
}

bool fuzz_status(int rc)
{
    if (rc == WNW_OK)
        return true;
    fuzz_require(strcmp(wnw_strerror(rc), wnw_strerror(-1000)) != 0, "a status that is none");
    fuzz_require(wnw_last_error()[0] != '\0', "an error without a sentence");
    return false;
}

uint8_t fuzz_u8(struct fuzz_input *in)
{
    if (in->n == 0)
        return 0;
    in->n--;
    return *in->at++;
}

uint32_t fuzz_u32(struct fuzz_input *in)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v |= (uint32_t)fuzz_u8(in) << (8 * i);
    return v;
}

void fuzz_text(struct fuzz_input *in, char out[256])
{
    size_t n = fuzz_u8(in);
    n = n < in->n ? n : in->n;
    if (n > 0)
        memcpy(out, in->at, n);
    out[n] = '\0';
    in->at += n;
    in->n -= n;
}

const char *fuzz_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    fuzz_require(fd >= 0 && ftruncate(fd, 0) == 0 &&
                     (size == 0 || pwrite(fd, data, size, 0) == (ssize_t)size),
                 "the target cannot write its file");
    return path;
}

void fuzz_seed_path(char out[4096], const char *name)
{
    const int n = snprintf(out, 4096, "%s/%s", WNW_FUZZ_CORPUS, name);
    fuzz_require(n > 0 && n < 4096, "the path of a seed is too long");
}

/* Reads tokens, compresses and decodes. Any of it may be refused. */
static void use_session(const wnw_model *m, const int32_t *tokens, int32_t n)
{
    wnw_session_params params = wnw_session_default_params();
    params.n_ctx = 64;
    params.n_threads = 1;
    wnw_session *s = NULL;
    wnw_policy *policy = NULL;
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    wnw_run run = {WNW_INIT(wnw_run),
                   .more = &(wnw_run_more){WNW_INIT(wnw_run_more),
                                           .policies = (const wnw_policy *const *)&policy, .n_policies = 1}};
    if (fuzz_status(wnw_session_new(&s, m, &params)) &&
        fuzz_status(wnw_policy_parse(&policy, "snapkv:window=4", NULL)) &&
        fuzz_status(wnw_session_begin(s, &run)) &&
        fuzz_status(wnw_session_prefill(s, tokens, n < 24 ? n : 24, NULL, NULL)) &&
        fuzz_status(wnw_session_compress(s, policy, &half, NULL)))
        (void)fuzz_status(wnw_session_decode(s, tokens[0]));
    wnw_session_free(s);
    wnw_policy_free(policy);
}

static void use_text(const wnw_model *m, const char *text)
{
    int32_t *tokens = NULL, n = 0;
    char *back = NULL;
    if (!fuzz_status(wnw_tokenize(m, text, strlen(text), true, true, &tokens, &n)))
        return;
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    wnw_model_get_info(m, &info);
    for (int32_t i = 0; i < n; i++)
        fuzz_require(tokens[i] >= 0 && tokens[i] < info.n_vocab, "a token outside the vocabulary");
    (void)fuzz_status(wnw_detokenize(m, tokens, n, &back));
    wnw_free(back);
    wnw_free(tokens);
    wnw_prompt *p = NULL;
    const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .document = text, .question = "Which?"};
    if (fuzz_status(wnw_prompt_build(&p, m, &params))) {
        fuzz_require(p->n_prefix >= 0 && p->n_prefix <= p->n_context && p->n_context <= p->n_tokens,
                     "the pieces of a prompt do not fit each other");
        if (p->n_tokens > 0)
            use_session(m, p->tokens, p->n_tokens);
    }
    wnw_prompt_free(p);
}

void fuzz_open_model(const char *path, const char *text)
{
    wnw_model *m = NULL;
    const bool opened = fuzz_status(wnw_model_open(&m, path, NULL));
    fuzz_require(opened == (m != NULL), "an error and a model at once, or neither");
    if (opened)
        use_text(m, text);
    wnw_model_free(m);
}
