"""What the environments of sites are made of: every fact in one layer, and the traps of Spack."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml

from hvd.core import paths
from hvd.model import environment, site
from hvd.solve import site_check
from tests import declared

SITES = [name for name in site.names() if name != "local"]
LAYERS = sorted(paths.ENVIRONMENTS.glob("hardware/*/packages.yaml"))
OF_SITES = environment.of_sites()
COMMON = paths.ENVIRONMENTS / "sites" / "common" / "packages.yaml"


def packages(path: pathlib.Path) -> dict:
    found = yaml.safe_load(path.read_text())["packages"]
    return {name.rstrip(":"): entry for name, entry in found.items()}


def hardware(name: str) -> dict:
    """The layer of hardware that an environment includes."""
    (entry,) = (e for e in environment.load(name).includes if "/hardware/" in e)
    return packages(environment.load(name).directory / entry / "packages.yaml")


def required(entry: dict) -> list:
    """The requirements as text."""
    return [each if isinstance(each, str) else each["spec"] for each in entry.get("require", [])]


@pytest.mark.parametrize("name", OF_SITES)
def test_the_layers_of_an_environment(name) -> None:
    """Site before hardware before what all share; the user's externals before them."""
    includes = environment.load(name).includes
    kinds = [re.sub(r"/(sites|hardware)/(?!common)[\w-]+$", r"/\1/", entry) for entry in includes]
    names = ("sites/", "sites/common", "hardware/", "common")
    assert kinds == ["externals.yaml", *(f".checkout/environments/{each}" for each in names)]
    for entry in includes[1:]:
        assert (environment.load(name).directory / entry).is_dir()


@pytest.mark.parametrize("name", OF_SITES)
def test_root_specs_leave_nothing_open(name) -> None:
    chosen = environment.load(name)
    (system,) = required(packages(site_check.file(chosen.site))["all"])
    for text in chosen.specs:
        # Spack takes candidates for both from root specs alone
        architecture = site_check.architecture(text)
        assert system == f"os={architecture['os']}"
        assert f"target={architecture['target']}" in required(hardware(name)["all"])
        # behind a compiler the architecture would be the compiler's
        assert not re.search(r"%.*\b(os|target)=", text)
    text = next(t for t in chosen.specs if t.startswith(environment.HOROVOD))
    for variant in ("mpi", "gloo", "cuda", "rocm"):
        assert re.search(rf"[+~]{variant}\b", text), variant
    if "+cuda" in text or "+rocm" in text:
        assert re.search(r"[+~]nccl\b|gpu_ops=mpi", text)
    assert "frameworks:=" in text and re.match(r"py-horovod@\d", text)


@pytest.mark.parametrize("name", SITES)
def test_every_external_is_for_the_sites_system(name) -> None:
    """Without one, Spack takes the system of the machine that solves."""
    found = packages(site_check.file(name))
    (system,) = required(found["all"])
    for package, entry in found.items():
        for external in entry.get("externals", []):
            assert system in external["spec"].split(), package
            # the target is that of the hardware, which Spack gives to every external
            assert not re.search(r"\b(target|platform)=", external["spec"])
            assert "%" not in external["spec"], "say it with dependencies:"
            assert external.get("prefix") or external.get("modules"), package
    for external in found["gcc"]["externals"]:
        # Spack loads them to ask a compiler for its libc, and stops where there are none
        assert "modules" not in external
        # a machine may lack a Fortran compiler, which nothing of Horovod needs
        assert {"c", "cxx"} <= set(external["extra_attributes"]["compilers"])
    # with one colon, compilers that Spack found on the machine would stand beside it
    assert re.search(r"^  gcc::$", site_check.file(name).read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", SITES)
def test_a_site_and_what_all_sites_share(name) -> None:
    shared, own = packages(COMMON), packages(site_check.file(name))
    # an MPI that Spack does not know would be passed over in silence
    assert shared["mpi"]["buildable"] is False
    for layer in (own, shared):
        # a package's own requirement replaces the one for all, architecture included
        virtuals = {"all", "mpi", "c", "cxx", "fortran"}
        assert {each for each, entry in layer.items() if "require" in entry} <= virtuals
    for package, entry in own.items():
        assert not set(entry) & set(shared.get(package, {})), f"{package} is in two layers"
        if "externals" in entry:
            assert {**shared.get(package, {}), **entry}["buildable"] is False, package
    versions = [e["spec"].split()[0] for p in own.values() for e in p.get("externals", [])]
    # two of one version are told apart by what they belong to
    ids = [e.get("id") for p in own.values() for e in p.get("externals", []) if e.get("id")]
    assert len(ids) == len(set(ids)) and len(versions) - len(ids) <= len(set(versions))


@pytest.mark.parametrize("path", LAYERS, ids=lambda path: path.parent.name)
def test_hardware_is_target_and_gpu(path) -> None:
    found = packages(path)
    assert set(found) == {"all"} and set(found["all"]) == {"require"}
    target, *gpu = required(found["all"])
    assert re.fullmatch(r"target=\w+", target)
    assert all(re.fullmatch(r"(cuda_arch|amdgpu_target)=\w+", each) for each in gpu)


def test_every_layer_is_used() -> None:
    used = {entry for name in OF_SITES for entry in environment.load(name).includes}
    for path in LAYERS:
        assert f".checkout/environments/hardware/{path.parent.name}" in used
    assert {environment.load(name).site for name in OF_SITES} == set(SITES)


@pytest.mark.parametrize("name", OF_SITES)
def test_the_sites_libraries_are_for_its_gpu(name) -> None:
    chosen = environment.load(name)
    gpu = [each for each in required(hardware(name)["all"]) if not each.startswith("target=")]
    variants = chosen.root.variants
    assert bool(gpu) == (variants["cuda"] or variants["rocm"]) or chosen.site == "stampede3"
    for package, entry in packages(site_check.file(chosen.site)).items():
        for external in entry.get("externals", []):
            for variant, values in re.findall(r"\b(\w+_(?:arch|target))=(\S+)", external["spec"]):
                said = {f"{variant}={value}" for value in values.split(",")}
                assert said.issuperset(gpu), package


@pytest.mark.parametrize("name", SITES)
def test_every_external_says_where_it_is_known_from(name) -> None:
    """By a source of site.yaml, or the user makes it; by no command: none of ours ran there."""
    text = site_check.file(name).read_text()
    made = {
        p for use in site.load(name).environments.values() if use.make for p in use.make.packages
    }
    for package in site_check.externals(site_check.file(name)):
        said = re.search(rf"^  # ([^\n]*)\n(?:  #[^\n]*\n)*  {package}::?$", text, re.MULTILINE)
        assert said, package
        known = "made: " if package in made else r"(source: |derived from )[a-z0-9-]+"
        assert re.match(known, said[1]), package
    assert not re.search(r"module show|conda list|--version|pip install", text)


@pytest.mark.parametrize("name", SITES)
def test_modules_are_of_one_version_in_both_files(name) -> None:
    def versions(modules) -> dict:
        return {m.partition("/")[0]: m.partition("/")[2] for m in modules if "/" in m}

    of_externals: dict = {}
    for entries in site_check.externals(site_check.file(name)).values():
        for _, _, modules in entries:
            for tool, version in versions(modules).items():
                of_externals.setdefault(tool, set()).add(version)
    for use in site.load(name).environments.values():
        loaded = versions(word for load in (*use.build, *use.run) for word in load)
        for tool, version in loaded.items():
            assert version in of_externals.get(tool, {version}), tool


@pytest.mark.parametrize("name", OF_SITES)
def test_a_module_is_named_once(name) -> None:
    """Spack 1.2.0 fails to load what it has just loaded: https://github.com/spack/spack/pull/52752.

    It has to load the modules of what has no prefix, to find that.
    """
    found = [
        each.modules
        for each in declared.read(environment.load(name))
        if each.modules and not each.prefix.startswith(declared.STAND_INS)
    ]
    assert len(found) == len({*found})
