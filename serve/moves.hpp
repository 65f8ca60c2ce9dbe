// SPDX-License-Identifier: MIT
// Slots on their way to files and back.
#ifndef WNW_SERVE_MOVES_HPP
#define WNW_SERVE_MOVES_HPP

#include "serve/internal_requests.hpp"

namespace serve
{

// Has the server's route save a slot or restore it; action: "save" or "restore". The file's name is read here once, and the server gets a body
// of ours with it, so that both mean the same file. What is restored was read and checked before the server hears of it.
server_http_res_ptr move_slot(const server_http_context::handler_t &route, const server_http_req &req,
                              int32_t slot, const std::string &action);

} // namespace serve

#endif
