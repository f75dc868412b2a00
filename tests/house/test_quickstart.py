"""The quickstart is true: its commands are run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]


def test_the_quickstart_can_be_followed_to_the_letter(tmp_path: Path) -> None:
    boxes = re.findall(r"```sh\n(.*?)```", (TOP / "docs/quickstart.md").read_text(), re.DOTALL)
    environ = {
        "HOME": str(tmp_path),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "CODEFLEET_TEST": str(tmp_path),
    }
    done = subprocess.run(
        ["sh", "-eux"],
        input="".join(boxes),
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        ["codefleet", "tasks", "--all"], cwd=tmp_path / "shop", env=environ, capture_output=True, text=True, check=True
    )
    assert re.search(r"completed\s.*Raise the price", shown.stdout)
    assert re.search(r"cancelled\s.*Ask a philosopher", shown.stdout)
    assert (tmp_path / "shop/shop.py").read_text() == "PRICE = 1\n", "the person's own checkout is not touched"
