"""One HTTP request to a provider, bounded in size. Failures are errors of our own, without the key.

The SDKs build a dozen objects for each request, which takes 0.5 ms of processor time at 1,000 requests in flight; this takes 0.1 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec
from msgspec import Struct

from microagents.base.errors import InvalidUsage, ModelUnavailable

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping

MAX_BODY_BYTES = 8 * 2**20
"""Limit of a reply, after decompression. The longest replies of today's models are below 1 MiB."""
MAX_ERROR_BYTES = 64 * 2**10
KEEPALIVE_S = 4.0
"""Many servers drop an idle connection after 5 s. Closing it first avoids sending into a closed connection."""
Parameters = dict[str, Any]
"""Parameters of a request, by name; dots in a name lead into objects of the body."""
Body = dict[str, Any]
"""The body of a request or of a reply, as JSON has it."""
OnLine = Callable[[bytes], None]
"""Gets each line of a successful response as it arrives."""


class Response(Struct, frozen=True, kw_only=True):
    """A response that has been read: one byte more than `MAX_BODY_BYTES` of a long one, or `MAX_ERROR_BYTES` of an error."""

    status_code: int
    headers: Mapping[str, str]
    """Without regard to case."""
    content: bytes
    found: Any = None
    """Its JSON, once it is decoded; the text of a refusal that is none."""

    @property
    def is_success(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status_code < 300  # noqa: PLR2004

    @property
    def is_redirect(self) -> bool:
        """Whether the status is a redirect, which is not followed."""
        return 300 <= self.status_code < 400  # noqa: PLR2004


Answered = Response | ModelUnavailable
"""The response to a request, or why there is none."""


class Client(Protocol):
    """Sends requests to one provider."""

    async def get(self, path: str) -> Answered:
        """Ask a provider for a resource without a body, such as its list of models."""
        ...

    async def post(
        self,
        path: str,
        body: Body,
        headers: Mapping[str, str],
        on_line: OnLine | None = None,
    ) -> Answered:
        """Send one request. A failure is returned: if raised, its context would be an error that contains the key.

        ``on_line`` gets each line of a successful response as it arrives, if the client reads it in pieces.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class Sender:
    """Connections of one event loop to a provider, as many as there are calls: the solver bounds those.

    Args:
        base_url: address of the provider.
        headers: headers of every request, such as an SDK's client has them; a value that is not text is left out.
    """

    def __init__(self, base_url: str, headers: Mapping[str, object]) -> None:
        import aiohttp  # noqa: PLC0415 - costs 0.2 s

        address = urlsplit(base_url)
        proxy = proxy_of(address)
        if proxy is None:
            self._asked = address.netloc
        else:
            self._asked = f"{address.netloc} through the proxy {_public(proxy)}"
        self._base_url = base_url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, ssl=_tls()),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={name: value for name, value in headers.items() if isinstance(value, str)}
            | {"accept-encoding": ", ".join(_ENCODINGS)},
            proxy=proxy,
            timeout=aiohttp.ClientTimeout(),  # none: the caller bounds a call as a whole
        )

    async def get(self, path: str) -> Answered:
        """Ask without a body."""
        return await self._send("GET", path, None, {})

    async def post(
        self,
        path: str,
        body: Body,
        headers: Mapping[str, str],
        on_line: OnLine | None = None,
    ) -> Answered:
        """Send one request, and follow no redirect.

        Args:
            path: path behind the base URL.
            body: the JSON of the request.
            headers: more headers.
            on_line: gets each line of a successful response as it arrives.

        Returns:
            The response; or an error of the kind ``refused`` if the body cannot be written, ``network`` if the request was not sent,
            ``broken`` if no whole response arrives, ``garbled`` if it is not readable HTTP.
        """
        try:
            data = msgspec.json.encode(body)
        except (TypeError, ValueError, RecursionError) as error:
            return ModelUnavailable("refused", f"the request cannot be encoded: {type(error).__name__}")
        return await self._send("POST", path, data, headers, on_line)

    async def forward(
        self, path: str, body: bytes, headers: Mapping[str, str], on_line: OnLine | None = None
    ) -> Answered:
        """Send a body that is written already; ``on_line`` gets each line of a successful response as it arrives. As `post` otherwise."""
        # aiohttp warns of large bodies that are sent as one piece: that takes long.
        data = BytesIO(body)
        return await self._send("POST", path, data, {"content-type": "application/json", **headers}, on_line)

    async def delete(self, path: str) -> Answered:
        """Delete a resource."""
        return await self._send("DELETE", path, None, {})

    async def lines(self, path: str, on_line: OnLine) -> Answered:
        """Pass on each line of a resource of any length as it arrives; the response has only the body of a refusal."""
        return await self._send("GET", path, None, {}, on_line, keeps=False)

    async def _send(
        self,
        method: str,
        path: str,
        data: bytes | BytesIO | None,
        headers: Mapping[str, str],
        on_line: OnLine | None = None,
        *,
        keeps: bool = True,
    ) -> Answered:
        try:
            async with self._session.request(
                method, address_of(self._base_url, path), data=data, headers=headers, allow_redirects=False
            ) as response:
                read = Response(status_code=response.status, headers=response.headers, content=b"")
                if "," in response.headers.get("content-encoding", ""):
                    return ModelUnavailable("garbled", "the reply is compressed more than once")
                pieces: AsyncIterator[bytes] = response.content.iter_any()
                if on_line is not None and read.is_success:
                    pieces = _in_lines(pieces, on_line)
                if read.is_success and not keeps:
                    async for _ in pieces:
                        pass
                    return read
                content = await read_bounded(pieces, MAX_BODY_BYTES + 1 if read.is_success else MAX_ERROR_BYTES)
                return msgspec.structs.replace(read, content=content)
        except Exception as error:  # noqa: BLE001 - its errors may contain the key, and no list of them is complete
            return failure(error, self._asked)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


async def in_time(asked: Awaitable[Answered], within_s: float) -> Answered:
    """Wait for an answer; one that takes longer is a failure."""
    try:
        async with asyncio.timeout(within_s):
            return await asked
    except TimeoutError:
        return ModelUnavailable("timeout", f"no complete reply within {within_s:g} s")


def address_of(base_url: str, path: str) -> str:
    """Return the address of a path; the query of the base stays at the end."""
    place, _, query = base_url.partition("?")
    mark = "&" if "?" in path else "?"
    if query:
        return f"{place}{path}{mark}{query}"
    return place + path


def proxy_of(address: SplitResult) -> str | None:
    """Return the proxy of the environment through which an address is asked; None for none.

    Raises:
        InvalidUsage: it is not the address of an HTTP proxy.
    """
    if proxy_bypass(address.netloc):
        return None
    proxies = getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if proxy is None:
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts = urlsplit(proxy)
        is_http = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # no port, say
        is_http = False
    if not is_http:
        raise InvalidUsage(
            f"{address.netloc} would be asked through {_public(proxy)}, which is not an HTTP proxy (SOCKS is not supported); set "
            f"{address.scheme.upper()}_PROXY to an HTTP proxy, or name the host in NO_PROXY"
        )
    return proxy


def _public(proxy: str) -> str:
    """Return the address of a proxy without its user and password."""
    scheme, _, rest = proxy.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


async def read_bounded(pieces: AsyncIterator[bytes], limit: int) -> bytes:
    """Return the first bytes of a body. Its pieces are decompressed one by one, and none exceeds 1 MiB, so a gzip bomb stops here too."""
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) >= limit:
            break
    return bytes(body[:limit])


async def _in_lines(pieces: AsyncIterator[bytes], on_line: OnLine) -> AsyncGenerator[bytes]:
    """Yield the pieces of a body; each line is passed to ``on_line`` as soon as it is whole."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > MAX_BODY_BYTES:
            raise ValueError("a line is too long")
        for line in lines:
            on_line(line)
        yield piece
    if rest:
        on_line(rest)


def failure(error: Exception, host: str) -> ModelUnavailable:
    """Return the failure of a request, by the type of its first cause. Messages are left out: they may repeat the request."""
    last: BaseException = error
    kinds = [*type(error).__mro__]
    while last.__cause__ is not None:
        last = last.__cause__
        kinds += type(last).__mro__
    cause, names = type(last).__name__, {each.__name__ for each in kinds}
    if "ClientHttpProxyError" in names:
        status = getattr(error, "status", None)
        return ModelUnavailable(
            "refused" if status == _PROXY_KEY else "network", f"no connection to {host}: it answers HTTP {status}"
        )
    if "ClientProxyConnectionError" in names:
        return ModelUnavailable("network", f"no connection to {host}: the proxy cannot be reached ({cause})")
    if not names.isdisjoint(_UNSENT):
        return ModelUnavailable("network", f"no connection to {host}: {cause}")
    if not names.isdisjoint(_BROKEN):
        return ModelUnavailable("broken", f"the connection to {host} broke: {cause}")
    return ModelUnavailable("garbled", f"the reply of {host} is not readable HTTP: {cause}")


_PROXY_KEY = 407
_ENCODINGS = ("gzip", "deflate")
_UNSENT = ("ClientConnectorError", "ConnectError", "ConnectionRefusedError", "gaierror")
"""Errors of aiohttp, httpx2 and sockets that say that there was no connection."""
_BROKEN = ("ServerDisconnectedError", "ContentLengthError", "ReadError", "RemoteProtocolError", "OSError")
"""Errors that say that a response did not arrive as a whole."""


def headers_of(sdk: Any, key: str | None, base_url: str) -> dict[str, Any]:
    """Return the headers that the client of an SDK sends; it never connects, so it gets no TLS of its own."""
    import httpx2  # noqa: PLC0415 - costs 0.2 s; the SDKs import it

    unused = httpx2.AsyncClient(verify=_tls(), trust_env=False)
    client = sdk(api_key=key or "none", base_url=base_url, http_client=unused)
    return {**client.default_headers, **client.auth_headers}


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """Shared by all connections: reading the certificates takes 22 ms."""
    import httpx2  # noqa: PLC0415 - costs 0.2 s; the SDKs import it

    return httpx2.create_ssl_context()
