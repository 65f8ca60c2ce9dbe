// SPDX-License-Identifier: MIT
// The start of llama.cpp's server, before it answers anyone.
#pragma once

// From here on, a fault of the server is no longer taken for one of its options.
void serve_started();
