# install.cmake
