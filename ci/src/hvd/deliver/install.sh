#!/bin/sh
# Install this bundle without a network: check every file, set everything up below a prefix, and run
# Horovod on two ranks, or on the GPUs of this machine if ./hvd gpu-check packed it.
set -eu

usage() {
    cat <<'EOF'
usage: ./install.sh --prefix DIR [--python PYTHON] [--engine spack|pip] [--build-only]
       ./install.sh --prefix DIR [--python PYTHON] [--limit MINUTES]      for GPUs
       ./install.sh --check

  --prefix DIR      directory for all that is installed; elsewhere Horovod writes ~/.horovod alone
  --python PYTHON   take the frameworks of this interpreter, not those of the bundle; that for
                    GPUs has none, and takes those of python3 by default
  --engine NAME     what builds: spack (the default) or pip
  --build-only      do not run the two-rank smoke test, for example on a login node
  --limit MINUTES   time limit of the check of GPUs, of which 8 minutes is the default
  --check           compare every file with its checksum, and do nothing else
EOF
}

fail() {
    printf 'error: %s\n  hint: %s\n' "$1" "$2" >&2
    exit 2
}

# the files in the bundle, and those that the checksums name, one per line
files() { (cd "$bundle" && find . ! -type d ! -name SHA256SUMS | sed 's|^\./||' | LC_ALL=C sort); }
named() { cut -c 67- "$bundle/SHA256SUMS" | LC_ALL=C sort; }

check() {
    echo "checking every file"
    if ! bad=$(cd "$bundle" && LC_ALL=C sha256sum --check --quiet --strict SHA256SUMS 2>&1); then
        printf '%s\n' "$bad" | sed 's/^/    /' >&2
        fail "this bundle is not what was packed; nothing was installed" "copy it here again"
    fi
    if [ "$(files)" != "$(named)" ]; then
        files | grep -Fvx "$(named)" | sed 's/^/    /' >&2 || :
        fail "this bundle has files that were not packed; nothing was installed" "copy it here again"
    fi
}

# a Python of the version that the wheels are for
find_python() {
    for candidate in "python$PYTHON" python3 python; do
        if found=$(command -v "$candidate") && [ "$("$found" -c \
            'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$PYTHON" ]; then
            printf '%s\n' "$found"
            return
        fi
    done
    fail "this bundle has wheels for Python $PYTHON, and PATH has none" \
        "put one first on PATH, or make a bundle with the Python that is here"
}

bundle=$(cd "$(dirname "$0")" && pwd -P)
prefix='' python='' limit='' engine=spack last=run only_check=''
while [ $# -gt 0 ]; do
    case $1 in
    --prefix | --python | --engine | --limit)
        [ $# -gt 1 ] || fail "$1 needs a value" "see ./install.sh --help"
        case $1 in
        --prefix) prefix=$2 ;;
        --python) python=$2 ;;
        --engine) engine=$2 ;;
        --limit) limit=$2 ;;
        esac
        shift 2
        ;;
    --build-only) last=build && shift ;;
    --check) only_check=1 && shift ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
done
if [ -z "$only_check" ] && [ -z "$prefix" ]; then
    usage >&2
    exit 2
fi
for program in git sha256sum; do
    command -v "$program" >/dev/null || fail "$program is not on PATH" "install it"
done
check
[ -z "$only_check" ] || exit 0

. "$bundle/bundle.env"
[ "$(uname -m)" = "$MACHINE" ] ||
    fail "this bundle is for $MACHINE, and this machine is $(uname -m)" "make one on such a machine"
interpreter=$(find_python)
# two ranks may need a compute node of the site
[ -z "$SITE" ] || last=build

mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd -P)
case $prefix in
*[[:space:]\']*) fail "$prefix has a blank or a quote in it, which pip and shells cannot take" "name another --prefix" ;;
esac
digest=$(sha256sum <"$bundle/SHA256SUMS")
if [ -e "$prefix/hvd" ]; then
    [ "$(cat "$prefix/bundle.sum" 2>/dev/null)" = "$digest" ] ||
        fail "$prefix/hvd is there already, from elsewhere" "name another --prefix"
else
    echo "copying to $prefix"
    mkdir -p "$prefix/cache/hvd"
    cp -R "$bundle/git" "$bundle/wheels" "$prefix"
    cp -R "$bundle/sources" "$prefix/cache/hvd"
    [ ! -d "$bundle/cache" ] || cp -R "$bundle/cache" "$prefix/binaries"
    # a bundle may come from a medium that is read-only
    chmod -R u+w "$prefix"
    cat >"$prefix/env.sh" <<EOF
# Source it before ./hvd: everything comes from this prefix, nothing from a network.
export XDG_CACHE_HOME='$prefix/cache' MPLCONFIGDIR='$prefix/cache/matplotlib'
export HVD_SPACK='$prefix/git/spack.git' HVD_PACKAGES='$prefix/git/packages.git'
export PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_FIND_LINKS='$prefix/wheels'
export PIP_DISABLE_PIP_VERSION_CHECK=1
unset PIP_INDEX_URL PIP_EXTRA_INDEX_URL HVD_COMPILER_WRAPPER SPACK_ROOT
EOF
    printf '%s\n' "$digest" >"$prefix/bundle.sum"
    git clone --quiet "$prefix/git/hvd.git" "$prefix/hvd.new"
    mv "$prefix/hvd.new" "$prefix/hvd"
fi
. "$prefix/env.sh"
cd "$prefix/hvd"

if [ "${COMMAND:-}" = gpu-check ]; then
    [ -z "$python" ] || set -- --python "$python"
    [ -z "$limit" ] || set -- "$@" --limit "$limit"
    exec "$interpreter" ./hvd gpu-check --report "$prefix/gpu-check.json" "$@"
fi
set -- "$ENVIRONMENT"
[ -z "$SPEC" ] || set -- "$@" --spec "$SPEC"
[ -z "$python" ] || set -- "$@" --python "$python"
[ "$engine" = pip ] || set -- "$@" --pair "$PAIR"
if [ -d "$prefix/binaries" ] && [ "$engine" = spack ]; then
    "$interpreter" ./hvd cache trust "$prefix/binaries/key.asc"
    "$interpreter" ./hvd cache pull "$@" --url "$prefix/binaries" ||
        echo "the binary cache is for another kind of machine; building instead"
fi
"$interpreter" ./hvd "$last" "$@" --engine "$engine"
echo "to use it: . $prefix/env.sh; then in $prefix/hvd: ./hvd activate $ENVIRONMENT"
