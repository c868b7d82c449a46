"""Histories that real servers refuse: the shapes of each wire, and the order of its calls and results.

The double keeps no memory of its replies: a seal (a signature, encrypted reasoning) is the digest of the content that it belongs to and
of the model that gave it, and the id of an item tells which reasoning it came with.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from tests.doubles.drawn import PICTURES, texts_in

T = TypeVar("T")
Many: TypeAlias = Annotated[list[T], Meta(min_length=1)]
Filled: TypeAlias = Annotated[str, Meta(pattern=r"\S")]
Id: TypeAlias = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]+$")]
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
GOOGLES_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}")
NOT_GOOGLES = re.compile(r"'(\$schema|additionalProperties|\$ref)': |'type': \[")
GOOGLES_DUMMY = "skip_thought_signature_validator"
"""Stands for the signature of a call that another model made, by Google's guide."""
GOOGLES_FIELDS = frozenset((
    *("model", "messages", "tools", "tool_choice", "temperature", "top_p", "max_tokens", "max_completion_tokens", "n"),
    *("stop", "stream", "stream_options", "response_format", "reasoning_effort", "service_tier"),
))  # fmt: skip
DATA_URL = re.compile("data:(?P<type>[a-z/]+);base64,(?P<data>.+)", re.DOTALL)
GOOGLES_PICTURES = ("image/png", "image/jpeg", "image/webp")
MISTRALS_ID = re.compile(r"[a-zA-Z0-9]{9}")


class Refused(Exception):
    """A request that the server does not answer; the argument is its message."""


class Heard(Struct):
    """The conversation as the server understands it."""

    asked: str = ""
    """All texts of the user."""
    seen: list[str] = []
    """Texts of the pictures and files, in their order."""
    steps: int = 0
    """Replies with calls so far."""
    results: list[str] = []
    """Results of all calls so far, in their order."""


class Shape(Struct, forbid_unknown_fields=True, kw_only=True):
    """An object without unknown fields."""


class File(Shape):
    """A part with a picture or a file."""

    def read(self) -> list[str]:
        """Decode it."""
        raise NotImplementedError


def read_url(url: str, taken: Collection[str]) -> list[str]:
    """Decode an address with data in it; any other is only named."""
    found = DATA_URL.fullmatch(url)
    if found is None:
        if not url.startswith("https://"):
            raise Refused(f"Invalid URL: {url[:40]}")
        return [url]
    return texts_in(found["data"], found["type"], taken)


def seal(*parts: str) -> str:
    """Return the digest of texts, which only this double can make."""
    return blake2b("\n".join(parts).encode(), key=b"double", digest_size=12).hexdigest()


class Words(Struct, frozen=True):
    """A provider's words for calls and results that do not fit."""

    unanswered: str
    unknown: str
    same: str


class Loop:
    """Calls and results of a conversation: each call is answered once, next to the others of its reply."""

    def __init__(self, words: Words) -> None:
        self.heard = Heard()
        self._words = words
        self._open: list[str] = []
        self._ids: set[str] = set()

    def call(self, name: str) -> None:
        """Take in the id of a call."""
        if name in self._ids:
            raise Refused(self._words.same.format(name))
        self.heard.steps += not self._open
        self._ids.add(name)
        self._open.append(name)

    def result(self, name: str, text: str) -> None:
        """Take in the id and the text of a result."""
        if name not in self._open:
            raise Refused(self._words.unknown.format(name))
        self._open.remove(name)
        self.heard.results.append(text)

    def close(self, asked: str = "") -> None:
        """Take in anything else, which stands behind all results."""
        if self._open:
            raise Refused(self._words.unanswered.format(", ".join(self._open)))
        self.heard.asked += asked


def object_in(arguments: str) -> None:
    """Refuse arguments that are not the text of one object."""
    try:
        msgspec.json.decode(arguments, type=dict)
    except msgspec.DecodeError as error:
        raise Refused(f"the arguments of a call must be one object in JSON format: {error}") from None


def check_tools(tools: Sequence[tuple[str, Any]] | None, used: Iterable[str], form: re.Pattern[str] = NAME) -> None:
    """Refuse tools, each with its name and schema, and names of calls that no model could be shown."""
    names = [name for name, _ in tools or ()]
    for name in (*names, *used):
        if not form.fullmatch(name):
            raise Refused(f"Invalid name {name!r}: string does not match pattern '^{form.pattern}$'.")
    if len(names) > len(set(names)):
        raise Refused("Tool names must be unique.")
    for name, schema in tools or ():
        if schema.get("type") != "object":
            raise Refused(f"Invalid schema for function '{name}': schema must have type 'object'")
        if form is GOOGLES_NAME and (found := NOT_GOOGLES.search(str(schema))):
            raise Refused(f"Invalid JSON payload received. Unknown name or value {found[0]!r} in the schema of {name}")


def text_of(content: str | list[Any] | None, seen: list[str] | None = None) -> str:
    """Return the text of a content; the texts of its pictures and files are added to those seen."""
    if isinstance(content, str):
        return content
    texts = []
    for part in content or ():
        if isinstance(part, File):
            if seen is None:
                raise Refused("Only text is allowed here.")
            seen += part.read()
        else:
            texts.append(part.text)
    return "".join(texts)


# -- chat completions --------------------------------------------------------------------------------------------------

CHAT = Words(
    unanswered="An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: {}",
    unknown="Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls' ({}).",
    same="'{}' is the id of an earlier call.",
)


class ChatPart(Shape, tag_field="type", tag="text"):
    text: Filled
    prompt_cache_breakpoint: Any = None


class ChatImageUrl(Shape):
    url: str
    detail: Literal["auto", "low", "high"] = "auto"


class ChatImage(File, tag_field="type", tag="image_url"):
    image_url: ChatImageUrl

    def read(self) -> list[str]:
        return read_url(self.image_url.url, PICTURES)


class ChatFileData(Shape):
    filename: Filled
    file_data: str


class ChatFile(File, tag_field="type", tag="file"):
    file: ChatFileData

    def read(self) -> list[str]:
        return read_url(self.file.file_data, ("application/pdf",))


class ChatFunction(Shape):
    name: str
    arguments: str


class ChatCall(Shape):
    id: Annotated[str, Meta(min_length=1)]
    type: Literal["function"]
    function: ChatFunction
    extra_content: dict[str, dict[str, str]] = {}


class ChatText(Shape, tag_field="role", tag="system"):
    content: str | Many[ChatPart]


class ChatUser(Shape, tag_field="role", tag="user"):
    content: str | Many[ChatPart | ChatImage | ChatFile]


class ChatResult(ChatText, tag="tool"):
    tool_call_id: str


class ChatReply(Shape, tag_field="role", tag="assistant"):
    content: str | Many[ChatPart] | None = None
    tool_calls: Many[ChatCall] | None = None
    reasoning_content: str | None = None


class ChatSpec(Shape):
    name: str
    parameters: dict[str, Any]
    description: str = ""
    strict: bool | None = None


class ChatTool(Shape):
    type: Literal["function"]
    function: ChatSpec


class ChatBody(Struct):
    model: str
    messages: Many[ChatText | ChatUser | ChatReply | ChatResult]
    tools: Many[ChatTool] | None = None


def heard_by_chat(given: Mapping[str, Any], family: str) -> Heard:
    """Check a request for a chat completion.

    Args:
        given: the request.
        family: ``openai``, or ``mistral``, ``deepseek``, ``gemini`` for the rules of their servers.
    """
    if family == "gemini":
        _check_googles(given)
    body, loop = msgspec.convert(given, ChatBody), Loop(CHAT)
    replies = [each for each in body.messages if isinstance(each, ChatReply)]
    names = [call.function.name for reply in replies for call in reply.tool_calls or ()]
    tools = [(each.function.name, each.function.parameters) for each in body.tools or ()]
    check_tools(tools, names, GOOGLES_NAME if family == "gemini" else NAME)
    kinds = [type(each) for each in body.messages]
    for pair in pairwise(kinds):
        if family == "mistral" and pair in ((ChatResult, ChatUser), (ChatUser, ChatUser)):
            raise Refused(f"Unexpected role 'user' after role '{'tool' if pair[0] is ChatResult else 'user'}'")
    current = max(
        number for number, each in enumerate([ChatUser(content=""), *body.messages]) if isinstance(each, ChatUser)
    )
    for number, message in enumerate(body.messages):
        if isinstance(message, ChatResult):
            loop.result(message.tool_call_id, text_of(message.content))
            continue
        if isinstance(message, ChatUser):
            check_googles_files(message, family)
        loop.close(text_of(message.content, loop.heard.seen) if isinstance(message, ChatUser) else "")
        if isinstance(message, ChatReply):
            _hear_reply(message, loop, family, body.model, is_in_loop=number >= current)
    loop.close()
    if isinstance(body.messages[-1], ChatReply):
        raise Refused("Expected last role User or Tool for serving but got assistant")
    return loop.heard


def check_googles_files(message: ChatUser, family: str) -> None:
    """Refuse a file that Google's address does not take."""
    for part in message.content if family == "gemini" else ():
        if isinstance(part, ChatFile):
            raise Refused("Invalid content part type: file")
        if isinstance(part, ChatImage):
            read_url(part.image_url.url, GOOGLES_PICTURES)


def _check_googles(given: Mapping[str, Any]) -> None:
    """Refuse a request that Google's address for OpenAI's clients refuses."""
    for name in given:
        if name not in GOOGLES_FIELDS:
            raise Refused(f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.')
    if given.get("n", 1) != 1:
        raise Refused("Multiple candidates is not enabled for this model")
    if given.get("tools") == []:
        raise Refused("tools must not be empty")


def _hear_reply(reply: ChatReply, loop: Loop, family: str, model: str, *, is_in_loop: bool) -> None:
    calls = reply.tool_calls or []
    if not calls and not reply.content:
        raise Refused("Invalid value for 'content': expected a string, got null.")
    for call in calls:
        object_in(call.function.arguments)
        if family == "mistral" and not MISTRALS_ID.fullmatch(call.id):
            raise Refused(f"Tool call id was {call.id} but must be a-z, A-Z, 0-9, with a length of 9.")
        if call.extra_content and family != "gemini":
            raise Refused("Extra inputs are not permitted: extra_content")
        loop.call(call.id)
    thought = reply.reasoning_content
    if family == "deepseek" and is_in_loop and thought is None:
        raise Refused("Missing `reasoning_content` field in the assistant message.")
    # It is empty where another model gave the reply.
    if thought and (family != "deepseek" or seal(model, *[call.function.name for call in calls]) not in thought):
        raise Refused("The `reasoning_content` is not the one of this message.")
    if family == "gemini" and is_in_loop and calls:
        signature = calls[0].extra_content.get("google", {}).get("thought_signature", "missing")
        if signature not in (seal(model, calls[0].function.name), GOOGLES_DUMMY):
            raise Refused(f"Function call has no valid thought_signature in functionCall parts: {signature}")


# -- responses ---------------------------------------------------------------------------------------------------------

RESPONSES = Words(
    unanswered="No tool output found for function call {}.",
    unknown="No tool call found for function call output with call_id {}, or there are two.",
    same="Duplicate item found with id {}.",
)


class InputPart(Shape, tag_field="type", tag="input_text"):
    text: str
    prompt_cache_breakpoint: Any = None
    annotations: Any = None
    logprobs: Any = None


class OutputPart(InputPart, tag="output_text"):
    pass


class InputImage(File, tag_field="type", tag="input_image"):
    image_url: str
    detail: Literal["auto", "low", "high"]

    def read(self) -> list[str]:
        return read_url(self.image_url, PICTURES)


class InputFile(File, tag_field="type", tag="input_file"):
    filename: str = ""
    file_data: str = ""
    file_url: str = ""

    def read(self) -> list[str]:
        if bool(self.file_url) == bool(self.file_data) or bool(self.filename) != bool(self.file_data):
            raise Refused("Provide filename and file_data, or file_url.")
        return read_url(self.file_url or self.file_data, ("application/pdf",))


class InputMessage(Shape, tag="message"):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Many[InputPart | OutputPart | InputImage | InputFile]
    id: Annotated[str, Meta(pattern="^msg_")] = ""
    status: str = ""
    phase: str | None = None


class InputCall(Shape, tag="function_call"):
    name: str
    arguments: str
    call_id: Annotated[str, Meta(min_length=1, max_length=64)]
    id: Annotated[str, Meta(pattern="^fc_")] = ""
    status: str = ""


class InputOutput(Shape, tag="function_call_output"):
    call_id: str
    output: str | Many[InputPart | InputImage | InputFile]
    id: str = ""
    status: str = ""


class InputReasoning(Shape, tag="reasoning"):
    id: Annotated[str, Meta(pattern="^rs_")]
    summary: list[Any]
    encrypted_content: str = ""
    content: Any = None
    status: str | None = None


class InputTool(Shape):
    type: Literal["function"]
    name: str
    parameters: dict[str, Any]
    description: str = ""
    strict: bool | None = None


class ResponsesBody(Struct):
    model: str
    input: Filled | Many[InputMessage | InputCall | InputOutput | InputReasoning]
    tools: Many[InputTool] | None = None


def heard_by_responses(given: Mapping[str, Any]) -> Heard:
    """Check a request for a response; nothing is stored."""
    items = given.get("input")
    if isinstance(items, list):
        given = {**given, "input": [{"type": "message", **each} for each in items]}
    body, loop = msgspec.convert(given, ResponsesBody), Loop(RESPONSES)
    if isinstance(body.input, str):
        return Heard(asked=body.input)
    names = [each.name for each in body.input if isinstance(each, InputCall)]
    check_tools([(each.name, each.parameters) for each in body.tools or ()], names)
    reasoned = set[str]()
    for item, following in zip(body.input, [*body.input[1:], None], strict=True):
        mark = item.id.partition("_")[2].partition("_")[0]
        if isinstance(item, InputReasoning):
            _check_reasoning(item, mark, body.model, following)
            reasoned.add(mark)
        elif mark.startswith("r") and mark not in reasoned:
            raise Refused(f"Item '{item.id}' was provided without its required 'reasoning' item: 'rs_{mark}'.")
        if isinstance(item, InputCall):
            object_in(item.arguments)
            loop.call(item.call_id)
        elif isinstance(item, InputOutput):
            loop.result(item.call_id, text_of(item.output, loop.heard.seen))
        elif isinstance(item, InputMessage):
            _check_parts(item)
            loop.close(text_of(item.content, loop.heard.seen) if item.role == "user" else "")
    loop.close()
    return loop.heard


def _check_parts(item: InputMessage) -> None:
    is_reply = item.role == "assistant"
    for part in item.content:
        if not isinstance(part, str) and isinstance(part, OutputPart) != is_reply:
            expected = "output_text" if is_reply else "input_text"
            raise Refused(f"Invalid value: '{type(part).__name__}'. Supported values are: '{expected}'.")


def _check_reasoning(item: InputReasoning, mark: str, model: str, following: Any) -> None:
    """Refuse reasoning that is not whole, or is not followed by the item that it came with."""
    if item.encrypted_content != seal(model, item.id):
        told = "could not be verified" if item.encrypted_content else "is missing, and nothing is stored"
        raise Refused(f"The encrypted content for item {item.id} {told}.")
    if following is None or following.id.partition("_")[2].partition("_")[0] != mark:
        raise Refused(f"Item '{item.id}' of type 'reasoning' was provided without its required following item.")


# -- messages ----------------------------------------------------------------------------------------------------------

MESSAGES = Words(
    unanswered="`tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have "
    "a corresponding `tool_result` block in the next message.",
    unknown="unexpected `tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` block must have one corresponding "
    "`tool_use` block in the previous message.",
    same="`tool_use` ids must be unique: {}",
)


class Block(Shape):
    cache_control: Any = None


class TextBlock(Block, tag="text", kw_only=True):
    text: Filled
    citations: Any = None


class Base64(Shape, tag="base64"):
    media_type: str
    data: str


class Url(Shape, tag="url"):
    url: str


class ImageBlock(File, tag="image", kw_only=True):
    source: Base64 | Url
    cache_control: Any = None
    kinds: ClassVar[tuple[str, ...]] = PICTURES

    def read(self) -> list[str]:
        if isinstance(self.source, Url):
            return read_url(self.source.url, ())
        return texts_in(self.source.data, self.source.media_type, self.kinds)


class DocumentBlock(ImageBlock, tag="document", kw_only=True):
    title: str = ""
    kinds: ClassVar[tuple[str, ...]] = ("application/pdf",)


class Thinking(Shape, tag="thinking"):
    thinking: str
    signature: str


class Use(Block, tag="tool_use", kw_only=True):
    id: Id
    name: str
    input: dict[str, Any]


class Result(Block, tag="tool_result", kw_only=True):
    tool_use_id: str
    content: str | list[TextBlock | ImageBlock | DocumentBlock] = ""
    is_error: bool = False


class UserMessage(Shape, tag_field="role", tag="user"):
    content: Filled | Many[TextBlock | Result | ImageBlock | DocumentBlock]


class ReplyMessage(Shape, tag_field="role", tag="assistant"):
    content: Filled | Many[TextBlock | Thinking | Use]


AnyBlock: TypeAlias = TextBlock | Thinking | Use | Result | ImageBlock | DocumentBlock


class Tool(Block, kw_only=True):
    name: str
    input_schema: dict[str, Any]
    description: str = ""


class MessagesBody(Struct):
    model: str
    max_tokens: int
    messages: Many[UserMessage | ReplyMessage]
    tools: Many[Tool] | None = None
    system: Filled | Many[TextBlock] | None = None
    thinking: dict[str, Any] = {}


def heard_by_messages(given: Mapping[str, Any]) -> Heard:
    """Check a request for a message."""
    body, loop = msgspec.convert(given, MessagesBody), Loop(MESSAGES)
    for message in (body.messages[0], body.messages[-1]):
        if isinstance(message, ReplyMessage):
            raise Refused("The conversation must begin and end with a user message; prefill is not supported.")
    contents = [_blocks(each) for each in body.messages]
    uses = [block.name for blocks in contents for block in blocks if isinstance(block, Use)]
    check_tools([(each.name, each.input_schema) for each in body.tools or ()], uses)
    for message, blocks in zip(body.messages, contents, strict=True):
        for block in blocks:
            _hear_block(block, loop, body.model, is_users=isinstance(message, UserMessage))
        if isinstance(message, UserMessage):
            loop.close()
    replies = [_blocks(each) for each in body.messages if isinstance(each, ReplyMessage)]
    # Models that think adaptively take replies without it.
    is_unthought = bool(replies) and isinstance(replies[-1][-1], Use) and not isinstance(replies[-1][0], Thinking)
    if is_unthought and body.thinking.get("type") == "enabled":
        raise Refused(
            "Expected `thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message must start with it."
        )
    return loop.heard


def _blocks(message: UserMessage | ReplyMessage) -> Sequence[AnyBlock]:
    if isinstance(message.content, str):
        return [TextBlock(text=message.content)]
    return message.content


def _hear_block(block: AnyBlock, loop: Loop, model: str, *, is_users: bool) -> None:
    if isinstance(block, Result):
        loop.result(block.tool_use_id, text_of(block.content, loop.heard.seen))
    elif isinstance(block, ImageBlock):
        loop.heard.seen += block.read()
        loop.close()
    elif isinstance(block, Use):
        loop.call(block.id)
    elif isinstance(block, Thinking):
        if block.signature != seal(model, block.thinking):
            raise Refused("Invalid `signature` in `thinking` block")
    elif is_users:
        loop.close(block.text)
