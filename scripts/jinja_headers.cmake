# SPDX-License-Identifier: MIT
# Included by llama.cpp's build at its project() (see setup.sh): installs the headers of its Jinja engine, which it
# compiles into libllama-common but installs no headers of.
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/common/jinja DESTINATION include/llama-common FILES_MATCHING PATTERN *.h)
