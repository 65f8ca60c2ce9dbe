/* SPDX-License-Identifier: MIT */
#include "files.h"

#include <stdlib.h>
#include <unistd.h>

void test_file_new(char *path)
{
    test_file_of(path, NULL, 0);
}

void test_file_of(char *path, const void *bytes, size_t n)
{
    const int fd = mkstemp(path);
    assert_cmp(fd, >=, 0);
    for (size_t done = 0; done < n;) {
        const ssize_t more = write(fd, (const char *)bytes + done, n - done);
        assert_cmp(more, >, 0);
        done += (size_t)more;
    }
    assert_int_equal(close(fd), 0);
}

void test_stderr_begin(struct test_stderr *s)
{
    fflush(stderr);
    s->file = tmpfile();
    assert_non_null(s->file);
    s->was = dup(STDERR_FILENO);
    assert_cmp(s->was, >=, 0);
    assert_cmp(dup2(fileno(s->file), STDERR_FILENO), >=, 0);
}

size_t test_stderr_end(struct test_stderr *s, char *said, size_t n)
{
    fflush(stderr);
    dup2(s->was, STDERR_FILENO);
    close(s->was);
    const off_t came = lseek(fileno(s->file), 0, SEEK_END);
    const ssize_t len = pread(fileno(s->file), said, n - 1, 0);
    fclose(s->file);
    assert_cmp(came, >=, 0);
    assert_cmp(len, >=, 0);
    said[len] = '\0';
    return (size_t)came;
}
