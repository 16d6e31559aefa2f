#!/bin/sh
# Made by ./hvd kernel --batch: JupyterLab on this node, for its user alone.
# Usage: jupyterlab.sh [OPTION OF jupyter lab]...
set -eu
umask 077
jupyter=@JUPYTER@
kernels=@KERNELS@
login=@LOGIN@

# home is what login nodes see, too
directory=$HOME/.jupyter/hvd-${SLURM_JOB_ID:-${LSB_JOBID:-$$}}
mkdir -p "$HOME/.jupyter"
rm -rf "$directory"
mkdir "$directory"
server=
end() {
    if [ -n "$server" ] && kill "$server" 2>/dev/null; then wait "$server" || true; fi
    rm -rf "$directory"
}
trap end EXIT
trap 'exit 143' HUP INT TERM

# in a file of the user's own: neither ps nor the log shows it, nor do other jobs' environments
od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n' >"$directory/token"
unset JUPYTER_TOKEN
export JUPYTER_TOKEN_FILE="$directory/token"
export JUPYTER_RUNTIME_DIR="$directory"
export JUPYTER_PATH="$kernels${JUPYTER_PATH:+:$JUPYTER_PATH}"

# others on the node cannot come by 127.0.0.1 without the token; nobody comes by the network
port=$((20000 + $(od -An -N2 -tu2 /dev/urandom) % 20000))
"$jupyter" lab --no-browser --ServerApp.ip=127.0.0.1 --ServerApp.port="$port" "$@" &
server=$!

# it takes the next port where this one is in use
until file=$(ls "$directory"/jpserver-*.json 2>/dev/null); do
    kill -0 "$server" 2>/dev/null || exit 1
    sleep 1
done
port=$(sed -n 's/.*"port": *\([0-9]*\).*/\1/p' "$file")
cat <<END

JupyterLab runs on $(hostname).  On your own computer:

    ssh -N -L $port:127.0.0.1:$port -J $login $(hostname)

then open http://127.0.0.1:$port/lab there, with the token that this shows on a login node:

    cat $directory/token

END
wait "$server"
