"""The checks of GPUs: driver, toolkit, architectures."""

from __future__ import annotations

from typing import Iterable, Optional, Tuple

from hvd.doctor.model import Facts, Finding, State


def driver(facts: Facts) -> Finding:
    """Whether the CUDA driver is new enough for the toolkit."""
    check = "CUDA driver"
    skipped = _without_cuda(facts, check)
    if skipped:
        return skipped
    if facts.gpus.driver is None:
        return Finding(check, State.unknown, facts.gpus.reason, "ask on a node with a GPU")
    if not facts.toolkit:
        found = f"supports CUDA {_dotted(facts.gpus.driver)}; which CUDA it was built with is not"
        return Finding(check, State.unknown, f"{found} known")
    has, wants = facts.gpus.driver, _pair(facts.toolkit)
    found = f"supports CUDA {_dotted(has)}, built with {facts.toolkit}"
    if has >= wants:
        return Finding(check, State.ok, found)
    if has[0] == wants[0]:
        remedy = "a newer driver, or a toolkit of its version: kernels compiled as they load fail"
        return Finding(check, State.warn, found, remedy)
    return Finding(check, State.fail, found, "a newer driver, or build with an older toolkit")


def architectures(facts: Facts) -> Finding:
    """Whether Horovod and its framework were built for the GPUs that are here."""
    check = "GPU architectures"
    skipped = _without_cuda(facts, check)
    if skipped:
        return skipped
    built = facts.built.architectures
    found = f"Horovod: {' '.join(built) or 'none named'}"
    if facts.architectures:
        found += f"; framework: {' '.join(facts.architectures)}"
    if not facts.gpus.capabilities:
        reason = facts.gpus.reason or "the driver shows no GPU"
        return Finding(check, State.unknown, f"{found}; {reason}", "ask on a node with a GPU")
    here = sorted(set(facts.gpus.capabilities))
    found += f"; here: {' '.join(each.replace('.', '') for each in here)}"
    for whose, having in (("Horovod", built), ("the framework", facts.architectures)):
        missing = [each for each in here if having and not _runs_on(each, having)]
        if missing and whose == "Horovod":
            remedy = (
                f"build it with cuda_arch={','.join(each.replace('.', '') for each in missing)}"
            )
            return Finding(check, State.fail, found, remedy)
        if missing:
            return Finding(check, State.fail, found, "take a framework that is built for this GPU")
    if not built:
        return Finding(check, State.unknown, found, "name them: cuda_arch=80")
    return Finding(check, State.ok, found)


def _without_cuda(facts: Facts, check: str) -> Optional[Finding]:
    if facts.built.gpu == "rocm":
        return Finding(check, State.unknown, "built for ROCm, whose driver is not looked at")
    if facts.built.gpu != "cuda":
        return Finding(check, State.ok, "built without CUDA")
    return None


def _runs_on(capability: str, built: Iterable[str]) -> bool:
    """Whether code for one of ``built`` runs: the same major version, no later minor one.

    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#binary-compatibility
    """
    major, minor = capability.split(".")
    for each in built:
        digits = each.rstrip("af")
        lettered = digits != each
        if digits[:-1] == major and (digits[-1] == minor or (digits[-1] < minor and not lettered)):
            return True
    return False


def _pair(version: str) -> Tuple[int, int]:
    numbers = [int(part) for part in version.split(".")[:2]]
    return numbers[0], numbers[1] if len(numbers) > 1 else 0


def _dotted(version: Tuple[int, int]) -> str:
    return ".".join(map(str, version))
