"""Environments that are built for the commands that come after a build, and for them alone."""

from __future__ import annotations

import pathlib
from typing import Optional

from hvd.build.engine_pip import PipEngine
from hvd.model import built, environment
from hvd.model.built import Built, Modification
from tests import builds
from tests.checkout import script


def pretend(spec: str = "", name: str = environment.DEFAULT, **changes: object) -> Built:
    """Let an environment be built by pip, as far as `./hvd publish` can see.

    Args:
        spec: as with ``--spec``.
        name: the environment, or the one to derive it from.
        changes: fields of :class:`Built` that are otherwise.
    """
    chosen = environment.load(name)
    chosen = environment.derive(chosen, spec) if spec else chosen
    engine = PipEngine(chosen)
    programs = engine.venv / "bin"
    script(programs / "horovodrun", f"echo {chosen.name}")
    (engine.directory / "stamp").write_text(chosen.name)
    fields = {
        "environment": chosen.name,
        "changes": (Modification("prepend", "PATH", str(programs)),),
        "digest": built.digest(chosen, "pip"),
        **changes,
    }
    done = builds.record(**fields)
    built.save(done)
    return done


def snapshot(root: pathlib.Path) -> dict:
    """All that is below ``root``: mode, and content or target, by path; but for the lock."""
    return {
        path.relative_to(root).as_posix(): (path.lstat().st_mode, _content(path))
        for path in sorted(root.rglob("*"))
        if path.name != ".lock"
    }


def _content(path: pathlib.Path) -> Optional[object]:
    if path.is_symlink():
        return str(path.readlink())
    return path.read_bytes() if path.is_file() else None
