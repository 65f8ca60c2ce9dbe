# SPDX-License-Identifier: MIT
# Writes the file FROM as an array of C: cmake -DFROM=FILE -DTO=FILE.c -DNAME=NAME -P embed.cmake
file(READ ${FROM} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}") # 16 bytes a line
file(WRITE ${TO} "/* Written by serve/embed.cmake from ${FROM}. */\n#include <stddef.h>\nextern const unsigned char ${NAME}[];\nextern const size_t ${NAME}_size;\nconst unsigned char ${NAME}[] = {\n${bytes}};\nconst size_t ${NAME}_size = sizeof ${NAME};\n")
