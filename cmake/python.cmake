# python.cmake - the Python package: an extension in C on the limited API, one file for 3.11 and later.
#
# In the build folder python/choir looks as it does when installed, with links to the sources, so that tests
# need nothing but PYTHONPATH. pyproject.toml makes the wheel of what is installed here.

set(CHOIR_PYTHON AUTO CACHE STRING "Build the Python package: ON, OFF, or AUTO for where Python's headers are")

# A sanitized extension only loads into an interpreter that was started for it, as tests/python/python_sanitized.py does
# with gcc's address sanitizer; others have to be asked for.
set(choir_python OFF)
set(python_loads ON)
if(CHOIR_SANITIZE AND NOT (CHOIR_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU"))
    set(python_loads OFF)
endif()
if(CHOIR_PYTHON STREQUAL "AUTO" AND python_loads AND NOT CMAKE_CROSSCOMPILING)
    find_package(Python3 3.11 QUIET COMPONENTS Interpreter Development.Module)
    set(choir_python ${Python3_Development.Module_FOUND})
elseif(CHOIR_PYTHON AND NOT CHOIR_PYTHON STREQUAL "AUTO")
    find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
    set(choir_python ON)
endif()
if(NOT choir_python)
    return()
endif()

set(python_dir ${CMAKE_BINARY_DIR}/python/choir)
file(GLOB python_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/ext/*.c)
add_library(choir_python MODULE ${python_sources})
set_target_properties(choir_python PROPERTIES PREFIX "" OUTPUT_NAME _choir SUFFIX ".abi3.so"
    LIBRARY_OUTPUT_DIRECTORY ${python_dir} BUILD_RPATH "$ORIGIN/lib" BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN/lib")
target_compile_definitions(choir_python PRIVATE Py_LIMITED_API=0x030B0000)
target_include_directories(choir_python SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
target_link_libraries(choir_python PRIVATE choir_shared choir_flags choir_link_flags)

# --- as installed, in the build folder -----------------------------------------------------------------

file(GLOB python_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/choir/*)
file(MAKE_DIRECTORY ${python_dir})
foreach(file IN LISTS python_files)
    get_filename_component(name ${file} NAME)
    if(NOT name STREQUAL "__pycache__")
        file(CREATE_LINK ${file} ${python_dir}/${name} SYMBOLIC)
    endif()
endforeach()
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include ${python_dir}/include SYMBOLIC)
file(CREATE_LINK ${CMAKE_LIBRARY_OUTPUT_DIRECTORY} ${python_dir}/lib SYMBOLIC)

# --- the wheel -----------------------------------------------------------------------------------------

# Headers and library are there for what is compiled on the user's machine against them. A wheel holds no
# links: the library has the name that the loader asks for.
set(wheel COMPONENT python EXCLUDE_FROM_ALL)
install(TARGETS choir_python DESTINATION choir ${wheel})
install(FILES $<TARGET_FILE:choir_shared> RENAME $<TARGET_SONAME_FILE_NAME:choir_shared>
        DESTINATION choir/lib ${wheel})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/choir DESTINATION choir/include ${wheel}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
if(SKBUILD)
    install(PROGRAMS $<TARGET_FILE:choir> DESTINATION ${SKBUILD_SCRIPTS_DIR} ${wheel})
endif()
