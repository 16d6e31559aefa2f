"""nccl-average.patch: NCCL takes the mean over several ranks only."""

from __future__ import annotations

import pytest

from tests import compiling, needs
from tests.checkout import run

pytestmark = needs.programs("c++")

SOURCE = "horovod/common/ops/nccl_operations.cc"
#: Around the part of NCCLAllreduce::Execute that chooses NCCL's operation.  Prints which it is,
#: and by what Horovod scales the sum, for 1 and 2 ranks.
PROGRAM = """
#include <iostream>
#include <stdexcept>

#define NCCL_AVG_SUPPORTED
enum ncclRedOp_t {{ ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg }};
enum class ReduceOp {{ AVERAGE, SUM, MIN, MAX, PRODUCT }};
struct Controller {{ int ranks; int GetSize() {{ return ranks; }} }};
struct ProcessSet {{ Controller* controller; }};
struct Table {{ ProcessSet set; ProcessSet& Get(int id) {{ return set; }} }};
struct State {{ Table process_set_table; }};
struct Entry {{ int process_set_id = 0; }};
struct Response {{
  ReduceOp reduce_op() const {{ return ReduceOp::AVERAGE; }}
  double prescale_factor() const {{ return 1; }}
  double postscale_factor() const {{ return 1; }}
}};

int main() {{
  for (int ranks : {{1, 2}}) {{
    Controller controller{{ranks}};
    State state{{{{{{&controller}}}}}};
    State* global_state_ = &state;
    Entry first_entry;
    Response response;
    {chosen}
    std::cout << (ncclOp == ncclAvg ? "mean" : ncclOp == ncclSum ? "sum" : "?") << " times "
              << postscale_factor << std::endl;
  }}
}}
"""


@pytest.mark.parametrize("version", ["0.26.1", "0.28.1"])
def test_the_mean_over_one_rank_is_a_sum(horovod_tree, tmp_path, version):
    tree = horovod_tree(version, "+nccl+cuda")
    text = (tree / SOURCE).read_text().partition("Status NCCLAllreduce::Execute(")[2]
    begin = text.index("ncclRedOp_t ncclOp = ncclSum;")
    end = text.index("const void* fused_input_data;")
    program = compiling.program(tree, tmp_path, PROGRAM.format(chosen=text[begin:end]))
    assert run([program]).splitlines() == ["sum times 1", "mean times 1"]
