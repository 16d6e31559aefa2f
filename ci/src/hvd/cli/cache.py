"""``./hvd cache``."""

from __future__ import annotations

import dataclasses

from hvd.cli.common import (
    SOURCES,
    EnvironmentArgument,
    SpecOption,
    chosen,
    flag,
    group,
    option,
    takes,
)
from hvd.core import lock, paths, process
from hvd.core.options import Options
from hvd.core.run import Run
from hvd.deliver import cache
from hvd.engines import engine_spack, pipeline
from hvd.engines.engine_spack import pair_of
from hvd.host import machine
from hvd.model import built, environment

app = group("Push what was built to a signed binary cache, and install from one.")

_Url = option(
    "--url URL|DIR",
    "The cache: a directory, file://, https://, s3:// or oci://.",
    envvar="HVD_CACHE",
)


@app.command()
@takes("spack", "packages", "verbose")
def push(
    options: Options,
    name: str = EnvironmentArgument,
    url: str = _Url,
    key: str = option(
        "--key KEY",
        "Sign with this key of the keyring. \\[default: the only one]",
        envvar="HVD_CACHE_KEY",
    ),
    unsigned: bool = flag("--unsigned", "Sign nothing: for oci://."),
    force: bool = flag("--force", "Overwrite packages that the cache has."),
    private: bool = flag("--private", "Also push packages whose licence forbids redistribution."),
) -> None:
    """Push an environment's Spack packages, signed, and the public key.

    Make a key once: . .hvd/setup-env.sh && spack gpg create NAME ADDRESS
    """
    subject = environment.load(name)
    target = cache.named(url, unsigned)
    built.find_current(name, "spack")
    process.adopt_orphans()
    run = Run(name, "cache", options.verbose)
    with lock.exclusive(paths.state() / "lock"), run.stage("cache"):
        with run.step("Spack and its packages") as task:
            sources = dataclasses.replace(options.sources, pair=pair_of(subject))
            spack = engine_spack.locate(sources, task)
            spack.configure(machine.cores())
        with run.step("spack buildcache push") as task:
            cache.push(spack, subject, target, key, task, force, private)
            task.say(target.url)


@app.command()
@takes("jobs", "python", *SOURCES, "verbose")
def pull(
    options: Options,
    name: str = EnvironmentArgument,
    url: str = _Url,
    unsigned: bool = flag("--unsigned", "Install packages without a signature."),
    spec: str = SpecOption,
) -> None:
    """Concretize an environment and install it from a cache instead of building.

    If a package is missing, or is not what a trusted key has signed, nothing is installed. Trust
    a key once: . .hvd/setup-env.sh && spack gpg trust FILE
    """
    options = dataclasses.replace(options, engine="spack", cache=cache.named(url, unsigned))
    pipeline.run(chosen(name, spec), options, last="build")
