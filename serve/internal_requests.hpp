// SPDX-License-Identifier: MIT
// Requests that the server makes of itself, of its own routes.
#ifndef WNW_SERVE_INTERNAL_REQUESTS_HPP
#define WNW_SERVE_INTERNAL_REQUESTS_HPP

#include "serve/slots.h"

#include "server-http.h"

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

namespace serve
{

struct freed {
    void operator()(void *p) const
    {
        std::free(p);
    }
};
using c_text = std::unique_ptr<char, freed>;
using c_tokens = std::unique_ptr<int32_t, freed>;
struct tokens {
    std::unique_ptr<int32_t, freed> id;
    int32_t n = 0;
};

// The server's own routes that are asked, set while routes are registered, before the server listens.
struct routes {
    server_http_context::handler_t apply_template, tokenize, slot_action, completion, adapters;
};
routes &own();

// Whether the server is ending: its loop has ended, and who waits for it would wait for ever.
bool is_ending();
void set_ending();

// A request of ours, which stops where the one that it stands for does, and when the server ends.
struct request {
    const std::function<bool()> stop;
    server_http_req of; // its should_stop is `stop`
    request(const server_http_req &req, std::string body)
        : stop([&left = req.should_stop] { return is_ending() || left(); }),
          of{req.params, req.headers, req.path, req.query_string, std::move(body), req.files, stop}
    {
    }
    // The same of a request that came from a client, whose parts it takes over.
    explicit request(server_http_req &&req)
        : stop([&left = req.should_stop] { return is_ending() || left(); }),
          of{std::move(req.params), std::move(req.headers), req.path, std::move(req.query_string),
             std::move(req.body),   std::move(req.files),   stop}
    {
    }
    request(const request &) = delete;
    request &operator=(const request &) = delete;
};
// For serve_ask.client_left, of a server_http_req: whether its client has left, or the server ends.
bool has_left(void *req);

// Slots that are given back in any case.
struct claimed_slot {
    serve_claim claim;
    explicit claimed_slot(const serve_claim &c) : claim(c)
    {
    }
    claimed_slot(const claimed_slot &) = delete;
    claimed_slot &operator=(const claimed_slot &) = delete;
    ~claimed_slot()
    {
        serve_slots_release(&claim);
    }
};

// What one of the server's own routes says to a body; empty if it refuses.
std::string ask(const server_http_context::handler_t &route, const server_http_req &req, c_text body);
// A chat as the template writes it; null if the server refuses it.
c_text rendered(const server_http_req &req, c_text body);
tokens tokens_of(const server_http_req &req, const char *text);
int32_t common_prefix(const tokens &a, const tokens &b);
// Saves, restores or erases a slot that the caller holds. False: the server refuses.
bool act_on_slot(const server_http_req &req, int32_t slot, const char *action, c_text body);
// Erases a slot that the caller holds.
void erase_slot(const server_http_req &req, int32_t slot);
// Erases the slots of a claim of which it says so.
void erase_first(const server_http_req &req, const serve_claim &claim);

} // namespace serve

#endif
