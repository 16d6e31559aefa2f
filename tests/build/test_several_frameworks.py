"""several-frameworks.patch: two frameworks of a process, whose plugins know other process sets."""

import pytest

#: Two plugins, the second imported later; the first alone is initialized, then both are.
PROGRAM = """
import copy, ctypes

class Library:
    \"\"\"What a plugin has, as the second rank of two.\"\"\"

    def __init__(self, path, mode):
        self.initialized, self.sets = False, [[]]

    def __getattr__(self, name):
        return lambda *arguments: 1  # of the operations of reductions

    def horovod_init(self, ranks, size, set_ranks, set_sizes, count):
        self.initialized, self.sets, at = True, [[0, 1]], 0
        for size in set_sizes:
            self.sets.append(set_ranks[at : at + size])
            at += size
        return True

    def horovod_rank(self):
        return 1 if self.initialized else -1

    def horovod_number_of_process_sets(self):
        return len(self.sets)

    def horovod_process_set_ids(self, ids):
        ids[:] = range(len(self.sets))

    def horovod_process_set_size(self, number):
        return len(self.sets[number.value]) if self.initialized else -1

    def horovod_process_set_ranks(self, number, ranks):
        ranks[:] = self.sets[number.value]
        return 0

    def horovod_process_set_rank(self, number):
        return self.sets[number.value].index(1)

    def horovod_add_process_set(self, ranks, size):
        self.sets.append(list(ranks))
        return len(self.sets) - 1

    def horovod_remove_process_set(self, number):
        self.sets[number.value] = None
        return number.value

ctypes.CDLL = Library
from horovod.common import basics, process_sets, util
util.get_extension_full_path = lambda *_: "mpi_lib.so"
torch, tensorflow = basics.HorovodBasics("torch"), basics.HorovodBasics("tensorflow")
process_sets._setup(torch)
process_sets._setup(tensorflow)

mine = process_sets.ProcessSet([1])
torch.init(process_sets=[mine])
assert process_sets.global_process_set.ranks == [0, 1], process_sets.global_process_set
assert (mine.process_set_id, mine.size(), mine.rank(), mine.included()) == (1, 1, 0, True), mine

tensorflow.init()
assert (mine.size(), mine.rank()) == (1, 0)
added = process_sets.add_process_set([0, 1], basics=torch)
assert torch.MPI_LIB_CTYPES.sets == [[0, 1], [1], [0, 1]]
assert tensorflow.MPI_LIB_CTYPES.sets == [[0, 1]]
assert copy.deepcopy(mine).process_set_id == 1
assert process_sets.remove_process_set(added)
assert torch.MPI_LIB_CTYPES.sets == [[0, 1], [1], None]
"""


@pytest.mark.parametrize("version", ["0.23.0", "0.24.3", "0.28.1"])
def test_a_process_set_belongs_to_the_plugin_that_added_it(unbuilt, version):
    unbuilt(version).run(PROGRAM)
