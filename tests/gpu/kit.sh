#!/bin/sh
# Check this machine's GPUs without a network, from an unpacked kit; arguments as for check.py.
kit=$(cd "$(dirname "$0")" && pwd -P) || exit
case $kit in
*[[:space:]]*) echo "error: $kit has a blank in it, which pip cannot take" >&2 && exit 2 ;;
esac
python=python$(cat "$kit/version")
command -v "$python" >/dev/null ||
    { echo "error: the kit is for $python, which is not on PATH" >&2 && exit 2; }
export PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_FIND_LINKS="$kit/wheels"
export PIP_DISABLE_PIP_VERSION_CHECK=1 XDG_CACHE_HOME="$kit/cache"
unset PIP_INDEX_URL PIP_EXTRA_INDEX_URL
exec "$python" "$kit/hvd/tests/gpu/check.py" --report "$kit/gpu-check.json" "$@"
