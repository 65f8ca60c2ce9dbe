// SPDX-License-Identifier: MIT
#include "serve/moves.hpp"

#include "serve/bodies.h"
#include "serve/own_names.h"
#include "serve/replies.hpp"
#include "serve/restores.h"

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
    const request inner(req, body.get());
    return route(inner.of);
}

} // namespace serve
