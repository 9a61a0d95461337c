# tests.cmake - unit tests and benchmarks. tests/run finds the programs in bin/tests.

add_library(choir_harness STATIC ${PROJECT_SOURCE_DIR}/tests/harness/choir_test.c)
target_include_directories(choir_harness PUBLIC src include tests/harness)
target_link_libraries(choir_harness PUBLIC choir_static PRIVATE choir_flags)

# Beside their sources, and in tests/ what belongs to no single source.
file(GLOB choir_other_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*/*_test.c)
list(FILTER choir_other_tests EXCLUDE REGEX "/harness/")
add_custom_target(kernel_tests) # for machines on which only these are run
foreach(source IN LISTS choir_unit_tests choir_other_tests)
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE choir_harness choir_flags choir_link_flags m)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/tests)
    if(source MATCHES "/src/kernel/")
        add_dependencies(kernel_tests ${name})
    endif()
endforeach()

# The random cases of collectives, for threads (collectives_test) and for processes (random_collective).
add_library(collective_cases STATIC ${PROJECT_SOURCE_DIR}/tests/collective/naive.c
    ${PROJECT_SOURCE_DIR}/tests/collective/scenario.c ${PROJECT_SOURCE_DIR}/tests/collective/placing.c
    ${PROJECT_SOURCE_DIR}/tests/collective/sparse_case.c ${PROJECT_SOURCE_DIR}/tests/collective/perform.c)
target_include_directories(collective_cases PUBLIC src include tests/collective)
target_link_libraries(collective_cases PUBLIC choir_static m PRIVATE choir_flags)
target_link_libraries(collectives_test PRIVATE collective_cases)
target_link_libraries(naive_test PRIVATE collective_cases)
target_link_libraries(bits_test PRIVATE collective_cases)

# PMIx's headers, for a comparison with what we believe; the library itself needs none.
find_path(CHOIR_PMIX_INCLUDE pmix.h HINTS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pmix2/include)
mark_as_advanced(CHOIR_PMIX_INCLUDE)
if(CHOIR_PMIX_INCLUDE)
    target_include_directories(pmix_abi_test SYSTEM PRIVATE ${CHOIR_PMIX_INCLUDE})
    target_compile_definitions(pmix_abi_test PRIVATE CH_HAVE_PMIX_H)
endif()

# What test scripts start.
foreach(helper collective/growth collective/huge_collective collective/mismatch collective/random_collective
        collective/singer io/leftover mpi/mpi_exchange rendezvous/member tools/flight_dumps torch/torch_serve)
    get_filename_component(name ${helper} NAME)
    add_executable(${name} ${PROJECT_SOURCE_DIR}/tests/${helper}.c)
    target_include_directories(${name} PRIVATE src include)
    target_link_libraries(${name} PRIVATE choir_static choir_flags choir_link_flags)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/tests)
endforeach()
target_link_libraries(mismatch PRIVATE collective_cases)
target_link_libraries(random_collective PRIVATE collective_cases)

# Not with sanitizers: what they would measure means nothing.
if(NOT CHOIR_SANITIZE)
    include(${PROJECT_SOURCE_DIR}/bench/bench.cmake)
endif()
