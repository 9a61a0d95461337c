# kernels.cmake - each instruction set's kernels get their own flags, and exist only where the
# compiler's target has them. No other file is compiled for more than the base architecture.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
    set(choir_kernel_variants avx2 avx512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(choir_kernel_variants neon)
endif()

set(choir_flags_avx2 -mavx2 -mf16c -mprfchw)
set(choir_flags_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512)
set(choir_flags_neon)

# What these files write as a loop must not become a call of memcpy: not calling it is their purpose.
# Their checks stay branches, which predict well and cost less than the arithmetic gcc would make of
# them. Aligned, so that their speed does not depend on what the linker puts before them.
set(choir_flags_kernel -falign-functions=64 -falign-loops=32)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND choir_flags_kernel
         -fno-tree-loop-distribute-patterns --param=logical-op-non-short-circuit=0)
endif()

# With sanitizers these files take minutes to optimise, and nobody times the result.
set(choir_kernel_level -O3)
if(CHOIR_SANITIZE)
    set(choir_kernel_level -O1)
endif()

foreach(variant avx2 avx512 neon)
    string(TOUPPER ${variant} VARIANT)
    if(variant IN_LIST choir_kernel_variants)
        set(has 1)
        foreach(file IN LISTS choir_sources)
            if(file MATCHES "/kernel/.*_${variant}\\.c$")
                set_property(SOURCE ${file} APPEND PROPERTY COMPILE_OPTIONS
                             ${choir_kernel_level} ${choir_flags_kernel} ${choir_flags_${variant}})
            endif()
        endforeach()
    else()
        set(has 0)
        list(FILTER choir_sources EXCLUDE REGEX "/kernel/.*_${variant}\\.c$")
    endif()
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/kernel/kernel.c APPEND PROPERTY
                 COMPILE_DEFINITIONS CH_HAVE_${VARIANT}=${has})
endforeach()

# The 64-byte template on CPUs that have only 32-byte vectors: see wide_test.c. -Wno-psabi: that such
# vectors are passed differently with AVX-512 does not matter inside one file.
if("avx2" IN_LIST choir_kernel_variants)
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/kernel/wide_test.c APPEND PROPERTY
                 COMPILE_OPTIONS ${choir_kernel_level} ${choir_flags_avx2} -Wno-psabi)
else()
    list(FILTER choir_unit_tests EXCLUDE REGEX "/kernel/wide_test\\.c$")
endif()
