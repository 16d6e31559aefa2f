_hvd_loaded=
_hvd_load() {
    case ":${LOADEDMODULES-}:" in *":$1:"* | *":$1/"*) return 0 ;; esac
    if ! command -v module >/dev/null 2>&1; then
        echo "activate.sh: there is no command 'module' to load $1 with" >&2
    elif module load "$1"; then
        _hvd_loaded="$_hvd_loaded:$1:"
    fi
}
# what cannot be unloaded says so itself; the variables are given back all the same
_hvd_unload() {
    case "$_hvd_loaded" in *":$1:"*) module unload "$1" || true ;; esac
}
