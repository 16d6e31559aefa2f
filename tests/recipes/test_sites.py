"""Every site's environment is solved as the site has it, on a machine that is another."""

import json
import pathlib
import re
import subprocess

import pytest
import yaml

from hvd.model import environment
from hvd.model.versions import pinned
from hvd.solve import kept
from tests.conftest import copy_checkout

SITES = environment.of_sites()


@pytest.fixture(scope="module")
def solved(pair, find_spack, tmp_path_factory):
    """All of them, solved in a copy of this checkout; with the default pair also compared."""
    find_spack(pair)
    checkout = copy_checkout(tmp_path_factory.mktemp(pair) / "hvd")
    if pair == pinned().pairs[0].name:
        done = checkout.hvd("lock", "--check")
    else:
        done = checkout.hvd("concretize", *SITES, f"--pair={pair}")
    return checkout, done


def test_each_has_the_solution_that_is_kept(solved):
    """`./hvd` itself refuses a foreign architecture, external, build or variant."""
    _, done = solved
    assert done.returncode == 0, done.stdout
    for name in SITES:
        (line,) = [line for line in done.stdout.splitlines() if line.split()[:1] == [name]]
        assert line.split()[3] == "ok", line


def test_spack_says_no_warning_of_a_site(solved):
    checkout, _ = solved
    said = [
        f"{log.name}: {line}"
        for log in sorted((checkout.root / ".hvd" / "logs").rglob("*.log"))
        for line in log.read_text().splitlines()
        if "Warning" in line or "deprecated" in line
    ]
    assert not said


def test_the_report_has_the_time_of_each(solved, pair):
    checkout, _ = solved
    report = checkout.root / ".hvd" / "reports" / f"all-{pair}" / "report.md"
    text = report.read_text()
    assert all(f"| {name} |" in text for name in SITES)


def test_a_site_installs(solved, find_spack, pair):
    """Without building anything; the user's words select the environment's own solution."""
    checkout, _ = solved
    setup = checkout.root / ".hvd" / "setup-env.sh"
    program = (
        f". {setup} && spack env activate perlmutter-hvd && spack install --fake py-horovod+nccl"
        " && spack find --format '{name}@{version}{variants.nccl} {os} {target}' py-horovod"
    )
    done = checkout.shell(program)
    assert done.returncode == 0, done.stdout
    assert "py-horovod@0.27.0+nccl sles15 zen3" in done.stdout


DESCRIBE = pathlib.Path(__file__).with_name("describe_build.py")


@pytest.mark.parametrize("name", ["stampede2-hvd", "summit-ddl-hvd", "taurus-ml-hvd"])
def test_a_horovod_without_cmake_has_a_build_environment(solved, pair, tmp_path, name):
    """0.19 and before need it for Gloo alone; an installation that is fake does not show it."""
    checkout, _ = solved
    setup = checkout.root / ".hvd" / "setup-env.sh"
    done = checkout.shell(f". {setup} && spack -e {name} python {DESCRIBE}")
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["variables"]["HOROVOD_WITHOUT_GLOO"] == "1"
    assert "HOROVOD_CMAKE" not in said["variables"]
    # archspec knows the site's compiler and processor
    assert re.match("-m(arch|cpu)=", said["variables"]["HOROVOD_BUILD_ARCH_FLAGS"])


#: Adds the compilers of the configuration to what is installed, as what they have built would.
INSTALL_COMPILERS = """
import spack.compilers.config, spack.config, spack.store
for spec in spack.compilers.config.all_compilers_from(spack.config.CONFIG):
    spack.store.STORE.db.add(spec)
"""


def test_what_this_machine_has_built_has_no_say(solved, pair, tmp_path):
    checkout, _ = solved
    here = {"c": "/usr/bin/gcc", "cxx": "/usr/bin/g++"}
    external = {
        "spec": "gcc@12.2.0 languages:='c,c++'",
        "prefix": "/usr",
        "extra_attributes": {"compilers": here},
    }
    content = {"packages": {"gcc": {"externals": [external]}}}
    (tmp_path / "packages.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / "install.py").write_text(INSTALL_COMPILERS)
    setup = checkout.root / ".hvd" / "setup-env.sh"
    done = checkout.shell(
        f". {setup} && spack -C {tmp_path} python {tmp_path / 'install.py'} && spack find gcc"
    )
    assert "gcc@12.2.0" in done.stdout
    lock = checkout.root / "environments/alpha-hvd/spack.lock"
    before = lock.read_text()
    lock.unlink()
    done = checkout.hvd("concretize", "alpha-hvd", f"--pair={pair}", "--fresh")
    assert done.returncode == 0, done.stdout
    assert json.loads(lock.read_text())["roots"] == json.loads(before)["roots"]


#: Prints the names of all packages that a solve of the active environment considers.
CONSIDERED = """
import spack.environment, spack.spec
from spack.solver.input_analysis import MinimalDuplicatesCounter, create_graph_analyzer
roots = [spack.spec.Spec(str(each)) for each in spack.environment.active_environment().user_specs]
counter = MinimalDuplicatesCounter(roots, False, create_graph_analyzer())
print("considered:", *counter.possible_dependencies())
"""


@pytest.mark.parametrize("name", SITES)
def test_a_solve_considers_only_what_the_site_can_need(solved, pair, tmp_path, name):
    """Not what externals, tests, other variants and other platforms would need: hundreds."""
    checkout, _ = solved
    (tmp_path / "considered.py").write_text(CONSIDERED)
    setup = checkout.root / ".hvd" / "setup-env.sh"
    scope = checkout.root / ".hvd" / pair / name / "prune"
    done = checkout.shell(
        f". {setup} && spack -C {scope} -e {checkout.root / 'environments' / name}"
        f" python {tmp_path / 'considered.py'}"
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("considered:")]
    names = set(line.split()[1:])
    assert "py-horovod" in names
    assert not names & {"qt", "llvm", "py-pytest", "arrow", "mesa"}


def plant(checkout, name: str, external: dict) -> None:
    """Put an external of the site's system into the configuration below the environments."""
    for scope in (checkout.root / ".hvd").glob("*/config"):
        content = {"packages": {name: {"externals": [external]}}}
        (scope / "packages.yaml").write_text(yaml.safe_dump(content))


def test_what_the_machine_has_does_not_slip_in(pair, find_spack, tmp_path):
    find_spack(pair)
    checkout = copy_checkout(tmp_path / "hvd")
    command = ("concretize", "perlmutter-hvd", "--engine=spack", f"--pair={pair}")
    checkout.hvd("setup", "perlmutter-hvd", *command[2:])
    compilers = {"c": "/opt/other/bin/gcc", "cxx": "/opt/other/bin/g++"}
    host = {
        "spec": "gcc@13.1.0 languages:='c,c++' os=sles15",
        "prefix": "/opt/other",
        "extra_attributes": {"compilers": compilers},
    }
    plant(checkout, "gcc", host)
    done = checkout.hvd(*command)
    assert done.returncode == 0, done.stdout
    lock = json.loads((checkout.root / "environments/perlmutter-hvd/spack.lock").read_text())
    (gcc,) = [n for n in lock["concrete_specs"].values() if n["name"] == "gcc"]
    assert gcc["version"] == "11.2.0"

    # without what keeps it out, it is taken, and that is found
    site = checkout.root / "environments/sites/perlmutter/packages.yaml"
    site.write_text(site.read_text().replace("  gcc::\n", "  gcc:\n"))
    done = checkout.hvd(*command)
    assert done.returncode == 11, done.stdout
    assert "gcc@13.1.0 at /opt/other is not the site's" in done.stdout
    assert "'packages:gcc:externals' of environments/sites/perlmutter/packages.yaml" in done.stdout


def test_the_solution_of_each_is_kept():
    for name in SITES:
        assert kept.load(environment.load(name)).packages, name


OS_RELEASE = """
NAME="SLES"
VERSION="15-SP4"
VERSION_ID="15.4"
ID="sles"
"""


def test_on_the_site_the_same_externals_are_taken(pair, find_spack, tmp_path):
    """There the compiler runs, and Spack asks it for its libc; here another one stands in.

    What is built may come out newer: Spack 1.2 allows two of a build tool only for compilers
    that run.
    """
    find_spack(pair)
    release = tmp_path / "os-release"
    release.write_text(OS_RELEASE)
    mounted = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/os-release && "$@"']
    mounted.append(str(release))
    if subprocess.run([*mounted, "true"], capture_output=True).returncode:
        pytest.skip("to stand in for the site's system takes the right to mount")
    checkout = copy_checkout(tmp_path / "hvd")
    for program in ("gcc", "g++", "gfortran"):
        script = tmp_path / program
        script.write_text(f'#!/bin/sh\nexec /usr/bin/{program} "$@"\n')
        script.chmod(0o755)
    site = checkout.root / "environments/sites/perlmutter/packages.yaml"
    site.write_text(site.read_text().replace("/opt/cray/pe/gcc/11.2.0/bin", str(tmp_path)))
    command = checkout.command("concretize", "perlmutter-hvd", f"--pair={pair}")
    done = checkout.run([*mounted, *command])
    assert done.returncode == 0, done.stdout
    lock = json.loads((checkout.root / "environments/perlmutter-hvd/spack.lock").read_text())
    nodes = lock["concrete_specs"].values()
    assert {"compiler-wrapper", "gcc-runtime"} <= {node["name"] for node in nodes}
    taken = {node["name"] for node in nodes if "external" in node}
    packages = kept.load(environment.load("perlmutter-hvd")).packages
    of_site = {package.name for package in packages if package.origin != "built"}
    assert taken - {"glibc"} == of_site
