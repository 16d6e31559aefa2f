"""Every collective, of drawn shapes, strides and types, has the result that NumPy has."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.ranks import LAUNCHED
from tests.training.jobs import ranks_of

FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTEGERS = ["int64", "int32", "int16", "int8", "uint8"]
COMPLEX = ["complex64", "complex128"]
#: Types whose tensors are moved, but not reduced.
MOVED = ["bool", "uint16", "uint32", "uint64"]
#: Seconds in which ranks that do not agree have their error.
SOON = 5.0

repeatable = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@st.composite
def tensors(draw, dtypes, dimensions=(0, 3), rows=False, count=(1, 3), same_type=False):
    """One to three tensors: shapes, types, and strides that each rank has of its own."""
    first = draw(st.sampled_from(dtypes))
    made = []
    for _ in range(draw(st.integers(*count))):
        shape = draw(st.lists(st.integers(0, 5), min_size=dimensions[0], max_size=dimensions[1]))
        layout = st.sampled_from(["plain", "transposed", "strided", "conjugate"])
        one = {
            "shape": shape,
            "dtype": first if same_type else draw(st.sampled_from(dtypes)),
            "layouts": draw(st.lists(layout, min_size=4, max_size=4)),
        }
        if rows:
            one["rows"] = draw(st.lists(st.integers(0, 4), min_size=4, max_size=4))
        made.append(one)
    return made


def common(draw, **more):
    """What the calls of all operations have."""
    return {
        "seed": draw(st.integers(0, 1000)) * 1000,
        # all ranks, or without the first, a middle one, or the last
        "without": draw(st.sampled_from([None, None, 0, 1, -1])),
        **more,
    }


@st.composite
def reductions(draw):
    op = draw(st.sampled_from(["Sum", "Average", "Min", "Max", "Product"]))
    dtypes = FLOATS + INTEGERS
    if op in ("Sum", "Average"):
        dtypes = dtypes + COMPLEX
    if op in ("Min", "Max"):
        dtypes = [*dtypes, "bool"]
    grouped = draw(st.booleans())
    spec = common(draw, operation="allreduce", op=op, grouped=grouped)
    spec["tensors"] = draw(tensors(dtypes, same_type=grouped))
    spec["in_place"] = draw(st.booleans())
    if op in ("Sum", "Average") and all(t["dtype"] in FLOATS for t in spec["tensors"]):
        factor = st.sampled_from([1.0, 0.5, 2.0])
        spec["prescale_factor"], spec["postscale_factor"] = draw(factor), draw(factor)
    return spec


@st.composite
def scatters(draw):
    spec = common(draw, operation="reducescatter", grouped=draw(st.booleans()))
    spec["op"] = draw(st.sampled_from(["Sum", "Average"]))
    dtypes = FLOATS + INTEGERS + COMPLEX
    spec["tensors"] = draw(tensors(dtypes, dimensions=(1, 3), same_type=spec["grouped"]))
    return spec


@st.composite
def gathers(draw):
    dtypes = FLOATS + INTEGERS + COMPLEX + MOVED
    grouped = draw(st.booleans())
    spec = common(draw, operation="allgather", grouped=grouped)
    spec["tensors"] = draw(tensors(dtypes, rows=True, same_type=grouped))
    return spec


@st.composite
def broadcasts(draw):
    spec = common(draw, operation="broadcast", root=draw(st.integers(0, 3)))
    spec["tensors"] = draw(tensors(FLOATS + INTEGERS + COMPLEX + MOVED))
    spec["in_place"] = draw(st.booleans())
    return spec


@st.composite
def exchanges(draw):
    spec = common(draw, operation="alltoall")
    dtypes = FLOATS + INTEGERS + COMPLEX + MOVED
    made = draw(tensors(dtypes, dimensions=(1, 3), count=(1, 1)))
    if draw(st.booleans()):
        row = st.lists(st.integers(0, 3), min_size=4, max_size=4)
        spec["splits"] = draw(st.lists(row, min_size=4, max_size=4))
    spec["tensors"] = made
    return spec


def complete(spec, size: int) -> dict:
    """A spec for ``size`` ranks: an alltoall's first dimension is the sum of the splits."""
    members = list(range(size))
    if spec["without"] is not None:
        members.pop(spec["without"])
    count = len(members)
    spec = {**spec, "members": members}
    if spec["operation"] == "alltoall":
        for each in spec["tensors"]:
            if "splits" in spec:
                each["rows"] = [sum(row[:count]) for row in spec["splits"]]
            else:
                each["rows"] = [count * (1 + each["shape"][0] % 3)] * 4
    return spec


@pytest.mark.parametrize("specs", [reductions, scatters, gathers, broadcasts, exchanges])
def test_as_numpy(ranks, specs):
    @repeatable
    @given(specs())
    def test(spec):
        wrong = ranks.values("operations.perform", **complete(spec, ranks.size))
        assert not any(wrong), wrong

    test()


def test_no_autograd_function_where_no_gradient_is_asked_for(ranks):
    """torch-direct.patch"""
    n = ranks.size
    # of allreduce, allgather, broadcast, alltoall, reducescatter, and the three with groups
    sums = [n * n, n * n, n, n, n, n * n, n * n, n]
    wanted = [each for each in sums for _ in range(2)]
    assert ranks.values("operations.without_a_backward_pass") == [wanted] * n


#: What TensorFlow's operations take, by its op definitions.
OF_TENSORFLOW = {
    "allreduce": {*FLOATS, *INTEGERS, "bool"},
    "reducescatter": {*FLOATS, *INTEGERS},
    "allgather": {*FLOATS, *INTEGERS, "uint16", "bool"},
    "broadcast": {*FLOATS, *INTEGERS, "uint16", "bool"},
    "alltoall": {*FLOATS, *INTEGERS, "uint16", "bool"},
}


@pytest.mark.parametrize("specs", [reductions, scatters, gathers, broadcasts, exchanges])
def test_as_numpy_with_tensorflow(keras_ranks, specs):
    # a function is traced for each example
    @settings(repeatable, max_examples=30)
    @given(specs(), st.booleans())
    def test(spec, within):
        spec = complete(spec, keras_ranks.size)
        kind, made = spec["operation"], spec["tensors"]
        assume({each["dtype"] for each in made} <= OF_TENSORFLOW[kind])
        # tensors without dimensions are refused, with a message
        assume(kind != "allgather" or all(each["shape"] for each in made))
        # nothing of it is in place
        spec.update(in_place=False, within=within)
        wrong = keras_ranks.values("operations_tensorflow.perform", **spec)
        assert not any(wrong), (wrong, spec)

    test()


def test_means_of_large_integers_are_exact(ranks):
    """mean.patch"""
    number = 2**53 + 3
    found = ranks.values("operations.mean_of_a_large_integer", number=number)
    assert found == [number] * ranks.size


def test_means_of_large_halves(ranks):
    """mean.patch"""
    assert ranks.values("operations.means_of_large_halves") == [[40000.0]] * ranks.size


def test_integers_are_scaled_by_any_factor(ranks):
    """mean.patch"""
    assert ranks.values("operations.scaled_integers") == [-5] * ranks.size


def test_join_awaits_the_operations_before_it(ranks):
    """join.patch"""
    total = ranks.size * (ranks.size + 1) / 2
    found = ranks.values("operations.join_during_an_operation")
    assert found == [[total] * 9] * ranks.size


def test_a_set_after_a_removed_one(ranks):
    """process-sets.patch"""
    total = ranks.size - 1
    inner = [[total, total]] * (ranks.size - 2)
    assert ranks.values("operations.set_after_a_removed_one") == [[total], *inner, [total]]


def test_means_of_large_integers_are_exact_in_tensorflow(keras_ranks):
    number = 2**53 + 3
    found = keras_ranks.values("operations_tensorflow.mean_of_a_large_integer", number=number)
    assert found == [number] * keras_ranks.size


#: What one rank does otherwise than the others, and what is said of it.
ONE = {"shape": [6, 2], "dtype": "float32", "layouts": ["plain"] * 4}
MISMATCHES = {
    "shape": (
        "allreduce",
        {"tensors": [{**ONE, "shape": [5, 2]}]},
        "Mismatched ALLREDUCE tensor shapes",
    ),
    "dimensions": (
        "allreduce",
        {"tensors": [{**ONE, "shape": [12]}]},
        "Mismatched ALLREDUCE tensor shapes",
    ),
    "type": ("allreduce", {"tensors": [{**ONE, "dtype": "float64"}]}, "Mismatched data types"),
    "complex": ("allreduce", {"tensors": [{**ONE, "dtype": "complex64"}]}, "Mismatched"),
    "reduction": ("allreduce", {"op": "Max"}, "Mismatched reduction operation"),
    "factor": ("allreduce", {"prescale_factor": 2.0}, "Mismatched prescale"),
    "gathered columns": (
        "allgather",
        {"tensors": [{**ONE, "shape": [6, 3]}]},
        "Mismatched ALLGATHER",
    ),
    "gathered dimensions": (
        "allgather",
        {"tensors": [{**ONE, "shape": [6]}]},
        "Mismatched ALLGATHER",
    ),
    "root": ("broadcast", {"root": 1}, "Mismatched BROADCAST root ranks"),
    "broadcast shape": ("broadcast", {"tensors": [{**ONE, "shape": [6]}]}, "Mismatched BROADCAST"),
    "scattered shape": (
        "reducescatter",
        {"tensors": [{**ONE, "shape": [5, 2]}]},
        "Mismatched REDUCESCATTER",
    ),
    "scattered mean": ("reducescatter", {"op": "Average"}, "Mismatched prescale"),
    "exchanged columns": (
        "alltoall",
        {"tensors": [{**ONE, "shape": [6, 3]}]},
        "Mismatched ALLTOALL",
    ),
    "operation": ("allreduce", {"operation": "allgather"}, "Mismatched operations"),
}


@pytest.mark.parametrize("what", MISMATCHES)
def test_ranks_that_differ_get_an_error(ranks, what):
    """On every rank, at once; and the next operation is right."""
    operation, other, message = MISMATCHES[what]
    spec = {"operation": operation, "op": "Sum", "root": 0, "seed": 0, "tensors": [ONE]}
    own = [{"mine": {}} for _ in range(ranks.size)]
    own[1] = {"mine": other}
    begin = time.monotonic()
    answers = ranks.call("operations.perform", *own, **spec)
    assert time.monotonic() - begin < SOON
    assert all(message in answer.get("error", "") for answer in answers), answers
    assert not any(ranks.values("operations.perform", **spec))
    assert ranks.values("operations.counted") == [0] * ranks.size


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_more_bytes_than_31_bits_count(built_horovod, tmp_path_factory, launcher):
    """In place, on two ranks alone, as each has two gigabytes."""
    with ranks_of(built_horovod, tmp_path_factory, launcher, 2) as ranks:
        assert ranks.values("operations.broadcast_bytes", count=2**31 + 8) == ["", ""]
