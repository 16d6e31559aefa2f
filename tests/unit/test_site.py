"""The sites' files: valid, whole, and each value with its source; a bad file is refused."""

from __future__ import annotations

import copy
import datetime
import pathlib
import re
import shutil

import pytest
import yaml

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.launch import batch, methods
from hvd.model import environment, site
from tests.unit.launching import launch

ENVIRONMENTS = sorted(name for each in site.names() for name in site.load(each).environments)
SUMMIT = yaml.safe_load(site.file("summit").read_text())


@pytest.fixture
def sites(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A copy of the sites, to change."""
    shutil.copytree(paths.ENVIRONMENTS, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.setattr(paths, "ENVIRONMENTS", tmp_path)
    return tmp_path / "sites"


def changed(path: str, value: object = None) -> dict:
    """`SUMMIT` with ``value`` at ``path``; without that key where it is None."""
    data = copy.deepcopy(SUMMIT)
    *parents, last = path.split(".")
    entry = data
    for name in parents:
        entry = entry[name]
    if value is None:
        del entry[last]
    else:
        entry[last] = value
    return data


@pytest.mark.parametrize("name", site.names())
def test_a_site_is_whole(name) -> None:
    loaded = site.load(name)
    for successor in loaded.status.successors:
        assert site.load(successor).status.state != "retired"
    for use in loaded.environments.values():
        assert use.operations == "cpu" or loaded.partitions[use.partition].gpus
    elsewhere = {"slurm": {"srun", "ibrun"}, "lsf": {"jsrun", "ddlrun"}, "pbs": {"mpiexec"}}
    own = elsewhere.pop(loaded.scheduler, set())
    assert not {*loaded.allowed, *loaded.refused} & (set().union(*elsewhere.values()) - own)


@pytest.mark.parametrize("name", site.names())
def test_every_source_is_named_in_full_and_used(name) -> None:
    data = yaml.safe_load(site.file(name).read_text())
    cited = {cited for _, cited in site.citations(data)}
    packages = site.file(name).with_name("packages.yaml")
    if packages.exists():
        # comments such as "# source: a, b; ..." and "# derived from a: ..."
        pattern = r"(?:source: |derived from )([a-z0-9-]+(?:, [a-z0-9-]+)*)"
        for phrase in re.findall(pattern, packages.read_text()):
            cited |= set(phrase.split(", ")) - {"the"}
    assert cited == set(data["sources"])
    for document in data["sources"].values():
        assert len(document) > 20, "a title, or a file and its repository"
        assert re.search(r"\b20\d\d\b|undated", document), f"no date: {document}"


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_environment_can_be_launched(name) -> None:
    request = launch(name, program=("python", "train.py"))
    assert methods.quoted(request).endswith(" python train.py")
    if request.site.scheduler != "none":
        assert batch.script(request).endswith("python train.py\n")


@pytest.mark.parametrize("name", sorted(set(ENVIRONMENTS) & set(environment.names())))
def test_operations_are_those_of_the_spec(name) -> None:
    """Variants name NCCL and DDL; GPU-aware MPI is what a build for GPUs has without them."""
    variants = environment.load(name).root.variants
    operations = site.of(name).environments[name].operations
    assert variants.get("ddl", False) == (operations == "ddl")
    assert variants.get("nccl", False) == (operations in ("nccl", "rccl"))
    assert variants.get("rocm", False) == (operations == "rccl")
    assert (variants["cuda"] or variants["rocm"]) == (operations != "cpu")


@pytest.mark.parametrize("name", environment.names())
def test_every_environment_has_a_site(name) -> None:
    """The one whose externals it includes."""
    assert site.of(name).name == (environment.load(name).site or "local")


#: A key of the file, what is there instead, where the error is, and what it says.
BAD = [
    # a key that is unknown, with the nearest one
    ("launchr", "srun", "", "unknown key 'launchr'; did you mean 'launcher'?"),
    ("partitions.batch.gpuz", 4, "partitions.batch", "did you mean 'gpu'?"),
    ("partitions.batch.lsf.ques", "debug", "partitions.batch.lsf", "did you mean 'queue'?"),
    ("fabric.alwys", {"set": {"A": "b"}, "source": "js-run"}, None, "did you mean 'always'?"),
    ("modules.xyzzy", "x", "modules", "conflict, hierarchy, projection, source, tool"),
    ("allowed.jsrum", {"source": "js-run"}, None, "did you mean 'jsrun'?"),
    ("fabric.ddl.set.a name", "1", None, "not the name of a variable"),
    ("environments.summit-hvd.run", [["a"]], "environments.summit-hvd", "unknown key"),
    # one that is missing
    ("center", None, None, "missing"),
    ("partitions.batch.gpus", None, None, "missing"),
    ("allowed.jsrun", {}, "allowed.jsrun.source", "missing"),
    ("status.since", None, "status", "since"),
    # a value of the wrong kind
    ("scheduler", "slrum", None, "did you mean 'slurm'?"),
    ("status.since", datetime.date(2024, 11, 15), None, "'2024-11-15' is not text; put it in"),
    ("partitions.batch.lsf.queue", 7, None, "'7' is not text; put it in quotes"),
    ("fabric.ddl.set.NCCL_LL_THRESHOLD", 0, None, "'0' is not text; put it in quotes"),
    ("partitions.batch.gpus", "four", None, "'four' is not a whole number"),
    ("partitions.batch.gpus", -1, None, "-1 is less than 0"),
    ("partitions.batch.gpus", True, None, "not a whole number"),
    ("partitions", [], None, "not a mapping"),
    ("pitfalls", "text", None, "not a list"),
    ("partitions.batch.source", [], None, "names no source"),
    ("name", "Summit X", None, "lower-case"),
    ("checked.date", "yesterday", None, "YYYY-MM-DD"),
    ("checked.by", "hearsay", None, "did you mean 'rehearsal'?"),
    # a name that refers to nothing
    ("name", "summit-2", None, "directory"),
    ("launcher", "ibrun", None, "'ibrun' is not in 'allowed'"),
    ("refused.jsrun", {"reason": "x", "source": "js-run"}, None, "is in 'allowed' too"),
    ("environments.summit-hvd.partition", "bacth", None, "did you mean 'batch'?"),
    ("status.successors", ["nowhere"], None, "no site 'nowhere'"),
    ("status.waits_for", "spring", None, "a waiting site"),
    ("pitfalls", [{"text": "x", "source": "hearsay"}], "pitfalls[0].source", "'hearsay'"),
]


@pytest.mark.parametrize(("key", "value", "place", "said"), BAD)
def test_a_bad_file_is_refused_with_its_key(key, value, place, said, sites) -> None:
    (sites / "summit" / site.SITE).write_text(yaml.safe_dump(changed(key, value)))
    with pytest.raises(HvdError) as caught:
        site.load("summit")
    where = key if place is None else place
    assert f"summit/site.yaml: {where}{': ' if where else ''}" in caught.value.message
    assert said in caught.value.message


@pytest.mark.parametrize("text", ["", "[]", "text", "a: [", "? [a]", "\xff"])
def test_what_is_no_mapping_is_refused(text, sites) -> None:
    (sites / "summit" / site.SITE).write_bytes(text.encode("latin-1"))
    with pytest.raises(HvdError, match="summit/site.yaml: "):
        site.load("summit")
    assert site.of("alpha-hvd").name == "alpha"  # another site may be wrong


@pytest.mark.parametrize("key", ["pitfalls", "center", "scheduler", "partitions.batch.gpus"])
def test_a_file_that_grows_when_it_is_read_has_a_short_error(key, sites) -> None:
    """Each anchor has nine of the one before it."""
    grown = "x"
    for _ in range(6):
        grown = [grown] * 9
    (sites / "summit" / site.SITE).write_text(yaml.safe_dump(changed(key, grown)))
    with pytest.raises(HvdError, match=f"summit/site.yaml: {key}") as caught:
        site.load("summit")
    assert len(caught.value.message) < 300


def test_names_that_are_not_there(sites) -> None:
    with pytest.raises(HvdError, match="no environment is called 'moon-hvd'"):
        site.of("moon-hvd")
    with pytest.raises(HvdError, match="no site is called 'moon'"):
        site.load("moon")
    use = {"partition": "batch", "operations": "nccl"}
    (sites / "summit" / site.SITE).write_text(yaml.safe_dump(changed("environments", {"x": use})))
    with pytest.raises(HvdError, match="summit/site.yaml: environments: no 'summit-hvd'"):
        site.of("summit-hvd")


def test_a_method_of_the_site_s_own(sites) -> None:
    """And options of one that all sites have."""
    own = {"line": ["aprun", "-n {ranks}", "-N {ranks_per_node}"], "source": "js-run"}
    data = changed("allowed.aprun", own)
    data["allowed"]["jsrun"]["options"] = ["--x"]
    (sites / "summit" / site.SITE).write_text(yaml.safe_dump(data))
    line = methods.quoted(launch("summit-hvd", method="aprun", nodes=2, program=("x",)))
    assert line == "aprun -n 12 -N 6 x"
    jsrun = site.load("summit").allowed["jsrun"]
    assert jsrun.options == ("--x",) and jsrun.line[0] == "jsrun"
    own["line"].append("-d {cups}")
    (sites / "summit" / site.SITE).write_text(yaml.safe_dump(data))
    with pytest.raises(HvdError, match="cups"):
        methods.quoted(launch("summit-hvd", method="aprun", program=("x",)))


def test_a_centre_keeps_its_site_outside_the_checkout(sites, tmp_path, monkeypatch) -> None:
    """One file for the site, one for the environment; what is here stays as it is."""
    centre = tmp_path / "centre"
    shutil.copytree(sites / "alpha", centre / "sites" / "moon")
    shutil.copytree(sites.parent / "alpha-hvd", centre / "moon-hvd", symlinks=True)
    spack_yaml = centre / "moon-hvd" / "spack.yaml"
    here, there = ".checkout/environments/sites/alpha", "$HVD_SITES/sites/moon"
    spack_yaml.write_text(spack_yaml.read_text().replace(here, there))
    file = centre / "sites" / "moon" / site.SITE
    use = {"partition": "alpha", "operations": "nccl"}
    data = {**yaml.safe_load(file.read_text()), "name": "moon", "environments": {"moon-hvd": use}}
    file.write_text(yaml.safe_dump(data))
    assert "moon" not in site.names()
    monkeypatch.setenv("HVD_SITES", str(centre))
    assert {"moon", "alpha"} <= set(site.names())
    assert {"moon-hvd", "alpha-hvd"} <= set(environment.names())
    assert site.of("moon-hvd").name == "moon"
    assert centre / "sites" / "moon" in environment.load("moon-hvd").inputs()
    derived = environment.derive(environment.load("moon-hvd"), "py-horovod@0.27.0")
    assert there in derived.includes and derived.site == "moon"


def test_what_the_fabric_sets_by_case() -> None:
    taurus = site.load("taurus-ml")
    assert taurus.variables("nccl", 2) == {"NCCL_DEBUG": "INFO"}
    assert taurus.variables("mpi", 2, rdma=True)["HOROVOD_MPI_THREADS_DISABLE"] == "1"
    perlmutter = site.load("perlmutter")
    enabled = "MPICH_GPU_SUPPORT_ENABLED"
    assert perlmutter.variables("nccl", 2)[enabled] == "0"
    assert perlmutter.variables("mpi", 1) == {enabled: "1"}
    assert perlmutter.variables("mpi", 2) == {enabled: "1", "SLURM_NETWORK": "no_vni"}


def test_what_an_environment_has_where_nothing_else_is_said() -> None:
    """The site's `checked`; and modules to build are those to run."""
    perlmutter = site.load("perlmutter-2023")
    use = perlmutter.environments["perlmutter-2023-hvd"]
    assert (use.checked.by, perlmutter.checked.by) == ("rehearsal", "documents")
    assert use.build != use.run
    summit = site.load("summit")
    assert summit.environments["summit-hvd"].checked == summit.checked
    use = site.load("capella").environments["capella-hvd"]
    assert use.build == use.run
    assert use.run and use.run[0][:2] == ("release/24.04", "GCC/12.3.0")
