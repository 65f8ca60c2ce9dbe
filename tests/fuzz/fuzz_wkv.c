/* SPDX-License-Identifier: MIT */
/*
 * Stored sessions: any bytes, with checksums that are set here, so that what they guard is reached too. A file that is
 * accepted is asked: a session of it reads, decodes, is compressed and stored again. The first byte of an input says
 * whether checksums are set.
 */
#include "fuzz.h"

#include "peek_store.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

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

static wnw_engine *the_engine(void)
{
    static wnw_model *m;
    static wnw_engine *e;
    char path[4096];
    if (e)
        return e;
    fuzz_seed_path(path, "gguf/llama");
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params), .n_threads = 1};
    fuzz_require(wnw_model_open(&m, path, NULL) == WNW_OK && wnw_engine_new(&e, m, &params) == WNW_OK,
                 "the target's model cannot be opened");
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
    if (data[0] & 1)
        seal(bytes, size - 1);
    const bool opened = fuzz_status(wnw_stored_open(&st, fuzz_file(bytes, size - 1)));
    fuzz_require(opened == (st != NULL), "an error and a file at once, or neither");
    if (opened) {
        look(st);
        use(st);
    }
    wnw_stored_free(st);
    free(bytes);
    return 0;
}
