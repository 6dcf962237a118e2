"""Several commands, each as typed, in one process that is run with them as JSON."""

import json
import os
import sys
import tempfile

from harness.__main__ import main
from harness.sandbox.process import FORK_SERVERS


def _once(arguments):
    """Run one command with both streams caught at the file descriptors, as a shell would."""
    sys.argv = ["harness", *arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        kept = os.dup(1), os.dup(2)
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            main()
        except SystemExit as ending:
            code = ending.code or 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
        out.seek(0)
        err.seek(0)
        return {"code": code, "out": out.read().decode(), "err": err.read().decode()}


if __name__ == "__main__":
    with FORK_SERVERS.kept():
        print(json.dumps([_once(arguments) for arguments in json.loads(sys.argv[1])]))
