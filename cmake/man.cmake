# man.cmake
