# bench.cmake - the benchmarks: bench/<name>/ becomes bin/bench/<name>.

add_library(bench_common STATIC ${PROJECT_SOURCE_DIR}/bench/common/stats.c)
target_include_directories(bench_common PUBLIC ${PROJECT_SOURCE_DIR}/bench/common)
target_link_libraries(bench_common PRIVATE choir_flags)

file(GLOB choir_benches RELATIVE ${PROJECT_SOURCE_DIR}/bench CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/bench/*/CMakeLists.txt)
foreach(list IN LISTS choir_benches)
    get_filename_component(name ${list} DIRECTORY)
    add_subdirectory(${PROJECT_SOURCE_DIR}/bench/${name} ${CMAKE_BINARY_DIR}/bench/${name})
endforeach()
