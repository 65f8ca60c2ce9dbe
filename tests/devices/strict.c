/* SPDX-License-Identifier: MIT */
/*
 * A module of ggml with two devices, STRICT0 and STRICT1, that compute on the CPU and are otherwise as a GPU is where that is no CPU:
 *
 *   - a graph is computed later, by a thread, with the addresses that its tensors have when it is given;
 *   - a graph with a known number is the one that had it, and nobody looks at its tensors (CUDA);
 *   - reading, writing and copying memory waits for no graph (CUDA), so that no graph may be under way that it concerns, and freed memory is
 *     gone;
 *   - memory is the device's own, begins with NaN, and every tensor of a graph must lie in it;
 *   - quantised tensors have a tail that is written when they are placed, and attention of quantised keys needs memory after its result
 *     (CUDA, Metal);
 *   - operands of attention begin at multiples of 256 bytes (Vulkan), and nodes without their flag are not computed.
 *
 * What breaks a rule ends the process, and says so. STRICT_MAX_SIZE=BYTES is the largest buffer that is asked for at once (Vulkan: 1 GiB);
 * STRICT_MEMORY=BYTES is what a device has; STRICT_REFUSE=OP[,OP] are operations that the devices do not have; STRICT_SLEEP=MICROSECONDS is
 * how long the thread waits before it computes.
 */
#include <ggml-alloc.h>
#include <ggml-backend-impl.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N_DEVICE = 2, ALIGNMENT = 256, ROW_PADDING = 512, N_KEPT = 4096, NAN_BYTE = 0xff };

/* ggml-impl.h, which is not installed: a graph has its number at the end. */
struct graph_of_ggml {
    int size, n_nodes, n_leafs;
    struct ggml_tensor **nodes, **grads, **grad_accs, **leafs;
    int32_t *use_counts;
    size_t hash_size;
    uint32_t *hash_used;
    struct ggml_tensor **hash_keys;
    int order;
    uint64_t uid;
};

__attribute__((format(printf, 1, 2), noreturn)) static void broken(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("strict device: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    fflush(stderr);
    abort();
}

static size_t number_of(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* ---- Memory ---- */

struct device {
    struct ggml_backend_device dev;
    struct ggml_backend_buffer_type type;
    char name[24];
    size_t used;
};

static struct device devices[N_DEVICE];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* what is under `lock` */

/* Buffers that are not freed. Under `lock`. */
static ggml_backend_buffer_t *alive;
static size_t n_alive, cap_alive;

struct memory {
    uint8_t *map, *base;
    size_t mapped;
};

static struct device *device_of(ggml_backend_buffer_type_t type)
{
    return type->context;
}

static bool is_alive(ggml_backend_buffer_t buffer)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_alive && !found; i++)
        found = alive[i] == buffer;
    pthread_mutex_unlock(&lock);
    return found;
}

static void wait_for_all(void);
/* That no graph is under way which writes there, or with `writes` reads there. */
static void check_idle(const uint8_t *at, size_t n, bool writes, const char *what, const char *name);

static void free_buffer(ggml_backend_buffer_t buffer)
{
    struct memory *m = buffer->context;
    wait_for_all(); /* as CUDA does */
    pthread_mutex_lock(&lock);
    device_of(buffer->buft)->used -= buffer->size;
    for (size_t i = 0; i < n_alive; i++)
        if (alive[i] == buffer) {
            alive[i] = alive[--n_alive];
            break;
        }
    pthread_mutex_unlock(&lock);
    munmap(m->map, m->mapped);
    free(m);
}

static void *get_base(ggml_backend_buffer_t buffer)
{
    return ((struct memory *)buffer->context)->base;
}

static void check_range(ggml_backend_buffer_t buffer, const uint8_t *at, size_t n, const char *what,
                        const char *name)
{
    const uint8_t *base = get_base(buffer);
    if (at < base || n > buffer->size || (size_t)(at - base) > buffer->size - n)
        broken("%s of '%s': %zu bytes at %td of a buffer of %zu", what, name, n, at - base, buffer->size);
}

static size_t get_alloc_size(ggml_backend_buffer_type_t type, const struct ggml_tensor *t)
{
    (void)type;
    size_t size = ggml_nbytes(t);
    if (t->op == GGML_OP_FLASH_ATTN_EXT && t->src[1]->type != GGML_TYPE_F16)
        size += 2 * (size_t)(ggml_nelements(t->src[1]) + ggml_nelements(t->src[2]));
    if (ggml_is_quantized(t->type) && t->ne[0] % ROW_PADDING != 0)
        size += ggml_row_size(t->type, ROW_PADDING - t->ne[0] % ROW_PADDING);
    return size;
}

static enum ggml_status init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *t)
{
    if (t->view_src)
        return GGML_STATUS_SUCCESS;
    if (ggml_is_quantized(t->type) && buffer->usage != GGML_BACKEND_BUFFER_USAGE_COMPUTE) {
        const size_t n = ggml_nbytes(t), all = get_alloc_size(buffer->buft, t);
        check_range(buffer, t->data, all, "the tail", t->name);
        memset((uint8_t *)t->data + n, 0, all - n);
    }
    return GGML_STATUS_SUCCESS;
}

static void memset_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *t, uint8_t value, size_t offset,
                          size_t size)
{
    check_range(buffer, (uint8_t *)t->data + offset, size, "filling", t->name);
    check_idle((uint8_t *)t->data + offset, size, true, "filling", t->name);
    memset((uint8_t *)t->data + offset, value, size);
}

static void set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data, size_t offset,
                       size_t size)
{
    check_range(buffer, (uint8_t *)t->data + offset, size, "writing", t->name);
    check_idle((uint8_t *)t->data + offset, size, true, "writing", t->name);
    memcpy((uint8_t *)t->data + offset, data, size);
}

static void get_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, void *data, size_t offset,
                       size_t size)
{
    check_range(buffer, (const uint8_t *)t->data + offset, size, "reading", t->name);
    check_idle((const uint8_t *)t->data + offset, size, false, "reading", t->name);
    memcpy(data, (const uint8_t *)t->data + offset, size);
}

static bool is_ours(ggml_backend_buffer_t buffer)
{
    return buffer && buffer->iface.free_buffer == free_buffer;
}

static bool cpy_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst)
{
    if (!is_ours(src->buffer))
        return false;
    check_range(buffer, dst->data, ggml_nbytes(dst), "copying to", dst->name);
    check_range(src->buffer, src->data, ggml_nbytes(src), "copying from", src->name);
    check_idle(dst->data, ggml_nbytes(dst), true, "copying to", dst->name);
    check_idle(src->data, ggml_nbytes(src), false, "copying from", src->name);
    memcpy(dst->data, src->data, ggml_nbytes(src));
    return true;
}

/* libllama does it while a graph is under way, after it has warmed up. */
static void clear(ggml_backend_buffer_t buffer, uint8_t value)
{
    memset(get_base(buffer), value, buffer->size);
}

static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size)
{
    static const struct ggml_backend_buffer_i interface = {.free_buffer = free_buffer,
                                                           .get_base = get_base,
                                                           .init_tensor = init_tensor,
                                                           .memset_tensor = memset_tensor,
                                                           .set_tensor = set_tensor,
                                                           .get_tensor = get_tensor,
                                                           .cpy_tensor = cpy_tensor,
                                                           .clear = clear};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE),
                 rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT,
                 mapped = (rounded + page - 1) / page * page + page;
    struct device *d = device_of(type);
    pthread_mutex_lock(&lock);
    const bool fits = size <= number_of("STRICT_MEMORY", SIZE_MAX / 2) - d->used;
    if (fits)
        d->used += size;
    pthread_mutex_unlock(&lock);
    if (!fits)
        return NULL;
    struct memory *m = calloc(1, sizeof *m);
    uint8_t *map =
        mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!m || map == MAP_FAILED)
        broken("no memory for %zu bytes", size);
    /* What is read or written after its end ends the process. */
    if (mprotect(map + mapped - page, page, PROT_NONE) != 0)
        broken("a page cannot be protected");
    *m = (struct memory){.map = map, .mapped = mapped, .base = map + mapped - page - rounded};
    memset(m->base, NAN_BYTE, size);
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(type, interface, m, size);
    pthread_mutex_lock(&lock);
    if (n_alive == cap_alive) {
        cap_alive = cap_alive ? 2 * cap_alive : 256;
        alive = realloc(alive, cap_alive * sizeof *alive);
    }
    alive[n_alive++] = buffer;
    pthread_mutex_unlock(&lock);
    return buffer;
}

static const char *type_name(ggml_backend_buffer_type_t type)
{
    return device_of(type)->name;
}

static size_t get_alignment(ggml_backend_buffer_type_t type)
{
    (void)type;
    return ALIGNMENT;
}

static size_t get_max_size(ggml_backend_buffer_type_t type)
{
    (void)type;
    return number_of("STRICT_MAX_SIZE", SIZE_MAX);
}

/* ---- Graphs, as they were when they were given ---- */

struct copied {
    const struct ggml_tensor *from;
    struct ggml_tensor to;
};

struct shot {
    struct copied *tensors; /* [n_slot], by address */
    size_t n_slot;
    struct ggml_tensor **nodes;
    int n_nodes;
    uint64_t uid;
    const struct ggml_tensor *first;
};

static struct copied *slot_of(const struct shot *s, const struct ggml_tensor *t)
{
    size_t i = ((uintptr_t)t >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20;
    for (i %= s->n_slot; s->tensors[i].from && s->tensors[i].from != t; i = (i + 1) % s->n_slot)
        ;
    return &s->tensors[i];
}

static struct ggml_tensor *copy_of(struct shot *s, struct ggml_tensor *t)
{
    if (!t)
        return NULL;
    struct copied *c = slot_of(s, t);
    if (c->from)
        return &c->to;
    c->from = t;
    c->to = *t;
    c->to.view_src = copy_of(s, t->view_src);
    return &c->to;
}

static void free_shot(struct shot *s)
{
    if (s) {
        free(s->tensors);
        free(s->nodes);
        free(s);
    }
}

static bool is_nothing(const struct ggml_tensor *t)
{
    return ggml_is_empty(t) || t->op == GGML_OP_NONE || t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE ||
           t->op == GGML_OP_PERMUTE || t->op == GGML_OP_TRANSPOSE;
}

static ggml_backend_buffer_t buffer_of(const struct ggml_tensor *t)
{
    return t->view_src ? t->view_src->buffer : t->buffer;
}

/* A tensor that a node reads or writes. */
static void check_tensor(const struct device *d, const struct ggml_tensor *node, const struct ggml_tensor *t)
{
    ggml_backend_buffer_t buffer = buffer_of(t);
    if (!buffer || !is_alive(buffer))
        broken("%s '%s' has '%s', whose memory is gone or was never there", ggml_op_name(node->op),
               node->name, t->name);
    if (buffer->buft != &d->type)
        broken("%s '%s' on %s has '%s', which is elsewhere", ggml_op_name(node->op), node->name, d->name,
               t->name);
    if (t->view_src && (const uint8_t *)t->data != (const uint8_t *)t->view_src->data + t->view_offs)
        broken("%s '%s': the view '%s' is not where its tensor is", ggml_op_name(node->op), node->name,
               t->name);
    check_range(buffer, t->data, ggml_nbytes(t), ggml_op_name(node->op), t->name);
    if (t->view_src)
        check_range(buffer, t->view_src->data, ggml_nbytes(t->view_src), "the whole tensor",
                    t->view_src->name);
    const size_t at = (size_t)((const uint8_t *)t->data - (const uint8_t *)get_base(buffer));
    if (node->op == GGML_OP_FLASH_ATTN_EXT && at % ALIGNMENT != 0)
        broken("%s '%s': '%s' begins at %zu", ggml_op_name(node->op), node->name, t->name, at);
}

static bool supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op);

static void check_node(const struct device *d, const struct ggml_tensor *node)
{
    if (is_nothing(node) || !(node->flags & GGML_TENSOR_FLAG_COMPUTE))
        return;
    if (!supports_op((ggml_backend_dev_t)(uintptr_t)&d->dev, node))
        broken("%s '%s' cannot be computed on %s", ggml_op_name(node->op), node->name, d->name);
    check_tensor(d, node, node);
    check_range(buffer_of(node), node->data, get_alloc_size(NULL, node), "the result", node->name);
    for (int i = 0; i < GGML_MAX_SRC; i++)
        if (node->src[i])
            check_tensor(d, node, node->src[i]);
}

static struct shot *take_shot(struct ggml_cgraph *graph)
{
    struct shot *s = calloc(1, sizeof *s);
    const int n = ggml_graph_n_nodes(graph);
    size_t most = 1;
    for (int i = 0; i < n; i++)
        most += 2 * (1 + GGML_MAX_SRC);
    s->n_slot = 2 * most;
    s->tensors = calloc(s->n_slot, sizeof *s->tensors);
    s->nodes = calloc((size_t)n + 1, sizeof *s->nodes);
    for (int i = 0; i < n; i++) {
        struct ggml_tensor *node = ggml_graph_node(graph, i), *copy = copy_of(s, node);
        for (int j = 0; j < GGML_MAX_SRC; j++)
            copy->src[j] = copy_of(s, node->src[j]);
        s->nodes[s->n_nodes++] = copy;
    }
    return s;
}

/* ---- Streams ---- */

enum what { GRAPH, EVENT, WAIT, SET, GET, COPY };

struct event {
    uint64_t asked, reached; /* under `lock` */
};

struct job {
    enum what what;
    struct shot *shot;
    bool kept; /* the shot stays */
    struct event *event;
    uint64_t number;
    uint8_t *to;
    const uint8_t *from;
    uint8_t *owned; /* is freed */
    size_t n;
    struct job *next;
};

struct stream {
    struct device *d;
    ggml_backend_t cpu;
    pthread_t thread;
    struct job *first, **last; /* under `lock`, with what follows */
    const struct shot *computing;
    bool busy, ends;
    struct event copied;       /* what others wait for before they look at copies */
    struct shot *kept[N_KEPT]; /* by the address of their first node */
    unsigned seed;
    struct stream *next;
};

static struct stream *streams; /* under `lock` */

static void compute(struct stream *s, const struct shot *shot)
{
    struct ggml_init_params p = {.mem_size = ggml_graph_overhead_custom((size_t)shot->n_nodes, false),
                                 .no_alloc = true};
    for (int from = 0; from < shot->n_nodes;) {
        struct ggml_context *ctx = ggml_init(p);
        struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, (size_t)shot->n_nodes, false);
        const struct ggml_tensor *scratch = NULL;
        while (from < shot->n_nodes && !scratch) {
            struct ggml_tensor *node = shot->nodes[from++];
            ggml_graph_add_node(graph, node);
            if (node->op == GGML_OP_FLASH_ATTN_EXT && (node->flags & GGML_TENSOR_FLAG_COMPUTE))
                scratch = node;
        }
        if (ggml_backend_graph_compute(s->cpu, graph) != GGML_STATUS_SUCCESS)
            broken("a graph was not computed");
        if (scratch) /* what lies after the result was written, too */
            memset((uint8_t *)scratch->data + ggml_nbytes(scratch), NAN_BYTE,
                   get_alloc_size(NULL, scratch) - ggml_nbytes(scratch));
        ggml_free(ctx);
    }
}

static void do_job(struct stream *s, struct job *j)
{
    switch (j->what) {
    case GRAPH:
        usleep((unsigned)rand_r(&s->seed) % (unsigned)(number_of("STRICT_SLEEP", 300) + 1));
        compute(s, j->shot);
        break;
    case EVENT:
        pthread_mutex_lock(&lock);
        j->event->reached = j->number;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        break;
    case WAIT:
        pthread_mutex_lock(&lock);
        while (j->event->reached < j->number)
            pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        break;
    case SET:
    case GET:
    case COPY:
        memcpy(j->to, j->from, j->n);
        break;
    }
}

static void *run(void *context)
{
    struct stream *s = context;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!s->first && !s->ends)
            pthread_cond_wait(&changed, &lock);
        struct job *j = s->first;
        if (!j)
            break;
        s->first = j->next;
        if (!s->first)
            s->last = &s->first;
        s->busy = true;
        s->computing = j->shot;
        pthread_mutex_unlock(&lock);
        do_job(s, j);
        pthread_mutex_lock(&lock);
        s->computing = NULL;
        pthread_mutex_unlock(&lock);
        if (j->shot && !j->kept)
            free_shot(j->shot);
        free(j->owned);
        free(j);
        pthread_mutex_lock(&lock);
        s->busy = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void give(struct stream *s, const struct job *job)
{
    struct job *j = malloc(sizeof *j);
    *j = *job;
    pthread_mutex_lock(&lock);
    *s->last = j;
    s->last = &j->next;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static bool is_busy(const struct stream *s)
{
    return s->busy || s->first;
}

static bool overlap(const uint8_t *at, size_t n, const struct ggml_tensor *t)
{
    const uint8_t *begin = t->data;
    return begin < at + n && at < begin + ggml_nbytes(t);
}

static bool concerns(const struct shot *shot, const uint8_t *at, size_t n, bool writes)
{
    bool found = false;
    for (int i = 0; shot && i < shot->n_nodes && !found; i++) {
        const struct ggml_tensor *node = shot->nodes[i];
        if (is_nothing(node) || !(node->flags & GGML_TENSOR_FLAG_COMPUTE))
            continue;
        found = overlap(at, n, node);
        for (int j = 0; j < GGML_MAX_SRC && writes && !found; j++)
            found = node->src[j] && overlap(at, n, node->src[j]);
    }
    return found;
}

static void check_idle(const uint8_t *at, size_t n, bool writes, const char *what, const char *name)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const struct stream *s = streams; s && n > 0 && !found; s = s->next) {
        found = concerns(s->computing, at, n, writes);
        for (const struct job *j = s->first; j && !found; j = j->next)
            found = concerns(j->shot, at, n, writes);
    }
    pthread_mutex_unlock(&lock);
    if (found)
        broken("%s '%s', while a graph is under way that has it", what, name);
}

static void wait_for_all(void)
{
    pthread_mutex_lock(&lock);
    for (bool busy = true; busy;) {
        busy = false;
        for (const struct stream *s = streams; s; s = s->next)
            busy = busy || is_busy(s);
        if (busy)
            pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- The backend ---- */

static const char *backend_name(ggml_backend_t backend)
{
    return ((struct stream *)backend->context)->d->name;
}

static void synchronize(ggml_backend_t backend)
{
    const struct stream *s = backend->context;
    pthread_mutex_lock(&lock);
    while (is_busy(s))
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void free_backend(ggml_backend_t backend)
{
    struct stream *s = backend->context;
    wait_for_all(); /* another one may wait for its copies */
    pthread_mutex_lock(&lock);
    s->ends = true;
    for (struct stream **at = &streams; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    for (int i = 0; i < N_KEPT; i++)
        free_shot(s->kept[i]);
    ggml_backend_free(s->cpu);
    free(s);
    free(backend);
}

static void set_async(ggml_backend_t backend, struct ggml_tensor *t, const void *data, size_t offset,
                      size_t size)
{
    check_range(buffer_of(t), (uint8_t *)t->data + offset, size, "writing", t->name);
    uint8_t *copy = malloc(size + 1);
    memcpy(copy, data, size);
    give(backend->context,
         &(struct job){
             .what = SET, .to = (uint8_t *)t->data + offset, .from = copy, .owned = copy, .n = size});
}

static void get_async(ggml_backend_t backend, const struct ggml_tensor *t, void *data, size_t offset,
                      size_t size)
{
    check_range(buffer_of(t), (const uint8_t *)t->data + offset, size, "reading", t->name);
    give(backend->context,
         &(struct job){.what = GET, .to = data, .from = (const uint8_t *)t->data + offset, .n = size});
}

static ggml_guid_t guid(void)
{
    static ggml_guid id = {0x73, 0x74, 0x72, 0x69, 0x63, 0x74};
    return &id;
}

static bool copy_async(ggml_backend_t from, ggml_backend_t to, const struct ggml_tensor *src,
                       struct ggml_tensor *dst)
{
    if (!ggml_guid_matches(from->guid, guid()) || !ggml_guid_matches(to->guid, guid()) ||
        !is_ours(buffer_of(src)) || !is_ours(buffer_of(dst)))
        return false;
    struct stream *a = from->context, *b = to->context;
    if (buffer_of(src)->buft != &a->d->type || buffer_of(dst)->buft != &b->d->type)
        broken("a copy between %s and %s of memory that is elsewhere", a->d->name, b->d->name);
    give(a, &(struct job){.what = COPY, .to = dst->data, .from = src->data, .n = ggml_nbytes(src)});
    if (a != b) {
        struct event *e = &a->copied;
        pthread_mutex_lock(&lock);
        const uint64_t n = ++e->asked;
        pthread_mutex_unlock(&lock);
        give(a, &(struct job){.what = EVENT, .event = e, .number = n});
        give(b, &(struct job){.what = WAIT, .event = e, .number = n});
    }
    return true;
}

static enum ggml_status graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    struct stream *s = backend->context;
    const struct ggml_tensor *first = ggml_graph_node(graph, 0);
    const uint64_t uid = ((const struct graph_of_ggml *)(const void *)graph)->uid;
    struct shot **kept = &s->kept[((uintptr_t)first >> 4) % N_KEPT];
    const bool again = uid != 0 && *kept && (*kept)->uid == uid && (*kept)->first == first;
    if (again && (*kept)->n_nodes != ggml_graph_n_nodes(graph))
        broken("a graph has the number of another one");
    struct shot *shot = again ? *kept : take_shot(graph);
    if (!again) {
        shot->uid = uid;
        shot->first = first;
    }
    for (int i = 0; i < shot->n_nodes; i++)
        check_node(s->d, shot->nodes[i]);
    if (!again && *kept && ((*kept)->first == first || uid != 0)) {
        synchronize(backend);
        free_shot(*kept);
        *kept = NULL;
    }
    if (uid != 0)
        *kept = shot;
    give(s, &(struct job){.what = GRAPH, .shot = shot, .kept = uid != 0});
    return GGML_STATUS_SUCCESS;
}

static void event_record(ggml_backend_t backend, ggml_backend_event_t event)
{
    struct event *e = event->context;
    pthread_mutex_lock(&lock);
    const uint64_t n = ++e->asked;
    pthread_mutex_unlock(&lock);
    give(backend->context, &(struct job){.what = EVENT, .event = e, .number = n});
}

static void event_wait(ggml_backend_t backend, ggml_backend_event_t event)
{
    struct event *e = event->context;
    pthread_mutex_lock(&lock);
    const uint64_t n = e->asked;
    pthread_mutex_unlock(&lock);
    give(backend->context, &(struct job){.what = WAIT, .event = e, .number = n});
}

/* ---- The devices ---- */

static const char *dev_name(ggml_backend_dev_t dev)
{
    return ((struct device *)dev)->name;
}

static const char *dev_description(ggml_backend_dev_t dev)
{
    (void)dev;
    return "the CPU, with a GPU's rules";
}

static void dev_memory(ggml_backend_dev_t dev, size_t *n_free, size_t *total)
{
    *total = number_of("STRICT_MEMORY", (size_t)8 << 30);
    *n_free = *total - ((struct device *)dev)->used;
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev)
{
    (void)dev;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props)
{
    *props = (struct ggml_backend_dev_props){.name = dev_name(dev),
                                             .description = dev_description(dev),
                                             .type = dev_type(dev),
                                             .caps = {.async = true, .events = true}};
    dev_memory(dev, &props->memory_free, &props->memory_total);
}

static ggml_backend_dev_t cpu_device(void)
{
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

static void set_n_threads(ggml_backend_t backend, int n)
{
    struct stream *s = backend->context;
    void *p = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu_device()),
                                                "ggml_backend_set_n_threads");
    ggml_backend_set_n_threads_t set;
    memcpy(&set, &p, sizeof set);
    synchronize(backend);
    set(s->cpu, n);
}

static ggml_backend_t init_backend(ggml_backend_dev_t dev, const char *params)
{
    (void)params;
    struct stream *s = calloc(1, sizeof *s);
    ggml_backend_t backend = calloc(1, sizeof *backend);
    s->d = (struct device *)dev;
    s->cpu = ggml_backend_dev_init(cpu_device(), NULL);
    s->last = &s->first;
    *backend = (struct ggml_backend){.guid = guid(),
                                     .iface = {.get_name = backend_name,
                                               .free = free_backend,
                                               .set_tensor_async = set_async,
                                               .get_tensor_async = get_async,
                                               .cpy_tensor_async = copy_async,
                                               .synchronize = synchronize,
                                               .graph_compute = graph_compute,
                                               .event_record = event_record,
                                               .event_wait = event_wait},
                                     .device = dev,
                                     .context = s};
    set_n_threads(backend, 1);
    pthread_mutex_lock(&lock);
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&lock);
    if (pthread_create(&s->thread, NULL, run, s) != 0)
        broken("no thread");
    return backend;
}

static ggml_backend_buffer_type_t dev_buffer_type(ggml_backend_dev_t dev)
{
    return &((struct device *)dev)->type;
}

static bool is_refused(const char *op)
{
    const char *list = getenv("STRICT_REFUSE");
    const size_t len = strlen(op);
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == len && strncmp(at, op, len) == 0)
            return true;
    return false;
}

static bool supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op)
{
    (void)dev;
    if (is_refused(ggml_op_name(op->op)))
        return false;
    if (op->op == GGML_OP_FLASH_ATTN_EXT &&
        (op->src[1]->type != op->src[2]->type || (op->src[3] && op->src[3]->ne[2] != 1)))
        return false;
    return op->op != GGML_OP_CUSTOM && op->op != GGML_OP_MAP_CUSTOM1 && op->op != GGML_OP_MAP_CUSTOM2 &&
           op->op != GGML_OP_MAP_CUSTOM3 && ggml_backend_dev_supports_op(cpu_device(), op);
}

static bool supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t type)
{
    return type == &((struct device *)dev)->type;
}

static ggml_backend_event_t event_new(ggml_backend_dev_t dev)
{
    ggml_backend_event_t event = calloc(1, sizeof *event);
    event->device = dev;
    event->context = calloc(1, sizeof(struct event));
    return event;
}

static void event_free(ggml_backend_dev_t dev, ggml_backend_event_t event)
{
    (void)dev;
    wait_for_all();
    free(event->context);
    free(event);
}

static void event_synchronize(ggml_backend_dev_t dev, ggml_backend_event_t event)
{
    (void)dev;
    const struct event *e = event->context;
    pthread_mutex_lock(&lock);
    while (e->reached < e->asked)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* ---- The module ---- */

static const char *reg_name(ggml_backend_reg_t reg)
{
    (void)reg;
    return "STRICT";
}

static size_t reg_count(ggml_backend_reg_t reg)
{
    (void)reg;
    return N_DEVICE;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t i)
{
    (void)reg;
    return &devices[i].dev;
}

static void *reg_function(ggml_backend_reg_t reg, const char *name)
{
    (void)reg;
    void (*fn)(ggml_backend_t, int) = set_n_threads;
    void *p = NULL;
    if (strcmp(name, "ggml_backend_set_n_threads") == 0)
        memcpy(&p, &fn, sizeof p);
    return p;
}

__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void);
ggml_backend_reg_t ggml_backend_init(void)
{
    static struct ggml_backend_reg reg = {.api_version = GGML_BACKEND_API_VERSION,
                                          .iface = {.get_name = reg_name,
                                                    .get_device_count = reg_count,
                                                    .get_device = reg_device,
                                                    .get_proc_address = reg_function}};
    for (int i = 0; i < N_DEVICE; i++) {
        struct device *d = &devices[i];
        snprintf(d->name, sizeof d->name, "STRICT%d", i);
        d->dev = (struct ggml_backend_device){.iface = {.get_name = dev_name,
                                                        .get_description = dev_description,
                                                        .get_memory = dev_memory,
                                                        .get_type = dev_type,
                                                        .get_props = dev_props,
                                                        .init_backend = init_backend,
                                                        .get_buffer_type = dev_buffer_type,
                                                        .supports_op = supports_op,
                                                        .supports_buft = supports_buft,
                                                        .event_new = event_new,
                                                        .event_free = event_free,
                                                        .event_synchronize = event_synchronize},
                                              .reg = &reg,
                                              .context = d};
        d->type = (struct ggml_backend_buffer_type){.iface = {.get_name = type_name,
                                                              .alloc_buffer = alloc_buffer,
                                                              .get_alignment = get_alignment,
                                                              .get_max_size = get_max_size,
                                                              .get_alloc_size = get_alloc_size},
                                                    .device = &d->dev,
                                                    .context = d};
    }
    return &reg;
}
