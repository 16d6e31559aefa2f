"""``./hvd cache``."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import tempfile
from typing import Iterator, List, Optional, Tuple

import rich.table
import typer

from hvd.build import engine_spack, pipeline
from hvd.build.engine_spack import SpackEngine, pair_of
from hvd.build.pipeline import Options
from hvd.cache import cache, keyring, transfer
from hvd.cli.common import SOURCES, SpecOption, chosen, takes
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

_Environment = typer.Argument(
    environment.DEFAULT, metavar="ENV", help="Environment; see ./hvd list."
)
_Url = typer.Option(
    "", "--url", metavar="URL|DIR", envvar="HVD_CACHE", show_default=False,
    help="The cache: a directory, file://, https://, s3:// or oci://.",
)  # fmt: skip
_COLOURS = {"good": "green", "missing": "yellow"}


@app.command()
@takes("spack", "packages", "verbose")
def push(
    options: Options,
    name: str = _Environment,
    url: str = _Url,
    key: str = typer.Option(
        "", "--key", metavar="KEY", envvar="HVD_CACHE_KEY", show_default=False,
        help="Sign with this key of the keyring. \\[default: the only one]",
    ),
    unsigned: bool = typer.Option(False, "--unsigned", help="Sign nothing: for oci://."),
    force: bool = typer.Option(
        False, "--force", help="Overwrite packages that the cache has."
    ),
    private: bool = typer.Option(
        False, "--private", help="Also push packages whose licence forbids redistribution."
    ),
) -> None:  # fmt: skip
    """Push an environment's Spack packages, signed, and the public key."""
    subject = environment.load(name)
    wanted = cache.named(url, unsigned)
    built.check(built.find(name, "spack"), SpackEngine.digest(subject))
    signer = transfer.fingerprint(wanted, key)
    with _located(options, name, pair_of(subject)) as (located, run):
        with run.step("spack buildcache push") as task:
            transfer.push(located, subject, wanted, signer, task, force, private)
            task.say(wanted.url)
    console.note(f"signed with {signer}" if signer else "not signed")


@app.command()
@takes("jobs", "python", *SOURCES, "verbose")
def pull(
    options: Options,
    name: str = _Environment,
    url: str = _Url,
    unsigned: bool = typer.Option(
        False, "--unsigned", help="Install packages without a signature."
    ),
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
    name: str = _Environment,
    url: str = _Url,
    unsigned: bool = typer.Option(False, "--unsigned", help="Do not require signatures."),
    verify: bool = typer.Option(
        False, "--verify", help="Download each package, and verify signature and checksum."
    ),
) -> None:
    """List a concretized environment's packages and which of them the cache has.

    Exit status: 0 if all can be installed, 1 if not.
    """
    subject = environment.load(name)
    wanted = cache.named(url, unsigned)
    if not subject.lock.exists():
        raise HvdError(f"{name} has not been solved", f"solve it: ./hvd concretize {name}")
    with _located(options, name, pair_of(subject)) as (located, run):
        with run.step("signatures and checksums" if verify else "signatures") as task:
            mode = "verify" if verify else "look"
            found, _ = cache.contents(located, subject, wanted, task.log, mode)
    table = rich.table.Table(box=None, pad_edge=False, header_style="bold")
    for title in ("Package", "In the cache", "Here", "Signed by, or why not"):
        table.add_column(title, overflow="fold")
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
    name: str = typer.Option("", "--name", metavar="NAME", help="Make a key: the owner's name."),
    email: str = typer.Option("", "--email", metavar="ADDRESS", help="Make a key: the address."),
    add: Optional[pathlib.Path] = typer.Option(
        None, "--add", metavar="FILE", help="Import a secret key to sign with."
    ),
    export: Optional[pathlib.Path] = typer.Option(
        None, "--export", metavar="FILE", help="Write the public key, for those who pull."
    ),
    which: str = typer.Option("", "--key", metavar="KEY", help="The key to export."),
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
            transfer.fetch_key(located, place, fingerprint, file, task.log)
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
