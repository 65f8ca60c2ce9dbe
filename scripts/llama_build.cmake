# SPDX-License-Identifier: MIT
# Included by llama.cpp's build at its project() (see setup.sh).

# llama.cpp compiles its Jinja engine into libllama-common and installs no headers of it.
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/common/jinja DESTINATION include/llama-common FILES_MATCHING PATTERN *.h)

# Parsers of answers are small files with the same large headers. Together they are compiled in a fifth of the time, as
# llama.cpp does with its families of models. WNW_JOIN_FILES=OFF compiles each by itself.
option(WNW_JOIN_FILES "Compile llama.cpp's parsers of answers together" ON)

function(wnw_join_parsers)
  get_target_property(files llama-common SOURCES)
  get_target_property(base llama-common SOURCE_DIR)
  foreach(file IN LISTS files)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${base})
    if(NOT file MATCHES "/common/parsers/[^/]*\\.cpp$")
      set_source_files_properties(${file} TARGET_DIRECTORY llama-common PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set_target_properties(llama-common PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 20)
endfunction()

if(WNW_JOIN_FILES)
  cmake_language(DEFER CALL wnw_join_parsers) # at the end of this folder, when the target is there
endif()
