"""Decision endpoints, of OpenAI and of System One: the probability of each option of a reply, and no text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.models.http.spec_options import either
from microagents.models.openai import OpenAIWire
from microagents.models.prices import NO_PRICES, UserPrices
from microagents.models.weighing import asked_for, in_order, question_in, weighed
from microagents.replies.chat import Sample

if TYPE_CHECKING:
    from microagents.models.http.sending import Body, Parameters
    from microagents.models.model import Call, ModelSpec

REFUSAL = "refusal"
WIRES = ("decisions", "systemone")


class OpenAIDecisions(OpenAIWire):
    """A model behind ``POST /v1/decisions``. One call weighs the options of one reply; the next one sees them in the opposite order.

    With ``wire=systemone`` it is asked by ``POST /v1/systemone``, which Ollama, LocalAI, llama.cpp and vLLM have.
    """

    more_options = ("at_least", "wire")
    batch_kinds = ()
    effort_name = "reasoning.effort"
    substitutes: ClassVar = {}

    def __init__(self, spec: ModelSpec, prices: UserPrices = NO_PRICES) -> None:
        self._wire = spec.options.get("wire", WIRES[0])
        if self._wire not in WIRES:
            raise InvalidUsage(f"wire={self._wire!r} is not {either(WIRES)}")
        super().__init__(spec, prices)

    takes_files = False

    @property
    def takes_turns(self) -> bool:  # type: ignore[override]  # as the model's
        """False: the evidence is one text."""
        return False

    @property
    def path(self) -> str:  # type: ignore[override]  # the spec names it
        """Path of the wire."""
        return f"/{self._wire}"

    def _parameters(self, call: Call) -> Parameters:  # noqa: ARG002 - it writes nothing
        return {}

    def _content(self, call: Call, parameters: Parameters) -> Body:  # noqa: ARG002 - it has none
        asked, options = question_in(call), asked_for(call)
        instructions = f"Which value of `{options.field}` is right?"
        if self._wire == "systemone":
            state = "\n\n".join(text for text in (asked.system, asked.user) if text)
            criteria = {name: name for name in in_order(call, options)}
            of_field = {"type": "choice", "instructions": instructions, "criteria": criteria}
            return {"model": self.model, "state": state, "questions": {options.field: of_field}}
        messages = [
            {"role": role, "content": text} for role, text in (("system", asked.system), ("user", asked.user)) if text
        ]
        choices = [
            {"value": value if isinstance(value := options.values[name], bool) else name}
            for name in in_order(call, options)
        ]
        question = {"type": "choice", "instructions": instructions, "choices": choices}
        return {"model": self.model, "input": messages, "questions": [question]}

    def _read(self, reply: Body, call: Call) -> Sample:
        if "answers" not in reply:
            raise ValueError("Expected answers")
        answers, usage = reply["answers"], self.meter.usage(reply)
        text = self._redaction.without_key(json.dumps(answers, ensure_ascii=False))
        written = Sample(text=text, usage=usage, model=self.name)
        answer = _first(answers)
        if answer.type == REFUSAL:
            return msgspec.structs.replace(written, finish=REFUSAL)
        given = answer.probabilities
        if isinstance(given, dict):
            found = given
        else:
            found = {each.option: each.probability for each in given}
        return weighed(asked_for(call), found, written)


class _Probability(Struct):
    value: str | bool
    probability: float

    @property
    def option(self) -> str:
        if isinstance(self.value, bool):
            return str(self.value).lower()
        return self.value


class _Answer(Struct):
    type: str = ""
    probabilities: list[_Probability] | dict[str, float] = []


def _first(answers: Any) -> _Answer:
    """Read the answer to the only question; an empty one if it cannot be read."""
    try:
        found = msgspec.convert(answers, tuple[_Answer] | dict[str, _Answer])
    except msgspec.MsgspecError:
        return _Answer()
    return next(iter(found.values() if isinstance(found, dict) else found), _Answer())
