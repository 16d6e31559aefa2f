"""The patches of every version apply, and what some of them change in sources."""

import ast
import collections
import os
import re
from unittest import mock

import pytest

from hvd.model import recipe, specs

VERSIONS = list(recipe.load("py-horovod").versions())

#: A selection that asks for every patch; the version is put in front.
EVERYTHING = (
    "+mpi+gloo+nccl+cuda+rocm+ddl frameworks=pytorch,tensorflow,keras target=neoverse_v2 "
    "^py-tensorflow@2.20 ^py-torch@2.14"
)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_patches_of_every_version_apply(horovod_tree, version):
    horovod_tree(version, EVERYTHING)


def test_no_patch_is_left_out_of_that(py_horovod):
    asked = {
        patch
        for version in VERSIONS
        for patch in py_horovod.patches(specs.parse(f"py-horovod@{version} {EVERYTHING}"))
    }
    assert {patch.name for patch in asked} == {
        patch.name for patch in (py_horovod.directory / "patches").glob("*.patch")
    }


#: A full specialization of a function template that each object would define for itself.
DEFINED_TWICE = re.compile(
    r"^template<>\s+EIGEN_DEVICE_FUNC (?!.*\b(?:EIGEN_STRONG_INLINE|inline)\b).*\{$", re.MULTILINE
)


@pytest.mark.parametrize("version", ["0.21.0", "0.23.0", "0.25.0"])
def test_eigen_for_arm_is_defined_once(horovod_tree, version):
    """eigen.patch; `nm -C` of an object made with -march=armv8.2-a+fp16 shows the same one."""
    found = []
    for target in ("x86_64", "neoverse_v2"):
        tree = horovod_tree(version, f"target={target}")
        headers = (tree / "third_party/eigen/Eigen/src/Core/arch/NEON").glob("*.h")
        found.append([m[0] for h in headers for m in DEFINED_TWICE.finditer(h.read_text())])
    for_others, for_arm = found
    assert len(for_others) == 1 and "predux_half_dowto4<Packet8hf>" in for_others[0]
    assert for_arm == []


@pytest.mark.parametrize("version", ["0.28.0", "0.28.1"])
def test_a_group_of_tensors_is_a_list_of_them_with_rocm(horovod_tree, version):
    """rocm.patch: `+=` would add the elements of a tensor."""

    def added(variants):
        tree = horovod_tree(version, variants)
        module = ast.parse((tree / "horovod/tensorflow/__init__.py").read_text())
        (function,) = (
            node for node in module.body if getattr(node, "name", "") == "grouped_allreduce"
        )
        targets = (each.target for each in ast.walk(function) if isinstance(each, ast.AugAssign))
        return [ast.unparse(target) for target in targets].count("new_tensors")

    assert added("~rocm") == 2 and added("+rocm amdgpu_target=gfx90a") == 0


@pytest.mark.parametrize("version", ["0.27.0", "0.28.0", "0.28.1"])
def test_local_gradients_are_divided_in_their_own_type(horovod_tree, version):
    """local-gradients.patch: the number of ranks is an int32 tensor in elastic jobs."""

    def divisions(variants):
        tree = horovod_tree(version, variants)
        files = [tree / f"horovod/{name}/__init__.py" for name in ("_keras", "tensorflow")]
        pattern = r"grad\.values / horovod_size|grad /= (?:float\()?horovod_size"
        return sum(len(re.findall(pattern, file.read_text())) for file in files)

    assert (divisions(None), divisions("")) == (12, 0)


@pytest.mark.parametrize("version", ["0.27.0", "0.28.1"])
def test_slices_of_a_mixed_group_keep_their_shape(horovod_tree, version):
    """sparse-group.patch: the first tensors of the group are dense."""
    code = ast.parse((horovod_tree(version, "") / "horovod/tensorflow/__init__.py").read_text())
    (function,) = [each for each in code.body if getattr(each, "name", "") == "grouped_allreduce"]
    slices = collections.namedtuple("IndexedSlices", "values indices dense_shape")
    tensor = collections.namedtuple("Tensor", "name device dtype", defaults=["", "float32"])
    names = {
        "tf": mock.MagicMock(IndexedSlices=slices),
        "Compression": mock.MagicMock(),
        "handle_average_backwards_compatibility": lambda op, average: op,
        "rocm_built": lambda: False,
        "gpu_available": lambda framework: False,
        "size": lambda: 2,
        "check_num_rank_power_of_2": lambda ranks: True,
        "grouped_allgather": lambda parts, **_: parts,
        "_grouped_allreduce": lambda tensors, **_: tensors,
        "global_process_set": mock.MagicMock(),
        "os": os,
        **{name: name for name in ("Sum", "Average", "Adasum")},
    }
    names["Compression"].none.compress = lambda t: (t, None)
    names["Compression"].none.decompress = lambda t, context: t
    exec(compile(ast.Module([function], []), "__init__.py", "exec"), names)
    sparse = [
        slices(tensor(f"values {rows}"), tensor(f"indices {rows}"), (rows, 1)) for rows in (9, 7)
    ]
    dense = [tensor("first"), tensor("second")]
    group = [dense[0], sparse[0], dense[1], sparse[1]]
    grouped = names["grouped_allreduce"]
    assert grouped(group, op="Sum") == group
    assert grouped(dense, op="Adasum") == dense


class Library:
    """Operations of TensorFlow and functions of Horovod, which note that they are called."""

    def __init__(self):
        self.called = []

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.called.append(name)
            if args == ("fail",):
                raise ValueError(name)
            return args, kwargs

        return call


@pytest.mark.parametrize("version", ["0.24.0", "0.28.1"])
@pytest.mark.parametrize("framework", ["tensorflow", "mxnet"])
def test_waits_that_nothing_announces_are_inferred(horovod_tree, framework, version):
    """waiting.patch; PyTorch says when it waits."""
    code = (horovod_tree(version, "") / f"horovod/{framework}/mpi_ops.py").read_text()
    assert code.count("_basics.MPI_LIB_CTYPES.horovod_infer_waits()") == 1


@pytest.mark.parametrize("version", ["0.24.0", "0.28.1"])
def test_an_eager_operation_of_tensorflow_says_that_it_waits(horovod_tree, version):
    """waiting.patch; in a graph an operation is only added, and nothing waits yet."""
    code = ast.parse((horovod_tree(version, "") / "horovod/tensorflow/mpi_ops.py").read_text())
    (proxy,) = [each for each in code.body if getattr(each, "name", "") == "_WaitingLibrary"]
    eager, library = [True], Library()
    names = {"_executing_eagerly": lambda: eager[0]}
    exec(compile(ast.Module([proxy], []), "mpi_ops.py", "exec"), names)
    operations = names["_WaitingLibrary"](library, library)

    assert operations.horovod_allreduce(1, op=2) == ((1,), {"op": 2})
    with pytest.raises(ValueError):
        operations.horovod_allgather("fail")
    eager[0] = False
    operations.horovod_broadcast()
    assert " ".join(library.called).replace("horovod_", "") == (
        "wait_begin allreduce wait_end wait_begin allgather wait_end broadcast"
    )
