"""Pictures with a text drawn on them, in several formats, a PDF of such pages, and the reader that decodes them again.

The text is drawn as black and white modules, a bit each, so that it survives the loss of JPEG, and so that a reader which gets another
picture, or a part of one, reads another text or none: the checksum tells.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Collection, Sequence
from io import BytesIO
from typing import Any

from PIL import Image, UnidentifiedImageError

SIDE, ROW, EDGE = 8, 32, 2
"""Pixels of a module, modules of a row, and rows of white around them."""
FORMATS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif"}
PICTURES = tuple(FORMATS.values())
ALL = (*PICTURES, "application/pdf")


class Unreadable(Exception):
    """A picture or a file that cannot be decoded; the argument is the server's message."""


def _image(text: str) -> Image.Image:
    data = text.encode()
    whole = len(data).to_bytes(2, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    bits = "".join(f"{byte:08b}" for byte in whole)
    rows = -(-len(bits) // ROW)
    drawn = Image.new("L", ((ROW + 2 * EDGE) * SIDE, (rows + 2 * EDGE) * SIDE), 255)
    for place, bit in enumerate(bits):
        if bit == "1":
            left, top = (place % ROW + EDGE) * SIDE, (place // ROW + EDGE) * SIDE
            drawn.paste(0, (left, top, left + SIDE, top + SIDE))
    return drawn


def picture(text: str, form: str = "PNG") -> bytes:
    """Draw a text."""
    stream = BytesIO()
    _image(text).save(stream, form)
    return stream.getvalue()


def pdf(texts: Sequence[str]) -> bytes:
    """Draw a text on each page of a PDF."""
    stream = BytesIO()
    first, *rest = [_image(text).convert("RGB") for text in texts]
    first.save(stream, "PDF", save_all=True, append_images=rest)
    return stream.getvalue()


def text_on(data: bytes) -> str:
    """Read the text of a picture."""
    try:
        seen = Image.open(BytesIO(data)).convert("L")
    except (UnidentifiedImageError, OSError) as error:
        raise Unreadable("Could not process image") from error
    bits = []
    for row in range(EDGE, seen.height // SIDE - EDGE):
        for column in range(EDGE, EDGE + ROW):
            found: Any = seen.getpixel((column * SIDE + SIDE // 2, row * SIDE + SIDE // 2))
            bits.append("1" if found < 128 else "0")
    whole = bytes(int("".join(bits[place : place + 8]), 2) for place in range(0, len(bits), 8))
    size = int.from_bytes(whole[:2], "big")
    text, checksum = whole[2 : 2 + size], whole[2 + size : 6 + size]
    if zlib.crc32(text) != int.from_bytes(checksum, "big"):
        raise Unreadable("The image shows no text")
    return text.decode()


def texts_in(data: str, kind: str, taken: Collection[str]) -> list[str]:
    """Decode a picture, or the pages of a PDF, from base64.

    Raises:
        Unreadable: it is of another kind than it says, or of one that is not taken.
    """
    if kind not in taken:
        raise Unreadable(f"Unsupported MIME type: {kind}; expected {', '.join(taken)}")
    try:
        content = b64decode(data, validate=True)
    except NotBase64 as error:
        raise Unreadable("Invalid base64 data") from error
    if kind == "application/pdf":
        # Pages of this double are JPEG streams, in the order of their objects.
        pages = [found[1] for found in re.finditer(rb"/DCTDecode.*?stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL)]
        if not content.startswith(b"%PDF-") or not pages:
            raise Unreadable("Invalid PDF")
        return [text_on(page) for page in pages]
    found = Image.open(BytesIO(content)).format or ""
    if FORMATS.get(found) != kind:
        raise Unreadable(f"The image was specified as {kind}, but it is {found}")
    return [text_on(content)]
