"""One pipeline out of those that Spack generates for several environments."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

SMOKE = "smoke"
#: Keys of a pipeline that are no jobs, and the job that Spack adds if there is nothing to build.
_NO_JOBS = ("stages", "variables", "workflow", "no-specs-to-rebuild")
#: A failed build fails again; a failed runner may not.
_RETRY = {"max": 2, "when": ["runner_system_failure", "stuck_or_timeout_failure"]}


def merge(
    pipelines: Mapping[str, Mapping[str, Any]],
    tags: Mapping[str, List[str]],
    parent: Optional[Mapping[str, str]],
) -> Dict[str, Any]:
    """Return one pipeline with the jobs of all ``pipelines`` and a smoke test of each.

    Args:
        pipelines: what Spack generated, by environment.
        tags: the tags of each environment's runner.
        parent: ``job`` and ``pipeline`` that generates, whose artifacts every job takes; None
            if the jobs run in the same checkout.
    """
    artifacts = [dict(parent)] if parent else []
    stages: List[str] = []
    jobs: Dict[str, Any] = {}
    for name, pipeline in pipelines.items():
        builds: Dict[str, Any] = {}
        for title, job in pipeline.items():
            if title not in _NO_JOBS:
                before = [need["job"] for need in job["needs"] if "pipeline" not in need]
                builds[f"{name}: {title}"] = {
                    **job,
                    # those of the pipeline belong to one environment here
                    "variables": {**pipeline.get("variables", {}), **job.get("variables", {})},
                    "needs": [*(_need(f"{name}: {each}") for each in before), *artifacts],
                    "retry": _RETRY,
                }
        needed = {need["job"] for job in builds.values() for need in job["needs"]}
        jobs.update(builds)
        stages += [stage for stage in pipeline.get("stages", []) if stage not in stages]
        jobs[f"{name}: {SMOKE}"] = {
            "stage": SMOKE,
            "tags": list(tags[name]),
            "script": [f"./hvd ci smoke {name}"],
            # all other builds come before the last ones
            "needs": [*(_need(title) for title in builds if title not in needed), *artifacts],
            "retry": _RETRY,
            "artifacts": {
                "when": "always",
                "paths": [".hvd/reports/", ".hvd/logs/"],
                "reports": {"junit": f".hvd/reports/{name}-spack/junit.xml"},
            },
        }
    workflow = {"rules": [{"when": "always"}]}
    return {"workflow": workflow, "stages": [*stages, SMOKE], **jobs}


def _need(job: str) -> Dict[str, Any]:
    return {"job": job, "artifacts": False}
