"""One pipeline out of those that Spack generates for several environments."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

#: The stage that comes after all builds.
SMOKE = "smoke"
#: Keys of a pipeline that are no jobs.
_GLOBAL = ("stages", "variables", "workflow")
#: The job that Spack puts where nothing is to be built.
_NOTHING = "no-specs-to-rebuild"
#: A recipe that does not build does not build a second time; a runner may.
_RETRY = {"max": 2, "when": ["runner_system_failure", "stuck_or_timeout_failure"]}


def merge(
    pipelines: Mapping[str, Mapping[str, Any]],
    tags: Mapping[str, List[str]],
    parent: Optional[Mapping[str, str]],
) -> Dict[str, Any]:
    """The pipeline with the jobs of all ``pipelines`` and a smoke test of each.

    Args:
        pipelines: what Spack generated, by environment.
        tags: of the runner of each environment.
        parent: ``job`` and ``pipeline`` that generates, whose artifacts every job takes; None
            where the jobs run beside what was generated.
    """
    stages: List[str] = []
    jobs: Dict[str, Any] = {}
    for name, pipeline in pipelines.items():
        built = _builds(name, pipeline, parent)
        needed = {need["job"] for job in built.values() for need in job["needs"]}
        stages += [stage for stage in pipeline.get("stages", []) if stage not in stages]
        jobs.update(built)
        jobs[f"{name}: {SMOKE}"] = {
            "stage": SMOKE,
            "tags": list(tags[name]),
            "script": [f"./hvd ci smoke {name}"],
            # the last builds, which all others come before
            "needs": _needs([job for job in built if job not in needed], parent),
            "retry": _RETRY,
            "artifacts": {
                "when": "always",
                "paths": [".hvd/reports/", ".hvd/logs/"],
                "reports": {"junit": f".hvd/reports/{name}-spack/junit.xml"},
            },
        }
    workflow = {"rules": [{"when": "always"}]}
    return {"workflow": workflow, "stages": [*stages, SMOKE], **jobs}


def _builds(
    name: str, pipeline: Mapping[str, Any], parent: Optional[Mapping[str, str]]
) -> Dict[str, Dict[str, Any]]:
    """The jobs that build, with names and variables of their environment."""
    found = {}
    for title, job in pipeline.items():
        if title in _GLOBAL or title == _NOTHING:
            continue
        before = [need["job"] for need in job["needs"] if "pipeline" not in need]
        found[f"{name}: {title}"] = {
            **job,
            "variables": {**pipeline.get("variables", {}), **job.get("variables", {})},
            "needs": _needs([f"{name}: {each}" for each in before], parent),
            "retry": _RETRY,
        }
    return found


def _needs(jobs: List[str], parent: Optional[Mapping[str, str]]) -> List[Dict[str, Any]]:
    needs: List[Dict[str, Any]] = [{"job": job, "artifacts": False} for job in jobs]
    return needs + ([dict(parent)] if parent else [])
