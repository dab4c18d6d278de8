"""A copy of the checkout in which commands of the documentation are run."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Scratch:
    """A folder with the project's files, changed as they are in the working tree."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> "Scratch":
        """Copy what git tracks, or would."""
        command = ["git", "ls-files", "-co", "-z", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).exists():  # else it was deleted, but not yet from the index
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        return cls(folder)

    def copy(self, folder: Path) -> "Scratch":
        """Make another one, with all that has been written here."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Scratch(folder)

    def run(self, language: str, text: str) -> subprocess.CompletedProcess[str]:
        """Run the text of a block, in a shell or by Python."""
        shell = ["bash", "-e", "-o", "pipefail", "-c"]
        command = shell if language == "sh" else [sys.executable, "-c"]
        return subprocess.run(
            [*command, text], cwd=self.folder, env=self._environment(),
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"PATH": path, "PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        return {**os.environ, **own, "HF_HUB_OFFLINE": "1", "COLUMNS": "120"}
