"""A question as a request that can be copied and sent: by curl, and by the packages of OpenAI and Anthropic."""

from __future__ import annotations

import json
import shlex
from typing import Any

from microagents.elections.election import Question
from microagents.models.model import ModelSpec


def requests_of(question: Question, url: str) -> dict[str, str]:
    """Write the first request of a question to a server, by the name of the program that sends it."""
    asked, sampling = question.prompts[0], question.sampling
    named = {"model": ModelSpec.parse(question.models[0]).name}
    temperature = sampling.temperature_of(0)
    sampled = {} if temperature is None else {"temperature": temperature}
    system, user = {"role": "system", "content": asked.system}, {"role": "user", "content": asked.user}
    chat = {**named, **sampled, "max_completion_tokens": sampling.max_output_tokens, "messages": [system, user]}
    # Anthropic's package takes no temperature.
    messages = {**named, "max_tokens": sampling.max_output_tokens, "system": asked.system, "messages": [user]}
    return {
        "curl": f"curl {url}/v1/chat/completions -H 'content-type: application/json' -d {shlex.quote(json.dumps(chat))}\n",
        "openai": _python(
            f'OpenAI(base_url="{url}/v1", api_key="none")', "chat.completions", chat, "choices[0].message.content"
        ),
        "anthropic": _python(f'Anthropic(base_url="{url}", api_key="none")', "messages", messages, "content[0].text"),
    }


def _python(client: str, resource: str, arguments: dict[str, Any], text: str) -> str:
    name = client.partition("(")[0]
    written = "".join(f"        {key}={value!r},\n" for key, value in arguments.items())
    asked = f"with {client} as client:\n    reply = client.{resource}.create(\n{written}    )\n"
    return f"from {name.lower()} import {name}\n\n{asked}print(reply.{text})\n"
