"""What our patches change in horovodrun's launchers: mpirun and jsrun."""

import json
import pathlib
import re
import stat

import pytest

#: The first lines of `mpirun --version`, by implementation.
BANNERS = {
    "OpenMPI": "mpirun (Open MPI) 5.0.11",
    "MPICH": "HYDRA build details:\n    Version:                                 5.0.2",
    "IntelMPI": "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307",
    "SpectrumMPI": "mpirun (IBM Spectrum MPI) 10.04.00.03rtm4",
    "Unknown": "some other launcher 1.0",
}

#: horovodrun --mpi as each release has it, with a port for ssh.
MPIRUN = """
import os, sys, types
settings = types.SimpleNamespace(
    num_proc=2, num_hosts=1, hosts={hosts!r}, ssh_port=2222, ssh_identity_file=None, tcp_flag=None,
    binding_args=None, extra_mpi_args=None, output_filename=None, run_func_mode=False, verbose=0,
    prefix_output_with_timestamp=False, command=["hostname"])
arguments = settings, {nics!r}, dict(os.environ)
try:
    from horovod.runner.mpi_run import mpi_run
except ImportError:
    try:
        from horovod.run.mpi_run import mpi_run
    except ImportError:
        from horovod.run.run import run
        sys.argv = ["horovodrun", "--disable-cache", "-np", "2", "-p", "2222", "hostname"]
        run()
mpi_run(*arguments, *[["hostname"]] * (mpi_run.__code__.co_argcount > 3))
"""


@pytest.fixture
def launch(unbuilt):
    """A function that runs horovodrun's mpirun, and gives what mpirun was called with."""

    def run(version, mpi, hosts="node1:2", nics=None):
        horovod = unbuilt(version)
        record = horovod.fake("mpirun", BANNERS[mpi])
        horovod.run(MPIRUN.format(hosts=hosts, nics=nics))
        return record.read_text().splitlines()

    return run


def refused_by_open_mpi_5(arguments):
    """Options that Open MPI 5 takes for the program, or that it takes and forgets."""
    options = [a for a in arguments if re.match(r"-\w{2}", a) and a not in ("-np", "-mca")]
    pairs = zip(arguments, arguments[1:])
    return options + [name for option, name in pairs if (option, name[:4]) == ("-mca", "plm_")]


#: The first and the last version of each mpirun*.patch.
BEFORE_0_20 = ["0.18.2", "0.19.0", "0.19.1", "0.19.5"]
SINCE_0_20 = ["0.20.0", "0.21.1", "0.21.2", "0.22.1", "0.23.0", "0.28.1"]


@pytest.mark.parametrize("version", [*BEFORE_0_20, *SINCE_0_20])
def test_open_mpi_5_takes_what_horovodrun_gives(launch, version):
    """mpirun*.patch"""
    arguments = launch(version, "OpenMPI")
    assert "--bind-to" in arguments and "plm_rsh_args" in arguments
    assert not refused_by_open_mpi_5(arguments), arguments


@pytest.mark.parametrize("version", SINCE_0_20)
def test_open_mpi_5_takes_what_horovodrun_gives_on_many_hosts(launch, version):
    """mpirun*.patch"""
    arguments = launch(version, "OpenMPI", hosts=",".join(f"node{n}:2" for n in range(64)))
    assert "plm_rsh_num_concurrent" in arguments
    assert not refused_by_open_mpi_5(arguments), arguments


@pytest.mark.parametrize("version", SINCE_0_20)
def test_open_mpi_chooses_its_transport(launch, version):
    """transport.patch: with `pml ob1` it uses neither UCX nor libfabric."""
    arguments = launch(version, "OpenMPI")
    pairs = list(zip(arguments, arguments[1:]))
    assert [value for name, value in pairs if name in ("pml", "btl")] == ["^openib"]


@pytest.mark.parametrize("version", SINCE_0_20)
def test_open_mpi_5_takes_the_agent_of_spark(tree, version):
    """mpirun*.patch; the module needs all of Spark's to be imported"""
    source = (tree(version) / "horovod" / "spark" / "mpi_run.py").read_text()
    assert re.findall(r"(-+mca) plm_rsh_agent", source) == ["--mca"]


@pytest.mark.parametrize("version", ["0.23.0", "0.28.1"])
@pytest.mark.parametrize("mpi", BANNERS)
def test_horovodrun_tells_mpis_apart(unbuilt, version, mpi):
    """mpirun.patch"""
    horovod = unbuilt(version)
    horovod.fake("mpirun", BANNERS[mpi])
    program = "from horovod.runner import mpi_run\nprint(mpi_run._get_mpi_implementation())"
    assert horovod.run(program) == f"{mpi}\n"


HYDRA = [("0.21.2", "IntelMPI"), ("0.22.1", "IntelMPI"), ("0.23.0", "IntelMPI")]
HYDRA += [("0.28.1", "IntelMPI"), ("0.23.0", "MPICH"), ("0.28.1", "MPICH")]


@pytest.mark.parametrize(("version", "mpi"), HYDRA)
def test_hydra_is_told_one_interface(launch, version, mpi):
    """iface.patch: Hydra looks for an interface named "ib0,eth0"."""
    arguments = launch(version, mpi, nics={"ib0", "eth0"})
    assert arguments.count("-iface") == 1
    assert arguments[arguments.index("-iface") + 1] == "eth0"
    assert "btl_tcp_if_include" not in arguments


@pytest.mark.parametrize("version", ["0.23.0", "0.28.1"])
def test_mpich_is_told_the_port_of_ssh(launch, tmp_path, version):
    """mpirun.patch: its mpirun refuses -bootstrap-exec-args"""
    assert "-bootstrap-exec-args" not in launch(version, "MPICH")
    environment = (tmp_path / "horovod" / "mpirun-arguments.environment").read_text()
    assert "HYDRA_LAUNCHER_EXTRA_ARGS=-p 2222" in environment.splitlines()


def test_intel_mpi_is_told_the_port_of_ssh(launch):
    """mpirun.patch"""
    arguments = launch("0.28.1", "IntelMPI")
    assert arguments[arguments.index("-bootstrap-exec-args") + 1] == "-p 2222"


@pytest.mark.parametrize(("nics", "given"), [(None, []), ({"ib0"}, ["ib0"])])
def test_open_mpi_is_told_interfaces_in_its_own_way(launch, nics, given):
    """iface.patch"""
    arguments = launch("0.28.1", "OpenMPI", nics=nics)
    pairs = zip(arguments, arguments[1:])
    assert "-iface" not in arguments
    assert [value for option, value in pairs if option == "btl_tcp_if_include"] == given


def test_hydra_finds_the_interface_where_none_is_named(launch):
    """iface.patch"""
    assert "-iface" not in launch("0.28.1", "IntelMPI")


#: What horovodrun learns of an LSF job from CSM, and the modules of either layout.
LSF = """
import json, os, sys, tempfile, types
try:
    from horovod.runner import js_run
except ImportError:
    from horovod.run import js_run
LSFUtils = js_run.lsf.LSFUtils
LSFUtils._csm_allocation_info = {
    "compute_nodes": ["node1", "node2"], "compute_node_cores": 4, "compute_node_gpus": 2}
LSFUtils.get_num_threads = staticmethod(lambda: 2)
settings = types.SimpleNamespace(
    num_proc=3, hosts="node1:2,node2:2", tcp_flag=None, extra_mpi_args=None, binding_args=None,
    output_filename=None, run_func_mode=False, verbose=0)
"""
PLACES = [("0", "node1", "0-3"), ("1", "node1", "4-7"), ("2", "node2", "0-3")]


def places(rank_file):
    """Rank, host and CPUs of each line."""
    text = rank_file.read_text()
    return re.findall(r"rank: (\d): { hostname: (\w+); cpu: {([-\d]+)}", text)


@pytest.mark.parametrize("version", ["0.19.2", "0.21.1", "0.21.2", "0.23.0", "0.24.0", "0.28.1"])
def test_jsrun_is_given_a_rank_file(unbuilt, version):
    """jsrun.patch, jsrun-rankfile.patch"""
    horovod = unbuilt(version)
    horovod.fake("mpirun", BANNERS["SpectrumMPI"])
    record = horovod.fake("jsrun")
    horovod.run(LSF + "js_run.js_run(settings, None, dict(os.environ), ['hostname'])")
    option, rank_file, program = record.read_text().split()
    assert (option, program) == ("--erf_input", "hostname")
    assert places(pathlib.Path(rank_file)) == PLACES


#: Who guesses the name that a temporary file gets puts a link there: beforehand, and again as
#: soon as a name is given away without a file.
ATTACK = """
victim = os.environ["VICTIM"]
tempfile._get_candidate_names = lambda: iter(["guessed", "second"])
for prefix in ("tmp", "horovod-rankfile-"):
    os.symlink(victim, os.path.join(tempfile.gettempdir(), prefix + "guessed"))
mktemp = tempfile.mktemp
def raced(*arguments, **keywords):
    name = mktemp(*arguments, **keywords)
    os.symlink(victim, name)
    return name
tempfile.mktemp = raced
print(js_run.generate_jsrun_rankfile(settings))
"""


@pytest.mark.parametrize("version", ["0.19.2", "0.19.5", "0.20.0", "0.23.0", "0.24.0", "0.28.1"])
def test_cve_2022_0315_the_rank_file_follows_no_planted_link(unbuilt, tmp_path, version):
    """cve-2022-0315*.patch"""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    rank_file = pathlib.Path(unbuilt(version).run(LSF + ATTACK, VICTIM=str(victim)).strip())
    assert victim.read_text() == "precious"
    assert stat.S_ISREG(rank_file.lstat().st_mode)
    assert stat.S_IMODE(rank_file.lstat().st_mode) == 0o600
    assert places(rank_file) == PLACES


@pytest.mark.parametrize("version", ["0.19.2", "0.23.0", "0.28.1"])
def test_a_rank_file_is_written_where_the_caller_says(unbuilt, tmp_path, version):
    """cve-2022-0315*.patch"""
    path = tmp_path / "ranks"
    program = LSF + f"print(js_run.generate_jsrun_rankfile(settings, {json.dumps(str(path))}))"
    assert unbuilt(version).run(program) == f"{path}\n"
    assert places(path) == PLACES


@pytest.mark.parametrize("version", ["0.19.2", "0.19.5", "0.20.0", "0.28.1"])
def test_lsf_without_csm_says_what_to_give(unbuilt, version):
    """lsf*.patch"""
    program = LSF + "LSFUtils._csm_allocation_info = {}\nLSFUtils.get_compute_hosts()"
    with pytest.raises(AssertionError, match="give -np and -H to horovodrun.*$"):
        unbuilt(version).run(program, LSB_JOBID="1")
