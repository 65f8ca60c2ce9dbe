// SPDX-License-Identifier: MIT
// The server's own routes, called with bodies that were read here, and their errors in our words.
#ifndef WNW_SERVE_CALL_HPP
#define WNW_SERVE_CALL_HPP

#include "serve/internal_requests.hpp"

namespace serve
{

// Calls a route. What it refuses before it has given the decoding thread anything to do is a client's mistake: the status is 400 then, and
// the sentence has no words of a JSON library.
server_http_res_ptr call(const server_http_context::handler_t &route, const server_http_req &req);

// Passes a request on with this body, without a slot.
server_http_res_ptr pass_on(const server_http_context::handler_t &route, const server_http_req &req,
                            std::string body);

// What is wrong with the body of a route that takes no slot, or null and what is passed on; form: of its fields, -1 = none.
server_http_res_ptr wrong_body(int form, const server_http_req &req, std::string *passed);
// On its way to a route that takes no slot: its body is read once, here, and bounded, and has no field `winnow`. form: of its fields, -1 = none.
server_http_res_ptr checked(const server_http_context::handler_t &route, int form,
                            const server_http_req &req);

// While a request is answered; what its body took goes back afterwards.
struct answered {
    const size_t n_body;
    explicit answered(const server_http_req &req) : n_body(req.body.size())
    {
    }
    answered(const answered &) = delete;
    answered &operator=(const answered &) = delete;
    ~answered();
};

// While this thread has a prompt tokenised that begins with a document, -1 = none: its text is plain.
struct plain_document {
    explicit plain_document(int32_t d);
    plain_document(const plain_document &) = delete;
    plain_document &operator=(const plain_document &) = delete;
    ~plain_document();
};

// A body that nobody needs any more, once it was read: its memory goes back before the next copy of it is made. The request is the server's or
// ours, and no constant.
void drop_body(const server_http_req &req);

} // namespace serve

#endif
