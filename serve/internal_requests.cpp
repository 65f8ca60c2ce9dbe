// SPDX-License-Identifier: MIT
#include "serve/internal_requests.hpp"

#include "base/prefix.h"
#include "serve/bodies.h"

#include <atomic>
#include <cstring>

namespace serve
{

routes &own()
{
    static routes r;
    return r;
}

namespace
{

std::atomic<bool> ending{false};

} // namespace

bool is_ending()
{
    return ending;
}

void set_ending()
{
    ending = true;
}

bool has_left(void *req)
{
    return is_ending() || static_cast<const server_http_req *>(req)->should_stop();
}

std::string ask(const server_http_context::handler_t &route, const server_http_req &req, c_text body)
{
    if (!route || !body)
        return "";
    const request inner(req, body.get());
    const auto res = route(inner.of);
    return res && res->status == 200 ? res->data : "";
}

c_text rendered(const server_http_req &req, c_text body)
{
    const std::string said = ask(own().apply_template, req, std::move(body));
    return c_text(serve_reply_prompt(said.data(), said.size()));
}

tokens tokens_of(const server_http_req &req, const char *text)
{
    tokens t;
    const std::string said = ask(own().tokenize, req, c_text(serve_body_tokenize(text)));
    t.id.reset(serve_reply_tokens(said.data(), said.size(), &t.n));
    return t;
}

int32_t common_prefix(const tokens &a, const tokens &b)
{
    return wnw__common_tokens(a.id.get(), a.n, b.id.get(), b.n);
}

bool act_on_slot(const server_http_req &req, int32_t slot, const char *action, c_text body)
{
    const std::string number = std::to_string(slot);
    if (!own().slot_action || !body)
        return false;
    const request inner(req, body.get());
    const auto res = own().slot_action(server_http_req{{{"id_slot", number}, {"action", action}},
                                                       req.headers,
                                                       "/slots/" + number,
                                                       std::string("action=") + action,
                                                       body.get(),
                                                       {},
                                                       inner.stop});
    return res && res->status == 200;
}

void erase_slot(const server_http_req &req, int32_t slot)
{
    act_on_slot(req, slot, "erase", c_text(strdup("{}")));
}

void erase_first(const server_http_req &req, const serve_claim &claim)
{
    for (int32_t i = 0; i < serve_slots_n(); i++)
        if (claim.erase >> i & 1)
            erase_slot(req, i);
}

} // namespace serve
