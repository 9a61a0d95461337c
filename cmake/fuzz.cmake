# fuzz.cmake - fuzz targets: every tests/fuzz/<name>_fuzz.c, linked with what of the library reads bytes
# of others, all of it with libFuzzer's eyes and the sanitizers. scripts/fuzz builds and runs them.

if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "CHOIR_FUZZ needs clang: -DCMAKE_C_COMPILER=clang")
endif()

set(choir_fuzzed_sources ${choir_sources})
list(FILTER choir_fuzzed_sources INCLUDE REGEX "/src/(base|io|kernel|sched|store|transport)/")
file(GLOB choir_fuzzed_tools CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/trace_*.c)
add_library(choir_fuzzed STATIC EXCLUDE_FROM_ALL ${choir_fuzzed_sources} ${choir_fuzzed_tools})
target_include_directories(choir_fuzzed PUBLIC src include)
target_compile_options(choir_fuzzed PUBLIC
    -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
target_link_options(choir_fuzzed INTERFACE -fsanitize=fuzzer,address,undefined)
target_link_libraries(choir_fuzzed PUBLIC choir_flags Threads::Threads)

add_custom_target(fuzz)
file(GLOB choir_fuzz_targets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.c)
foreach(source IN LISTS choir_fuzz_targets)
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} EXCLUDE_FROM_ALL ${source})
    target_link_libraries(${name} PRIVATE choir_fuzzed)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/fuzz)
    add_dependencies(fuzz ${name})
endforeach()
