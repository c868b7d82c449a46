"""Models that are asked through an SDK's client that a user already has, within our bounds on time, size and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, NoReturn, Protocol, Self

import httpx2
from msgspec import structs

from microagents.actors.role import Context
from microagents.base.errors import InvalidUsage, ModelUnavailable
from microagents.elections.sample_batches import BatchKind
from microagents.models.anthropic import AnthropicModel
from microagents.models.http.provider import HttpModel
from microagents.models.http.sending import (
    KEEPALIVE_S,
    MAX_BODY_BYTES,
    MAX_ERROR_BYTES,
    Answered,
    Body,
    Client,
    OnLine,
    Response,
    failure,
    read_bounded,
)
from microagents.models.model import Model, ModelSpec
from microagents.models.openai import OpenAIModel
from microagents.models.prices import NO_PRICES, UserPrices
from microagents.models.responses import ResponsesModel


class SdkClient(Protocol):
    """A client of an SDK: `openai.AsyncOpenAI`, `anthropic.AsyncAnthropic`, or a class derived from one of them."""

    @property
    def base_url(self) -> Any:
        """Address of the provider."""
        ...

    @property
    def copy(self) -> Callable[..., Any]:
        """Makes the same client with changes."""
        ...


class _OfClient(HttpModel):
    """A model of a user's client."""

    batch_kinds: ClassVar[tuple[BatchKind, ...]] = ()

    def __init__(
        self,
        client: SdkClient,
        http_client: Callable[[], httpx2.AsyncClient],
        spec: ModelSpec,
        prices: UserPrices = NO_PRICES,
    ) -> None:
        self._given = client
        self._http_client = http_client
        self._asked = spec
        self.spec = f"{spec.provider}:{spec.name}"
        """What the journal calls it, behind ``object:``."""
        super().__init__(structs.replace(spec, options={**spec.options, "base_url": str(client.base_url)}), prices)

    def in_run(self, context: Context) -> Self:
        """Return the same model with the prices and the name of a run: a program may use one object in several runs at a time."""
        model = type(self)(self._given, self._http_client, self._asked, context.settings.get("prices", {}))
        model.join(context)
        return model

    def __reduce__(self) -> NoReturn:
        raise InvalidUsage(
            f"a client cannot be sent to Ray's actors: name the model in a spec, such as {self.name}, or use runtime='local'"
        )

    def _find_key(self, options: Mapping[str, str]) -> str | None:  # noqa: ARG002 - the client has it
        key = getattr(self._given, "api_key", None)
        if not isinstance(key, str):
            return None
        return key

    def _connect(self) -> Client:
        return _Through(self._given, self._http_client(), self._key)


class OpenAIChat(_OfClient, OpenAIModel):
    """Chat completions by a user's client."""


class OpenAIResponses(_OfClient, ResponsesModel):
    """Responses by a user's client."""


class AnthropicMessages(_OfClient, AnthropicModel):
    """Messages by a user's client."""


def _http_client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(limits=httpx2.Limits(keepalive_expiry=KEEPALIVE_S))


def client_model(
    client: SdkClient,
    name: str,
    *,
    responses: bool = False,
    http_client: Callable[[], httpx2.AsyncClient] = _http_client,
    **options: str,
) -> Model:
    """Build a model that is asked through a user's own client.

    Use it as ``run(task, models=client_model(AsyncOpenAI(), "gpt-6-luna"))``.

    The client gives the address, the key and what it adds to each request, such as the signature of a cloud. Its connections, retries and
    timeouts do not apply: the solver repeats calls, and the bounds on time, size and errors come from its spec.

    Args:
        client: an ``openai.AsyncOpenAI`` or an ``anthropic.AsyncAnthropic``.
        name: name of the model.
        responses: whether OpenAI's responses API is asked, not chat completions.
        http_client: makes the HTTP client that a run sends through and closes, such as one with a proxy or certificates of your own.
        options: options of a spec, such as ``timeout_s="60"`` or ``effort="low"``.

    Raises:
        InvalidUsage: the client is none of these, or an option is wrong.
    """
    if not name:
        raise InvalidUsage(
            "the name of the model is empty; give it as in a request, client_model(client, 'gpt-6-luna')"
        )
    if "base_url" in options or "api_key_env" in options:
        raise InvalidUsage("the client has the address and the key; leave base_url and api_key_env out")
    for base in type(client).__mro__:
        match base.__module__.partition(".")[0], base.__name__:
            case "openai", "AsyncOpenAI":
                kind: type[_OfClient] = OpenAIResponses if responses else OpenAIChat
                provider = "openai-responses" if responses else "openai"
            case "anthropic", "AsyncAnthropic":
                kind, provider = AnthropicMessages, "anthropic"
            case _:
                continue
        return kind(client, http_client, ModelSpec(provider=provider, name=name, options=options))
    raise InvalidUsage(
        f"{client!r:.100} is not a known client: give an openai.AsyncOpenAI or an anthropic.AsyncAnthropic"
    )


class _Through:
    """Sends requests as a user's client builds and signs them, through an HTTP client of its own."""

    def __init__(self, client: SdkClient, http: httpx2.AsyncClient, key: str | None) -> None:
        self._http = http
        bounded = httpx2.AsyncClient(transport=_BoundedTransport(http, key), timeout=None, follow_redirects=False)
        self._sdk = client.copy(http_client=bounded, max_retries=0, timeout=None)

    async def get(self, path: str) -> Answered:
        """Ask without a body."""
        return await self._answer(self._sdk.get(path, cast_to=httpx2.Response))

    async def post(
        self,
        path: str,
        body: Body,
        headers: Mapping[str, str],
        on_line: OnLine | None = None,  # noqa: ARG002 - an SDK gives whole responses
    ) -> Answered:
        """Send one request."""
        return await self._answer(
            self._sdk.post(path, cast_to=httpx2.Response, body=body, options={"headers": headers})
        )

    async def _answer(self, asked: Awaitable[httpx2.Response]) -> Answered:
        try:
            answer = await asked
        except Exception as error:  # noqa: BLE001 - errors of an SDK may contain the key, and no list of them is complete
            refused, cause = getattr(error, "response", None), error.__cause__
            if isinstance(cause, _Failed):
                return cause.failed
            if not isinstance(refused, httpx2.Response):
                return ModelUnavailable("refused", f"the SDK cannot send the request: {type(error).__name__}")
            answer = refused
        return Response(status_code=answer.status_code, headers=answer.headers, content=answer.content)

    async def close(self) -> None:
        """Close all connections; the user's client stays open."""
        await self._http.aclose()


class _Failed(httpx2.RequestError):
    """Failure of a request, as an SDK lets it pass."""

    def __init__(self, failed: ModelUnavailable) -> None:
        super().__init__(str(failed))
        self.failed = failed


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Sends through a client, reads a bounded part of each response, and fails without secrets."""

    def __init__(self, client: httpx2.AsyncClient, key: str | None) -> None:
        self._client = client
        self._key = key

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request, and read its response."""
        try:
            response = await self._client.send(request, stream=True, follow_redirects=False)
            try:
                content = await read_bounded(
                    response.aiter_bytes(), MAX_BODY_BYTES + 1 if response.is_success else MAX_ERROR_BYTES
                )
            finally:
                await response.aclose()
        except Exception as error:  # noqa: BLE001 - errors of several libraries pass
            failed = failure(error, request.url.netloc.decode())
        else:
            # The content is decompressed, and the SDKs log headers.
            headers = {
                name: value
                for name, value in response.headers.items()
                if name not in ("content-encoding", "content-length", "transfer-encoding")
                and not (self._key and self._key in value)
            }
            return httpx2.Response(response.status_code, headers=headers, content=content)
        raise _Failed(failed)  # outside of the except clause, so that its context is not the request
