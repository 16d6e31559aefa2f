"""What some patches change in a Horovod that was really built."""

from __future__ import annotations

import pathlib
import re

import pytest
from elftools.elf.elffile import ELFFile

from tests.ranks import LAUNCHED, ranks_of

#: One of the parameters has no gradient in the first step, which has none to be set to zero.
ZERO_GRAD = """
import torch
import horovod.torch as hvd

hvd.init()
used, unused = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([used, unused], lr=1.0)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=[("used", used), ("unused", unused)], op=OP
)
for arguments in ({}, {"set_to_none": True}, {"set_to_none": False}):
    optimizer.zero_grad(**arguments)
    none = arguments.get("set_to_none", True)
    assert used.grad is None if none else not used.grad.any(), (arguments, used.grad)
    (used.sum() * (hvd.rank() + 1)).backward()
    optimizer.step()
assert torch.equal(used, hvd.broadcast(used.detach(), root_rank=0)), used
assert torch.equal(unused.detach(), torch.ones(2)), unused
hvd.shutdown()
"""

BFLOAT16 = """
import torch
import horovod.torch as hvd

hvd.init()
values = torch.tensor([1.0, 1.0078125, -3e38, float("nan"), float("inf"), 0.0]).bfloat16()
total = hvd.allreduce(values, op=hvd.Sum)
assert total.dtype == torch.bfloat16
# each step in float32, then rounded
wanted = (values.float() * hvd.size()).bfloat16()
torch.testing.assert_close(total, wanted, rtol=0, atol=0, equal_nan=True)
hvd.shutdown()
"""

INIT = "import horovod.torch as hvd; hvd.init(); hvd.shutdown()"


@pytest.mark.parametrize(
    ("launcher", "op"),
    # Gloo has no Adasum
    [("mpirun", "Average"), ("mpirun", "Adasum"), ("horovodrun --gloo", "Average")],
)
def test_gradients_can_be_set_to_none_or_zero(built_horovod, tmp_path, launcher, op):
    """zero-grad.patch"""
    ranks_of(built_horovod, launcher, ZERO_GRAD.replace("OP", f"hvd.{op}"), tmp_path)


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_bfloat16_is_summed_in_float32(built_horovod, tmp_path, launcher):
    """bfloat16.patch; the smoke tests check every operation."""
    ranks_of(built_horovod, launcher, BFLOAT16, tmp_path)


@pytest.mark.parametrize(("options", "seconds"), [((), 31), (("--gloo-timeout-seconds=45",), 45)])
def test_the_timeout_of_gloo_grows_with_the_ranks(built_horovod, tmp_path, options, seconds):
    """gloo-timeout.patch"""
    log = {"HOROVOD_LOG_LEVEL": "debug"}
    output = ranks_of(built_horovod, "horovodrun --gloo", INIT, tmp_path, *options, **log)
    assert set(re.findall(r"rendezvous started .* timeout=(\d+)", output)) == {str(seconds)}


@pytest.fixture
def plugin(built_horovod, tmp_path):
    """PyTorch's plugin, as an open ELF file."""
    output = ranks_of(built_horovod, "mpirun", f"{INIT}; print(hvd.__file__)", tmp_path, ranks=1)
    (library,) = pathlib.Path(output.strip()).parent.glob("mpi_lib_v2*.so")
    with open(library, "rb") as stream:
        yield ELFFile(stream)


def test_there_are_no_debug_symbols(plugin):
    """symbols.patch"""
    assert not plugin.get_section_by_name(".debug_info")


def test_a_plugin_takes_no_symbol_of_another(plugin):
    """several-frameworks.patch"""
    tags = {tag.entry.d_tag for tag in plugin.get_section_by_name(".dynamic").iter_tags()}
    assert "DT_SYMBOLIC" in tags
