# bench.cmake - the benchmarks: bench/<name>/*.c becomes bin/bench/<name>.

file(GLOB choir_benches RELATIVE ${PROJECT_SOURCE_DIR}/bench CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/bench/*/CMakeLists.txt)
foreach(list IN LISTS choir_benches)
    get_filename_component(name ${list} DIRECTORY)
    add_subdirectory(${PROJECT_SOURCE_DIR}/bench/${name} ${CMAKE_BINARY_DIR}/bench/${name})
endforeach()
