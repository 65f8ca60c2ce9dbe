/* SPDX-License-Identifier: MIT */
/* What a template has used so far, and the ends of one that uses too much. */
#ifndef WNW_JINJA_METER_H
#define WNW_JINJA_METER_H

#include <jinja/runtime.h>

#include <cstdint>
#include <string>
#include <vector>

namespace wnw
{

/* Thrown where a bound is exceeded, with the end of the sentence "the chat template ...". It is no std::exception,
 * because the engine would wrap that in its own words. */
struct bound_exceeded {
    std::string what;
};

/* Thrown instead of std::bad_alloc, which the engine would take for an error of the template. */
struct no_memory {
};

/* What a template has used. */
class meter
{
  public:
    /* n_input bytes in n_messages messages are what the template works on. */
    meter(uint64_t n_input, uint64_t n_messages);
    ~meter();
    meter(const meter &) = delete;
    meter &operator=(const meter &) = delete;

    void step(uint64_t n = 1);     /* something is evaluated, or a loop goes round */
    void work(uint64_t bytes);     /* bytes are read, compared or moved */
    void enter(const void *frame); /* an evaluation begins within another, in this frame of the stack */
    void leave()
    {
        depth_--;
    }
    /* A result of this many bytes is about to be made. */
    void expect(uint64_t bytes) const;
    /* A value comes from an evaluation. */
    void made(const jinja::value &v);
    /* Forgets what was counted, and empties the values that were made. */
    void reset();

    uint64_t names = 0;         /* names that the template sets somewhere: how large a scope can be */
    const char *base = nullptr; /* of the stack, where evaluation began */

  private:
    const uint64_t max_steps_, max_work_, max_made_;
    uint64_t steps_ = 0, work_ = 0, made_ = 0;
    int depth_ = 0;
    std::vector<jinja::value> kept_; /* lists, objects and functions: they can hold each other in circles */
};

/* The stack that the bounds on depth are made for, in bytes. */
constexpr size_t STACK = (size_t)64 << 20;

/* Bytes of a value, and of a part of a text, about. */
constexpr uint64_t VALUE_BYTES = 512, PART_BYTES = 48;

inline bool is_container(const jinja::value &v)
{
    return jinja::is_val<jinja::value_array>(v) || jinja::is_val<jinja::value_object>(v);
}

} // namespace wnw

#endif
