#!/bin/sh
# Starts JupyterLab on this node for its user alone, and prints how to reach it.
# Usage, in a job: jupyterlab.sh [OPTION OF jupyter lab]...
set -eu
umask 077
# in the home directory, which login nodes mount too
mkdir -p "$HOME/.jupyter"
directory=$(mktemp -d "$HOME/.jupyter/hvd-XXXXXX")
server=
trap 'if [ -n "$server" ] && kill "$server"; then wait "$server" || true; fi; rm -rf "$directory"' EXIT
trap 'exit 143' HUP INT TERM

# in a private file, so that neither ps, the log nor the environment shows it
od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n' >"$directory/token"
unset JUPYTER_TOKEN
export JUPYTER_TOKEN_FILE="$directory/token" JUPYTER_RUNTIME_DIR="$directory"

# listens only on this node; takes the next port if this one is in use
jupyter lab --no-browser --ServerApp.ip=127.0.0.1 "$@" &
server=$!
until file=$(ls "$directory"/jpserver-*.json 2>/dev/null); do
    kill -0 "$server" 2>/dev/null || exit 1
    sleep 1
done
port=$(sed -n 's/.*"port": *\([0-9]*\).*/\1/p' "$file")
cat <<END

JupyterLab runs on $(hostname).  On your own computer, by way of a login node:

    ssh -N -L $port:127.0.0.1:$port -J LOGIN $(hostname)

then open http://127.0.0.1:$port/lab there.  To see the token, run on a login node:

    cat $directory/token

END
wait "$server"
