
if command -v hvd_deactivate >/dev/null 2>&1; then hvd_deactivate; fi
# what is not exported now, such as bash's own PATH, is not when it is given back either
_hvd_exported="
$(export -p)"
_hvd_keep() {
    if eval "[ -n \"\${$1+x}\" ]"; then
        eval "_hvd_was_$1=\"\$$1\""
        case "$_hvd_exported" in
            *"
export $1="* | *"
declare -x $1="* | *"
typeset -x $1="* | *"
export -T $1 "*) eval "_hvd_exported_$1=1" ;;
        esac
    fi
}
_hvd_set() { _hvd_keep "$1"; eval "$1=\"\$2\""; export "$1"; }
_hvd_prepend() {
    _hvd_keep "$1"
    eval "$1=\"\${$1:+\${2%:}:\$$1}\"; $1=\"\${$1:-\$2}\""
    export "$1"
}
_hvd_remove() { _hvd_keep "$1"; unset "$1"; }
_hvd_restore() {
    # zsh cannot unset those that belong to it, and goes on exporting them
    if [ -n "${ZSH_VERSION-}" ]; then typeset -g +x "$1"; fi
    unset "$1"
    if eval "[ -n \"\${_hvd_was_$1+x}\" ]"; then
        eval "$1=\"\$_hvd_was_$1\""
        if eval "[ -n \"\${_hvd_exported_$1+x}\" ]"; then export "$1"; fi
        unset "_hvd_was_$1" "_hvd_exported_$1"
    fi
}
