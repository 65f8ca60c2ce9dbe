// SPDX-License-Identifier: MIT
#include "serve/moves.hpp"

#include "serve/bodies.h"
#include "serve/call.hpp"
#include "serve/own_names.h"
#include "serve/replies.hpp"
#include "serve/restores.h"
#include "serve/slots.h"

namespace serve
{

namespace
{

struct ended {
    void operator()(serve_restore *r) const
    {
        serve_restore_end(r);
    }
};

// Room in the cap for what comes into a slot, until the server has put it there.
struct coming {
    int32_t slot;
    explicit coming(int32_t s) : slot(s)
    {
    }
    coming(const coming &) = delete;
    coming &operator=(const coming &) = delete;
    ~coming()
    {
        serve_slots_came_in(slot);
    }
};

// Whether a name is of a file in the folder itself. What else a name may not have the server says.
bool is_in_folder(const std::string &name)
{
    return !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..";
}

} // namespace

server_http_res_ptr move_slot(const server_http_context::handler_t &route, const server_http_req &req,
                              int32_t slot, const std::string &action)
{
    char why[SERVE_TEXT];
    std::string passed;
    if (auto wrong = wrong_body(-1, req, &passed))
        return wrong;
    const c_text file(serve_body_get_file(req.body.data(), req.body.size()));
    if (!file)
        return refuse(400, "filename: give the name of a file in the server's folder, as a text", "filename");
    if (serve_is_own_name(file.get()))
        return refuse(400, "filename: the server uses this name for itself; take another one", "filename");
    const c_text body(serve_body_file(file.get()));
    if (!body)
        return refuse(500, "out of memory", nullptr);
    serve_restore *read = nullptr;
    if (action == "restore" && is_in_folder(file.get()) && !serve_restore_begin(&read, slot, file.get(), why))
        return refuse(400, why, "filename");
    const std::unique_ptr<serve_restore, ended> held(read);
    const serve_answer room =
        read ? serve_slots_comes_in(slot, serve_restore_n_tokens(read), why) : SERVE_CLAIMED;
    if (room != SERVE_CLAIMED)
        return refuse(room == SERVE_BUSY ? 503 : 400, why, "filename");
    const coming one(slot);
    const request inner(req, body.get());
    return call(route, inner.of);
}

} // namespace serve
