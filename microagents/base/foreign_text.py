"""Foreign text, of tools, servers, files and models, as prompts and logs show it: nothing is invisible, and nothing ends its fence."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count

TAG_BYTES = 4
"""Length of the digest in the tag of a fence; it is written as twice as many hexadecimal digits."""
_HIDDEN = re.compile(
    # Control characters except line breaks and tabs; characters of format, direction and private use; surrogates; other separators of
    # lines; letters and marks without a shape; all of plane 14, which has the tags.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\uf8ff\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
    # A variation selector shapes the character before it, as in an emoji. More of them in a row shape nothing.
    "|(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]"
)
_FENCE = re.compile(rf"^<(\w+) ([0-9a-f]{{{2 * TAG_BYTES}}})[^>\n]*>\n(.*?)\n</\1 \2>$", re.MULTILINE | re.DOTALL)


def visible(text: str) -> str:
    r"""Write every character that is invisible, or changes how others are shown, as the escape that JSON has for it, such as ``\u202e``.

    JSON stays the same value: there such a character stands in a string.
    """
    return _HIDDEN.sub(json_escape, text)


def in_whole_characters(text: str) -> str:
    """Join halves of characters, which may come in two pieces; one alone is no text, and could not go back."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_LATIN = str.maketrans(
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf",
    "ABEKMHOPCTXaeopcyxijsABEZHIKMNOPTYXo",
)
"""Letters of other scripts that look like Latin ones."""
_LOOKS = {"Zs": " ", "Pd": "-", "Pi": "'", "Pf": "'", "Mn": "", "Cf": ""}
"""Look of a character by its category: all spaces, dashes and quotes look alike, and marks are overlooked."""


def told_apart(texts: Sequence[str]) -> list[str]:
    """Write texts that look like another one of them with the code points of their characters beyond ASCII."""
    looks = [_look_of(text) for text in texts]
    numbers, found = Counter(looks), []
    for text, look in zip(texts, looks, strict=True):
        if numbers[look] > 1:
            found.append(ascii(text)[1:-1])
        else:
            found.append(text)
    return found


def _look_of(text: str) -> str:
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFKD", text).translate(_LATIN)
    return "".join(_LOOKS.get(unicodedata.category(letter), letter) for letter in letters)


def printable_line(text: str) -> str:
    """Write a text on one line, with a space for each run of spaces, line ends and characters that cannot be printed."""
    printable = [letter if letter.isprintable() else " " for letter in text]
    return " ".join("".join(printable).split())


def bounded(text: str, most: int) -> str:
    """Show all characters of a text; of one of more than ``most`` characters cut the middle out, with a note."""
    if len(text) <= most:
        text = visible(text)
    total, half = len(text), most // 2
    if total <= most:
        return text
    head, tail = visible(text[:half])[:half], visible(text[total - half :])[-half:]
    return f"{head}\n[... {total - 2 * half:,} of {total:,} characters are left out ...]\n{tail}"


def fenced(name: str, text: str, note: str = "") -> str:
    """Put a text between ``<NAME TAG>`` and ``</NAME TAG>``, on lines of their own. The tag is a digest of the text, which lacks it.

    The note stands in the first line, such as `` outcome="error"``.
    """
    shown = visible(text)
    tag = _tag_of(shown)
    return f"<{name} {tag}{note}>\n{shown}\n</{name} {tag}>"


def fenced_in(text: str, name: str) -> Sequence[str]:
    """List the texts in the fences of a name that a prompt has. A fence within the text of another one is a part of that text."""
    return [found[3] for found in _FENCE.finditer(text) if found[1] == name]


def json_escape(found: re.Match[str]) -> str:
    """Write a match of a pattern as JSON's escapes."""
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _tag_of(shown: str) -> str:
    """Return the first digest of a text that it does not contain."""
    data, folded = shown.encode(), shown.lower()
    tags = (blake2b(data, digest_size=TAG_BYTES, salt=number.to_bytes(8, "big")).hexdigest() for number in count())
    return next(tag for tag in tags if tag not in folded)
