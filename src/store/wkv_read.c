/* SPDX-License-Identifier: MIT */
/* Opening a stored session: everything in the file is checked before any of it is used. */
#include "base/system.h"
#include "policy/policy.h"
#include "store/wkv.h"
#include "winnow_tools.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- Head and table ---- */

/* Bytes of head and table. */
static uint64_t front_of(const struct wnw__wkv_head *h)
{
    return wnw__wkv_round(sizeof *h + (uint64_t)h->n_block * sizeof(struct wnw__wkv_block));
}

static uint32_t turned(uint32_t x)
{
    return x >> 24 | (x >> 8 & 0xff00u) | (x << 8 & 0xff0000u) | x << 24;
}

/* Reads and checks the head, and reads the table after it. */
static int check_head(struct wnw_stored *st)
{
    struct wnw__wkv_head head, *h = &head;
    if (st->n_bytes < sizeof *h)
        return wnw__fail(WNW_E_FORMAT, "it has %zu bytes: it is cut off, or no stored cache", st->n_bytes);
    WNW_TRY(wnw__read_at(st->fd, h, sizeof *h, 0));
    if (memcmp(h->magic, WNW_WKV_MAGIC, sizeof h->magic) != 0)
        return wnw__fail(WNW_E_FORMAT, "it is no stored cache");
    if (h->byte_order == turned(WNW_WKV_BYTE_ORDER))
        return wnw__fail(WNW_E_FORMAT, "it was written by a machine with another byte order; read the "
                                       "document again here");
    if (h->byte_order != WNW_WKV_BYTE_ORDER)
        return wnw__fail(WNW_E_FORMAT, "its head is damaged (byte order)");
    if (h->version > WNW_STORED_VERSION && h->version < 65536)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "it has version %u, this program reads up to %d; use a newer program, or read the "
                         "document again",
                         (unsigned)h->version, WNW_STORED_VERSION);
    if (h->version == 0 || h->version > WNW_STORED_VERSION ||
        h->sum != XXH3_64bits(h, offsetof(struct wnw__wkv_head, sum)))
        return wnw__fail(WNW_E_FORMAT, "its head is damaged (checksum)");
    if (h->file_bytes != st->n_bytes)
        return wnw__fail(WNW_E_FORMAT, "it has %zu bytes of %llu: it is %s", st->n_bytes,
                         (unsigned long long)h->file_bytes,
                         h->file_bytes > st->n_bytes ? "cut off" : "longer than it was written");
    if (h->page != WNW_STORED_PAGE || h->n_block < 1 || h->n_block > WNW_WKV_MOST_BLOCKS)
        return wnw__fail(WNW_E_FORMAT, "its head is damaged (%u blocks in pages of %u)", (unsigned)h->n_block,
                         (unsigned)h->page);
    const uint64_t front = front_of(h);
    if (front > st->n_bytes)
        return wnw__fail(WNW_E_FORMAT, "its table of blocks is damaged");
    st->front = malloc((size_t)front);
    st->block = calloc(h->n_block, sizeof *st->block);
    if (!st->front || !st->block)
        return wnw__fail(WNW_E_NOMEM, "no memory for %u blocks", (unsigned)h->n_block);
    memcpy(st->front, h, sizeof *h);
    st->head = (const struct wnw__wkv_head *)(const void *)st->front;
    st->table = (const struct wnw__wkv_block *)(const void *)(st->front + sizeof *h);
    return wnw__read_at(st->fd, st->front + sizeof *h, (size_t)front - sizeof *h, sizeof *h);
}

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = {"?",         "description", "tokens",         "token ids", "document",
                                        "recurrent", "counts",      "sliding counts", "layer"};
    return names[kind < WNW_WKV_N_KINDS ? kind : 0];
}

enum { PIECE = 256 << 10 }; /* bytes that are read at once */

static int sum_pieces(XXH3_state_t *state, uint8_t *piece, const struct wnw_stored *st, uint64_t at,
                      uint64_t n, uint8_t *to)
{
    XXH3_64bits_reset(state);
    for (uint64_t done = 0; done < n; done += PIECE) {
        const size_t m = n - done < PIECE ? (size_t)(n - done) : (size_t)PIECE;
        uint8_t *into = to ? to + done : piece;
        WNW_TRY(wnw__read_at(st->fd, into, m, at + done));
        XXH3_64bits_update(state, into, m);
    }
    return WNW_OK;
}

/* Reads n bytes from `at` on and gives their checksum. All of them are put to `to`; NULL: they are of no use but for it. */
static int sum_of(uint64_t *sum, const struct wnw_stored *st, uint64_t at, uint64_t n, uint8_t *to)
{
    XXH3_state_t *state = XXH3_createState();
    uint8_t *piece = malloc(PIECE);
    const int rc = state && piece ? sum_pieces(state, piece, st, at, n, to)
                                  : wnw__fail(WNW_E_NOMEM, "no memory to check a stored cache");
    *sum = rc == WNW_OK ? XXH3_64bits_digest(state) : 0;
    XXH3_freeState(state);
    free(piece);
    return rc;
}

/* Reads a block that takes n bytes in the file and checks its checksum. */
static int check_block(struct wnw_stored *st, uint32_t i, uint64_t n)
{
    const struct wnw__wkv_block *b = &st->table[i];
    const bool stays = b->kind > 0 && b->kind < WNW_WKV_N_KINDS && b->kind != WNW_WKV_LAYER;
    uint64_t sum;
    if (stays && !(st->block[i] = malloc((size_t)n + 1)))
        return wnw__fail(WNW_E_NOMEM, "no memory for block %u (%s) of %llu bytes", (unsigned)i,
                         kind_name(b->kind), (unsigned long long)n);
    WNW_TRY(sum_of(&sum, st, b->at, n, st->block[i]));
    return b->sum == sum ? WNW_OK
                         : wnw__fail(WNW_E_FORMAT, "it is damaged: the checksum of block %u (%s %u) is wrong",
                                     (unsigned)i, kind_name(b->kind), (unsigned)b->number);
}

/* Blocks follow each other up to the file's end, and are what their checksums say. */
static int check_table(struct wnw_stored *st)
{
    const struct wnw__wkv_head *h = st->head;
    const uint64_t front = front_of(h);
    uint64_t at = front;
    if (h->table_sum != XXH3_64bits(st->front + sizeof *h, (size_t)front - sizeof *h))
        return wnw__fail(WNW_E_FORMAT, "its table of blocks is damaged");
    for (uint32_t i = 0; i < h->n_block; i++) {
        const struct wnw__wkv_block *b = &st->table[i];
        if (b->at != at || b->bytes > st->n_bytes - at || wnw__wkv_round(b->bytes) > st->n_bytes - at)
            return wnw__fail(WNW_E_FORMAT, "its block %u does not fit the file", (unsigned)i);
        at += wnw__wkv_round(b->bytes);
        WNW_TRY(check_block(st, i, at - b->at));
    }
    return at == st->n_bytes
               ? WNW_OK
               : wnw__fail(WNW_E_FORMAT, "bytes follow its last block, at %llu", (unsigned long long)at);
}

const uint8_t *wnw__wkv_bytes(const struct wnw_stored *st, const struct wnw__wkv_block *b)
{
    return st->block[b - st->table];
}

const struct wnw__wkv_block *wnw__wkv_find(const struct wnw_stored *st, enum wnw__wkv_kind kind,
                                           uint32_t number)
{
    for (uint32_t i = 0; i < st->head->n_block; i++)
        if (st->table[i].kind == (uint32_t)kind && st->table[i].number == number)
            return &st->table[i];
    return NULL;
}

/* ---- Blocks ---- */

/* The int32 numbers of a block, [*n]; NULL if there is none. */
static const int32_t *numbers_of(const struct wnw_stored *st, enum wnw__wkv_kind kind, int64_t *n)
{
    const struct wnw__wkv_block *b = wnw__wkv_find(st, kind, 0);
    *n = b ? (int64_t)(b->bytes / sizeof(int32_t)) : 0;
    if (!b)
        return NULL;
    return (const int32_t *)(const void *)wnw__wkv_bytes(st, b);
}

static bool of_numbers(uint32_t kind)
{
    return kind == WNW_WKV_TOKENS || kind == WNW_WKV_IDS || kind == WNW_WKV_COUNTS || kind == WNW_WKV_HELD;
}

/* Blocks that a reader would have to choose between, or that belong to no layer, are nothing that was written here. Kinds that this
 * reader does not know are skipped. */
static int check_blocks(struct wnw_stored *st)
{
    const struct wnw__wkv_block *first[WNW_WKV_N_KINDS] = {NULL};
    st->layer = calloc((size_t)st->meta.n_layer, sizeof *st->layer);
    if (!st->layer)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d layers", (int)st->meta.n_layer);
    for (uint32_t i = 0; i < st->head->n_block; i++) {
        const struct wnw__wkv_block *b = &st->table[i];
        const uint32_t n = b->kind == WNW_WKV_LAYER ? (uint32_t)st->meta.n_layer : 1;
        if (b->kind == 0 || b->kind >= WNW_WKV_N_KINDS)
            continue;
        if (b->number >= n)
            return wnw__fail(WNW_E_FORMAT, "its block %u is %s %u, and there %s %u", (unsigned)i,
                             kind_name(b->kind), (unsigned)b->number, n == 1 ? "is" : "are", (unsigned)n);
        const struct wnw__wkv_block **of = b->kind == WNW_WKV_LAYER ? &st->layer[b->number] : &first[b->kind];
        if (*of)
            return wnw__fail(WNW_E_FORMAT, "it has %s %u twice", kind_name(b->kind), (unsigned)b->number);
        *of = b;
        if (of_numbers(b->kind) && b->bytes % sizeof(int32_t) != 0)
            return wnw__fail(WNW_E_FORMAT, "its %s are %llu bytes, which are no whole numbers",
                             kind_name(b->kind), (unsigned long long)b->bytes);
    }
    return WNW_OK;
}

static int read_policy(struct wnw_stored *st)
{
    char why[300];
    const int rc = wnw_policy_parse(&st->policy, st->meta.policy, NULL);
    st->meta.state.rules.policy = st->policy;
    if (rc == WNW_OK || rc == WNW_E_NOMEM)
        return rc;
    snprintf(why, sizeof why, "%s", wnw_last_error());
    return wnw__fail(WNW_E_UNSUPPORTED, "its recipe: %s", why);
}

static int read_meta(struct wnw_stored *st)
{
    const struct wnw__wkv_block *b = wnw__wkv_find(st, WNW_WKV_META, 0);
    if (!b)
        return wnw__fail(WNW_E_FORMAT, "it has no description");
    WNW_TRY(wnw__wkv_meta_parse(&st->meta, (const char *)wnw__wkv_bytes(st, b), (size_t)b->bytes));
    if (!st->meta.policy)
        return WNW_OK;
    WNW_TRY(read_policy(st));
    if (st->meta.state.rules.slack > 0 && wnw__policy_is_recursive(st->policy))
        return wnw__fail(WNW_E_FORMAT,
                         "its rules leave more than the size between chunks, which its recipe cannot");
    return WNW_OK;
}

static int read_tokens(struct wnw_stored *st)
{
    struct wnw__session_state *s = &st->meta.state;
    int64_t n, n_ids, n_slide_counts;
    st->tokens = numbers_of(st, WNW_WKV_TOKENS, &n);
    st->ids = numbers_of(st, WNW_WKV_IDS, &n_ids);
    s->slide_counts = numbers_of(st, WNW_WKV_HELD, &n_slide_counts);
    const bool own_ids = s->pos_shift > 0 || s->n_ambiguous > 0;
    if (!st->tokens || n > INT32_MAX || n != s->n_past + s->pos_shift ||
        (own_ids ? !st->ids || n_ids != s->n_past : st->ids != NULL))
        return wnw__fail(WNW_E_FORMAT, "it has %lld tokens and %lld ids of %d positions", (long long)n,
                         (long long)n_ids, (int)s->n_past);
    st->n_tokens = (int32_t)n;
    st->ids = st->ids ? st->ids : st->tokens;
    s->ids = st->ids;
    WNW_TRY(wnw__session_check_read(s, st->tokens, st->n_tokens, st->meta.n_vocab));
    s->n_slide_counts = (int32_t)n_slide_counts;
    if (s->slide_counts && n_slide_counts != (int64_t)st->meta.n_layer * st->meta.n_head_kv)
        return wnw__fail(WNW_E_FORMAT, "it has counts of %lld heads", (long long)n_slide_counts);
    const struct wnw__wkv_block *r = wnw__wkv_find(st, WNW_WKV_RECURRENT, 0);
    s->recurrent = r ? wnw__wkv_bytes(st, r) : NULL;
    s->n_recurrent = r ? (size_t)r->bytes : 0;
    return WNW_OK;
}

static int read_document(struct wnw_stored *st)
{
    const struct wnw__wkv_block *b = wnw__wkv_find(st, WNW_WKV_DOCUMENT, 0);
    if (!b || !st->meta.has_text)
        return WNW_OK;
    const char *text = (const char *)wnw__wkv_bytes(st, b);
    if (memchr(text, '\0', (size_t)b->bytes))
        return wnw__fail(WNW_E_FORMAT, "its document has a zero byte");
    st->document = strndup(text, (size_t)b->bytes);
    st->meta.text.document = st->document;
    return st->document ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for a document");
}

/* ---- Layers ---- */

static size_t counts_per_layer(const struct wnw__wkv_meta *m)
{
    return 3 + (size_t)(m->kv_tail > 0 ? 3 : 1) * (size_t)m->n_head_kv;
}

static const int32_t *counts_at(const struct wnw_stored *st, int32_t il)
{
    return st->counts + (size_t)il * counts_per_layer(&st->meta);
}

struct wnw__stored_counts wnw__wkv_counts(const struct wnw_stored *st, int32_t il)
{
    const int32_t *at = counts_at(st, il), n = st->meta.n_head_kv;
    const bool tail = st->meta.kv_tail > 0;
    return (struct wnw__stored_counts){.n_settled = at[1],
                                       .n_ambiguous = at[2],
                                       .len = at + 3,
                                       .n_first = tail ? at + 3 + n : NULL,
                                       .n_quantised = tail ? at + 3 + 2 * (size_t)n : NULL};
}

/* Makes an empty cache of the file's form. */
static int make_form(struct wnw_stored *st)
{
    const struct wnw__wkv_meta *m = &st->meta;
    int64_t n;
    st->counts = numbers_of(st, WNW_WKV_COUNTS, &n);
    if (!st->counts || (size_t)n != (size_t)m->n_layer * counts_per_layer(m))
        return wnw__fail(WNW_E_FORMAT, "its counts of entries do not fit %d layers of %d heads",
                         (int)m->n_layer, (int)m->n_head_kv);
    int32_t *n_swa = malloc((size_t)m->n_layer * sizeof *n_swa);
    if (!n_swa)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d layers", (int)m->n_layer);
    for (int32_t il = 0; il < m->n_layer; il++)
        n_swa[il] = counts_at(st, il)[0];
    int rc = wnw__cache_init(&st->form, m->n_layer, m->n_head_kv, m->n_embd_head, m->kv_type,
                             WNW_CACHE_GROWTH, n_swa);
    free(n_swa);
    if (rc == WNW_E_UNSUPPORTED)
        return wnw__fail(WNW_E_FORMAT, "heads of %d elements in %s", (int)m->n_embd_head,
                         wnw_kv_type_name(m->kv_type));
    if (rc == WNW_OK && m->kv_tail > 0)
        rc = wnw__cache_set_tail(&st->form, m->kv_tail);
    memcpy(st->form.aux_planes, m->aux_planes, sizeof st->form.aux_planes);
    st->before = calloc((size_t)m->n_layer * (size_t)m->n_head_kv, sizeof *st->before);
    return rc == WNW_OK && !st->before
               ? wnw__fail(WNW_E_NOMEM, "no memory for %d heads", (int)(m->n_layer * m->n_head_kv))
               : rc;
}

/* Reads the positions of a layer's entries, with which its block begins. */
static int read_positions(struct wnw_stored *st, const struct wnw__wkv_block *b,
                          const struct wnw__stored_counts *n)
{
    int64_t *before = st->before + (int64_t)b->number * st->meta.n_head_kv;
    uint64_t entries = 0;
    for (int32_t ih = 0; ih < st->meta.n_head_kv; ih++) {
        before[ih] = (int64_t)entries;
        entries += (uint64_t)n->len[ih];
    }
    uint8_t *to = malloc((size_t)entries * sizeof(int32_t) + 1);
    st->block[b - st->table] = to;
    return to ? wnw__read_at(st->fd, to, (size_t)entries * sizeof(int32_t), b->at)
              : wnw__fail(WNW_E_NOMEM, "no memory for the positions of %llu entries",
                          (unsigned long long)entries);
}

static int check_layer(struct wnw_stored *st, int32_t il)
{
    const struct wnw__wkv_block *b = st->layer[il];
    const struct wnw__stored_counts n = wnw__wkv_counts(st, il);
    const int32_t n_past = st->meta.state.n_past;
    if (!b)
        return wnw__fail(WNW_E_FORMAT, "it has no layer %d", (int)il);
    WNW_TRY(wnw__cache_stored_check(&st->form, il, &n, n_past));
    if (b->bytes != wnw__cache_stored_bytes(&st->form, &n))
        return wnw__fail(WNW_E_FORMAT, "layer %d has %llu bytes for entries that take %llu", (int)il,
                         (unsigned long long)b->bytes,
                         (unsigned long long)wnw__cache_stored_bytes(&st->form, &n));
    WNW_TRY(read_positions(st, b, &n));
    const int32_t *pos = (const int32_t *)(const void *)wnw__wkv_bytes(st, b);
    return wnw__cache_stored_check_positions(&st->form, il, &n, pos, n_past);
}

/* ---- Opening ---- */

bool wnw_stored_is(const char *path)
{
    enum { N = 4 }; /* those that a change of line breaks on the way leaves alone */
    char begin[N];
    struct stat st;
    int fd;
    int64_t size;
    /* Opening a pipe would let its writer begin, for nobody. */
    if (!path || stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
        wnw__open_file(&fd, &size, "stored cache", path) != WNW_OK)
        return false;
    const bool is = pread(fd, begin, N, 0) == N && memcmp(begin, WNW_WKV_MAGIC, N) == 0;
    close(fd);
    return is;
}

int wnw__wkv_unchanged(const struct wnw_stored *st)
{
    struct stat now;
    if (fstat(st->fd, &now) == 0 && (size_t)now.st_size == st->n_bytes &&
        now.st_mtim.tv_sec == st->written.tv_sec && now.st_mtim.tv_nsec == st->written.tv_nsec)
        return WNW_OK;
    return wnw__fail(WNW_E_FORMAT,
                     "the stored cache was written to after it was opened: open it again, and put another "
                     "file in its place by a rename");
}

static int check_all(struct wnw_stored *st)
{
    struct stat now;
    if (fstat(st->fd, &now) != 0)
        return wnw__fail(WNW_E_IO, "its size is not known: %s", strerror(errno));
    if (now.st_size == 0)
        return wnw__fail(WNW_E_FORMAT, "it is empty");
    st->written = now.st_mtim;
    st->n_bytes = (size_t)now.st_size;
    WNW_TRY(check_head(st));
    WNW_TRY(check_table(st));
    WNW_TRY(read_meta(st));
    WNW_TRY(check_blocks(st));
    WNW_TRY(read_tokens(st));
    WNW_TRY(read_document(st));
    WNW_TRY(make_form(st));
    for (int32_t il = 0; il < st->meta.n_layer; il++)
        WNW_TRY(check_layer(st, il));
    return WNW_OK;
}

/* Takes the descriptor over. */
static int open_checked(struct wnw_stored **out, int fd)
{
    struct wnw_stored *st = calloc(1, sizeof *st);
    *out = NULL;
    if (!st) {
        close(fd);
        return wnw__fail(WNW_E_NOMEM, "no memory for a stored cache");
    }
    st->fd = fd;
    const int rc = check_all(st);
    if (rc == WNW_OK)
        *out = st;
    else
        wnw_stored_free(st);
    return rc;
}

int wnw__wkv_open(struct wnw_stored **out, int fd)
{
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    *out = NULL;
    return own >= 0 ? open_checked(out, own)
                    : wnw__fail(WNW_E_IO, "it cannot be opened once more: %s", strerror(errno));
}

int wnw_stored_open(wnw_stored **out, const char *path)
{
    int fd;
    int64_t size;
    char why[400];
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(path);
    WNW_TRY(wnw__open_file(&fd, &size, "stored cache", path));
    const int rc = open_checked(out, fd);
    if (rc == WNW_OK)
        return WNW_OK;
    snprintf(why, sizeof why, "%s", wnw_last_error());
    return wnw__fail(rc, "the stored cache '%.200s' cannot be used: %s", path, why);
}

void wnw_stored_free(wnw_stored *st)
{
    if (!st)
        return;
    wnw__cache_free(&st->form);
    wnw_policy_free(st->policy);
    wnw__wkv_meta_clear(&st->meta);
    free(st->document);
    free(st->before);
    free(st->layer);
    for (uint32_t i = 0; st->head && i < st->head->n_block; i++)
        free(st->block[i]);
    free(st->block);
    free(st->front);
    if (st->fd >= 0)
        close(st->fd);
    free(st);
}
