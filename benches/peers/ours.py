"""Talks to `hearken bench … --requests`: a JSON object per line, and one in answer."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def binary(given):
    """The binary to time: the one given, or that of `cargo build --release`."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = pathlib.Path(given) if given else target / "release" / "hearken"
    if not path.exists():
        sys.exit(f"error: there is no {path}\nhint: run `cargo build --release`, or give --binary")
    return path


class Ours:
    def __init__(self, path, what, threads):
        self.process = subprocess.Popen(
            [path, "bench", what, "--requests"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, HEARKEN_THREADS=str(threads)),
        )

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("error: hearken has stopped; its message is above")
        return json.loads(line)
