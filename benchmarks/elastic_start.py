"""What each worker of the elastic job of `starts` runs, until a file says that it is enough."""

import os
import pathlib
import sys
import time

import horovod.torch as hvd
import torch

if __name__ == "__main__":
    torch.set_num_threads(1)
    scratch = pathlib.Path(sys.argv[1])
    hvd.init()

    @hvd.elastic.run
    def train(state):
        hvd.allreduce(torch.ones(1), op=hvd.Sum, name="first")
        place = f"{os.environ['HOROVOD_HOSTNAME']}-{os.environ['HOROVOD_LOCAL_RANK']}"
        state.begun += 1
        # a rank may be killed as soon as all of them have written
        state.commit()
        written = scratch / place
        written.write_text(f"{os.getpid()} {time.time()}")
        written.rename(scratch / f"{state.begun}-{place}")
        while not hvd.allreduce(torch.tensor(float((scratch / "enough").exists())), name="more"):
            state.commit()
            time.sleep(0.1)

    train(hvd.elastic.TorchState(begun=0))
