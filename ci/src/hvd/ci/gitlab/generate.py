"""``./hvd ci generate``: the child pipeline that builds what the binary cache lacks."""

from __future__ import annotations

import json
import os
import pathlib
import urllib.parse
from typing import Any, Dict, List, Mapping, Optional

import archspec.cpu
import yaml

from hvd.build import pipeline
from hvd.build.engine_spack import SpackEngine
from hvd.build.pipeline import Options
from hvd.ci.gitlab import keys
from hvd.core import console, lock, paths, stamp
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.run import Run
from hvd.model import environment, solution
from hvd.model.environment import EXTERNALS, HOROVOD, Environment

#: Spack's name for the mirror that jobs push to.
MIRROR = "buildcache-destination"
SMOKE = "smoke"
#: Keys of a pipeline that are no jobs, and the job that Spack adds if there is nothing to build.
_NO_JOBS = ("stages", "variables", "workflow", "no-specs-to-rebuild")
#: A failed build fails again; a failed runner may not.
_RETRY = {"max": 2, "when": ["runner_system_failure", "stuck_or_timeout_failure"]}


def generate(names: List[str], options: Options, cache: str, output: pathlib.Path) -> int:
    """Concretize environments and write the pipeline that builds and tests them.

    Args:
        names: environments.
        options: as for :func:`hvd.build.pipeline.run`.
        cache: URL or path of the binary cache; empty for one below the checkout.
        output: the pipeline's file.

    Returns:
        The number of packages to build.

    Raises:
        StageFailed: an environment has no solution, or Spack cannot generate jobs for it.
    """
    place = pathlib.Path(cache or paths.state() / "ci" / "cache")
    url = cache if "://" in cache else place.absolute().as_uri()
    sign = bool(keys.take())
    pipelines: Dict[str, Any] = {}
    tags: Dict[str, List[str]] = {}
    for name in names:
        wanted = environment.load(name)
        engine = pipeline.run(wanted, options, last="concretize").engine
        assert isinstance(engine, SpackEngine)
        pipelines[name] = _generated(engine, options, url, sign)
        tags[name] = runner_tags(wanted)
    merged = merge(pipelines, tags, parent())
    text = "# Made by ./hvd ci generate.\n" + yaml.safe_dump(merged, sort_keys=False)
    write_atomically(output, text.encode())
    return sum("variables" in job for job in merged.values() if isinstance(job, dict))


def parent() -> Optional[Dict[str, str]]:
    """Return this job if it is one of GitLab's: gitlab-ci-local has no child pipelines."""
    if os.environ.get("GITLAB_CI") != "true":
        return None
    return {"job": os.environ["CI_JOB_NAME"], "pipeline": os.environ["CI_PIPELINE_ID"]}


def _generated(engine: SpackEngine, options: Options, url: str, sign: bool) -> Dict[str, Any]:
    """Return the pipeline that Spack generates for one concretized environment."""
    name = engine.environment.name
    place = directory(name)
    output = place / "spack.gitlab-ci.yml"
    run = Run(name, engine.name, options.verbose)
    with lock.exclusive(paths.state() / "lock"), run.stage("concretize"):
        with run.step("spack ci generate") as task:
            stamp.clear(place)
            made = write(engine.environment, url, sign)
            cache = urllib.parse.urlparse(url)
            if cache.scheme == "file" and not pathlib.Path(cache.path).is_dir():
                # Spack would go by its copy of a removed cache's index; outside an environment,
                # where no mirror is configured, it drops such copies
                engine.spack.run("buildcache", "list", log=task.log)
            command = ["-e", made, "ci", "generate"]
            command += ["--output-file", output, "--artifacts-root", place]
            with keys.keyring(sign):
                done = engine.spack.run(*command, log=task.log, cwd=paths.ROOT, timeout=1800)
            pipeline = yaml.safe_load(output.read_text())
            if not isinstance(pipeline, dict):
                raise HvdError(f"{name}: Spack wrote no jobs", "see the log", task.log)
            built = [line for line in done.output.splitlines() if "[x]" in line]
            task.say(f"{len(built)} to build, {MIRROR}: {url}")
    for line in built:
        console.note(line.partition("[x]")[2].strip())
    return pipeline


def directory(name: str) -> pathlib.Path:
    """Return the directory of what the jobs of an environment hand on to one another."""
    return paths.state() / "ci" / name


def concrete(name: str) -> pathlib.Path:
    """Return the environment with its solution, as ``spack ci generate`` leaves it for jobs."""
    return directory(name) / "concrete_environment"


def runner_tags(environment: Environment) -> List[str]:
    """Return the tags of a runner: the site, the processor's family, ``gpu`` for CUDA or ROCm."""
    horovod = next(node for node in nodes(environment.lockfile) if node["name"] == HOROVOD)
    family = archspec.cpu.TARGETS[solution.target(horovod)].family.name
    found = [environment.site, family]
    if any(horovod["parameters"].get(stack) is True for stack in ("cuda", "rocm")):
        found.append("gpu")
    return [tag for tag in found if tag]


def write(environment: Environment, cache: str, sign: bool) -> pathlib.Path:
    """Write a concretized environment for ``spack ci generate``, and return its directory.

    Jobs look in and push to the binary mirror at the URL ``cache``; with ``sign``, they sign.
    """
    place = directory(environment.name) / "environment"
    command = f"./hvd ci rebuild {environment.name}"
    include = []
    for entry in environment.includes:
        file = pathlib.Path(os.path.realpath(environment.directory / entry))
        # externals are in the solution, and their file need not be on the runner
        optional = file.name == EXTERNALS
        include.append({"path": os.path.relpath(file, place), "optional": optional})
    content: Dict[str, Any] = {
        "specs": environment.specs,
        "include": include,
        "mirrors": {MIRROR: {"url": cache, "signed": sign, "binary": True, "source": False}},
        # its jobs check for all that Spack could bootstrap; nothing is downloaded
        "bootstrap": {"enable": True, "sources:": []},
        "ci": {
            "target": "gitlab",
            # ./hvd ci smoke does it, once there is something new
            "rebuild-index": False,
            # a colon replaces what Spack's own jobs do, which is for a Spack in the runner
            "pipeline-gen": [
                {"any-job": {"tags": runner_tags(environment)}},
                {"build-job": {"script:": [command]}},
            ],
        },
    }
    text = f"# {environment.name}, for spack ci; made by ./hvd ci generate\n"
    text += yaml.safe_dump({"spack": content}, sort_keys=False)
    write_atomically(place / "spack.yaml", text.encode())
    write_atomically(place / "spack.lock", environment.lockfile.read_bytes())
    return place


def merge(
    pipelines: Mapping[str, Mapping[str, Any]],
    tags: Mapping[str, List[str]],
    parent: Optional[Mapping[str, str]],
) -> Dict[str, Any]:
    """Return one pipeline with the jobs of all ``pipelines`` and a smoke test of each.

    Args:
        pipelines: what Spack generated, by environment.
        tags: the tags of each environment's runner.
        parent: ``job`` and ``pipeline`` that generates, whose artifacts every job takes; None
            if the jobs run in the same checkout.
    """
    artifacts = [dict(parent)] if parent else []
    stages: List[str] = []
    jobs: Dict[str, Any] = {}
    for name, generated in pipelines.items():
        builds: Dict[str, Any] = {}
        for title, job in generated.items():
            if title not in _NO_JOBS:
                before = [need["job"] for need in job["needs"] if "pipeline" not in need]
                builds[f"{name}: {title}"] = {
                    **job,
                    # those of the pipeline belong to one environment here
                    "variables": {**generated.get("variables", {}), **job.get("variables", {})},
                    "needs": [*(_need(f"{name}: {each}") for each in before), *artifacts],
                    "retry": _RETRY,
                }
        needed = {need["job"] for job in builds.values() for need in job["needs"]}
        jobs.update(builds)
        stages += [stage for stage in generated.get("stages", []) if stage not in stages]
        jobs[f"{name}: {SMOKE}"] = {
            "stage": SMOKE,
            "tags": list(tags[name]),
            "script": [f"./hvd ci smoke {name}"],
            # all other builds come before the last ones
            "needs": [*(_need(title) for title in builds if title not in needed), *artifacts],
            "retry": _RETRY,
            "artifacts": {
                "when": "always",
                "paths": [".hvd/reports/", ".hvd/logs/"],
                "reports": {"junit": f".hvd/reports/{name}-spack/junit.xml"},
            },
        }
    workflow = {"rules": [{"when": "always"}]}
    return {"workflow": workflow, "stages": [*stages, SMOKE], **jobs}


def _need(job: str) -> Dict[str, Any]:
    return {"job": job, "artifacts": False}


def nodes(lock: pathlib.Path) -> List[Dict[str, Any]]:
    """Return the concrete specs of a lock file.

    Raises:
        OSError: it cannot be read.
    """
    return list(json.loads(lock.read_text())["concrete_specs"].values())
