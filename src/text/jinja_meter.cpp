/* SPDX-License-Identifier: MIT */
#include "text/jinja_meter.h"

#include <algorithm>

namespace wnw
{

using jinja::is_val;
using jinja::value;
using jinja::value_func;
using jinja::value_kwarg;
using jinja::value_object;

namespace
{

/* What no honest template comes near; decision 046 says what those of llama.cpp's collection need. Some look through all
 * messages for each of them. */
constexpr uint64_t MAX_STEPS = 400000, STEPS_PER_MESSAGE = 4000, STEPS_PER_PAIR = 32;
constexpr uint64_t MAX_MADE = (uint64_t)64 << 20, MADE_PER_MESSAGE = (uint64_t)2 << 20, MADE_PER_PAIR = 8192,
                   MADE_PER_BYTE = 64;
constexpr uint64_t MAX_WORK = (uint64_t)2 << 30, WORK_PER_BYTE = 1024;
constexpr int MAX_DEPTH = 2500;
constexpr size_t MAX_STACK = STACK / 4 * 3;

} // namespace

meter::meter(uint64_t n_input, uint64_t n_messages)
    : max_steps_(MAX_STEPS + STEPS_PER_MESSAGE * n_messages + STEPS_PER_PAIR * n_messages * n_messages),
      max_work_(MAX_WORK + WORK_PER_BYTE * n_input),
      max_made_(MAX_MADE + MADE_PER_MESSAGE * n_messages + MADE_PER_PAIR * n_messages * n_messages +
                MADE_PER_BYTE * n_input)
{
}

meter::~meter()
{
    reset();
}

void meter::step(uint64_t n)
{
    steps_ += std::min(n, max_steps_ + 1);
    if (steps_ > max_steps_)
        throw bound_exceeded{"takes more than " + std::to_string(max_steps_) + " steps"};
}

void meter::work(uint64_t bytes)
{
    work_ += std::min(bytes, max_work_ + 1);
    if (work_ > max_work_)
        throw bound_exceeded{"works through more than " + std::to_string(max_work_ >> 20) + " MiB of text"};
}

void meter::enter(const void *frame)
{
    const char *at = static_cast<const char *>(frame);
    const size_t used = at < base ? (size_t)(base - at) : (size_t)(at - base);
    if (depth_ >= MAX_DEPTH || used > MAX_STACK)
        throw bound_exceeded{"goes deeper than " + std::to_string(depth_) +
                             " levels, as a macro that calls itself does"};
    depth_++;
}

void meter::expect(uint64_t bytes) const
{
    if (bytes > max_made_ || made_ + bytes > max_made_)
        throw bound_exceeded{"makes more than " + std::to_string(max_made_ >> 20) + " MiB of text and lists"};
}

void meter::made(const value &v)
{
    if (!v)
        return;
    const bool held = is_container(v) || is_val<value_func>(v) || is_val<value_kwarg>(v);
    if (v.use_count() == 1) {
        const uint64_t bytes = VALUE_BYTES + v->val_str.length() + PART_BYTES * v->val_str.parts.size() +
                               16 * v->val_arr.size() + 64 * v->val_obj.size();
        expect(bytes);
        made_ += bytes;
    }
    if (held && !v->stats.used) {
        v->stats.used = true; /* a field for statistics that we do not ask for: the value is in the list */
        kept_.push_back(v);
    }
}

/* Lists that hold themselves would never be freed, and a long chain of lists would be freed by a recursion as deep as
 * it is long. All are in the list, so that each is emptied while the others still exist. */
void meter::reset()
{
    for (const value &v : kept_) {
        v->val_arr.clear();
        v->val_obj.clear();
        v->val_func = nullptr;
        if (is_val<value_object>(v))
            static_cast<jinja::value_object_t *>(v.get())->unordered.clear();
        else if (is_val<value_func>(v))
            static_cast<jinja::value_func_t *>(v.get())->arg0.reset();
        else if (is_val<value_kwarg>(v))
            static_cast<jinja::value_kwarg_t *>(v.get())->val.reset();
    }
    kept_.clear();
    steps_ = work_ = made_ = 0;
    depth_ = 0;
}

} // namespace wnw
