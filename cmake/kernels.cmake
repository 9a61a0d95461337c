# kernels.cmake - each instruction set's kernels get their own flags, and exist only where the
# compiler's target has them. No other file is compiled for more than the base architecture.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
    set(choir_kernel_variants avx2 avx512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(choir_kernel_variants neon)
endif()

set(choir_flags_avx2 -mavx2 -mf16c)
set(choir_flags_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512)
set(choir_flags_neon)

foreach(variant avx2 avx512 neon)
    if(variant IN_LIST choir_kernel_variants)
        foreach(file IN LISTS choir_sources)
            if(file MATCHES "/kernel/.*_${variant}\\.c$")
                set_property(SOURCE ${file} APPEND PROPERTY COMPILE_OPTIONS -O3 ${choir_flags_${variant}})
            endif()
        endforeach()
    else()
        list(FILTER choir_sources EXCLUDE REGEX "/kernel/.*_${variant}\\.c$")
    endif()
endforeach()
