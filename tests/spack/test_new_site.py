"""The page on a new site leads to one that is solved, launched and documented."""

import re
import sys

from hvd.core import paths

PAGE = paths.ROOT / "docs" / "new-site.md"
NAME = "moon-hvd"
_FILE = re.compile(r"^## \d\. .*`(?P<file>environments/\S+)`$", re.MULTILINE)
_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def follow(root):
    """Do what the page says to do with files, below ``root``."""
    text = PAGE.read_text()
    for heading in _FILE.finditer(text):
        block = _BLOCK.search(text, heading.end())
        assert block, heading["file"]
        file = root / heading["file"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block[1])
    (root / "environments" / NAME / ".checkout").symlink_to("../..")
    page = root / "docs" / "sites" / "moon.md"
    marks = re.search(r"^```html\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert marks
    page.write_text(f"# Moon\n\nHorovod for PyTorch.\n\n{marks[1]}")


def test_the_page_on_a_new_site(located, checkout):
    follow(checkout.root)
    checkout.hvd("lock", NAME)
    kept = (checkout.root / "environments" / NAME / "dag.md").read_text()
    assert "all for linux-rocky9-zen3." in kept
    for external in ("gcc", "cuda", "openmpi", "nccl", "cmake", "gmake", "python", "py-torch"):
        (row,) = [line for line in kept.splitlines() if line.startswith(f"| {external} |")]
        assert "| built |" not in row

    output = checkout.hvd("launch", NAME, "--nodes", 2, "--", "python", "train.py")
    assert "srun -N 2 -n 8 python train.py" in output

    checkout.hvd("docs")
    page = (checkout.root / "docs" / "sites" / "moon.md").read_text()
    assert "module load pytorch/2.4.0 openmpi/4.1.6 nccl/2.21.5" in page
    assert f"| [`{NAME}`](docs/sites/moon.md) |" in (checkout.root / "README.md").read_text()

    tests = ["tests/unit/test_site.py", "tests/unit/test_site_packages.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-k", "moon or layer or described", *tests]
    checkout.run(command)
