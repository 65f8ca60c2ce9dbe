/* SPDX-License-Identifier: MIT */
/* Functions of the C library that glibc 2.28 lacks. The files of a wheel find them here where the system has none (scripts/wheel_symbols.py). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

/* glibc may go without locks where this is not zero. It stays zero: threads may be running. */
SHOWN extern char __libc_single_threaded;
char __libc_single_threaded;

/* The kernel's struct stat is that of the C library on 64-bit machines. */
static int stat_at(int folder, const char *path, void *out, int flags)
{
    return (int)syscall(SYS_newfstatat, folder, path, out, flags);
}

SHOWN int stat(const char *path, struct stat *out)
{
    return stat_at(AT_FDCWD, path, out, 0);
}

SHOWN int lstat(const char *path, struct stat *out)
{
    return stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

SHOWN int fstat(int file, struct stat *out)
{
    return (int)syscall(SYS_fstat, file, out);
}

SHOWN int stat64(const char *path, struct stat64 *out)
{
    return stat_at(AT_FDCWD, path, out, 0);
}

SHOWN int lstat64(const char *path, struct stat64 *out)
{
    return stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

SHOWN int fstat64(int file, struct stat64 *out)
{
    return (int)syscall(SYS_fstat, file, out);
}

SHOWN int fstatat(int folder, const char *path, struct stat *out, int flags)
{
    return stat_at(folder, path, out, flags);
}

SHOWN int getcpu(unsigned *cpu, unsigned *node)
{
    return (int)syscall(SYS_getcpu, cpu, node, NULL);
}

/* A wait on another clock: the time that is left, on the clock of the condition. */
SHOWN int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                                 const struct timespec *until)
{
    const int64_t second = 1000000000;
    struct timespec now, real;
    if (clock == CLOCK_REALTIME)
        return pthread_cond_timedwait(condition, mutex, until);
    if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &real) != 0)
        return EINVAL;
    int64_t ns = real.tv_nsec + until->tv_nsec - now.tv_nsec;
    real.tv_sec += until->tv_sec - now.tv_sec;
    for (; ns < 0; ns += second)
        real.tv_sec--;
    for (; ns >= second; ns -= second)
        real.tv_sec++;
    real.tv_nsec = (long)ns;
    return pthread_cond_timedwait(condition, mutex, &real);
}

/* No program of the wheel starts another one in a folder of its own. */
SHOWN int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t *actions, const char *path)
{
    (void)actions;
    (void)path;
    return ENOSYS;
}

SHOWN uint32_t arc4random(void); /* glibc declares it from 2.36 on */
uint32_t arc4random(void)
{
    uint32_t number = 0;
    while (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) {
    }
    return number;
}
