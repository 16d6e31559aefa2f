#!/usr/bin/env bash
# Concretize with the newest Spack and packages, and bisect to the commit that breaks something.
#   scripts/canary.sh [ENV]...    default: all environments, and py-horovod in a plain Spack
# Variables: SPACK and PACKAGES, other repositories; PAIR, the pair that works, by default the first
# of ci/versions.yaml.  The report is .hvd/canary/report.md.  Exit status: 1 if something is broken.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
here=$root/.hvd/canary
patch=ci/spack-has-provider.patch

# Concretize in a checkout of its own, whose only pair is what is checked out.
solve() {
    local spack packages version each environments=()
    spack=$(git -C "$here/spack" rev-parse HEAD)
    packages=$(git -C "$here/packages" rev-parse HEAD)
    version=$(grep -oPm1 '^__version__ = "\K\d+\.\d+' "$here/spack/lib/spack/spack/__init__.py")
    git -C "$root" worktree prune
    [[ -e $here/hvd/.git ]] || git -C "$root" worktree add --quiet --detach "$here/hvd"
    cd "$here/hvd"
    git checkout --quiet --force --detach "$(git -C "$root" rev-parse HEAD)"
    ln -sfn "$root/.venv" .venv
    sed -i "/^pairs:/,/^\$/c pairs:\n- name: canary-${spack:0:12}\n  spack: {version: \"$version\",\
 commit: $spack}\n  packages: {version: develop, commit: $packages}\n" ci/versions.yaml
    export XDG_CACHE_HOME=$here/cache HVD_SPACK=$here/spack HVD_PACKAGES=$here/packages
    for each in "$@"; do
        [[ $each == py-horovod ]] || environments+=("$each")
    done
    if ((${#environments[@]})); then
        ./hvd concretize "${environments[@]}" --engine spack --fresh
    fi
    if ((${#environments[@]} < $#)); then
        ./hvd setup perlmutter-hvd --engine spack
        # shellcheck source=/dev/null
        . .hvd/setup-env.sh
        spack -c concretizer:concretization_cache:enable:false spec py-horovod
    fi
}

try() { "$root/scripts/canary.sh" --solve "$@"; }
say() { echo "$*" | tee -a "$here/report.md"; }
checkout() { git -C "$here/$1" checkout --quiet --force --detach "$2"; }
describe() { git -C "$here/$1" show -s --format='%h of %cs, %s' "$2"; }

# git bisect calls this
if [[ ${1:-} == --solve ]]; then
    solve "${@:2}"
    exit
fi

mkdir -p "$here"
: >"$here/report.md"
declare -A good=() newest=()
pair=${PAIR:-$(grep -oPm1 '^- name: \K.*' "$root/ci/versions.yaml")}
for kind in spack packages; do
    pinned=$(sed -n "/^- name: $pair\$/,/^- name/p" "$root/ci/versions.yaml")
    good[$kind]=$(grep -oPm1 "^  $kind: .*commit: \K\w+" <<<"$pinned")
    address=$(grep -oPm1 "^  $kind: \Khttp.*" "$root/ci/versions.yaml")
    override=${kind^^}
    address=${!override:-$address}
    [[ -d $here/$kind ]] || git clone --quiet --filter=blob:none "$address" "$here/$kind"
    git -C "$here/$kind" remote set-url origin "$address"
    git -C "$here/$kind" fetch --quiet origin
    git -C "$here/$kind" remote set-head origin --auto
    newest[$kind]=$(git -C "$here/$kind" rev-parse origin/HEAD)
    checkout "$kind" "${newest[$kind]}"
    say "newest $kind: $(describe "$kind" HEAD)"
done
git -C "$here/spack" apply --check "$root/$patch" 2>/dev/null || say "this Spack does not need $patch"

if (($# == 0)); then
    mapfile -t names < <(cd "$root" && ./hvd list | cut -d' ' -f1)
    set -- "${names[@]}" py-horovod
fi
if try "$@"; then
    say "nothing is broken"
    exit
fi
broken=("$@")
if (($# > 1)); then
    broken=()
    for each; do try "$each" || broken+=("$each"); done
fi
say "broken: ${broken[*]}"
# which of the two broke it: the packages, if all is well with the pair's
checkout packages "${good[packages]}"
kind=packages
if ! try "${broken[@]}"; then
    kind=spack
    checkout spack "${good[spack]}"
    try "${broken[@]}" || { say "the pair does not work either" && exit 1; }
fi
git -C "$here/$kind" bisect start --first-parent "${newest[$kind]}" "${good[$kind]}"
git -C "$here/$kind" bisect run "$root/scripts/canary.sh" --solve "${broken[@]}"
say "since $kind $(describe "$kind" refs/bisect/bad)"
exit 1
