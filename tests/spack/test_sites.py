"""Every site's environment is solved as the site has it, on a machine that is another."""

import json
import pathlib
import re

import pytest
import yaml

from hvd.model import environment
from hvd.model.versions import pinned
from hvd.solve import kept
from tests.checkout import copy_checkout, script
from tests.spack.conftest import solution, warnings

SITES = environment.of_sites()


@pytest.fixture(scope="module")
def checked(located, pair, tmp_path_factory):
    """A copy of this checkout in which all were solved, and the output of that.

    With the default pair they are also compared with what is kept.
    """
    checkout = copy_checkout(tmp_path_factory.mktemp(pair) / "hvd")
    if pair == pinned().pairs[0].name:
        return checkout, checkout.hvd("dev", "lock", "--check")
    return checkout, checkout.hvd("concretize", *SITES, f"--pair={pair}")


@pytest.fixture
def solved(checked):
    return checked[0]


def test_each_has_the_solution_that_is_kept(checked):
    """`./hvd` itself refuses a foreign architecture, external, build or variant."""
    words = {line.split()[0]: line.split() for line in checked[1].splitlines() if line.strip()}
    assert {name: words[name][3] for name in SITES} == dict.fromkeys(SITES, "ok"), checked[1]


def test_spack_says_no_warning_of_a_site(solved):
    assert not warnings(solved.state)


def test_a_site_installs(solved):
    """Without building anything; the user's words select the environment's own solution."""
    output = solved.shell(
        "spack env activate perlmutter-hvd && spack install --fake py-horovod+nccl"
        " && spack find --format '{name}@{version}{variants.nccl} {os} {target}' py-horovod"
    )
    assert "py-horovod@0.28.1+nccl sles15 zen3" in output


DESCRIBE = pathlib.Path(__file__).with_name("describe_build.py")


@pytest.mark.parametrize("name", ["stampede2-hvd", "summit-ddl-hvd", "taurus-ml-hvd"])
def test_a_horovod_without_cmake_has_a_build_environment(solved, name):
    """0.19 and before need it for Gloo alone; an installation that is fake does not show it."""
    said = json.loads(solved.shell(f"spack -e {name} python {DESCRIBE}").splitlines()[-1])
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


def external(spec, prefix):
    """The section of packages.yaml for a GCC."""
    compilers = {"c": f"{prefix}/bin/gcc", "cxx": f"{prefix}/bin/g++"}
    gcc = {"spec": spec, "prefix": prefix, "extra_attributes": {"compilers": compilers}}
    return yaml.safe_dump({"packages": {"gcc": {"externals": [gcc]}}})


def test_what_this_machine_has_built_has_no_say(solved, pair, tmp_path):
    (tmp_path / "packages.yaml").write_text(external("gcc@12.2.0 languages:='c,c++'", "/usr"))
    (tmp_path / "install.py").write_text(INSTALL_COMPILERS)
    install = f"spack -C {tmp_path} python {tmp_path / 'install.py'} && spack find gcc"
    assert "gcc@12.2.0" in solved.shell(install)
    lock = solved.root / "environments/alpha-hvd/spack.lock"
    before = lock.read_text()
    lock.unlink()
    solved.hvd("concretize", "alpha-hvd", f"--pair={pair}", "--fresh")
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
    (tmp_path / "considered.py").write_text(CONSIDERED)
    scope = solved.state / pair / name / "prune"
    place = solved.root / "environments" / name
    output = solved.shell(f"spack -C {scope} -e {place} python {tmp_path / 'considered.py'}")
    (line,) = [line for line in output.splitlines() if line.startswith("considered:")]
    names = set(line.split()[1:])
    assert "py-horovod" in names
    assert not names & {"qt", "llvm", "py-pytest", "arrow", "mesa"}


def test_what_the_machine_has_does_not_slip_in(located, pair, checkout):
    options = ("perlmutter-hvd", "--engine=spack", f"--pair={pair}")
    checkout.hvd("setup", *options)
    # newer than the site's, into the configuration below the environments
    for scope in checkout.state.glob("*/config"):
        planted = external("gcc@15.1.0 languages:='c,c++' os=sles15", "/opt/other")
        (scope / "packages.yaml").write_text(planted)
    checkout.hvd("concretize", *options)
    lock = checkout.root / "environments/perlmutter-hvd/spack.lock"
    assert solution(lock)["gcc"]["version"] == "14.3.0"

    # without what keeps it out, it is taken, and that is found
    site = checkout.root / "environments/sites/perlmutter/packages.yaml"
    site.write_text(site.read_text().replace("  gcc::\n", "  gcc:\n"))
    output = checkout.hvd("concretize", *options, status=11)
    assert "gcc@15.1.0 at /opt/other is not the site's" in output
    assert "'packages:gcc:externals' of environments/sites/perlmutter/packages.yaml" in output


OS_RELEASE = """
NAME="SLES"
VERSION="15-SP4"
VERSION_ID="15.4"
ID="sles"
"""


def test_on_the_site_the_same_externals_are_taken(located, pair, checkout, tmp_path):
    """There the compiler runs, and Spack asks it for its libc; here another one stands in.

    What is built may come out newer: Spack 1.2 allows two of a build tool only for compilers
    that run.
    """
    (tmp_path / "os-release").write_text(OS_RELEASE)
    for program in ("gcc", "g++", "gfortran"):
        script(tmp_path / program, f'exec /usr/bin/{program} "$@"')
    site = checkout.root / "environments/sites/perlmutter/packages.yaml"
    site.write_text(site.read_text().replace("/opt/cray/pe/gcc-native/14/bin", str(tmp_path)))
    # where Spack's distro looks for os-release
    checkout.hvd("concretize", "perlmutter-hvd", f"--pair={pair}", UNIXCONFDIR=str(tmp_path))
    nodes = solution(checkout.root / "environments/perlmutter-hvd/spack.lock")
    assert {"compiler-wrapper", "gcc-runtime"} <= nodes.keys()
    taken = {name for name, node in nodes.items() if "external" in node}
    packages = kept.load(environment.load("perlmutter-hvd")).packages
    of_site = {package.name for package in packages if package.origin != "built"}
    assert taken - {"glibc"} == of_site
