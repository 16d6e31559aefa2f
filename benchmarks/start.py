"""What each rank of `starts` runs: how long it takes until the first allreduce is done."""

import json
import pathlib
import sys
import time

import torch


def horovod():
    import horovod.torch as hvd

    begin = time.time()
    hvd.init()
    ready = time.time()
    total = hvd.allreduce(torch.ones(1), op=hvd.Sum)
    return hvd.rank(), hvd.size(), total, begin, ready, hvd.shutdown


def torch_distributed():
    import torch.distributed as dist

    begin = time.time()
    dist.init_process_group("gloo")
    ready = time.time()
    total = torch.ones(1)
    dist.all_reduce(total)
    rank, size = dist.get_rank(), dist.get_world_size()
    return rank, size, total, begin, ready, dist.destroy_process_group


if __name__ == "__main__":
    torch.set_num_threads(1)
    launcher, scratch = sys.argv[1:]
    rank, size, total, begin, ready, end = {"horovodrun": horovod, "torchrun": torch_distributed}[
        launcher
    ]()
    done = time.time()
    if total.item() != size:
        sys.exit(f"rank {rank} of {size}: wrong sum {total.item()}")
    times = {"begin": begin, "ready": ready, "done": done}
    pathlib.Path(scratch, f"{rank}.json").write_text(json.dumps(times))
    end()
