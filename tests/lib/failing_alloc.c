/* SPDX-License-Identifier: MIT */
#include "failing_alloc.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The linker sends calls of NAME to __wrap_NAME and calls of __real_NAME to NAME. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
int __real_posix_memalign(void **p, size_t align, size_t n);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__real_mremap(void *at, size_t n, size_t more, int flags);
FILE *__real_open_memstream(char **text, size_t *len);
char *__real_json_dumps(const json_t *v, size_t flags);
int __real_vasprintf(char **text, const char *format, va_list args);
ssize_t __real___getdelim(char **line, size_t *cap, int end, FILE *f);
int __real_munmap(void *p, size_t n);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
void __real_qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *));

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
int __wrap_posix_memalign(void **p, size_t align, size_t n);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mremap(void *at, size_t n, size_t more, int flags);
FILE *__wrap_open_memstream(char **text, size_t *len);
char *__wrap_json_dumps(const json_t *v, size_t flags);
int __wrap_asprintf(char **text, const char *format, ...);
int __wrap_vasprintf(char **text, const char *format, va_list args);
ssize_t __wrap___getdelim(char **line, size_t *cap, int end, FILE *f);
int __wrap_munmap(void *p, size_t n);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
void __wrap_qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *));

static atomic_bool armed, stays_failed;
static _Atomic int64_t seen, fails_at, live, sorts;

void alloc_arm(int64_t n, bool for_good)
{
    seen = 0;
    fails_at = n;
    stays_failed = for_good;
    armed = true;
}

int64_t alloc_disarm(void)
{
    armed = false;
    return seen;
}

int64_t alloc_live(void)
{
    return live;
}

int64_t alloc_sorts(void)
{
    return sorts;
}

static bool fails(void)
{
    if (!armed)
        return false;
    const int64_t i = atomic_fetch_add(&seen, 1) + 1;
    return fails_at > 0 && (i == fails_at || (stays_failed && i > fails_at));
}

static void *counted(void *p)
{
    if (p)
        live++;
    else
        errno = ENOMEM;
    return p;
}

void *__wrap_malloc(size_t n)
{
    return counted(fails() ? NULL : __real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return counted(fails() ? NULL : __real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
    void *q = fails() ? NULL : __real_realloc(p, n);
    return p ? q : counted(q);
}

void __wrap_free(void *p)
{
    if (p)
        live--;
    __real_free(p);
}

char *__wrap_strndup(const char *s, size_t n)
{
    const size_t len = strnlen(s, n);
    char *p = __wrap_malloc(len + 1);
    if (p) {
        memcpy(p, s, len);
        p[len] = '\0';
    }
    return p;
}

char *__wrap_strdup(const char *s)
{
    return __wrap_strndup(s, SIZE_MAX);
}

int __wrap_posix_memalign(void **p, size_t align, size_t n)
{
    void *q = NULL;
    const int rc = fails() ? ENOMEM : __real_posix_memalign(&q, align, n);
    if (rc == 0)
        *p = counted(q);
    return rc;
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    void *p = MAP_FAILED;
    if (fails())
        errno = ENOMEM;
    else
        p = __real_mmap(at, n, prot, flags, fd, offset);
    live += p != MAP_FAILED && !(flags & MAP_FIXED); /* those lie in a mapping that is there */
    return p;
}

/* A mapping that shrinks asks for nothing. */
void *__wrap_mremap(void *at, size_t n, size_t more, int flags)
{
    if (more <= n || !fails())
        return __real_mremap(at, n, more, flags);
    errno = ENOMEM;
    return MAP_FAILED;
}

/* The text is to be freed once the stream is closed. */
FILE *__wrap_open_memstream(char **text, size_t *len)
{
    FILE *f = fails() ? NULL : __real_open_memstream(text, len);
    live += f != NULL;
    return f;
}

char *__wrap_json_dumps(const json_t *v, size_t flags)
{
    return counted(fails() ? NULL : __real_json_dumps(v, flags));
}

/* Without memory *text is anything. */
int __wrap_vasprintf(char **text, const char *format, va_list args)
{
    static char anything;
    const int n = fails() ? -1 : __real_vasprintf(text, format, args);
    if (n < 0)
        *text = &anything;
    counted(n < 0 ? NULL : *text);
    return n;
}

int __wrap_asprintf(char **text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = __wrap_vasprintf(text, format, args);
    va_end(args);
    return n;
}

/* What getline is in glibc's headers. Every line may need more room than the one before. */
ssize_t __wrap___getdelim(char **line, size_t *cap, int end, FILE *f)
{
    const bool had = *line;
    if (fails()) {
        errno = ENOMEM;
        return -1;
    }
    const ssize_t n = __real___getdelim(line, cap, end, f);
    live += !had && *line;
    return n;
}

int __wrap_munmap(void *p, size_t n)
{
    live--;
    return __real_munmap(p, n);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    return fails() ? EAGAIN : __real_pthread_create(thread, attr, fn, arg);
}

void __wrap_qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *))
{
    sorts += armed;
    __real_qsort(base, n, size, compare);
}
