"""Models of Google, behind its address with OpenAI's chat completions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from microagents.models.http.sending import Answered, Sender
from microagents.models.openai import OpenAIModel

if TYPE_CHECKING:
    pass


class GeminiModel(OpenAIModel):
    """A model of Google. The signatures of its thoughts go back with its calls."""

    url = "https://generativelanguage.googleapis.com/v1beta/openai"
    url_env = "GEMINI_BASE_URL"
    key_env = "GEMINI_API_KEY"
    models_path = "/models?pageSize=1000"

    async def listed(self) -> Answered:
        """Return Google's own list of models, which has their limits; the list for OpenAI's clients has names only."""
        sender = Sender(self.base_url.removesuffix("/openai"), {"x-goog-api-key": self._key or "none"})
        try:
            return await sender.get(self.models_path)
        finally:
            await sender.close()
