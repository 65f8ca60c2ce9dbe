/* SPDX-License-Identifier: MIT */
/* The block of a stored session that is JSON: model, form of the cache, numbers of the session, rules, template. */
#include "store/wkv.h"

#include "base/fingerprint_form.h"
#include "base/json.h"
#include "winnow_tools.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* Names of numbers that are kept with entries, by enum wnw__aux. Of projected norms, the kind is a number. */
static void aux_name(char out[32], int kind)
{
    static const char *const names[] = {"attn_sum", "attn_max", "settled", "bias", "gate", "note"};
    if (kind < WNW_AUX_PROJ)
        snprintf(out, 32, "%s", names[kind]);
    else if (kind < WNW_AUX_HEAD_PROJ)
        snprintf(out, 32, "proj_norm_%d", kind - WNW_AUX_PROJ);
    else
        snprintf(out, 32, "head_proj_norm_%d", kind - WNW_AUX_HEAD_PROJ);
}

/* ---- Writing ---- */

/* A text, or "?" where it is no UTF-8. */
static json_t *text_of(const char *s)
{
    json_t *v = json_string(s ? s : "?");
    return v ? v : json_string("?");
}

static json_t *optional(const char *s)
{
    return s ? json_string(s) : json_null();
}

static json_t *aux_of(const struct wnw__wkv_meta *m)
{
    json_t *o = json_object();
    char name[32];
    for (int kind = 0; o && kind < WNW_N_AUX; kind++) {
        aux_name(name, kind);
        if (m->aux_planes[kind] > 0 && json_object_set_new(o, name, json_integer(m->aux_planes[kind])) != 0) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

static json_t *session_of(const struct wnw__session_state *s)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:I}", "n_past", (int)s->n_past, "n_prefix",
                     (int)s->n_prefix, "n_renumbered", (int)s->n_renumbered, "n_fixed", (int)s->n_judged,
                     "n_question", (int)s->n_question, "n_ambiguous", (int)s->n_ambiguous, "pos_shift",
                     (json_int_t)s->pos_shift);
}

static json_t *size_of(const wnw_size *size)
{
    switch (size->kind) {
    case WNW_SIZE_BUDGET:
        return json_pack("{s:I}", "budget", (json_int_t)size->budget);
    case WNW_SIZE_RATIO:
        return json_pack("{s:f}", "ratio", size->ratio);
    case WNW_SIZE_BYTES:
        return json_pack("{s:I}", "bytes", (json_int_t)size->bytes);
    case WNW_SIZE_NONE:
        break;
    }
    return json_object();
}

static json_t *rules_of(const struct wnw__wkv_meta *m)
{
    const struct wnw__session_state *s = &m->state;
    if (!m->policy)
        return json_null();
    return json_pack("{s:s, s:o, s:s, s:i, s:b, s:i, s:i, s:b, s:o*}", "policy", m->policy, "size",
                     size_of(&s->rules.size), "phase", wnw_phase_name(s->rules.phase), "chunk",
                     (int)s->rules.chunk, "once", (int)s->rules.once, "n_uncounted", (int)s->n_uncounted,
                     "n_keep", (int)s->n_keep, "is_over", (int)s->is_over, "chunk_slack",
                     s->rules.slack > 1 ? json_real(s->rules.slack) : NULL);
}

static json_t *layout_of(const struct wnw__wkv_meta *m)
{
    const wnw_prompt_params *t = &m->text;
    if (!m->has_text)
        return json_null();
    return json_pack("{s:b, s:o, s:o, s:o, s:b, s:b, s:I}", "raw", (int)t->raw, "system", optional(t->system),
                     "chat", optional(t->chat), "jinja", optional(t->jinja), "special", (int)t->special,
                     "verbatim", (int)t->verbatim, "now", (json_int_t)t->now);
}

static bool is_utf8(const char *s)
{
    json_t *v = optional(s);
    json_decref(v);
    return v != NULL;
}

int wnw__wkv_meta_text(char **text, size_t *len, const struct wnw__wkv_meta *m)
{
    *text = NULL;
    if (m->has_text && (!is_utf8(m->text.system) || !is_utf8(m->text.chat) || !is_utf8(m->text.jinja)))
        return wnw__fail(WNW_E_ARG, "the system message or the template is not UTF-8");
    if (!is_utf8(m->note))
        return wnw__fail(WNW_E_ARG, "the note is not UTF-8");
    json_t *model =
        json_pack("{s:o, s:o, s:s, s:i, s:i, s:i, s:i}", "name", text_of(m->model), "arch", text_of(m->arch),
                  "fingerprint", m->fingerprint, "n_layer", (int)m->n_layer, "n_head_kv", (int)m->n_head_kv,
                  "n_embd_head", (int)m->n_embd_head, "n_vocab", (int)m->n_vocab);
    json_t *cache =
        json_pack("{s:s, s:i, s:i, s:i, s:o}", "type", wnw_kv_type_name(m->kv_type), "tail", (int)m->kv_tail,
                  "k_block", (int)m->k_block, "v_block", (int)m->v_block, "numbers", aux_of(m));
    json_t *o =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:b, s:s*, s:s*}", "writer", WNW_VERSION_STRING, "model",
                  model, "cache", cache, "session", session_of(&m->state), "rules", rules_of(m), "text",
                  layout_of(m), "pieces", (int)m->pieces, "note", m->note, "form", m->form);
    const int rc = wnw__json_text(text, len, o, true);
    json_decref(o);
    return rc;
}

/* ---- Reading ---- */

/* Reads fields of one object; `bad` is the first name that is missing or something else. */
struct fields {
    const json_t *o;
    const char *bad;
};

static bool is_there(struct fields *f, const char *key, bool good)
{
    f->bad = good || f->bad ? f->bad : key;
    return good;
}

static int64_t whole(struct fields *f, const char *key, int64_t least, int64_t most)
{
    const json_t *v = json_object_get(f->o, key);
    const int64_t x = json_integer_value(v);
    return is_there(f, key, json_is_integer(v) && x >= least && x <= most) ? x : 0;
}

static int32_t count(struct fields *f, const char *key, int32_t most)
{
    return (int32_t)whole(f, key, 0, most);
}

static bool flag(struct fields *f, const char *key)
{
    const json_t *v = json_object_get(f->o, key);
    return is_there(f, key, json_is_boolean(v)) && json_is_true(v);
}

static const char *string(struct fields *f, const char *key)
{
    const json_t *v = json_object_get(f->o, key);
    return is_there(f, key, json_is_string(v)) ? json_string_value(v) : "";
}

static const char *string_or_null(struct fields *f, const char *key)
{
    const json_t *v = json_object_get(f->o, key);
    return is_there(f, key, json_is_string(v) || json_is_null(v)) ? json_string_value(v) : NULL;
}

static struct fields object(struct fields *f, const char *key)
{
    const json_t *v = json_object_get(f->o, key);
    is_there(f, key, json_is_object(v));
    return (struct fields){.o = v};
}

/* Carries on the first fault of an inner object. */
static void join(struct fields *f, const struct fields *inner)
{
    f->bad = f->bad ? f->bad : inner->bad;
}

/* Bounds that no model comes near. */
enum { MOST_LAYERS = 2048, MOST_HEADS = 4096, MOST_HEAD_SIZE = 65536, MOST_PLANES = 4096 };

static void read_model(struct wnw__wkv_meta *m, struct fields *all)
{
    struct fields f = object(all, "model");
    m->model = string(&f, "name");
    m->arch = string(&f, "arch");
    m->fingerprint = string(&f, "fingerprint");
    is_there(&f, "fingerprint", wnw__fingerprint_form(m->fingerprint) != WNW_FINGERPRINT_BAD);
    m->n_layer = (int32_t)whole(&f, "n_layer", 1, MOST_LAYERS);
    m->n_head_kv = (int32_t)whole(&f, "n_head_kv", 1, MOST_HEADS);
    m->n_embd_head = (int32_t)whole(&f, "n_embd_head", 1, MOST_HEAD_SIZE);
    m->n_vocab = (int32_t)whole(&f, "n_vocab", 1, INT32_MAX);
    join(all, &f);
}

static void read_cache(struct wnw__wkv_meta *m, struct fields *all)
{
    struct fields f = object(all, "cache"), numbers = object(&f, "numbers");
    const char *type = string(&f, "type");
    size_t n_known = 0;
    char name[32];
    is_there(&f, "type", wnw_kv_type_parse(&m->kv_type, type) == WNW_OK);
    m->kv_tail = count(&f, "tail", WNW_CACHE_TAIL_MAX);
    is_there(&f, "tail", m->kv_tail == 0 || m->kv_tail >= WNW_CACHE_TAIL_MIN);
    m->k_block = count(&f, "k_block", MOST_HEAD_SIZE);
    m->v_block = count(&f, "v_block", MOST_HEAD_SIZE);
    for (int kind = 0; kind < WNW_N_AUX; kind++) {
        aux_name(name, kind);
        if (json_object_get(numbers.o, name)) {
            m->aux_planes[kind] = (int32_t)whole(&numbers, name, 1, MOST_PLANES);
            n_known++;
        }
    }
    if (numbers.bad || n_known != json_object_size(numbers.o))
        is_there(&f, "numbers", false); /* the name is in a buffer here */
    join(all, &f);
}

static void read_session(struct wnw__wkv_meta *m, struct fields *all)
{
    struct fields f = object(all, "session");
    struct wnw__session_state *s = &m->state;
    s->n_past = (int32_t)whole(&f, "n_past", 1, INT32_MAX);
    s->n_prefix = count(&f, "n_prefix", s->n_past);
    s->n_renumbered = count(&f, "n_renumbered", s->n_past);
    s->n_judged = count(&f, "n_fixed", s->n_past);
    s->n_question = count(&f, "n_question", s->n_past);
    s->n_ambiguous = count(&f, "n_ambiguous", s->n_past);
    s->pos_shift = whole(&f, "pos_shift", 0, INT64_MAX / 2);
    join(all, &f);
}

static double share(struct fields *f, const char *key)
{
    const json_t *v = json_object_get(f->o, key);
    const double x = json_number_value(v);
    return is_there(f, key, json_is_number(v) && x >= 0 && x < 1) ? x : 0;
}

/* One of three, or none; a kind of size that is not known here would be read as none. */
static wnw_size read_size(struct fields *all)
{
    struct fields f = object(all, "size");
    wnw_size size = {.kind = WNW_SIZE_NONE};
    if (json_object_get(f.o, "budget"))
        size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = whole(&f, "budget", 0, INT64_MAX)};
    else if (json_object_get(f.o, "bytes"))
        size = (wnw_size){.kind = WNW_SIZE_BYTES, .bytes = (uint64_t)whole(&f, "bytes", 0, INT64_MAX)};
    else if (json_object_get(f.o, "ratio"))
        size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = share(&f, "ratio")};
    is_there(all, "size", json_object_size(f.o) == (size.kind != WNW_SIZE_NONE));
    join(all, &f);
    return size;
}

/* Files without the field, as older ones are, keep the size after each chunk. */
static double read_slack(struct fields *f, const struct wnw__eviction *ev)
{
    const json_t *v = json_object_get(f->o, "chunk_slack");
    const double x = json_number_value(v);
    const bool fits = ev->phase == WNW_PHASE_CHUNK && ev->size.kind != WNW_SIZE_NONE;
    if (!v)
        return 0;
    return is_there(f, "chunk_slack", json_is_number(v) && fits && x > 1 && isfinite(x)) ? x : 0;
}

static void read_rules(struct wnw__wkv_meta *m, struct fields *all)
{
    if (json_is_null(json_object_get(all->o, "rules")))
        return;
    struct fields f = object(all, "rules");
    struct wnw__session_state *s = &m->state;
    const char *phase = string(&f, "phase");
    int i = WNW_PHASE_END;
    m->policy = string(&f, "policy");
    s->rules.size = read_size(&f);
    while (i < WNW_PHASE_DECODE && strcmp(phase, wnw_phase_name((wnw_phase)i)) != 0)
        i++;
    is_there(&f, "phase", i < WNW_PHASE_DECODE);
    s->rules.phase = (wnw_phase)i;
    s->rules.chunk = count(&f, "chunk", INT32_MAX);
    s->rules.slack = read_slack(&f, &s->rules);
    s->rules.once = flag(&f, "once");
    s->n_uncounted = (int32_t)whole(&f, "n_uncounted", -(1 << 30) - (int64_t)INT32_MAX / 2, INT32_MAX);
    s->n_keep = count(&f, "n_keep", INT32_MAX);
    s->is_over = flag(&f, "is_over");
    join(all, &f);
}

static void read_text(struct wnw__wkv_meta *m, struct fields *all)
{
    if (json_is_null(json_object_get(all->o, "text")))
        return;
    struct fields f = object(all, "text");
    m->has_text = true;
    m->text = wnw_prompt_default_params();
    m->text.raw = flag(&f, "raw");
    m->text.system = string_or_null(&f, "system");
    m->text.chat = string_or_null(&f, "chat");
    m->text.jinja = string_or_null(&f, "jinja");
    m->text.special = flag(&f, "special");
    m->text.verbatim = flag(&f, "verbatim");
    m->text.now = whole(&f, "now", INT64_MIN, INT64_MAX);
    join(all, &f);
}

int wnw__wkv_meta_parse(struct wnw__wkv_meta *m, const char *text, size_t len)
{
    *m = (struct wnw__wkv_meta){0};
    const int rc = wnw__json_parse(&m->json, text, len);
    if (rc != WNW_OK)
        return rc == WNW_E_FORMAT ? wnw__fail(rc, "its description is not JSON") : rc;
    struct fields f = {.o = m->json};
    m->writer = string(&f, "writer");
    read_model(m, &f);
    read_cache(m, &f);
    read_session(m, &f);
    read_rules(m, &f);
    read_text(m, &f);
    m->pieces = flag(&f, "pieces");
    if (json_object_get(f.o, "note"))
        m->note = string(&f, "note");
    if (json_object_get(f.o, "form"))
        m->form = string(&f, "form");
    if (f.bad)
        return wnw__fail(WNW_E_FORMAT, "its description has no '%s', or one that is out of range", f.bad);
    return WNW_OK;
}

void wnw__wkv_meta_clear(struct wnw__wkv_meta *m)
{
    json_decref(m->json);
    *m = (struct wnw__wkv_meta){0};
}
