"""Starts the ranks of a smoke test in the workers of a Ray that is on this host alone.

    python program_ray.py --framework tensorflow --controller gloo --out DIR --ranks 2

The arguments are those of `program`, which is importable in the workers as well.
"""

import sys
import tempfile

import program
import ray
from horovod.ray import RayExecutor


def main() -> int:
    arguments = program.parse()
    # below --out, the paths of Ray's sockets could get too long
    with tempfile.TemporaryDirectory(prefix="hvd-ray-") as directory:
        ray.init(
            num_cpus=arguments.ranks,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=directory,
        )
        try:
            executor = RayExecutor(
                RayExecutor.create_settings(), num_workers=arguments.ranks, use_gpu=False
            )
            executor.start()
            statuses = executor.run(program.run, [arguments])
            executor.shutdown()
        finally:
            ray.shutdown()
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
