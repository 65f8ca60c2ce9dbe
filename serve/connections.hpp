// SPDX-License-Identifier: MIT
// Connections of clients, each on a thread of its own, in bounded number. cpp-httplib reads and writes them; what a client that sends half
// of a request can hold up is bounded here.
#ifndef WNW_SERVE_CONNECTIONS_HPP
#define WNW_SERVE_CONNECTIONS_HPP

namespace serve
{

// Whether the calling thread serves a connection; the functions below act on that one.
bool has_connection();
// The whole request has come. False: too many are being answered, and this one must be refused, unless `always`. May be called again.
bool begins_answer(bool always);

} // namespace serve

#endif
