"""``./hvd cache``."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import tempfile
from typing import Iterator, List, Optional, Tuple

import typer

from hvd.build import engine_spack, pipeline
from hvd.build.engine_spack import pair_of
from hvd.build.pipeline import Options
from hvd.cache import cache, keyring
from hvd.cli.common import SOURCES, EnvironmentArgument, SpecOption, chosen, flag, option, takes
from hvd.core import console, lock, paths, process
from hvd.core.errors import HvdError
from hvd.core.run import Run
from hvd.host import machine
from hvd.model import built, environment
from hvd.solve.spack import Spack

app = typer.Typer(
    help="Push what was built to a signed binary cache, and install from one.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_Url = option(
    "--url URL|DIR",
    "The cache: a directory, file://, https://, s3:// or oci://.",
    envvar="HVD_CACHE",
)
_COLOURS = {"good": "green", "missing": "yellow"}


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
    """Push an environment's Spack packages, signed, and the public key."""
    subject = environment.load(name)
    wanted = cache.named(url, unsigned)
    built.find_current(name, "spack")
    signer = cache.fingerprint(wanted, key)
    with _located(options, name, pair_of(subject)) as (located, run):
        with run.step("spack buildcache push") as task:
            cache.push(located, subject, wanted, signer, task, force, private)
            task.say(wanted.url)
    console.note(f"signed with {signer}" if signer else "not signed")


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

    All of it or nothing: if a package is missing, or is not what a trusted key has signed,
    nothing is installed.
    """
    options = dataclasses.replace(options, engine="spack", cache=cache.named(url, unsigned))
    pipeline.run(chosen(name, spec), options, last="build")


@app.command(name="list")
@takes("spack", "packages", "verbose")
def list_packages(
    options: Options,
    name: str = EnvironmentArgument,
    url: str = _Url,
    unsigned: bool = flag("--unsigned", "Do not require signatures."),
    verify: bool = flag("--verify", "Download each package, and verify signature and checksum."),
) -> None:
    """List a concretized environment's packages and which of them the cache has.

    Exit status: 0 if all can be installed, 1 if not.
    """
    subject = environment.load(name)
    wanted = cache.named(url, unsigned)
    if not subject.lockfile.exists():
        raise HvdError(f"{name} has not been solved", f"solve it: ./hvd concretize {name}")
    with _located(options, name, pair_of(subject)) as (located, run):
        with run.step("signatures and checksums" if verify else "signatures") as task:
            mode = "verify" if verify else "look"
            found, _ = cache.contents(located, subject, wanted, task.log, mode)
    table = console.table("Package", "In the cache", "Here", "Signed by, or why not")
    for each in found:
        colour = _COLOURS.get(each.state, "red")
        here = "installed" if each.installed else ""
        detail = "" if each.state == "missing" else each.detail.partition("\n")[0]
        detail = detail[-16:] if keyring.is_fingerprint(detail) else detail
        table.add_row(str(each), f"[{colour}]{each.state}[/]", here, detail)
    console.out.print(table)
    raise typer.Exit(0 if all(each.state == "good" for each in found) else 1)


@app.command()
def key(
    name: str = option("--name NAME", "Make a key: the owner's name."),
    email: str = option("--email ADDRESS", "Make a key: the address."),
    add: Optional[pathlib.Path] = option("--add FILE", "Import a secret key to sign with.", None),
    export: Optional[pathlib.Path] = option(
        "--export FILE", "Write the public key, for those who pull.", None
    ),
    which: str = option("--key KEY", "The key to export."),
) -> None:
    """Make, import, export or list signing keys.

    Keys are kept in this checkout's keyring, or in SPACK_GNUPGHOME; never in ~/.gnupg.
    """
    process.adopt_orphans()
    if (name or email) and add:
        raise HvdError("--name and --add exclude each other", "make a key, or import one")
    if name or email:
        console.note(f"made {keyring.create(name, email).fingerprint}")
    if add:
        _note_added(keyring.add(add.expanduser()))
    if export:
        wanted = keyring.signing(which)
        keyring.export(wanted.fingerprint, export.expanduser())
        console.note(f"{paths.shorten(export)}: {wanted.fingerprint}")
    if not (name or email or add or export):
        for each in keyring.keys():
            use = "signs" if each.secret else "trusted"
            console.out.print(f"{each.fingerprint}  {use:<8}{each.owner}", markup=False)


@app.command()
@takes("spack", "packages", "pair", "verbose")
def trust(
    options: Options,
    wanted: str = typer.Argument(
        ..., metavar="FILE|FINGERPRINT", help="A public key, or the fingerprint of one."
    ),
    url: str = _Url,
) -> None:
    """Trust a key, so that packages signed with it may be installed.

    Given a full fingerprint, which you get from the people who push, the key comes from the
    cache.
    """
    process.adopt_orphans()
    if not keyring.is_fingerprint(wanted):
        _note_added(keyring.add(pathlib.Path(wanted).expanduser()))
        return
    fingerprint = wanted.replace(" ", "").upper()
    place = cache.named(url)
    with _located(options, "keys", options.sources.pair) as (located, run):
        with run.step("keys of the cache") as task, tempfile.TemporaryDirectory() as scratch:
            file = pathlib.Path(scratch, "key")
            cache.fetch_key(located, place, fingerprint, file, task.log)
            added = keyring.add(file, fingerprint)
    _note_added(added)


def _note_added(added: List[keyring.Key]) -> None:
    for each in added:
        use = "can sign" if each.secret else "is trusted"
        console.note(f"{each.fingerprint} of {each.owner} {use}")


@contextlib.contextmanager
def _located(options: Options, name: str, pair: str) -> Iterator[Tuple[Spack, Run]]:
    """Yield Spack of ``pair``, configured, and a run called ``name``, under the lock."""
    process.adopt_orphans()
    run = Run(name, "cache", options.verbose)
    with lock.exclusive(paths.state() / "lock"), run.stage("cache"):
        with run.step("Spack and its packages") as task:
            sources = dataclasses.replace(options.sources, pair=pair)
            spack = engine_spack.locate(sources, task)
            spack.configure(machine.cores())
        yield spack, run
