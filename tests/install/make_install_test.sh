#!/bin/sh
# make_install_test.sh - `make install` obeys DESTDIR, PREFIX and prefix, and writes nowhere else.
# timeout: 120
# alone
set -e
check() {
    [ -x "$1/bin/choir" ] && [ -f "$1/include/choir/choir.h" ] && [ -f "$1/lib/libchoir.a" ] &&
        [ -f "$1/share/bash-completion/completions/choir" ] || {
        echo "not installed in $1:"
        find . -maxdepth 4
        exit 1
    }
}
here=$PWD
case $CHOIR_TEST_BUILD in
"$CHOIR_TEST_SOURCE/build") ;;
*) echo "skip: make installs from build/, this run tests another"; exit 77 ;;
esac
make -s -C "$CHOIR_TEST_SOURCE" install DESTDIR="$here/staged" PREFIX=/opt/choir
check staged/opt/choir
make -s -C "$CHOIR_TEST_SOURCE" install prefix="$here/own"
check own
[ "$(ls staged)" = opt ]
