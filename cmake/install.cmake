# install.cmake - what `make install` installs, and how other builds find it: choir.pc for pkg-config,
# ChoirConfig.cmake for find_package(Choir). Both find their files relative to themselves, so the
# installed tree may be moved.

include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/choir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
install(TARGETS choir_shared choir_static EXPORT ChoirTargets)
install(TARGETS choir)
install(FILES ${PROJECT_SOURCE_DIR}/tools/completion/choir.bash RENAME choir
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)

foreach(page IN LISTS choir_man_pages)
    get_filename_component(section ${page} DIRECTORY)
    get_filename_component(section ${section} NAME)
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/${section})
endforeach()
install(DIRECTORY ${choir_man_dir}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL)
install(FILES ${choir_man_generated} DESTINATION ${CMAKE_INSTALL_MANDIR}/man7)

# --- pkg-config -----------------------------------------------------------------------------------

set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH choir_pc_up /${pc_dir} /)
string(REGEX REPLACE "/$" "" choir_pc_up "${choir_pc_up}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/choir.pc.in ${CMAKE_BINARY_DIR}/choir.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/choir.pc DESTINATION ${pc_dir})

# --- find_package(Choir) --------------------------------------------------------------------------

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Choir)
install(EXPORT ChoirTargets NAMESPACE Choir:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ChoirConfig.cmake.in
    ${CMAKE_BINARY_DIR}/ChoirConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the API.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/ChoirConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/ChoirConfig.cmake ${CMAKE_BINARY_DIR}/ChoirConfigVersion.cmake
        DESTINATION ${package_dir})
