"""``./hvd ci generate``: the child pipeline that builds what the binary cache lacks."""

from __future__ import annotations

import os
import pathlib
import urllib.parse
from typing import Any, Dict, List, Optional

import yaml

from hvd.build import pipeline
from hvd.build.engine_spack import SpackEngine
from hvd.build.pipeline import Options
from hvd.ci.gitlab import keys, merge, settings
from hvd.core import console, lock, paths, stamp
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.run import Run
from hvd.model import environment


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
        tags[name] = settings.tags(wanted)
    merged = merge.merge(pipelines, tags, parent())
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
    place = settings.directory(name)
    output = place / "spack.gitlab-ci.yml"
    run = Run(name, engine.name, options.verbose)
    with lock.exclusive(paths.state() / "lock"), run.stage("concretize"):
        with run.step("spack ci generate") as task:
            stamp.clear(place)
            directory = settings.write(engine.environment, url, sign)
            cache = urllib.parse.urlparse(url)
            if cache.scheme == "file" and not pathlib.Path(cache.path).is_dir():
                # Spack would go by its copy of a removed cache's index; outside an environment,
                # where no mirror is configured, it drops such copies
                engine.spack.run("buildcache", "list", log=task.log)
            command = ["-e", directory, "ci", "generate"]
            command += ["--output-file", output, "--artifacts-root", place]
            with keys.keyring(sign):
                done = engine.spack.run(*command, log=task.log, cwd=paths.ROOT, timeout=1800)
            pipeline = yaml.safe_load(output.read_text())
            if not isinstance(pipeline, dict):
                raise HvdError(f"{name}: Spack wrote no jobs", "see the log", task.log)
            built = [line for line in done.output.splitlines() if "[x]" in line]
            task.say(f"{len(built)} to build, {settings.MIRROR}: {url}")
    for line in built:
        console.note(line.partition("[x]")[2].strip())
    return pipeline
