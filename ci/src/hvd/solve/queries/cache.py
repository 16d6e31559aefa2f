"""Print as JSON what a binary cache has of the active environment; run by ``spack python``.

Arguments: the cache's address; ``look``, ``verify``, which fetches each package as well, or
``install``, which fetches those that are not installed; ``signed`` or ``unsigned``, which does not
ask for signatures.

Spack itself says of a package that it may not use only that there is none.
"""

import json
import os
import subprocess
import sys
import urllib.request

import spack.binary_distribution as binaries
import spack.environment
import spack.oci.image
import spack.oci.oci
import spack.oci.opener
import spack.spec
from spack import traverse
from spack.url_buildcache import BuildcacheComponent, get_url_buildcache_class

URL, MODE, SIGNATURES = sys.argv[1:]


class Entry(get_url_buildcache_class(3)):
    """A package in the cache, of the layout that every supported Spack writes."""

    text = ""

    @classmethod
    def verify_and_extract_manifest(cls, manifest_contents, verify=False):
        cls.text = manifest_contents
        return super().verify_and_extract_manifest(manifest_contents, verify)


#: What gpg says of a signature that is not good, and what that makes of the package.
FAULTS = {
    "NO_PUBKEY": "untrusted",
    "EXPKEYSIG": "expired",
    "REVKEYSIG": "revoked",
    "BADSIG": "changed",
}


def signature(text):
    """The state of a manifest by its signature, and the key; empty for a good one."""
    if not text.startswith("-----BEGIN PGP SIGNED MESSAGE-----"):
        return "unsigned", ""
    gpg = ["gpg", "--homedir", os.environ["SPACK_GNUPGHOME"], "--batch", "--no-tty"]
    gpg += ["--no-auto-key-retrieve", "--status-fd=1", "--verify"]
    done = subprocess.run(gpg, input=text, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    said = {words[1]: words[2] for words in lines if words[:1] == ["[GNUPG:]"] and words[2:]}
    if done.returncode == 0 and "GOODSIG" in said and "VALIDSIG" in said:
        return "", said["VALIDSIG"]
    for word, state in FAULTS.items():
        if word in said:
            return state, said[word]
    return "changed", ""


def fetches(spec):
    return MODE == "verify" or (MODE == "install" and not spec.installed)


def look(spec):
    """State, file and key of ``spec`` in the cache."""
    entry = Entry(URL, spec, allow_unsigned=True)
    file, key = entry.get_manifest_url(spec, URL), ""
    Entry.text = ""
    try:
        try:
            entry.read_manifest()
        except Exception as error:
            return ("changed" if Entry.text else "missing"), file, str(error)
        if SIGNATURES == "signed":
            state, key = signature(Entry.text)
            if state:
                return state, file, key
        if fetches(spec):
            return fetch(entry, spec, file, key)
        return "good", file, key
    finally:
        entry.destroy()


def fetch(entry, spec, file, key):
    """The same, of all files of it."""
    for component, read in (
        (BuildcacheComponent.SPEC, entry.fetch_metadata),
        (BuildcacheComponent.TARBALL, entry.fetch_archive),
    ):
        record = entry.get_blob_record(component)
        try:
            found = read()
        except Exception as error:
            state = "changed" if entry.check_blob_exists(record) else "missing"
            return state, entry.get_blob_url(URL, record), str(error)
        # a signature is good for what it was made for, and not under another's name
        if component is BuildcacheComponent.SPEC:
            other = spack.spec.Spec.from_dict(found).dag_hash()
            if other != spec.dag_hash():
                return "changed", file, "it is of /" + other
    return "good", file, key


def look_oci(spec):
    """The same in a registry, which has no signatures; what it has is named by its digest."""
    reference = spack.oci.image.ImageReference.from_url(URL)
    reference = reference.with_tag(binaries._oci_default_tag(spec))
    request = urllib.request.Request(
        url=reference.manifest_url(),
        headers={"Accept": ", ".join(spack.oci.oci.manifest_content_type)},
    )
    try:
        with spack.oci.opener.urlopen(request):
            pass
    except Exception as error:
        return "missing", str(reference), str(error)
    if SIGNATURES == "signed":
        return "unsigned", str(reference), ""
    if fetches(spec):
        stage = binaries.download_tarball(spec, unsigned=True)
        if stage is None:
            return "changed", str(reference), ""
        stage.destroy()
    return "good", str(reference), ""


def others(root):
    """Specs of the same package that the cache has, as a lock file has them."""
    try:
        binaries.BINARY_INDEX.update()
        known = binaries.BINARY_INDEX.get_all_built_specs()
    except Exception:
        # no index: then nothing can be said
        return []
    return [
        {each.dag_hash(): each.node_dict_with_hashes() for each in spec.traverse()}
        for spec in known
        if spec.name == root.name
    ]


oci = spack.oci.image.is_oci_url(URL)
roots = spack.environment.active_environment().concrete_roots()
packages = []
near = {}
for spec in traverse.traverse_nodes(roots, deptype=("link", "run"), key=traverse.by_dag_hash):
    if spec.external:
        continue
    state, file, detail = (look_oci if oci else look)(spec)
    packages.append(
        {
            "name": spec.name,
            "version": str(spec.version),
            "hash": spec.dag_hash(),
            "installed": spec.installed,
            "state": state,
            "file": file,
            "detail": detail,
        }
    )
    if state == "missing" and spec in roots:
        near[spec.dag_hash()] = others(spec)
print(json.dumps({"packages": packages, "near": near}))
