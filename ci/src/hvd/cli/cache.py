"""``./hvd cache``."""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from typing import Iterator, List, Optional

import rich.table
import typer

from hvd.build import pipeline
from hvd.build.engine_spack import SpackEngine, pair_of
from hvd.build.pipeline import Options
from hvd.cache import cache, keyring, transfer
from hvd.cli.common import (
    JobsOption,
    PackagesOption,
    PairOption,
    PythonOption,
    SpackOption,
    SpecOption,
    VerboseOption,
    WrapperOption,
    chosen,
)
from hvd.core import console, lock, paths, process
from hvd.core.errors import HvdError
from hvd.core.run import Run
from hvd.host import machine
from hvd.model import built, environment
from hvd.solve.spack import Sources

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
def push(
    name: str = _Environment,
    url: str = _Url,
    key: str = typer.Option(
        "", "--key", metavar="KEY", envvar="HVD_CACHE_KEY", show_default=False,
        help="Sign with this key of the keyring.  [default: the only one]",
    ),
    unsigned: bool = typer.Option(False, "--unsigned", help="Sign nothing: for oci://."),
    force: bool = typer.Option(
        False, "--force", help="Overwrite packages that the cache has."
    ),
    private: bool = typer.Option(
        False, "--private", help="Also push packages whose licence forbids redistribution."
    ),
    spack: str = SpackOption,
    packages: str = PackagesOption,
    verbose: bool = VerboseOption,
) -> None:  # fmt: skip
    """Push an environment's Spack packages, signed, and the public key."""
    subject = environment.load(name)
    wanted = cache.named(url, unsigned)
    built.check(built.find(name, "spack"), SpackEngine.digest(subject))
    signer = transfer.fingerprint(wanted, key)
    engine = SpackEngine(subject, Sources(spack, packages, pair=pair_of(subject)))
    with _located(engine, name, verbose) as run:
        with run.step("spack buildcache push") as task:
            transfer.push(engine.spack, subject, wanted, signer, task, force, private)
            task.say(wanted.url)
    console.note(f"signed with {signer}" if signer else "not signed")


@app.command()
def pull(
    name: str = _Environment,
    url: str = _Url,
    unsigned: bool = typer.Option(
        False, "--unsigned", help="Install packages without a signature."
    ),
    spec: str = SpecOption,
    jobs: int = JobsOption,
    python: str = PythonOption,
    spack: str = SpackOption,
    packages: str = PackagesOption,
    compiler_wrapper: str = WrapperOption,
    pair: str = PairOption,
    verbose: bool = VerboseOption,
) -> None:
    """Concretize an environment and install it from a cache instead of building.

    All of it or nothing: if a package is missing, or is not what a trusted key has signed,
    nothing is installed.
    """
    options = Options(
        engine="spack",
        sources=Sources(spack, packages, compiler_wrapper, pair),
        python=python,
        jobs=jobs or machine.cores(),
        verbose=verbose,
        cache=cache.named(url, unsigned),
    )
    pipeline.run(chosen(name, spec), options, last="build")


@app.command(name="list")
def list_packages(
    name: str = _Environment,
    url: str = _Url,
    unsigned: bool = typer.Option(False, "--unsigned", help="Do not require signatures."),
    verify: bool = typer.Option(
        False, "--verify", help="Fetch each package, and compare it with what was signed."
    ),
    spack: str = SpackOption,
    packages: str = PackagesOption,
    verbose: bool = VerboseOption,
) -> None:
    """List a concretized environment's packages and which of them the cache has.

    Exit status: 0 if all can be installed, 1 if not.
    """
    subject = environment.load(name)
    wanted = cache.named(url, unsigned)
    if not subject.lock.exists():
        raise HvdError(f"{name} has not been solved", f"solve it: ./hvd concretize {name}")
    engine = SpackEngine(subject, Sources(spack, packages, pair=pair_of(subject)))
    with _located(engine, name, verbose) as run:
        with run.step("signatures and checksums" if verify else "signatures") as task:
            mode = "verify" if verify else "look"
            found, _ = cache.contents(engine.spack, subject, wanted, task.log, mode)
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

    They are in a keyring of this checkout, or in SPACK_GNUPGHOME; never in ~/.gnupg.
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
def trust(
    wanted: str = typer.Argument(
        ..., metavar="FILE|FINGERPRINT", help="A public key, or the fingerprint of one."
    ),
    url: str = _Url,
    spack: str = SpackOption,
    packages: str = PackagesOption,
    pair: str = PairOption,
    verbose: bool = VerboseOption,
) -> None:
    """Trust a key, so that packages signed with it may be installed.

    With a whole fingerprint, which those who push tell you, the key comes from the cache.
    """
    process.adopt_orphans()
    if not keyring.is_fingerprint(wanted):
        _note_added(keyring.add(pathlib.Path(wanted).expanduser()))
        return
    fingerprint = wanted.replace(" ", "").upper()
    place = cache.named(url)
    subject = environment.load(environment.DEFAULT)
    engine = SpackEngine(subject, Sources(spack, packages, pair=pair))
    with _located(engine, "keys", verbose) as run:
        with run.step("keys of the cache") as task, tempfile.TemporaryDirectory() as scratch:
            file = pathlib.Path(scratch, "key")
            transfer.fetch_key(engine.spack, place, fingerprint, file, task.log)
            added = keyring.add(file, fingerprint)
    _note_added(added)


def _note_added(added: List[keyring.Key]) -> None:
    for each in added:
        use = "can sign" if each.secret else "is trusted"
        console.note(f"{each.fingerprint} of {each.owner} {use}")


@contextlib.contextmanager
def _located(engine: SpackEngine, name: str, verbose: bool) -> Iterator[Run]:
    """A run called ``name``, with this checkout's lock and the engine's Spack ready."""
    process.adopt_orphans()
    run = Run(name, "cache", verbose)
    with lock.exclusive(paths.STATE / "lock"), run.stage("cache"):
        with run.step("Spack and its packages") as task:
            engine.locate(task)
            engine.spack.configure(machine.cores())
        yield run
