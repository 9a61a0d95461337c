# flags.cmake - how everything is compiled: the two interface targets choir_flags, choir_link_flags.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# Plain -O2 -g in every configuration: NDEBUG is not ours, assertions follow CHOIR_DEBUG.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g")

set(CHOIR_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")
option(CHOIR_DEBUG "Compile assertions, lock ranks and trace lines in" OFF)
option(CHOIR_WERROR "Make warnings errors" ON)

include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

add_library(choir_flags INTERFACE)
target_compile_definitions(choir_flags INTERFACE _GNU_SOURCE CH_DEBUG=$<BOOL:${CHOIR_DEBUG}>)
target_compile_options(choir_flags INTERFACE
    -Wall -Wextra -Wshadow -Wundef -Wvla -Wmissing-prototypes -Wstrict-prototypes -Wpointer-arith
    -Wcast-align -Wwrite-strings
    $<$<BOOL:${CHOIR_WERROR}>:-Werror>
    # The same bits everywhere: no multiply-add where the source says multiply, then add.
    -ffp-contract=off
    -fstack-protector-strong)
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    target_compile_options(choir_flags INTERFACE -Wthread-safety)
endif()

add_library(choir_link_flags INTERFACE)
target_link_options(choir_link_flags INTERFACE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)

if(CHOIR_SANITIZE)
    # -g1: a report needs lines, not variables, and tracking those doubles the time to compile kernels.
    target_compile_options(choir_flags INTERFACE
        -fsanitize=${CHOIR_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
    target_link_options(choir_link_flags INTERFACE -fsanitize=${CHOIR_SANITIZE})
else()
    # Undefined first: some compilers come with a level of their own.
    target_compile_options(choir_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
