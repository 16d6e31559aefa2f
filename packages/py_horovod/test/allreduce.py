"""Two ranks or more sum over one of Horovod's frameworks: ``allreduce.py FRAMEWORK``.

Run by ``spack test run py-horovod`` on every rank.  Rank r adds r + 1 in every element, so that
the sum is known; a launcher that starts worlds of one rank each is an error, too.
"""

import importlib
import sys

LENGTH = 1000

framework = sys.argv[1]
hvd = importlib.import_module(f"horovod.{framework}")
hvd.init()
rank, size = hvd.rank(), hvd.size()
value = float(rank + 1)
# older releases have no operation but the sum
total = {"op": hvd.Sum} if hasattr(hvd, "Sum") else {"average": False}
if framework == "torch":
    import torch

    result = hvd.allreduce(torch.full((LENGTH,), value), **total).numpy()
elif framework == "tensorflow":
    import tensorflow

    tensor = tensorflow.fill([LENGTH], value)
    result = hvd.allreduce(tensor, **total).numpy()
else:
    import mxnet

    result = hvd.allreduce(mxnet.nd.full((LENGTH,), value), **total).asnumpy()

expected = size * (size + 1) / 2
if size < 2:
    sys.exit(f"expected one world of two ranks or more, got a world of {size}")
if len(result) != LENGTH or not (result == expected).all():
    sys.exit(f"rank {rank}: expected {LENGTH} times {expected}, got {result}")
# in one piece: the ranks share their output
sys.stdout.write(f"rank {rank} of {size}: allreduce with {framework} is right\n")
hvd.shutdown()
