"""Pictures and files as each wire takes them, their refusal by the name of a model, and the tokens that they can cost."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from microagents.models.capabilities import Capabilities
from microagents.models.http.spec_options import either
from microagents.replies.media import NAMES, UNKNOWN_PICTURE, Media

Part = dict[str, Any]
NO_CONTENTS: Mapping[str, bytes] = {}


class PartForm(Struct, frozen=True):
    """Form of the parts of a wire."""

    text: str
    """Type of a part with a text."""
    write: Callable[[Media, str], Part]
    """Writes a picture or a file, with its bytes as base64."""

    def parts(self, files: Sequence[Media], contents: Mapping[str, bytes]) -> Iterator[Part]:
        """Yield the parts of files."""
        for file in files:
            yield self.write(file, "" if file.address else b64encode(contents[file.digest]).decode())

    def content(
        self, texts: Sequence[str], files: Sequence[Media], contents: Mapping[str, bytes], mark: Mapping[str, Any] = {}
    ) -> str | list[Part]:
        """Return the content of a turn: its only text, or parts with the files behind the first of two texts.

        The first of two texts gets the mark, which ends a cached prefix.
        """
        if not files and not mark:
            return "".join(texts)
        *before, last = [{"type": self.text, "text": text} for text in texts]
        for part in before:
            part.update(mark)
        parts = [*before, *self.parts(files, contents), last]
        return [part for part in parts if part.get("text", "-").strip()]


def _url_of(file: Media, data: str) -> str:
    return file.address or f"data:{file.media_type};base64,{data}"


def _name_of(file: Media) -> str:
    return file.name or "file.pdf"


def _chat_part(file: Media, data: str) -> Part:
    if file.is_picture:
        return {"type": "image_url", "image_url": {"url": _url_of(file, data)}}
    return {"type": "file", "file": {"filename": _name_of(file), "file_data": _url_of(file, data)}}


def _responses_part(file: Media, data: str) -> Part:
    if file.is_picture:
        return {"type": "input_image", "image_url": _url_of(file, data), "detail": "auto"}
    if file.address:
        return {"type": "input_file", "file_url": file.address}
    return {"type": "input_file", "filename": _name_of(file), "file_data": _url_of(file, data)}


def _messages_part(file: Media, data: str) -> Part:
    kind = "image" if file.is_picture else "document"
    if file.address:
        source = {"type": "url", "url": file.address}
    else:
        source = {"type": "base64", "media_type": file.media_type, "data": data}
    return {"type": kind, "source": source}


CHAT, RESPONSES, MESSAGES = (
    PartForm("text", _chat_part),
    PartForm("input_text", _responses_part),
    PartForm("text", _messages_part),
)


def refusal_of(file: Media, name: str, capabilities: Capabilities, form: PartForm) -> str | None:
    """Say why a model, or its wire, does not take a picture or a file; None if it does, as far as is known."""
    if form is CHAT and file.address and not file.is_picture:
        return f"chat completions take no address of a PDF (give the file, or ask {name} by openai-responses:)"
    taken = capabilities.files
    if taken is None or file.media_type in taken or (taken and file.media_type == UNKNOWN_PICTURE):
        return None
    if not taken:
        return f"{name} takes no pictures and files"
    return f"{name} takes {either([NAMES[each] for each in taken])}"


def most_file_tokens(are_pictures: Iterable[bool], capabilities: Capabilities) -> int | None:
    """Bound the tokens of the files of a prompt, of each of which it is known whether it is a picture; None without a rule of the provider.

    A provider makes a picture smaller until it costs a known number of tokens at most. The pages of a PDF cannot be counted without
    decoding it, so it may fill the context window.
    """
    total = 0
    for is_picture in are_pictures:
        most = capabilities.picture_tokens if is_picture else capabilities.context_window
        if most is None:
            return None
        total += most
    if capabilities.context_window is None:
        return total
    return min(total, capabilities.context_window)
