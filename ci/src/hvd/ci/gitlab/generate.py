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


def default_cache() -> str:
    """The binary cache where none is named: below the checkout, for this runner alone."""
    return (paths.STATE / "ci" / "cache").as_uri()


def generate(names: List[str], options: Options, cache: str, output: pathlib.Path) -> int:
    """Solve the environments ``names`` and write the pipeline that builds and tests them.

    Args:
        names: of environments.
        options: as for :func:`hvd.build.pipeline.run`.
        cache: URL of the binary cache, or a path.
        output: the file for GitLab.

    Returns:
        How many packages are to be built.

    Raises:
        StageFailed: an environment has no solution, or Spack cannot generate jobs for it.
    """
    url = cache if "://" in cache else pathlib.Path(cache).absolute().as_uri()
    sign = bool(keys.take())
    found: Dict[str, Any] = {}
    tags: Dict[str, List[str]] = {}
    for name in names:
        wanted = environment.load(name)
        engine = pipeline.run(wanted, options, last="concretize").engine
        assert isinstance(engine, SpackEngine)
        found[name] = _of(engine, options, url, sign)
        tags[name] = settings.tags(wanted)
    merged = merge.merge(found, tags, parent())
    text = "# Made by ./hvd ci generate.\n" + yaml.safe_dump(merged, sort_keys=False)
    write_atomically(output, text.encode())
    return sum("variables" in job for job in merged.values() if isinstance(job, dict))


def parent() -> Optional[Dict[str, str]]:
    """This job, where it is one of GitLab's: gitlab-ci-local has no child pipelines."""
    if os.environ.get("GITLAB_CI") != "true":
        return None
    return {"job": os.environ["CI_JOB_NAME"], "pipeline": os.environ["CI_PIPELINE_ID"]}


def _begin(engine: SpackEngine, url: str, log: pathlib.Path) -> None:
    """Forget what was in a binary cache on a disk that is not there any more.

    Spack keeps a copy of each index, and would go by it.  It drops those of mirrors that are not
    configured, as none is outside of the environment.
    """
    place = pathlib.Path(urllib.parse.urlparse(url).path)
    if url.startswith("file:") and not place.is_dir():
        engine.spack.run("buildcache", "list", log=log)


def _of(engine: SpackEngine, options: Options, url: str, sign: bool) -> Dict[str, Any]:
    """What Spack generates for one environment that is solved."""
    name = engine.environment.name
    place = settings.directory(name)
    run = Run(name, engine.name, options.verbose)
    with lock.exclusive(paths.STATE / "lock"), run.stage("concretize"):
        with run.step("spack ci generate") as task:
            stamp.clear(place)
            directory = settings.write(engine.environment, url, sign)
            output = place / "spack.gitlab-ci.yml"
            arguments = ["ci", "generate", "--output-file", output, "--artifacts-root", place]
            _begin(engine, url, task.log)
            with keys.keyring(sign):
                done = engine.spack.run(
                    *("-e", directory, *arguments), log=task.log, cwd=paths.ROOT, timeout=1800
                )
            generated = yaml.safe_load(output.read_text())
            if not isinstance(generated, dict):
                raise HvdError(f"{name}: Spack wrote no jobs", "see the log", task.log)
            built = [line for line in done.output.splitlines() if "[x]" in line]
            task.say(f"{len(built)} to build, {settings.MIRROR}: {url}")
    for line in built:
        console.note(line.partition("[x]")[2].strip())
    return generated
