"""Print what a Python interpreter has, as JSON for ``hvd.host.externals``.

Any interpreter may run this file, so that it needs the standard library of Python 3.6 and nothing
else.
"""

import importlib.util
import json
import os
import sys
import sysconfig

try:
    from importlib import metadata
except ImportError:  # Python 3.6 and 3.7
    metadata = None


def distributions():
    """Version and place of every distribution that this interpreter can import."""
    if metadata is not None:
        all_ = [
            (d.metadata["Name"], d.version, d.locate_file("")) for d in metadata.distributions()
        ]
    else:
        import pkg_resources

        all_ = [(d.project_name, d.version, d.location) for d in pkg_resources.working_set]
    found = {}
    for name, version, directory in all_:
        if name:
            directory = os.path.abspath(str(directory))
            place = {"prefix": prefix_of(directory), "directory": directory, "version": version}
            found.setdefault(name.lower().replace("_", "-"), place)
    return found


def prefix_of(directory):
    """The prefix that ``directory`` belongs to: .../lib/python3.11/site-packages."""
    while os.path.basename(directory) not in ("lib", "lib64", ""):
        directory = os.path.dirname(directory)
    return os.path.dirname(directory) if os.path.basename(directory) else ""


def torch():
    """CUDA, ROCm and the GPU architectures that PyTorch was built for."""
    import torch

    architectures = []
    # without a GPU torch.cuda.get_arch_list() is empty; this is what it reads
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    if flags:
        architectures = sorted({arch.split("_")[-1] for arch in flags.split()})
    return {
        "cuda": torch.version.cuda,
        "rocm": getattr(torch.version, "hip", None),
        "architectures": architectures,
        "mpi": bool(torch.distributed.is_available() and torch.distributed.is_mpi_available()),
        "gloo": bool(
            torch.distributed.is_available()
            and getattr(torch.distributed, "is_gloo_available", lambda: False)()
        ),
        "distributed": torch.distributed.is_available(),
    }


def tensorflow():
    """CUDA and ROCm versions and the compute capabilities that TensorFlow was built for."""
    import tensorflow

    if not hasattr(tensorflow.sysconfig, "get_build_info"):  # before 2.3
        # it does not say which version it was built with
        cuda = "unknown" if tensorflow.test.is_built_with_cuda() else None
        return {"cuda": cuda, "rocm": None, "architectures": []}
    build = tensorflow.sysconfig.get_build_info()
    return {
        "cuda": build.get("cuda_version") if build.get("is_cuda_build") else None,
        # wheels for ROCm do not say the version
        "rocm": build.get("rocm_version", "unknown") if build.get("is_rocm_build") else None,
        "architectures": [
            capability.split("_")[-1] for capability in build.get("cuda_compute_capabilities", [])
        ],
    }


def mxnet():
    """Return whether MXNet was built with each of CUDA, cuDNN and NCCL."""
    import mxnet

    features = mxnet.runtime.Features()
    return {name: features.is_enabled(name.upper()) for name in ("cuda", "cudnn", "nccl")}


def main():
    report = {
        "python": {
            "version": ".".join(str(part) for part in sys.version_info[:3]),
            "prefix": sys.prefix,
            "platlib": sysconfig.get_paths()["platlib"],
            "base_prefix": getattr(sys, "base_prefix", sys.prefix),
            "executable": sys.executable,
            "header": os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")),
            "shared": bool(sysconfig.get_config_var("Py_ENABLE_SHARED")),
        },
        "distributions": distributions(),
        "frameworks": {},
        "broken": {},
    }
    for name, ask in (("torch", torch), ("tensorflow", tensorflow), ("mxnet", mxnet)):
        # by module: tensorflow comes as tensorflow-cpu and under other names as well
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.origin:
            continue
        try:
            report["frameworks"][name] = ask()
        except Exception as error:  # a broken installation may raise anything
            report["broken"][name] = f"{type(error).__name__}: {error}"
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
