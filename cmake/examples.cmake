# examples.cmake - every examples/NN_name/*.c is a program in bin/examples, on the public headers alone.

file(GLOB choir_examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*/*.c)
foreach(source IN LISTS choir_examples)
    get_filename_component(name ${source} NAME_WE)
    add_executable(example_${name} ${source})
    target_link_libraries(example_${name} PRIVATE choir_static choir_flags choir_link_flags m)
    set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name}
        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/examples)
endforeach()
