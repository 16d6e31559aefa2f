"""Records of builds that there never were."""

from __future__ import annotations

from hvd.model import environment
from hvd.model.built import Built, Modification, Software


def record(**changes: object) -> Built:
    """What is written down of `local-hvd` built by pip; ``changes`` are fields otherwise."""
    fields = {
        "environment": environment.DEFAULT,
        "engine": "pip",
        "version": "0.28.1",
        "frameworks": {"pytorch": "2.13.0"},
        "controllers": ("gloo", "mpi"),
        "operations": ("gloo", "mpi"),
        "nccl_link": "",
        "gpu": "",
        "architectures": (),
        "gpu_mpi": False,
        "target": "x86_64_v3",
        "python": "3.11.7",
        "compiler": Software("gcc", "12.2.0"),
        "mpi": Software("openmpi", "4.1.8"),
        "changes": (Modification("prepend", "PATH", "/view/bin"),),
        "variables": {"PATH": "/view/bin:/usr/bin:/bin"},
        "modules": (),
        "inputs": {},
        "digest": "",
    }
    return Built(**{**fields, **changes})
