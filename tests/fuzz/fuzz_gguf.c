/* SPDX-License-Identifier: MIT */
/* The input is a model file. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_open_model(fuzz_file(data, size), "The harbor <|im_end|> is\nred.");
    return 0;
}
