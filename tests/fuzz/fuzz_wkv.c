/* SPDX-License-Identifier: MIT */
/*
 * Stored sessions: any bytes, with checksums that are set here, so that what they guard is reached too. A file that is
 * accepted is asked: a session of it reads, decodes, is compressed and stored again. The first byte of an input says
 * whether checksums are set.
 */
#include "fuzz.h"

#include "peek_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* Makes the file one of the target's model: which fingerprint that has is not what is tried here. */
static void set_fingerprint(uint8_t *bytes, size_t size, const wnw_model *m)
{
    static const char key[] = "\"fingerprint\":\"";
    const size_t n = sizeof key - 1;
    char print[WNW_FINGERPRINT_SIZE];
    uint8_t *at = size > n ? memmem(bytes, size, key, n) : NULL;
    wnw_model_fingerprint(m, print);
    if (at && size - (size_t)(at - bytes) > n + sizeof print - 1)
        memcpy(at + n, print, sizeof print - 1);
}

/* Sets all checksums that can be found. */
static void seal(uint8_t *bytes, size_t size)
{
    struct wnw__wkv_head head;
    struct wnw__wkv_block b;
    if (size < sizeof head)
        return;
    memcpy(&head, bytes, sizeof head);
    head.file_bytes = size;
    const uint64_t front = wnw__wkv_round(sizeof head + (uint64_t)head.n_block * sizeof b);
    for (uint64_t i = 0; front <= size && i < head.n_block; i++) {
        uint8_t *at = bytes + sizeof head + i * sizeof b;
        memcpy(&b, at, sizeof b);
        if (b.at > size || b.bytes > size - b.at || wnw__wkv_round(b.bytes) > size - b.at)
            continue;
        b.sum = XXH3_64bits(bytes + b.at, (size_t)wnw__wkv_round(b.bytes));
        memcpy(at, &b, sizeof b);
    }
    if (front <= size)
        head.table_sum = XXH3_64bits(bytes + sizeof head, (size_t)front - sizeof head);
    head.sum = XXH3_64bits(&head, offsetof(struct wnw__wkv_head, sum));
    memcpy(bytes, &head, sizeof head);
}

static wnw_model *the_model(void)
{
    static wnw_model *m;
    char path[4096];
    if (m)
        return m;
    fuzz_seed_path(path, "gguf/llama");
    fuzz_require(wnw_model_open(&m, path, NULL) == WNW_OK, "the target's model cannot be opened");
    return m;
}

static wnw_engine *the_engine(void)
{
    static wnw_engine *e;
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params), .n_threads = 1};
    if (!e)
        fuzz_require(wnw_engine_new(&e, the_model(), &params) == WNW_OK, "the target has no engine");
    return e;
}

static void look(const wnw_stored *st)
{
    wnw_stored_info info = wnw_stored_info_default();
    wnw_prompt_params text = wnw_prompt_default_params();
    const int32_t *pos;
    int64_t n = 0;
    fuzz_require(wnw_stored_get_info(st, &info) == WNW_OK, "an open file without facts");
    for (int32_t il = 0; il < info.n_layer; il++)
        for (int32_t ih = 0; ih < info.n_head_kv; ih++) {
            const int32_t n_head = wnw_stored_head(st, il, ih, &pos);
            for (int32_t i = 0; i < n_head; i++)
                fuzz_require(pos[i] >= 0 && pos[i] < info.n_past, "a position that was not read");
            n += n_head;
        }
    fuzz_require(n == info.n_entries, "entries that no head has");
    if (wnw_stored_note(st))
        n += (int64_t)strlen(wnw_stored_note(st));
    if (wnw_stored_get_text(st, &text) && text.document)
        fuzz_require(strlen(text.document) < info.bytes_file, "a document longer than its file");
}

/* What is stored can be opened, and is what was stored. */
static void store_again(const wnw_session *s)
{
    static char path[64];
    wnw_stored *st = NULL;
    wnw_stored_info info = wnw_stored_info_default();
    if (!*path)
        snprintf(path, sizeof path, "/tmp/fuzz-wkv-%d", (int)getpid());
    const int32_t n_past = wnw_session_n_past(s);
    if (!fuzz_status(wnw_session_store(s, path, NULL)))
        return;
    fuzz_require(wnw_stored_open(&st, path) == WNW_OK, "what was stored cannot be opened");
    fuzz_require(wnw_stored_get_info(st, &info) == WNW_OK && info.n_past == n_past,
                 "something else was stored");
    wnw_stored_free(st);
    unlink(path);
}

/* The state for libllama, where it is of a size that the target has memory for. */
static void make_sequence(const wnw_stored *st)
{
    uint8_t *bytes = NULL;
    size_t n = 0, n_made = 0;
    if (!fuzz_status(wnw_stored_sequence(st, NULL, &n)) || n > 1 << 24)
        return;
    if (fuzz_status(wnw_stored_sequence(st, &bytes, &n_made)))
        fuzz_require(bytes && n_made == n, "a sequence of another size");
    wnw_free(bytes);
}

static void use(const wnw_stored *st)
{
    wnw_session *s = NULL;
    wnw_policy *p = NULL;
    const int32_t tokens[] = {5, 6, 7};
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    if (!fuzz_status(wnw_stored_session(&s, st, the_engine(), NULL)))
        return;
    fuzz_require(wnw__cache_check(&s->cache) == WNW_OK, "a cache that contradicts itself");
    fuzz_require(wnw_policy_parse(&p, "knorm", NULL) == WNW_OK, "a recipe of this target is refused");
    if (fuzz_status(wnw_session_prefill(s, tokens, 3, NULL, NULL)) && fuzz_status(wnw_session_decode(s, 8)) &&
        fuzz_status(wnw_session_compress(s, p, &half, NULL)))
        (void)fuzz_status(wnw_session_decode(s, 9));
    fuzz_require(wnw__cache_check(&s->cache) == WNW_OK, "a cache that contradicts itself after use");
    store_again(s);
    wnw_session_free(s);
    wnw_policy_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wnw_stored *st = NULL;
    if (size < 1)
        return 0;
    uint8_t *bytes = malloc(size);
    fuzz_require(bytes != NULL, "no memory for an input");
    memcpy(bytes, data + 1, size - 1);
    if (data[0] & 1) {
        set_fingerprint(bytes, size - 1, the_model());
        seal(bytes, size - 1);
    }
    const bool opened = fuzz_status(wnw_stored_open(&st, fuzz_file(bytes, size - 1)));
    fuzz_require(opened == (st != NULL), "an error and a file at once, or neither");
    if (opened) {
        look(st);
        make_sequence(st);
        use(st);
    }
    wnw_stored_free(st);
    free(bytes);
    return 0;
}
