"""Write the files of a new site: packages.yaml, site.yaml and an environment."""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
import re
import shutil
import tempfile
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import cattrs
import yaml

from hvd.core import paths, schema, templates
from hvd.core.errors import HvdError, nearest
from hvd.core.files import write_atomically
from hvd.docs import site_page
from hvd.host import externals, machine
from hvd.model import environment, recipe, site
from hvd.model.site import Partition
from hvd.solve.spack import Spack
from hvd.survey import schedulers, software
from hvd.survey.record import Record
from hvd.survey.schedulers import Found, Kind

#: GPU models, as schedulers name them, to the variant of Spack that stands for them:
#: https://developer.nvidia.com/cuda-gpus, and "GPU hardware specifications" of ROCm's documents.
_GPUS = {
    "v100": "cuda_arch=70",
    "t4": "cuda_arch=75",
    **dict.fromkeys(("a100", "a30"), "cuda_arch=80"),
    **dict.fromkeys(("a40", "a10", "a6000"), "cuda_arch=86"),
    **dict.fromkeys(("l4", "l40", "l40s"), "cuda_arch=89"),
    **dict.fromkeys(("h100", "h200", "gh200"), "cuda_arch=90"),
    **dict.fromkeys(("b200", "gb200"), "cuda_arch=100"),
    **dict.fromkeys(("mi210", "mi250", "mi250x"), "amdgpu_target=gfx90a"),
    **dict.fromkeys(("mi300a", "mi300x"), "amdgpu_target=gfx942"),
}
#: For the variant of a GPU: Horovod's variants, the operations, and the packages that they need.
_STACKS: Dict[str, Tuple[str, str, Tuple[str, ...]]] = {
    "": ("~cuda~rocm", "cpu", ()),
    "cuda_arch": ("+nccl+cuda~rocm", "nccl", software.CUDA),
    "amdgpu_target": ("+nccl~cuda+rocm", "rccl", software.ROCM),
}
_FRAMEWORKS = {"torch": "pytorch", "tensorflow": "tensorflow"}
_INTERACTIVE = {"slurm": "salloc", "pbs": "qsub", "lsf": "bsub"}
_CONVERTER = cattrs.Converter(omit_if_default=True)


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The words of the command line."""

    name: str
    center: str
    modules: Tuple[str, ...] = ()
    python: str = "python3"
    partition: str = ""  #: that of the environment; the scheduler's default where empty
    target: str = ""  #: processor of its nodes, by archspec's name; this node's where empty
    gpu: str = ""  #: such as ``cuda_arch=80``; by the model that the scheduler names where empty


def make(wanted: Wanted, record: Record, spack: Spack, log: pathlib.Path) -> List[pathlib.Path]:
    """Ask the machine, and write the files of the site and of its environment.

    Returns:
        The directories that were made.

    Raises:
        HvdError: the site is there already, or the machine lacks something.
    """
    base = paths.environments()[0]
    refuse(wanted.name, base)
    found = schedulers.find(record)
    kind = _kind(found, wanted.partition)
    loaded = software.load(record, wanted.modules)
    python = shutil.which(wanted.python, path=loaded.variables.get("PATH")) or wanted.python
    interpreter = externals.ask(python, loaded.variables)
    frameworks = {k: v for k, v in interpreter["frameworks"].items() if k in _FRAMEWORKS}
    record.add(f"{python}: what it has", yaml.safe_dump({**interpreter["python"], **frameworks}))
    if not frameworks:
        raise HvdError(
            f"{python} has neither PyTorch nor TensorFlow",
            "name its module with --module, or another interpreter with --python",
        )
    on_gpus = any(each["cuda"] or each["rocm"] for each in frameworks.values())
    gpu = _gpu(kind, wanted.gpu) if on_gpus and kind.partition.gpus else ""
    variants, operations, stack = _STACKS[gpu.partition("=")[0]]
    detected = software.detect(record, spack, loaded.hints(), software.DETECTABLE, log)
    chosen = software.choose(detected, loaded.hints())
    library = software.find_mpi(chosen, loaded.variables)
    needed = [*software.TOOLS, library.package if library else "MPI", *stack]
    for name in needed:
        if name not in chosen and (library is None or name != library.package):
            raise HvdError(f"no {name} is found", "name the module that has it with --module")
    chosen = {name: chosen[name] for name in needed if name in chosen}
    system = spack.run("arch", "--operating-system", log=log).output.split()[-1]
    record.add("spack arch --operating-system", system)
    target = wanted.target or machine.processor()
    hardware, layer = _hardware(target, gpu, kind.partition.gpu)
    newest = next(iter(recipe.load(environment.HOROVOD).versions()))
    names = ",".join(sorted(_FRAMEWORKS[each] for each in frameworks))
    launcher, mpi_type = _launcher(found, library.package)
    today = datetime.date.today().isoformat()
    context = {
        **vars(wanted),
        **dict(today=today, found=found, partition=kind.queue, operations=operations),
        **dict(launcher=launcher, mpi_type=mpi_type, interactive=_INTERACTIVE[found.scheduler]),
        **dict(modules=list(loaded.needs), tool=_tool(record, wanted.modules)),
        **dict(described=_described, dump=_dump, own=_include(base), hardware=hardware),
        "packages": software.section(interpreter, chosen, library, loaded, system, gpu),
        "root": f"{environment.HOROVOD}@{newest} +mpi+gloo{variants} frameworks:={names} "
        f"os={system} target={target}",
    }
    files = {
        base / environment.SITES / wanted.name: {
            "packages.yaml": _render("packages.yaml", context),
            site.SITE: _render(site.SITE, context),
            f"sources/{today}.txt": record.text(),
        },
        base / f"{wanted.name}-hvd": {"spack.yaml": _render("spack.yaml", context)},
        **({base / "hardware" / hardware.name: {"packages.yaml": layer}} if layer else {}),
    }
    done = _write(files, base)
    page = site_page.PAGES / f"{wanted.name}.md"
    if base == paths.ENVIRONMENTS and not page.exists():
        marks = f"{site_page.BEGIN}\n{site_page.END}"
        write_atomically(page, f"# {wanted.name}\n\n{marks}\n".encode())
    return done


def refuse(name: str, base: pathlib.Path) -> None:
    """Refuse a name that is not one, or that something has.

    Raises:
        HvdError: it does.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise HvdError(f"'{name}' is no site's name", "use lower-case letters, digits and -")
    for path in (base / environment.SITES / name, base / f"{name}-hvd"):
        if path.exists():
            raise HvdError(
                f"{paths.shorten(path)} is there already, and stays as it is",
                f"compare it with the machine (./hvd site check {name}), or choose another name",
            )


def _kind(found: Found, partition: str) -> Kind:
    queues = found.queues()
    wanted = partition or found.default
    if wanted not in queues:
        problem = f"there is no queue '{wanted}'" if wanted else "no queue is the default"
        raise HvdError(f"--partition: {problem}", nearest(wanted, queues))
    return queues[wanted][0]


def _gpu(kind: Kind, given: str) -> str:
    """Return the variant for the GPUs of the nodes.

    Raises:
        HvdError: it is not known.
    """
    words = re.split(r"[^a-z0-9]", kind.partition.gpu.lower())
    known = next((_GPUS[word] for word in words if word in _GPUS), "")
    if not given and not known:
        raise HvdError(
            f"the GPUs of {kind.queue} are called '{kind.partition.gpu}', which names no model",
            "name their architecture: --gpu cuda_arch=80, or --gpu amdgpu_target=gfx90a",
        )
    if given and given.partition("=")[0] not in _STACKS:
        raise HvdError(f"--gpu: '{given}' is no variant for GPUs", "for example: cuda_arch=80")
    return given or known


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


def _launcher(found: Found, library: str) -> Tuple[str, str]:
    """Return srun and its --mpi if that is not the default, or else the MPI's own launcher."""
    fitting = schedulers.PMI.get(library, ())
    if any(found.mpi_default.startswith(each) for each in fitting):
        return "srun", ""
    return next((("srun", each) for each in fitting if each in found.mpi_types), ("mpirun", ""))


def _tool(record: Record, modules: Sequence[str]) -> str:
    if not modules:
        return "none"
    return "lmod" if "Lua" in record.module("--version") else "tcl"


def _described(partition: Partition) -> Dict[str, Any]:
    """Return a partition as site.yaml has it."""
    return {k: v for k, v in _CONVERTER.unstructure(partition).items() if k != "name"}


def _dump(value: Any) -> str:
    text = yaml.safe_dump(value, sort_keys=False, default_flow_style=None, width=1000)
    # the second colon keeps out the compilers of the machine that solves
    return re.sub(r"^gcc:", "gcc::", text).rstrip()


def _render(name: str, context: Mapping[str, Any]) -> str:
    return templates.environment().get_template(f"survey/{name}.j2").render(context)


def _include(base: pathlib.Path) -> pathlib.PurePath:
    """Return how an environment includes what is below ``base``."""
    outside = base != paths.ENVIRONMENTS
    return pathlib.PurePath(f"${paths.SITES_VARIABLE}" if outside else ".checkout/environments")


def _write(
    files: Mapping[pathlib.Path, Mapping[str, str]], base: pathlib.Path
) -> List[pathlib.Path]:
    """Make these directories with their files, all of them or none.

    Raises:
        HvdError: site.yaml is not valid, or something cannot be written.
    """
    done: List[pathlib.Path] = []
    try:
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=base, prefix=".new-") as scratch:
            made = [pathlib.Path(scratch, str(number)) for number in range(len(files))]
            for directory, contents in zip(made, files.values()):
                for name, text in contents.items():
                    write_atomically(directory / name, text.encode())
                if site.SITE in contents:
                    schema.load(directory / site.SITE, site.SCHEMA)
                if "spack.yaml" in contents:
                    inside = base == paths.ENVIRONMENTS
                    (directory / ".checkout").symlink_to("../.." if inside else paths.ROOT)
            for directory, place in zip(made, files):
                place.parent.mkdir(exist_ok=True)
                os.rename(directory, place)
                done.append(place)
    except OSError as error:
        for place in done:
            shutil.rmtree(place)
        raise HvdError(f"cannot write below {base}: {error}", "make room for it there") from error
    return done
