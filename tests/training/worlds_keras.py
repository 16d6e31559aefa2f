"""Who trains with Keras: one process over the whole batch, or Horovod.

A case of `cases_keras` is one script for both.
"""

import os

# before TensorFlow is loaded: its notes on what it computes with would hide what ranks print
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import keras  # noqa: E402
import numpy as np  # noqa: E402
import world  # noqa: E402
from world import SEED  # noqa: E402


class World(world.World):
    """Ranks of Keras."""

    def begin(self):
        """What a case begins with: the same random numbers in all worlds, and no layers."""
        keras.config.set_dtype_policy("float64")
        keras.config.set_floatx("float64")
        keras.utils.clear_session()
        keras.utils.set_random_seed(SEED)

    def batch(self, *arrays):
        """This rank's part of arrays whose first dimension is the batch."""
        parts = [np.array_split(each, self.size)[self.rank] for each in arrays]
        return parts[0] if len(parts) == 1 else parts

    def batches(self, batches):
        """The same of several batches, and the size of a part: for fit()."""
        parts = [self.batch(*each) for each in batches]
        return (*(np.concatenate(column) for column in zip(*parts)), len(parts[0][0]))

    def distribute(self, optimizer, **options):
        """An optimizer that averages gradients, where there are several ranks."""
        return optimizer

    def tape(self, tape, **options):
        """A tape whose gradients are averaged."""
        return tape

    def share(self, model):
        """Let all ranks begin with rank 0's weights."""


class OneProcess(world.OfAnySize, World):
    """One process over the whole batch.

    Args:
        rank: 0.
        size: of the worlds that it is compared with.
    """

    one_process = True
    #: A permutation of the samples: the same sums in another order. 0 for none.
    order = 0

    def batch(self, *arrays):
        if self.order:
            order = np.random.RandomState(self.order).permutation(len(arrays[0]))
            arrays = [each[order] for each in arrays]
        return arrays[0] if len(arrays) == 1 else list(arrays)


class Horovod(World):
    """Ranks with hvd.DistributedOptimizer or hvd.DistributedGradientTape."""

    def __init__(self, rank, size):
        import horovod.tensorflow
        import horovod.tensorflow.keras as hvd

        hvd.init()
        self.hvd = hvd
        self.tensorflow = horovod.tensorflow
        super().__init__(hvd.rank(), hvd.size())

    def close(self):
        self.hvd.shutdown()

    def distribute(self, optimizer, **options):
        return self.hvd.DistributedOptimizer(optimizer, **options)

    def tape(self, tape, **options):
        return self.tensorflow.DistributedGradientTape(tape, **options)

    def share(self, model):
        if self.rank:
            for weight in model.weights:
                weight.assign(weight * 2)
        self.tensorflow.broadcast_variables(model.weights, root_rank=0)
