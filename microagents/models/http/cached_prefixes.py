"""The prefixes of prompts that a provider caches, and those whose first request goes ahead of the others, since reading them costs less."""

from __future__ import annotations

from microagents.base.errors import InvalidUsage
from microagents.models.capabilities import Capabilities
from microagents.models.http.usage import CHARS_PER_TOKEN
from microagents.models.model import Call
from microagents.models.prices import Tariff
from microagents.replies.chat import Prompt

ON, OFF, AUTO = "on", "off", "auto"


class CachedPrefixes:
    """The prefixes of prompts that the provider of a model caches.

    Args:
        capabilities: of the model.
        tariff: its prices; None if they are unknown.
        stagger: ``on``, ``off``, or ``auto``: where it is known to pay.

    Raises:
        InvalidUsage: ``stagger`` is none of these.
    """

    def __init__(self, capabilities: Capabilities, tariff: Tariff | None, stagger: str) -> None:
        if stagger not in (ON, OFF, AUTO):
            raise InvalidUsage(f"stagger={stagger!r} is not {ON}, {OFF} or {AUTO}")
        self._capabilities = capabilities
        self._tariff = tariff
        self._stagger = stagger

    def takes(self, chars: int) -> bool:
        """Return whether a prefix of this length is long enough."""
        floor = self._capabilities.cache_floor
        return floor is not None and chars >= floor * CHARS_PER_TOKEN

    def takes_static(self, prompt: Prompt) -> bool:
        """Return whether the constant part of a prompt is long enough."""
        return self.takes(len(prompt.system) + len(prompt.user_parts[0]))

    def takes_whole(self, prompt: Prompt) -> bool:
        """Return whether a cached prefix ends with the prompt, and not with its constant part."""
        return bool(prompt.turns) or not self._capabilities.explicit_cache

    def staggers(self, chars: int, *, is_cached: bool) -> bool:
        """Return whether the samples of a prompt wait for the reply to the first one to begin.

        Args:
            chars: its length.
            is_cached: whether the provider is asked to cache the whole prompt, or does so by itself.
        """
        if self._stagger == AUTO:
            return is_cached and self._reads_pay(chars)
        return self._stagger == ON

    def shared(self, call: Call) -> list[str]:
        """List the prefixes of a request that pay if they are cached: the constant part, and a prompt that several requests have."""
        prompt, prefixes = call.prompt, list[str]()
        static = prompt.system + prompt.user_parts[0]
        if self._stagger != OFF and self._reads_pay(len(static)):
            prefixes.append(static)
        if call.is_shared and self.staggers(prompt.size, is_cached=self.takes_whole(prompt)):
            prefixes.append(f"{prompt.flat.system}\0{prompt.flat.user}")
        return prefixes

    def _reads_pay(self, chars: int) -> bool:
        """Whether a prefix of this length is known to cost less if it is read from the provider's cache."""
        if self._tariff is None or not self.takes(chars):
            return False
        return self._tariff.reads_pay(chars // CHARS_PER_TOKEN)
