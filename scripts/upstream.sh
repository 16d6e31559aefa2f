#!/usr/bin/env bash
# Write the patches for Horovod in docs/upstream.md as mails for `git am`, on its newest commit.
#   scripts/upstream.sh DIRECTORY [REPOSITORY]
# A person sends them.  Patches that do not apply are listed: Horovod has changed that code since.
set -euo pipefail
out=$(realpath -m "${1:?name a new directory for the mails}")
repository=${2:-https://github.com/horovod/horovod.git}
cd "$(dirname "$0")/.."
recipe=$PWD/packages/py_horovod/patches
[[ ! -e $out ]] || { echo "error: $out exists" >&2 && exit 2; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
git clone --quiet --depth=1 "$repository" "$scratch/horovod"
cd "$scratch/horovod"
start=$(git rev-parse HEAD)
# the rows of the table, which has the patches in the recipe's order
# shellcheck disable=SC2016
sed -n '/^### For Horovod$/,/^### /s/^| \[`\(.*\.patch\)`\].*/\1/p' "$OLDPWD/docs/upstream.md" |
    while read -r name; do
        # what a patch changes in bundled projects is for those
        if git apply --index --exclude='third_party/*' "$recipe/$name" 2>/dev/null; then
            sed '/^--- /,$d' "$recipe/$name" |
                git commit --quiet --no-verify --signoff --cleanup=whitespace --file=-
        else
            echo "$name does not apply"
        fi
    done
git format-patch --quiet --output-directory="$out" "$start"
echo "$(find "$out" -name '*.patch' | wc -l) patches in $out"
