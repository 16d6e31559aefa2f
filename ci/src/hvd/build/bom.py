"""The bill of materials of a build, in CycloneDX.

One document for an environment, by either engine and any Spack: what runs and what only built
it, from which source with which checksum, under which licence, with which of our patches and the
vulnerabilities that they close, and at which commits the tools were.
"""

from __future__ import annotations

import pathlib
import re
from typing import List, Mapping

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    Property,
    XsUri,
)
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import (
    Component,
    ComponentScope,
    ComponentType,
    Diff,
    Patch,
    PatchClassification,
    Pedigree,
)
from cyclonedx.model.issue import IssueClassification, IssueType, IssueTypeSource
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from hvd.build.parts import Part, file
from hvd.core import paths
from hvd.core.files import write_atomically
from hvd.fetch import index

#: How the name of a patch begins that closes a vulnerability.
_CVE = re.compile(r"cve-\d{4}-\d{4,}")
#: Where one of them is described.
_NVD = "https://nvd.nist.gov/vuln/detail/"
#: A Python distribution's source.
_DISTRIBUTION = re.compile(r"/packages/[^/]+/\w/(?P<project>[^/]+)/[^/]+$")


def write(
    environment: str, engine: str, version: str, parts: List[Part], tools: Mapping[str, str]
) -> pathlib.Path:
    """Write the bill of materials of a build, and return where.

    Args:
        environment: its name.
        engine: ``spack`` or ``pip``.
        version: Horovod's.
        parts: all that is in it, the roots first.
        tools: name to commit of what built it.
    """
    root = Component(
        name=environment, version=version, type=ComponentType.APPLICATION, bom_ref=environment
    )
    bom = Bom(metadata=BomMetaData(component=root, tools=ToolRepository(components=_tools(tools))))
    bom.metadata.properties.add(Property(name="hvd:engine", value=engine))
    made = {part.key: _component(part) for part in parts}
    for component in made.values():
        bom.components.add(component)
    needed = {key for part in parts for key in part.needs}
    bom.register_dependency(root, [made[part.key] for part in parts if part.key not in needed])
    for part in parts:
        bom.register_dependency(made[part.key], [made[key] for key in part.needs if key in made])
    path = file(environment, engine)
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    write_atomically(path, f"{text}\n".encode())
    return path


def _tools(tools: Mapping[str, str]) -> List[Component]:
    return [
        Component(
            name=name,
            version=commit,
            type=ComponentType.APPLICATION,
            bom_ref=f"tool:{name}",
            purl=PackageURL("generic", name=name.lower().replace(" ", "-"), version=commit),
        )
        for name, commit in tools.items()
    ]


def _component(part: Part) -> Component:
    return Component(
        name=part.name,
        version=part.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{part.name}@{part.version}/{part.key}",
        scope=ComponentScope.REQUIRED if part.runs else ComponentScope.EXCLUDED,
        hashes=_hashes(part),
        licenses=[LicenseFactory().make_from_string(part.licence)] if part.licence else None,
        purl=_purl(part),
        external_references=_references(part),
        properties=[
            Property(name="hvd:external", value=str(part.external).lower()),
            *([Property(name="hvd:prefix", value=part.prefix)] if part.prefix else []),
        ],
        pedigree=Pedigree(patches=[_patch(path) for path in part.patches])
        if part.patches
        else None,
    )


def _hashes(part: Part) -> List[HashType]:
    """Of the source: what was installed depends on the machine."""
    return [HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else []


def _purl(part: Part) -> PackageURL:
    """What vulnerability databases know it by; a Python distribution by its own name."""
    match = _DISTRIBUTION.search(part.url)
    project = part.distribution or (match["project"] if match else "")
    if project:
        return PackageURL("pypi", name=project.lower().replace("_", "-"), version=part.version)
    qualifiers = {"download_url": part.url, "checksum": f"sha256:{part.sha256}"}
    known = qualifiers if _public(part.url) and part.sha256 else None
    return PackageURL("generic", name=part.name, version=part.version, qualifiers=known)


def _public(url: str) -> bool:
    """Others can have it: not a file that comes with Spack's packages."""
    return bool(url) and not url.startswith("file:")


def _references(part: Part) -> List[ExternalReference]:
    found = []
    if _public(part.url):
        kind = ExternalReferenceType.VCS if part.commit else ExternalReferenceType.DISTRIBUTION
        comment = f"commit {part.commit}" if part.commit else None
        found.append(ExternalReference(type=kind, url=XsUri(part.url), comment=comment))
    if part.bom:
        path = pathlib.Path(part.bom)
        digest = HashType(alg=HashAlgorithm.SHA_256, content=index.digest(path))
        reference = XsUri(path.as_uri())
        found.append(
            ExternalReference(
                type=ExternalReferenceType.BOM, url=reference, comment="by Spack", hashes=[digest]
            )
        )
    return found


def _patch(path: pathlib.Path) -> Patch:
    """One of our patches, with the vulnerability that it closes: its name says which."""
    match = _CVE.match(path.name)
    issues = []
    if match:
        name = match[0].upper()
        source = IssueTypeSource(name="NVD", url=XsUri(f"{_NVD}{name}"))
        issues = [IssueType(type=IssueClassification.SECURITY, id=name, source=source)]
    diff = Diff(url=XsUri(paths.shorten(path)))
    return Patch(type=PatchClassification.UNOFFICIAL, diff=diff, resolves=issues)
