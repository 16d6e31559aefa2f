"""Bills of materials."""

import json
import pathlib
import urllib.parse

import cyclonedx.schema._res
import jsonschema
import referencing.jsonschema

from hvd.core import paths
from hvd.engines import bom, components
from hvd.engines.components import Component
from tests.unit.building import spec
from tests.unit.test_solving import LOCK


def validate(document):
    """Against the standard's own schema."""
    directory = pathlib.Path(cyclonedx.schema._res.__file__).parent
    names = [f"{name}.SNAPSHOT.schema.json" for name in ("bom-1.6", "spdx", "jsf-0.82")]
    schemas = {name: json.loads((directory / name).read_text()) for name in names}
    schema = schemas[names[0]]
    parts = [
        (
            urllib.parse.urljoin(schema["$id"], name),
            referencing.jsonschema.DRAFT7.create_resource(each),
        )
        for name, each in schemas.items()
    ]
    registry = referencing.Registry().with_resources(parts)
    jsonschema.Draft7Validator(schema, registry=registry).validate(document)


def write(found, tools=None, engine="spack"):
    path = bom.write("local-hvd", engine, "0.28.1", found, tools or {})
    document = json.loads(path.read_text())
    validate(document)
    return document, {each["name"]: each for each in document["components"]}


def test_a_build_of_spack():
    lock = {key: dict(value) for key, value in LOCK.items()}
    patch = paths.PACKAGES / "py_horovod" / "patches" / "cve-2024-10190.patch"
    lock["aaaaaaaaaa"]["patches"] = [components.python_index.digest(patch), "0" * 64]
    url = "https://files.example.org/packages/source/h/horovod/horovod-0.28.1.tar.gz"
    facts = [{"hash": key, "licence": "", "prefix": "/p", "runs": True, "bom": ""} for key in lock]
    facts[0].update(url=url, sha256="a" * 64, commit="", licence="Apache-2.0")
    facts[3].update(runs=False, licence="BSD-3-Clause AND MIT")
    document, found = write(
        components.of_solution(lock, facts), {"Spack": "1" * 40, "hvd": "2" * 40 + "+"}
    )
    horovod = found["py-horovod"]
    assert horovod["purl"] == "pkg:pypi/horovod@0.28.1"
    assert horovod["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert horovod["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    (patched,) = horovod["pedigree"]["patches"]
    assert patched["diff"]["url"] == "packages/py_horovod/patches/cve-2024-10190.patch"
    assert [issue["id"] for issue in patched["resolves"]] == ["CVE-2024-10190"]
    assert found["py-torch"]["purl"] == "pkg:pypi/torch@2.13.0"
    assert found["gcc"]["purl"] == "pkg:generic/gcc@12.2.0"
    assert {"name": "hvd:external", "value": "true"} in found["gcc"]["properties"]
    assert (found["py-wheel"]["scope"], horovod["scope"]) == ("excluded", "required")
    edges = {each["ref"]: set(each.get("dependsOn", ())) for each in document["dependencies"]}
    assert edges[horovod["bom-ref"]] == {found["gcc"]["bom-ref"], found["py-torch"]["bom-ref"]}
    assert edges["local-hvd"] == {horovod["bom-ref"], found["py-wheel"]["bom-ref"]}
    tools = {each["name"]: each["version"] for each in document["metadata"]["tools"]["components"]}
    assert tools == {"Spack": "1" * 40, "hvd": "2" * 40 + "+"}


def test_a_build_of_pip_has_every_distribution_of_the_interpreter():
    root = Component("py-horovod", "0.28.1", "py-horovod", "horovod", sha256="b" * 64)
    place = {"version": "2.13.0+cpu", "prefix": "/sw/python"}
    have = {"python": place, "distributions": {"torch": place, "typing-extensions": place}}
    document, found = write(components.of_distributions(root, have), engine="pip")
    assert set(found) == {"py-horovod", "python", "torch", "typing-extensions"}
    assert found["torch"]["purl"] == "pkg:pypi/torch@2.13.0%2Bcpu"
    edges = {each["ref"]: each.get("dependsOn", []) for each in document["dependencies"]}
    assert len(edges[found["py-horovod"]["bom-ref"]]) == 3


def test_what_spack_knows_of_a_package(tmp_path):
    own = tmp_path / "spdx-2.3.json"
    own.write_text("{}")
    cmake = Component("cmake", "3.31", "k", url="https://x/c.tgz", sha256="c" * 64, bom=str(own))
    # a file of Spack's packages has no address
    wrapper = Component("wrapper", "1.0", "w", url="file:///x/cc.sh", sha256="d" * 64)
    _, found = write([cmake, wrapper])
    references = {each["type"]: each for each in found["cmake"]["externalReferences"]}
    assert references["bom"]["url"] == own.as_uri()
    assert references["bom"]["hashes"][0]["content"] == components.python_index.digest(own)
    assert "download_url=https://x/c.tgz" in found["cmake"]["purl"]
    assert found["wrapper"]["purl"] == "pkg:generic/wrapper@1.0"
    assert "externalReferences" not in found["wrapper"]
    assert found["wrapper"]["hashes"][0]["content"] == "d" * 64


def test_twins_are_two_components():
    lock = {"a": spec("py-wheel", "1"), "b": spec("py-wheel", "1", recipe="other")}
    facts = [{"hash": key, "licence": "", "prefix": "", "runs": True, "bom": ""} for key in lock]
    document, _ = write(components.of_solution(lock, facts))
    assert len(document["components"]) == 2
