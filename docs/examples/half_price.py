"""A provider with batches, to try them without a key: ``python half_price.py`` serves for two minutes, and answers a batch after 8 s.

It knows one kind of question: a place, such as "rome, it", to be split into its name and its country.
"""

import asyncio
import json
import time
from itertools import count
from typing import Any

from aiohttp import web

AFTER_S, SERVES_S, PORT = 8.0, 120.0, 8402
numbers = count(1)
files: dict[str, str] = {}
batches: dict[str, dict[str, Any]] = {}


async def upload(request: web.Request) -> web.Response:
    """Take a file of lines."""
    given = (await request.post())["file"]
    assert isinstance(given, web.FileField)
    name = f"file-{next(numbers)}"
    files[name] = given.file.read().decode()
    return web.json_response({"id": name, "filename": given.filename})


async def create(request: web.Request) -> web.Response:
    """Begin a batch of the lines of a file."""
    asked = await request.json()
    name = f"batch_{next(numbers)}"
    batches[name] = {**asked, "id": name, "created_at": int(time.time()), "status": "in_progress"}
    return web.json_response(batches[name])


async def listed(_: web.Request) -> web.Response:
    """List the batches, newest first."""
    return web.json_response({"data": [*batches.values()][::-1]})


async def content(request: web.Request) -> web.Response:
    """Give the lines of a file."""
    return web.Response(text=files[request.match_info["id"]])


async def state(request: web.Request) -> web.Response:
    """Tell the state of a batch, and answer its lines once it is old enough."""
    batch = batches[request.match_info["id"]]
    if time.time() - batch["created_at"] > AFTER_S:
        batch |= {"status": "completed", "output_file_id": f"results-of-{batch['id']}"}
        lines = files[batch["input_file_id"]].splitlines()
        files[batch["output_file_id"]] = "\n".join(map(answered, lines))
    return web.json_response(batch)


def answered(line: str) -> str:
    """Answer a line, with the tokens that a reply of this length has."""
    asked = json.loads(line)
    system, user = [each["content"] for each in asked["body"]["messages"]]
    name, _, country = user.partition(", ")
    text = f'name = "{name.title()}"\ncountry = "{country.upper()}"'
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    choices = [{**choice, "index": index} for index in range(asked["body"].get("n", 1))]
    usage = {"prompt_tokens": len(system + user) // 4, "completion_tokens": len(choices) * len(text) // 4}
    body = {"id": "reply", "model": asked["body"]["model"], "choices": choices, "usage": usage}
    return json.dumps({"custom_id": asked["custom_id"], "response": {"status_code": 200, "body": body}})


async def main() -> None:
    """Serve for two minutes."""
    application = web.Application()
    application.add_routes(
        [
            web.post("/v1/files", upload),
            web.post("/v1/batches", create),
            web.get("/v1/batches", listed),
            web.get("/v1/batches/{id}", state),
            web.get("/v1/files/{id}/content", content),
        ]
    )
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", PORT).start()
    await asyncio.sleep(SERVES_S)


if __name__ == "__main__":
    asyncio.run(main())
