#!/usr/bin/env bash
# Release this checkout: a commit with the version, a tag, an archive, checksums.
#   scripts/release.sh VERSION [FILE]...    FILE: what else to hand out, such as a bundle or a wheel
# The variable KEY names a key of your gpg keyring, which signs the tag and the checksums.
# If a step fails, nothing is released.  Nothing is pushed; see docs/releases.md.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
version=${1:-}
out=$root/.hvd/releases/$version
fail() { echo "error: $*" >&2 && exit 2; }

[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "give a version of three numbers, such as 0.2.0"
[[ -z $(git -C "$root" status --porcelain) ]] || fail "the checkout has changes; commit them"
last=$(git -C "$root" tag --list 'v*' --sort=-version:refname | head -n 1)
newest=$(printf '%s\n' "$last" "v$version" | sort --version-sort | tail -n 1)
[[ "v$version" != "$last" && "v$version" == "$newest" ]] || fail "$last is released already"
[[ ! -e $out ]] || fail "$out exists; remove it"
notes=$(sed -n '/^## Unreleased$/,/^## [0-9]/{/^## /!p}' "$root/CHANGELOG.md")
[[ -n $notes ]] || fail "CHANGELOG.md has no section '## Unreleased'"
grep -oP '^  packages: \{version: \K[^,]+' "$root/ci/versions.yaml" | while read -r packages; do
    [[ $notes == *"$packages"* ]] || fail "CHANGELOG.md: 'Tested with' does not name $packages"
done

scratch=$(mktemp -d)
trap 'git -C "$root" worktree remove --force "$scratch/tree"; rm -rf "$scratch"' EXIT
git -C "$root" worktree add --quiet --detach "$scratch/tree" HEAD
mkdir "$scratch/files"
(($# == 1)) || cp -- "${@:2}" "$scratch/files"
cd "$scratch/tree"
today=$(date +%F)
sed -i "s/^## Unreleased\$/## $version ($today)/" CHANGELOG.md
sed -i "/^date-released: /d; s/^version: .*/version: $version\ndate-released: \"$today\"/" CITATION.cff
sed -i "s/^version = \".*\"/version = \"$version\"/" ci/pyproject.toml
git commit --quiet --all --message "ci: release $version"
release=$(git rev-parse HEAD)
git archive --prefix="hvd-$version/" --output="$scratch/files/hvd-$version.tar.gz" HEAD
(cd "$scratch/files" && sha256sum -- * >SHA256SUMS)
kind=(--annotate)
if [[ -n ${KEY:-} ]]; then
    kind=(--local-user "$KEY")
    gpg "${kind[@]}" --armor --detach-sign "$scratch/files/SHA256SUMS"
fi
# headings begin with what git takes for a comment
git tag "${kind[@]}" --cleanup=verbatim --message "hvd $version"$'\n\n'"$notes"$'\n' "v$version"
git -C "$root" merge --quiet --ff-only "$release" || { git tag --delete "v$version" && exit 1; }
mkdir -p "${out%/*}"
mv "$scratch/files" "$out"
echo "to publish: git push origin HEAD v$version, and the files in $out"
