#!/bin/bash
# SPDX-License-Identifier: MIT
# The Python package's declarations are what the public headers say.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
python3 "$top/scripts/python_declarations.py" --check || fail 'the declarations are old'
cp -r "$top/include" "$top/scripts" "$work"
mkdir -p "$work/python/winnow"
sed -i 's/int32_t n_layer; /int32_t n_layer, n_more; /' "$work/include/winnow.h"
cp "$top/python/winnow/_declarations.py" "$work/python/winnow"
sed -i 's/^WNW_API void wnw_free(void \*p);/WNW_API void wnw_free(void *p, int more);/' "$work/include/winnow.h"
python3 "$work/scripts/python_declarations.py" --check 2>/dev/null && fail 'another header is not noticed'
exit $((failures > 0))
