#!/bin/sh
# Install this bundle without a network: check every file, set everything up below a prefix, and run
# Horovod on two ranks.
set -eu

usage() {
    cat <<'EOT'
usage: ./install.sh --prefix DIR [--build-only] [OPTION]...
       ./install.sh --check

  --prefix DIR   directory for all that is installed; elsewhere Horovod writes ~/.horovod alone
  --build-only   do not run the two-rank smoke test, for example on a login node
  --check        compare every file with its checksum, and do nothing else
  OPTION         of ./hvd build, such as --engine pip, or --python PYTHON for its frameworks
EOT
}

fail() {
    printf 'error: %s\n  hint: %s\n' "$1" "$2" >&2
    exit 2
}

bundle=$(cd "$(dirname "$0")" && pwd -P)
prefix='' build_only='' only_check='' value=''
for word; do
    shift
    case $value$word in
    prefix=*) prefix=$word value='' ;;
    --prefix) value=prefix= ;;
    --build-only) build_only=1 ;;
    --check) only_check=1 ;;
    -h | --help) usage && exit 0 ;;
    *) set -- "$@" "$word" ;;
    esac
done
if [ -z "$prefix$only_check" ]; then
    usage >&2
    exit 2
fi
for program in diff git sha256sum; do
    command -v "$program" >/dev/null || fail "$program is not on PATH" "install it"
done
echo "checking every file"
# also finds what was added or removed
(cd "$bundle" && find . ! -type d ! -path ./SHA256SUMS -exec sha256sum {} + 2>&1) |
    sed 's|  \./|  |' | LC_ALL=C sort -k 2 | diff "$bundle/SHA256SUMS" - >&2 ||
    fail "this bundle is not what was packed; nothing was installed" "copy it here again"
[ -z "$only_check" ] || exit 0

. "$bundle/bundle.env"
[ "$(uname -m)" = "$MACHINE" ] ||
    fail "this bundle is for $MACHINE, and this machine is $(uname -m)" "make one on such a machine"
interpreter=$(command -v "python$PYTHON" || command -v python3) || interpreter=false
"$interpreter" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$PYTHON')" ||
    fail "no Python $PYTHON on PATH, which the wheels are for" "install it, or bundle with another"
case $prefix in
/*) ;;
*) prefix=$(pwd -P)/$prefix ;;
esac
case $prefix in
*[[:space:]\']*) fail "$prefix has a blank or a quote in it, which pip and shells cannot take" "name another --prefix" ;;
esac
mkdir -p "$prefix"
digest=$(sha256sum <"$bundle/SHA256SUMS")
if [ -e "$prefix/hvd" ]; then
    [ "$(cat "$prefix/bundle.sum" 2>/dev/null)" = "$digest" ] ||
        fail "$prefix/hvd is there already, from elsewhere" "name another --prefix"
else
    echo "copying to $prefix"
    mkdir -p "$prefix/cache/hvd"
    cp -R "$bundle/git" "$bundle/wheels" "$prefix"
    cp -R "$bundle/sources" "$prefix/cache/hvd"
    # a bundle may come from a medium that is read-only
    chmod -R u+w "$prefix"
    cat >"$prefix/env.sh" <<EOT
# Source it before ./hvd: everything comes from this prefix, nothing from a network.
export XDG_CACHE_HOME='$prefix/cache'
export HVD_SPACK='$prefix/git/spack.git' HVD_PACKAGES='$prefix/git/packages.git'
export PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_FIND_LINKS='$prefix/wheels'
export PIP_DISABLE_PIP_VERSION_CHECK=1
unset PIP_INDEX_URL PIP_EXTRA_INDEX_URL HVD_COMPILER_WRAPPER SPACK_ROOT
EOT
    printf '%s\n' "$digest" >"$prefix/bundle.sum"
    git clone --quiet "$prefix/git/hvd.git" "$prefix/hvd.new"
    mv "$prefix/hvd.new" "$prefix/hvd"
fi
. "$prefix/env.sh"
cd "$prefix/hvd"

[ -z "$build_only" ] || COMMAND="build ${COMMAND#* }"
eval "set -- $COMMAND \"\$@\""
"$interpreter" ./hvd "$@"
echo "to use it: . $prefix/env.sh; ./hvd is in $prefix/hvd"
