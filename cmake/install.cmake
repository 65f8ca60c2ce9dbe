# SPDX-License-Identifier: MIT
# What `cmake --install` puts where (decision 025): headers, both libraries, the command, winnow.pc, a CMake package and
# the licence with its notice. Everything finds everything else by relative paths, so that the tree may be installed into any prefix, with
# or without DESTDIR, and moved.
include(GNUInstallDirs)

# A private copy of ggml and libllama, as scripts/setup.sh makes it, lies in a cache folder of one user, which may be
# emptied any time. So it is installed next to libwinnow, in a folder of its own. Libraries of the system, or of
# CMAKE_PREFIX_PATH, stay where they are, and their folder is noted in what links them.
set(wnw_peer_dir ${CMAKE_INSTALL_LIBDIR}/winnow)
set(wnw_bundled OFF)
foreach(folder IN LISTS wnw_private)
  string(FIND "${ggml_DIR}" "${folder}/" at)
  if(at EQUAL 0)
    set(wnw_bundled ON)
  endif()
endforeach()
option(WNW_INSTALL_GGML "install the ggml and libllama in use beside libwinnow" ${wnw_bundled})

set(wnw_peers llama ggml ggml-cpu ggml-base)
if(wnw_jinja)
  list(PREPEND wnw_peers llama-common)
endif()
if(WNW_INSTALL_GGML)
  file(RELATIVE_PATH wnw_from_bin /p/${CMAKE_INSTALL_BINDIR} /p/${wnw_peer_dir})
  set_target_properties(winnow PROPERTIES INSTALL_RPATH "$ORIGIN/${wnw_from_bin}")
  set_target_properties(winnow_shared PROPERTIES INSTALL_RPATH "$ORIGIN/winnow")
  # A library under the name that programs ask for, and a link under the name that the linker asks for.
  file(GLOB wnw_peer_files ${LLAMA_LIB_DIR}/libggml*.so.[0-9] ${LLAMA_LIB_DIR}/libllama.so.[0-9]
                           ${LLAMA_LIB_DIR}/libllama-common.so.[0-9])
  foreach(file IN LISTS wnw_peer_files)
    file(REAL_PATH ${file} real)
    get_filename_component(soname ${file} NAME)
    string(REGEX REPLACE "\\.[0-9]$" "" link ${soname})
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/links)
    file(CREATE_LINK ${soname} ${CMAKE_BINARY_DIR}/links/${link} SYMBOLIC)
    install(FILES ${real} DESTINATION ${wnw_peer_dir} RENAME ${soname})
    install(FILES ${CMAKE_BINARY_DIR}/links/${link} DESTINATION ${wnw_peer_dir})
  endforeach()
  set(wnw_peer_path "\${libdir}/winnow")
else()
  set_target_properties(winnow winnow_shared PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  set(wnw_peer_path ${LLAMA_LIB_DIR})
endif()

install(TARGETS winnow RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS winnow_lib winnow_shared ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(wnw_bridge)
  install(TARGETS winnow_bridge LIBRARY DESTINATION ${wnw_peer_dir})
  # `make vulkan` builds it, and the command looks for it in that library's folder.
  install(FILES ${CMAKE_BINARY_DIR}/libggml-vulkan.so DESTINATION ${wnw_peer_dir} OPTIONAL)
endif()
if(wnw_server)
  # `make server` builds it; an install without it goes on. Users start `winnow serve`.
  if(WNW_INSTALL_GGML)
    set_target_properties(winnow_server PROPERTIES INSTALL_RPATH "$ORIGIN")
  else()
    set_target_properties(winnow_server PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
  install(TARGETS winnow_server RUNTIME DESTINATION ${wnw_peer_dir} OPTIONAL)
endif()
install(FILES include/winnow.h include/winnow_method.h include/winnow_calibrate.h include/winnow_bridge.h
              include/winnow_store.h include/winnow_study.h include/winnow_tools.h
              include/winnow_batch.h include/winnow_chat.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/winnow)
# winnow's own data files. app/share.c finds them relative to the program.
install(DIRECTORY share/ DESTINATION ${CMAKE_INSTALL_DATADIR}/winnow)

if(TARGET winnow_printed)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
  install(FILES ${CMAKE_BINARY_DIR}/completion/winnow DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions OPTIONAL)
  install(FILES ${CMAKE_BINARY_DIR}/completion/_winnow DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions OPTIONAL)
  install(FILES ${CMAKE_BINARY_DIR}/completion/winnow.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d OPTIONAL)
endif()

# A static libwinnow.a needs all of these; a shared libwinnow.so brings them along.
set(wnw_static_libs "-L${wnw_peer_path} -Wl,-rpath,${wnw_peer_path}")
set(wnw_shared_libs "-Wl,-rpath-link,${wnw_peer_path}")
foreach(peer IN LISTS wnw_peers)
  string(APPEND wnw_static_libs " -l${peer}")
endforeach()
string(APPEND wnw_static_libs " -ljansson -lxxhash -lsqlite3 -lstdc++ -lpthread -lm")
file(RELATIVE_PATH wnw_up /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(REGEX REPLACE "/$" "" wnw_up "${wnw_up}")
configure_file(cmake/winnow.pc.in ${CMAKE_BINARY_DIR}/winnow.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/winnow.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

include(CMakePackageConfigHelpers)
if(WNW_INSTALL_GGML)
  set(wnw_peer_path "\${PACKAGE_PREFIX_DIR}/${wnw_peer_dir}")
endif()
configure_package_config_file(cmake/winnow-config.cmake.in ${CMAKE_BINARY_DIR}/winnow-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/winnow NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/winnow-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/winnow-config.cmake ${CMAKE_BINARY_DIR}/winnow-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/winnow)
