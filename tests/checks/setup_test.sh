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

# In the long run it would install more.
unset CHOIR_TEST_LONG

# A venv of somebody else's: nothing is installed there, or for it.
export CHOIR_TEST_VENV=$PWD/others-venv

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

# PyTorch goes into a venv of the tree, once; where that fails the tests that lack it are named.
mkdir -p tree/scripts
cp "$CHOIR_TEST_SOURCE/scripts/setup" tree/scripts
for tool in ls mkdir; do
    ln -s "$(command -v $tool)" bin/$tool
done
rm bin/python3
cat >bin/python3 <<'FAKE'
#!/bin/sh
# python3 -m venv DIR: a venv whose pip "installs"
[ "$1 $2" = "-m venv" ] || exit 9
mkdir -p "$3/bin"
cat >"$3/bin/python3" <<'INNER'
#!/bin/sh
echo "$@" >>pip-asked
[ ! -e pip-fails ] || { echo no wheel for you >&2; exit 1; }
case $* in *mypy) exec mkdir -p build/venv/lib/python3.11/site-packages/mypy-1.0.dist-info ;; esac
mkdir -p build/venv/lib/python3.11/site-packages/torch-2.13.0+cpu.dist-info
mkdir -p build/venv/lib/python3.11/site-packages/numpy-2.0.dist-info
INNER
PATH=/bin:/usr/bin chmod +x "$3/bin/python3"
FAKE
chmod +x bin/python3
PATH=$PWD/bin CHOIR_TEST_VENV='' tree/scripts/setup >out 2>&1 || fail "setup failed"
grep -q "torch==2.13.0 numpy" tree/pip-asked || fail "pip was not asked for PyTorch 2.13.0 and numpy"
grep -q "takes minutes" out || fail "setup does not say that PyTorch takes a while"
PATH=$PWD/bin CHOIR_TEST_VENV='' tree/scripts/setup >out 2>&1 || fail "setup failed"
[ "$(wc -l <tree/pip-asked)" -eq 2 ] || fail "PyTorch or mypy was installed again: $(cat tree/pip-asked)"
rm -r tree/build tree/pip-asked
: >tree/pip-fails
PATH=$PWD/bin CHOIR_TEST_VENV='' tree/scripts/setup >out 2>&1 || fail "a failing pip must not stop"
grep -q "no wheel for you" out || fail "setup hides why pip failed"
grep -q "not tested: working together with PyTorch" out || fail "setup does not say what is not tested"
[ ! -e tree/build/venv ] || fail "half a venv was left"
PATH=$PWD/bin CHOIR_TEST_VENV=/other tree/scripts/setup >out 2>&1 || fail "setup failed"
[ "$(wc -l <tree/pip-asked)" -eq 1 ] || fail "something was installed beside CHOIR_TEST_VENV"

# Without a compiler nothing can be done.
rm bin/gcc
PATH=$PWD/bin "$CHOIR_TEST_SOURCE/scripts/setup" >out 2>&1 && fail "setup must fail without gcc"
grep -q "gcc is missing" out || fail "setup does not say that gcc is missing"
exit 0
