"""What the worlds of all frameworks have, and the numbers of the cases that they train."""

#: What random numbers begin with.
SEED = 20
#: Steps of a case. In each, a gradient is rounded on its rank, in the sum over the ranks, and in
#: the mean, by half a unit each.
STEPS = 4
#: Samples of a batch: for two, three and four ranks.
SAMPLES = 24


class World:
    """Ranks that each have a part of every batch.

    Attributes:
        rank, size: of this process.
        one_process: whether it stands for all ranks.
    """

    one_process = False

    def __init__(self, rank, size):
        self.rank, self.size = rank, size
        self._process_sets = {}

    def process_set(self, members):
        """The process set of these ranks, which stays until it is removed."""
        key = tuple(members)
        if len(key) == self.size:
            return self.hvd.global_process_set
        if key not in self._process_sets:
            self._process_sets[key] = self.hvd.add_process_set(list(members))
        return self._process_sets[key]

    def remove_process_set(self, members):
        self.hvd.remove_process_set(self._process_sets.pop(tuple(members)))

    def close(self):
        pass


class OfAnySize:
    """One process for a number of ranks: notes whether a case has asked for that."""

    asked = False

    @property
    def size(self):
        self.asked = True
        return self._size

    @size.setter
    def size(self, size):
        self._size = size


def asked_for_size(world):
    """Whether anything has since the last call."""
    asked, world.asked = world.asked, False
    return asked
