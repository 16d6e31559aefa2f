"""An elastic job with process sets goes on when a worker is lost, and when hosts come."""

import pathlib
import signal

from tests.build import elastic

PROGRAM = pathlib.Path(__file__).with_name("elastic_sets.py")
BEGIN = r"rank (?P<rank>\d) of %d at step (?P<step>\d+): (?P<sums>.*)"


def sums(begun) -> list:
    """What the ranks said at the beginning, in their order."""
    return [each["sums"] for each in sorted(begun, key=lambda match: match["rank"])]


def test_process_sets_outlive_a_lost_worker(built_horovod, tmp_path):
    # sums on three process sets; a gradient that is averaged in the first, and in the second
    whole = ["11 - 1001 1.5 1", "11 - - 1.5 2", "- 1100 - 4 6", "- 1100 1001 8 6"]
    with elastic.job(built_horovod.target, tmp_path, program=PROGRAM, slots=2) as job:
        assert sums(job.wait_for(BEGIN % 4, 4)) == whole
        lost, kept = job.hosts_by_rank()
        job.workers()[lost].send_signal(signal.SIGKILL)
        left = job.wait_for(BEGIN % 2, 2)
        assert sums(left) == ["11 refused refused 1.5 -"] * 2
        job.set_hosts({kept: 4})
        again = job.wait_for(BEGIN % 4, 8)[4:]
        assert sums(again) == whole
        assert {match["step"] for match in again} != {"0"}
        (job.directory / "STOP").touch()
        assert job.wait() == 0, job.output
        assert len(job.lines(r"rank \d stopped at step \d+")) == 4
