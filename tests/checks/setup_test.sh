#!/bin/sh
# setup_test.sh - scripts/setup where tools are missing: says what, what for, and goes on; stops only
# where nothing can be built.
# timeout: 60
set -u
fail() {
    echo "$1"
    cat out
    exit 1
}

# A machine with the bare tools and an ordinary user.
mkdir bin
for tool in sh cat sed sort cut tr uname env mktemp tail rm dirname gcc make cmake python3; do
    ln -s "$(command -v $tool)" bin/$tool
done
printf '#!/bin/sh\necho 1000\n' >bin/id
chmod +x bin/id

PATH=$PWD/bin "$CHOIR_TEST_SOURCE/scripts/setup" >out 2>&1 || fail "missing test tools must not stop a user"
for words in "not tested: the model check of the doorbell (package spin is missing)" "package valgrind" \
    "as root: apt-get install .*mandoc"; do
    grep -q "$words" out || fail "setup does not say: $words"
done

# A superuser whose apt-get fails: the same list.
printf '#!/bin/sh\necho 0\n' >bin/id
printf '#!/bin/sh\necho no network >&2; exit 100\n' >bin/apt-get
ln -s "$(command -v timeout)" bin/timeout
chmod +x bin/apt-get
PATH=$PWD/bin "$CHOIR_TEST_SOURCE/scripts/setup" >out 2>&1 || fail "a failing apt-get must not stop"
grep -q "no network" out || fail "setup hides why apt-get failed"
grep -q "package spin is missing" out || fail "setup does not say what is missing"

# A superuser whose apt-get works: it is asked for what is missing, and for nothing else.
printf '#!/bin/sh\necho "$@" >>%s/asked\n' "$PWD" >bin/apt-get
printf '#!/bin/sh\n' >bin/valgrind
chmod +x bin/valgrind
PATH=$PWD/bin "$CHOIR_TEST_SOURCE/scripts/setup" >out 2>&1 || fail "setup failed"
grep -q "install .* spin" asked || fail "apt-get was not asked for spin: $(cat asked)"
! grep -q valgrind asked || fail "apt-get was asked for valgrind, which is there: $(cat asked)"

# Without a compiler nothing can be done.
rm bin/gcc
PATH=$PWD/bin "$CHOIR_TEST_SOURCE/scripts/setup" >out 2>&1 && fail "setup must fail without gcc"
grep -q "gcc is missing" out || fail "setup does not say that gcc is missing"
exit 0
