// SPDX-License-Identifier: MIT
// The linker redirects the server's calls of cpp-httplib's thread pool to this file (--wrap, server.cmake). Two of cpp-httplib's own
// functions are defined here too and take precedence, as calls.c does for libllama: the one that handles a connection from its first to
// its last byte, and the one that handles one request of it.
//
// cpp-httplib's pool starts a thread if none waits for work. It still counts a thread as waiting that was woken for an earlier connection.
// So a connection, also one that asks for /health, could wait until another client has sent the rest of its request.
#include "serve/connections.hpp"

#include "serve/internal_requests.hpp"
#include "serve/libllama_real.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <linux/tcp.h>
#include <list>
#include <mutex>
#include <netinet/in.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace
{

using timer = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int MOST = 1024;          // connections
constexpr int LEAST = 16;           // of them, where few files may be open
constexpr rlim_t OTHER_FILES = 128; // that the process has open
constexpr uint64_t RATE = 1 << 10;  // bytes that come in a second at least, beyond the time of any request

// Between requests; while one comes; while it is answered.
enum class phase { idle, reading, answering };

struct connection {
    int socket;
    phase now = phase::idle;
    timer::time_point since = timer::now();
    uint64_t had = 0; // bytes that had come then
    bool cut = false, listed = true;
    explicit connection(int s) : socket(s)
    {
    }
};

struct table {
    std::mutex lock;
    std::condition_variable changed;
    std::list<connection *> all;
    int n_threads = 0, n_answering = 0, most = MOST;
    timer::duration time = std::chrono::seconds(30); // that half a request has
    bool watched = false;
};

// Never destroyed: threads of connections may see it while the process ends.
table &connections()
{
    static table *const t = new table;
    return *t;
}

thread_local connection *mine;

// ---- Phases: the caller has the lock ----

// Bytes that have come since the connection began; 0 where the system does not say, as of sockets that are files.
uint64_t received(int socket)
{
    tcp_info info{};
    socklen_t n = sizeof info;
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &n) != 0)
        return 0;
    return n >= offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received
               ? info.tcpi_bytes_received
               : 0;
}

void set_phase(table &t, connection &c, phase to)
{
    t.n_answering += (to == phase::answering) - (c.now == phase::answering);
    c.now = to;
    c.since = timer::now();
    c.had = to == phase::reading ? received(c.socket) : 0;
}

// Whether a request has been coming for too long: each has the same time, and more as long as enough of it comes.
bool is_late(const table &t, const connection &c)
{
    if (c.now != phase::reading || timer::now() < c.since + t.time)
        return false;
    const uint64_t bytes = received(c.socket);
    return timer::now() > c.since + t.time + std::chrono::seconds(bytes > c.had ? (bytes - c.had) / RATE : 0);
}

// Nothing comes any more: who reads sees the end.
void cut(connection &c)
{
    c.cut = true;
    shutdown(c.socket, SHUT_RD);
}

// Cuts the connection that has been idle for longest, else the one whose request has been coming for longest.
void cut_one(table &t)
{
    connection *oldest = nullptr;
    for (connection *c : t.all)
        if (c->now != phase::answering && !c->cut &&
            (!oldest || c->now < oldest->now || (c->now == oldest->now && c->since < oldest->since)))
            oldest = c;
    if (oldest)
        cut(*oldest);
}

void cut_late(table &t)
{
    for (connection *c : t.all)
        if (c->now != phase::answering && !c->cut && (serve::is_ending() || is_late(t, *c)))
            cut(*c);
}

// ---- Threads ----

// Looks for requests that have come for too long, for ever.
void watch()
{
    table &t = connections();
    for (;;) {
        {
            std::unique_lock<std::mutex> hold(t.lock);
            t.changed.wait(hold, [&t] { return !t.all.empty(); });
            cut_late(t);
        }
        std::this_thread::sleep_for(milliseconds(200));
    }
}

// Makes room for one more. False: all are being answered.
bool make_room(table &t, std::unique_lock<std::mutex> &hold)
{
    const auto end = timer::now() + std::chrono::seconds(1);
    while (t.n_threads >= t.most) {
        cut_one(t);
        t.changed.wait_for(hold, milliseconds(20));
        if (timer::now() > end || serve::is_ending())
            return false;
    }
    return true;
}

void run(const std::function<void()> &job)
{
    job();
    table &t = connections();
    const std::lock_guard<std::mutex> hold(t.lock);
    t.n_threads--;
    t.changed.notify_all();
}

// The socket is about to be closed; its number may be another connection's then.
void forget(int socket)
{
    table &t = connections();
    const std::lock_guard<std::mutex> hold(t.lock);
    if (!mine || mine->socket != socket || !mine->listed)
        return;
    set_phase(t, *mine, phase::idle);
    mine->listed = false;
    t.all.remove(mine);
}

// Serves one connection with a function of cpp-httplib's.
bool with_connection(int socket, const std::function<bool()> &serve)
{
    connection c(socket);
    table &t = connections();
    {
        const std::lock_guard<std::mutex> hold(t.lock);
        t.all.push_back(&c);
        t.changed.notify_all();
    }
    mine = &c;
    const bool good = serve();
    forget(socket);
    mine = nullptr;
    return good;
}

bool ends_within(table &t, std::unique_lock<std::mutex> &hold, milliseconds time)
{
    return t.changed.wait_for(hold, time, [&t] { return t.n_threads == 0; });
}

// Waits for the threads. Clients that neither read nor write are cut off, so that the server ends in any case.
void end_all()
{
    table &t = connections();
    std::unique_lock<std::mutex> hold(t.lock);
    if (ends_within(t, hold, milliseconds(1500)))
        return;
    for (connection *c : t.all)
        shutdown(c->socket, SHUT_RDWR);
    if (ends_within(t, hold, milliseconds(3000)))
        return;
    std::fprintf(stderr, "winnow: %d requests did not end; the server ends without them\n", t.n_threads);
    std::fflush(stderr);
    _exit(0);
}

} // namespace

namespace serve
{

bool has_connection()
{
    return mine != nullptr;
}

bool begins_answer(bool always)
{
    table &t = connections();
    const std::lock_guard<std::mutex> hold(t.lock);
    if (!mine || mine->now == phase::answering)
        return true;
    if (!always && t.n_answering >= t.most - t.most / 4)
        return false;
    set_phase(t, *mine, phase::answering);
    return true;
}

} // namespace serve

// ---- The server's calls ----

#define ENQUEUE  "_ZN7httplib10ThreadPool7enqueueESt8functionIFvvEE"
#define SHUTDOWN "_ZN7httplib10ThreadPool8shutdownEv"
#define READ_FOR "_ZN7httplib6Server16set_read_timeoutEll"

bool wrap_enqueue(void *pool, std::function<void()> job) __asm__("__wrap_" ENQUEUE);
void real_pool_ends(void *pool) __asm__("__real_" SHUTDOWN);
void wrap_pool_ends(void *pool) __asm__("__wrap_" SHUTDOWN);
void *real_read_for(void *server, time_t seconds, time_t microseconds) __asm__("__real_" READ_FOR);
void *wrap_read_for(void *server, time_t seconds, time_t microseconds) __asm__("__wrap_" READ_FOR);

bool wrap_enqueue(void *, std::function<void()> job)
{
    table &t = connections();
    std::unique_lock<std::mutex> hold(t.lock);
    if (!make_room(t, hold))
        return false;
    try {
        if (!t.watched)
            std::thread(watch).detach();
        t.watched = true;
        std::thread([job = std::move(job)] { run(job); }).detach();
    } catch (const std::system_error &) { // no more threads
        return false;
    }
    t.n_threads++;
    return true;
}

void wrap_pool_ends(void *pool)
{
    end_all();
    real_pool_ends(pool);
}

// Before it listens: the time that a read may take, and how many files may be open.
void *wrap_read_for(void *server, time_t seconds, time_t microseconds)
{
    table &t = connections();
    const std::lock_guard<std::mutex> hold(t.lock);
    t.time = std::chrono::seconds(std::max<time_t>(seconds, 1));
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = std::max(files.rlim_cur, std::min(files.rlim_max, MOST + OTHER_FILES));
        setrlimit(RLIMIT_NOFILE, &files);
        const rlim_t room = files.rlim_cur > OTHER_FILES ? files.rlim_cur - OTHER_FILES : LEAST;
        t.most = static_cast<int>(std::min<rlim_t>(MOST, std::max<rlim_t>(room, LEAST)));
    }
    return real_read_for(server, seconds, microseconds);
}

// ---- cpp-httplib's own functions ----

#define CONNECTION     "_ZN7httplib6Server24process_and_close_socketEi"
#define TLS_CONNECTION "_ZN7httplib9SSLServer24process_and_close_socketEi"
#define CLOSE          "_ZN7httplib6detail22drain_and_close_socketEi"
#define REQUEST                                                                              \
    "_ZN7httplib6Server15process_requestERNS_6StreamERKNSt7__cxx1112basic_stringIcSt11char_" \
    "traitsIcESaIcEEEiSA_ibRbRKSt8functionIFvRNS_7RequestEEEPb"

// Of process_request, what is passed on as it is.
struct serve_setup;
bool serve_connection(void *server, int socket) __asm__(CONNECTION);
bool serve_tls_connection(void *server, int socket) __asm__(TLS_CONNECTION);
void close_connection(int socket) noexcept __asm__(CLOSE);
bool serve_request(void *server, void *stream, const std::string &from, int from_port, const std::string &to,
                   int to_port, bool last, bool &closed, const serve_setup &prepare,
                   bool *upgraded) __asm__(REQUEST);

namespace
{

template <typename F> F *library(F *, const char *name)
{
    return reinterpret_cast<F *>(serve_real_function(name));
}

} // namespace

bool serve_connection(void *server, int socket)
{
    static auto *const real = library(&serve_connection, CONNECTION);
    return with_connection(socket, [&] { return real(server, socket); });
}

bool serve_tls_connection(void *server, int socket)
{
    static auto *const real = library(&serve_tls_connection, TLS_CONNECTION);
    return with_connection(socket, [&] { return real(server, socket); });
}

void close_connection(int socket) noexcept
{
    static auto *const real = library(&close_connection, CLOSE);
    forget(socket);
    real(socket);
}

// From the first byte of a request that comes to the last one of what was answered.
bool serve_request(void *server, void *stream, const std::string &from, int from_port, const std::string &to,
                   int to_port, bool last, bool &closed, const serve_setup &prepare, bool *upgraded)
{
    static auto *const real = library(&serve_request, REQUEST);
    table &t = connections();
    const auto enter = [&t](phase to_phase) {
        const std::lock_guard<std::mutex> hold(t.lock);
        if (mine)
            set_phase(t, *mine, to_phase);
    };
    enter(phase::reading);
    const bool good = real(server, stream, from, from_port, to, to_port, last, closed, prepare, upgraded);
    enter(phase::idle);
    return good;
}
