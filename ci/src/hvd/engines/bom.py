"""The bill of materials of a build, in CycloneDX: one document, by either engine.

It has what runs and what only built it, from which source with which checksum, under which
licence, with which of our patches and the vulnerabilities that they close, and the commits of the
tools.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any, Dict, List, Mapping

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from hvd.core import paths
from hvd.core.files import write_atomically
from hvd.engines.components import Component, file
from hvd.fetch import python_index
from hvd.fetch.mirror import DISTRIBUTION


def write(
    environment: str, engine: str, version: str, parts: List[Component], tools: Mapping[str, str]
) -> pathlib.Path:
    """Write the bill of materials of a build of Horovod ``version``, and return its file.

    Args:
        parts: all that is in it.
        tools: the commits of what built it, by name.
    """
    refs = {part.key: f"{part.name}@{part.version}/{part.key}" for part in parts}
    needed = {key for part in parts for key in part.needs}
    edges = {refs[part.key]: [refs[key] for key in part.needs if key in refs] for part in parts}
    edges[environment] = [ref for key, ref in refs.items() if key not in needed]
    root = {"name": environment, "version": version, "type": "application", "bom-ref": environment}
    document = {
        "metadata": {
            "component": root,
            "tools": {"components": [_tool(name, commit) for name, commit in tools.items()]},
            "properties": [{"name": "hvd:engine", "value": engine}],
        },
        "components": [_component(part, refs[part.key]) for part in parts],
        "dependencies": [{"ref": ref, "dependsOn": needs} for ref, needs in edges.items()],
    }
    bom = Bom.from_json(document)
    licences = {refs[part.key]: part.licence for part in parts if part.licence}
    for component in bom.components:
        if component.bom_ref.value in licences:
            licence = LicenseFactory().make_from_string(licences[component.bom_ref.value])
            component.licenses = [licence]
    path = file(environment, engine)
    write_atomically(path, f"{JsonV1Dot6(bom).output_as_string(indent=1)}\n".encode())
    return path


def _tool(name: str, commit: str) -> Dict[str, Any]:
    purl = PackageURL("generic", name=name.lower().replace(" ", "-"), version=commit)
    tool = {"name": name, "version": commit, "type": "application", "purl": str(purl)}
    return {**tool, "bom-ref": f"tool:{name}"}


def _component(part: Component, ref: str) -> Dict[str, Any]:
    # a file that comes with Spack's packages has no address for others
    url = "" if part.url.startswith("file:") else part.url
    match = DISTRIBUTION.search(part.url)
    project = part.distribution or (match["project"] if match else "")
    if project:
        purl = PackageURL("pypi", name=project.lower().replace("_", "-"), version=part.version)
    else:
        source = {"download_url": url, "checksum": f"sha256:{part.sha256}"}
        known = source if url and part.sha256 else None
        purl = PackageURL("generic", name=part.name, version=part.version, qualifiers=known)
    references: List[Dict[str, Any]] = []
    if url and part.commit:
        references.append({"type": "vcs", "url": url, "comment": f"commit {part.commit}"})
    elif url:
        references.append({"type": "distribution", "url": url})
    if part.bom:
        own = pathlib.Path(part.bom)
        hashes = _hashes(python_index.digest(own))
        spdx = {"type": "bom", "url": own.as_uri(), "comment": "by Spack", "hashes": hashes}
        references.append(spdx)
    properties = {"hvd:external": str(part.external).lower(), "hvd:prefix": part.prefix}
    return {
        "name": part.name,
        "version": part.version,
        "type": "library",
        "bom-ref": ref,
        "scope": "required" if part.runs else "excluded",
        # of the source: what was installed depends on the machine
        "hashes": _hashes(part.sha256),
        "purl": str(purl),
        "externalReferences": references,
        "properties": [{"name": name, "value": v} for name, v in properties.items() if v],
        **({"pedigree": {"patches": list(map(_patch, part.patches))}} if part.patches else {}),
    }


def _hashes(sha256: str) -> List[Dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256}] if sha256 else []


def _patch(path: pathlib.Path) -> Dict[str, Any]:
    """One of our patches, with the vulnerability that it closes: its name says which."""
    issues = [
        {
            "type": "security",
            "id": name.upper(),
            "source": {"name": "NVD", "url": f"https://nvd.nist.gov/vuln/detail/{name.upper()}"},
        }
        for name in re.findall(r"^cve-\d{4}-\d{4,}", path.name)
    ]
    return {"type": "unofficial", "diff": {"url": paths.shorten(path)}, "resolves": issues}
