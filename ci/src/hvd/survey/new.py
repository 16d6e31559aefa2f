"""Write the files of a new site: packages.yaml, site.yaml and an environment."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import pathlib
import re
import shlex
import shutil
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

import yaml

from hvd.core import paths, schema, templates
from hvd.core.errors import HvdError, nearest
from hvd.core.files import write_atomically
from hvd.docs import pages, site_page
from hvd.host import externals, machine
from hvd.host import mpi as mpi_module
from hvd.host.mpi import Mpi
from hvd.model import environment, recipe, site
from hvd.model.specs import parse
from hvd.solve.spack import Spack
from hvd.survey.machine import Record, detect, places, scheduler

TOOLS = ("gcc", "cmake", "gmake")
#: Those that Spack finds, as they are preferred.
MPIS = ("openmpi", "mpich", "intel-oneapi-mpi", "mvapich", "mvapich-plus", "spectrum-mpi")
ROCM = ("hip", "hsa-rocr-dev", "llvm-amdgpu", "rccl")
#: For the variant of a GPU: Horovod's variants, the operations, and the packages that they need.
_STACKS: Dict[str, Tuple[str, str, Tuple[str, ...]]] = {
    "": ("~cuda~rocm", "cpu", ()),
    "cuda_arch": ("+nccl+cuda~rocm", "nccl", ("cuda", "nccl")),
    "amdgpu_target": ("+nccl~cuda+rocm", "rccl", ROCM),
}
_FRAMEWORKS = {"torch": "pytorch", "tensorflow": "tensorflow"}


@dataclasses.dataclass(frozen=True)
class Loaded:
    """The modules that the admin names, and the paths that each brings."""

    variables: Mapping[str, str]  #: of a shell that has loaded all of them
    needs: Mapping[str, Tuple[str, ...]]  #: for each module, those to load to have it
    brings: Mapping[str, FrozenSet[str]]  #: for each module, the paths that it adds

    def owners(self, prefix: str) -> Tuple[str, ...]:
        """Return the modules to load for what is at ``prefix``; none if it is there without."""
        for name, brought in self.brings.items():
            if prefix != "/usr" and any(f"{path}/".startswith(f"{prefix}/") for path in brought):
                return self.needs[name]
        return ()


def make(
    name: str,
    center: str,
    record: Record,
    spack: Spack,
    log: pathlib.Path,
    *,
    modules: Sequence[str] = (),
    python: str = "python3",
    partition: str = "",
    target: str = "",
    gpu: str = "",
) -> List[pathlib.Path]:
    """Ask the machine, write the files of the site and of its environment; return their places.

    Args:
        modules: of the software to use, in the order to load them.
        python: an interpreter with the framework.
        partition: that of the environment; the scheduler's default where empty.
        target: processor of its nodes; this node's where empty.
        gpu: such as ``cuda_arch=80``; by the model that the scheduler names where empty.
    """
    base = paths.environments()[0]
    refuse(name, base)
    answer = scheduler(record)
    queue = partition or answer.default
    if not queue or (answer.partitions and queue not in answer.partitions):
        problem = f"no queue '{queue}'" if queue else "no queue is the default"
        raise HvdError(f"--partition: {problem}", nearest(queue, answer.partitions) or "name it")
    partitions = answer.partitions or {queue: {answer.scheduler: {"queue": queue}}}
    loaded = _load(record, modules)
    python = shutil.which(python, path=loaded.variables.get("PATH")) or python
    interpreter = externals.ask(python, loaded.variables)
    frameworks = {k: v for k, v in interpreter["frameworks"].items() if k in _FRAMEWORKS}
    record.add(f"{python}: what it has", yaml.safe_dump({**interpreter["python"], **frameworks}))
    if not frameworks:
        raise HvdError(
            f"{python} has neither PyTorch nor TensorFlow",
            "name its module with --module, or another interpreter with --python",
        )
    if not any(each["cuda"] or each["rocm"] for each in frameworks.values()):
        gpu = ""
    elif not gpu:
        gpu = _gpu(partitions[queue])
    if gpu.partition("=")[0] not in _STACKS:
        raise HvdError(f"--gpu: '{gpu}' is not a variant for GPUs", "for example: cuda_arch=80")
    variants, operations, stack = _STACKS[gpu.partition("=")[0]]
    chosen, library = _software(record, spack, log, loaded, stack)
    system = spack.run("arch", "--operating-system", log=log).output.split()[-1]
    record.add("spack arch --operating-system", system)
    target = target or machine.processor()
    hardware, layer = _hardware(target, gpu, partitions[queue].get("gpu", ""))
    variants += f" frameworks:={','.join(sorted(_FRAMEWORKS[each] for each in frameworks))}"
    types = mpi_module.KINDS[library.package].pmi
    mpi_type = next((each for each in types if each in answer.mpi_types), "")
    default = answer.mpi_types[:1] in [(each,) for each in types]
    lua = "Lua" in record.ask("bash", "-c", "module --version")
    tool = "none" if not modules else "lmod" if lua else "tcl"
    today = datetime.date.today().isoformat()
    context = {
        **dict(name=name, center=center, today=today, scheduler=answer.scheduler, tool=tool),
        **dict(partitions=partitions, partition=queue, operations=operations, dump=_dump),
        **dict(launcher="srun" if mpi_type else "mpirun", mpi_type="" if default else mpi_type),
        **dict(modules=list(loaded.needs), own=_include(base), hardware=hardware),
        "interactive": {"slurm": "salloc", "pbs": "qsub", "lsf": "bsub"}[answer.scheduler],
        "packages": _packages(interpreter, chosen, library, loaded, f"os={system}", gpu),
        "horovod": next(iter(recipe.load(environment.HOROVOD).versions())),
        "variants": f"{variants} os={system} target={target}",
    }

    def render(file: str) -> Dict[str, str]:
        template = templates.environment().get_template(f"survey/{file}.j2")
        return {file: template.render(context)}

    asked = {f"sources/{today}.txt": "\n".join(record.entries)}
    files = {
        base / environment.SITES / name: {**render("packages.yaml"), **render(site.SITE), **asked},
        base / f"{name}-hvd": render("spack.yaml"),
        **({base / "hardware" / hardware.name: {"packages.yaml": layer}} if layer else {}),
    }
    _write(files, name, base)
    page = site_page.PAGES / f"{name}.md"
    if base == paths.ENVIRONMENTS and not page.exists():
        write_atomically(page, f"# {name}\n\n{pages.BEGIN}\n{pages.END}\n".encode())
    return list(files)


def refuse(name: str, base: pathlib.Path) -> None:
    """Refuse a name that is malformed or taken."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise HvdError(f"'{name}' is not a site name", "use lower-case letters, digits and -")
    for path in (base / environment.SITES / name, base / f"{name}-hvd"):
        if path.exists():
            raise HvdError(
                f"{paths.shorten(path)} exists; not overwritten",
                f"compare it with the machine (./hvd site check {name}), or choose another name",
            )


def _load(record: Record, modules: Sequence[str]) -> Loaded:
    """Load ``modules`` one after the other, and each alone."""
    variables, before = dict(record.shell), places(record.load([]) or {})
    needs: Dict[str, Tuple[str, ...]] = {}
    brings: Dict[str, FrozenSet[str]] = {}
    for number, module in enumerate(modules, 1):
        record.ask("bash", "-c", shlex.join(["module", "show", module]))
        after = record.load([[each] for each in modules[:number]])
        if after is None:
            reason = f"`module load {' '.join(modules[:number])}` fails"
            raise HvdError(f"--module {module}: {reason}", "`module avail` lists them")
        # the version that the tool chose
        loaded = after.get("LOADEDMODULES", "").split(":")
        full = next((each for each in loaded if f"{each}/".startswith(f"{module}/")), module)
        alone = number == 1 or record.load([[module]]) is not None
        needs[full] = (full,) if alone else (*needs, full)
        variables, brings[full] = after, places(after) - before
        before |= brings[full]
    return Loaded(variables, needs, brings)


def _gpu(partition: Mapping[str, Any]) -> str:
    """Return the variant for the GPUs of the nodes, by the layers of hardware that there are."""
    if partition.get("gpus") == 0:
        return ""
    known = {}
    for file in sorted(paths.ENVIRONMENTS.glob("hardware/*-*/packages.yaml")):
        variant = re.search(r"\b(cuda_arch|amdgpu_target)=\w+", file.read_text())
        known[file.parent.name.partition("-")[2]] = variant[0] if variant else ""
    for word in re.split(r"[^a-z0-9]", partition.get("gpu", "").lower()):
        if known.get(word):
            return known[word]
    raise HvdError(
        f"unknown GPU model '{partition.get('gpu', '')}'",
        "name its architecture: --gpu cuda_arch=80, or --gpu amdgpu_target=gfx90a",
    )


def _software(
    record: Record, spack: Spack, log: pathlib.Path, loaded: Loaded, stack: Sequence[str]
) -> Tuple[Dict[str, Mapping[str, Any]], Mpi]:
    """Return the externals that PATH and the modules have first, and the MPI among them."""
    hints = loaded.variables.get("PATH", "").split(":")
    hints += sorted(path for brought in loaded.brings.values() for path in brought)
    found = detect(record, spack, hints, (*TOOLS, *MPIS, *stack), log)
    chosen = {name: _first(each, hints) for name, each in found.items()}
    variables = loaded.variables
    # Cray's by documents, not run: docs/mpich.md of github.com/olcf/afar-prgenv, 2026
    if "CRAY_MPICH_DIR" in variables:
        prefix, version = variables["CRAY_MPICH_DIR"], variables["CRAY_MPICH_VERSION"]
        library: Optional[Mpi] = Mpi("cray-mpich", version, pathlib.Path(prefix))
    elif package := next((each for each in MPIS if each in chosen), ""):
        version = parse(chosen[package]["spec"]).versions
        library = Mpi(package, version, pathlib.Path(chosen[package]["prefix"]))
    else:
        library = mpi_module.find(variables.get("PATH", ""))
    missing = [name for name in (*TOOLS, *stack) if name not in chosen]
    if missing or not library:
        lacking = [*missing, "MPI"][0]
        raise HvdError(f"no {lacking} found", "name the module that has it with --module")
    needed = (*TOOLS, *stack, library.package)
    return {name: chosen[name] for name in needed if name in chosen}, library


def _first(found: Sequence[Mapping[str, Any]], hints: Sequence[str]) -> Mapping[str, Any]:
    """Return the external that ``hints`` have first."""

    def rank(external: Mapping[str, Any]) -> Tuple[int, int, Tuple[int, ...]]:
        programs = external.get("extra_attributes", {}).get("compilers", {})
        prefix = os.path.dirname(programs["c"]) if "c" in programs else external["prefix"]
        order = (n for n, hint in enumerate(hints) if prefix in (hint, os.path.dirname(hint)))
        version = re.findall(r"\d+", parse(external["spec"]).versions)
        # of two there, the one that has all languages, and the newer one
        return next(order, len(hints)), -len(programs), tuple(-int(part) for part in version)

    return min(found, key=rank)


def _packages(
    interpreter: Mapping[str, Any],
    chosen: Mapping[str, Any],
    library: Mpi,
    loaded: Loaded,
    arch: str,
    gpu: str,
) -> Dict[str, Dict[str, Any]]:
    """Return the section `packages` of a site."""
    packages = externals.packages(interpreter, library, arch)
    packages.update({"all": {"require": [arch]}, "mpi": {"require": [library.package]}})
    for name, detected in chosen.items():
        # NCCL and RCCL do not say for which GPUs they are
        variants = {"nccl": f"+cuda {gpu}", "rccl": gpu}.get(name, "")
        spec = " ".join(filter(None, [detected["spec"], variants, arch]))
        external = {"spec": spec, "prefix": detected["prefix"]}
        if name == "gcc":
            # on another machine Spack would ask the /usr/bin/gcc there for its C library: take
            # paths through a prefix that no other machine has
            programs = detected["extra_attributes"]["compilers"]
            prefix = os.path.realpath(interpreter["python"]["prefix"])
            if not prefix.startswith("/usr"):
                programs = {
                    language: os.path.join(prefix, os.path.relpath(path, prefix))
                    for language, path in programs.items()
                }
            external["extra_attributes"] = {"compilers": programs}
        if name == "nccl":
            version = parse(chosen["cuda"]["spec"]).versions
            external["dependencies"] = [{"spec": f"cuda@{version}"}]
        packages[name] = {"buildable": False, "externals": [external]}
    for name in gpu and externals.FRAMEWORKS.keys() & packages.keys():
        (external,) = packages[name]["externals"]
        # not every framework says for which GPUs it is
        if gpu.partition("=")[0] not in external["spec"]:
            external["spec"] += f" {gpu}"
    common = paths.ENVIRONMENTS / environment.SITES / "common" / "packages.yaml"
    shared, named = schema.read(common)["packages"], set()
    # the others at the prefix depend on these
    for name, entry in sorted(packages.items(), key=lambda item: item[0] not in ("python", "hip")):
        for external in entry.get("externals", []):
            modules = loaded.owners(external["prefix"])
            # Spack asks a compiler for its C library, and would stop where there are no modules
            if modules and name != "gcc" and modules not in named:
                external["modules"] = list(modules)
                # Spack 1.2.0 fails to load what it has just loaded:
                # https://github.com/spack/spack/pull/52752
                named.add(modules)
        if "buildable" in shared.get(name, {}):
            entry.pop("buildable", None)
    return dict(sorted(packages.items()))


def _hardware(target: str, gpu: str, model: str) -> Tuple[pathlib.PurePath, str]:
    """Return how to include the layer of such nodes, and its text if there is none yet."""
    require: List[Any] = [f"target={target}"]
    if gpu:
        when = "+cuda" if gpu.startswith("cuda_arch") else "+rocm"
        require.append({"spec": gpu, "when": when})
    content = {"packages": {"all": {"require": require}}}
    for base in paths.environments():
        for file in sorted(base.glob("hardware/*/packages.yaml")):
            if yaml.safe_load(file.read_text()) == content:
                return _include(base) / "hardware" / file.parent.name, ""
    model = re.sub(r"\W+", "_", (model or gpu.partition("=")[2]).lower())
    title = f"# {target} with {model}.\n" if gpu else f"# {target}.\n"
    name = f"{target}-{model}" if gpu else target
    text = title + yaml.safe_dump(content, sort_keys=False)
    return _include(paths.environments()[0]) / "hardware" / name, text


def _include(base: pathlib.Path) -> pathlib.PurePath:
    """Return how an environment includes what is below ``base``."""
    outside = base != paths.ENVIRONMENTS
    return pathlib.PurePath(f"${paths.SITES_VARIABLE}" if outside else ".checkout/environments")


def _dump(value: Any) -> str:
    text = yaml.safe_dump(value, sort_keys=False, default_flow_style=None, width=1000)
    # the second colon keeps out the compilers of the machine that solves
    return re.sub(r"^gcc:", "gcc::", text).rstrip()


def _write(files: Mapping[pathlib.Path, Mapping[str, str]], name: str, base: pathlib.Path) -> None:
    """Make these directories with their files, all of them or none."""
    with contextlib.ExitStack() as undo:
        try:
            for directory, contents in files.items():
                directory.mkdir(parents=True)
                undo.callback(shutil.rmtree, directory)
                for file, text in contents.items():
                    write_atomically(directory / file, text.encode())
            checkout = "../.." if base == paths.ENVIRONMENTS else paths.ROOT
            (base / f"{name}-hvd" / ".checkout").symlink_to(checkout)
        except OSError as error:
            raise HvdError(f"cannot write below {base}: {error}", "see that error") from error
        site.load(name)
        undo.pop_all()
