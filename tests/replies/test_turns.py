"""Turns of a prompt: their order, their one text, and what enters a digest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from microagents import Call, Prompt, Sample, ToolCall, Turn, run
from microagents.elections.election import Question
from microagents.elections.rules import FirstTo
from microagents.replies.chat import Sampling
from microagents.tasks.drift import Drift, Onward, Place

CALL = ToolCall("look_up", {"order": 7})
CALLS = Turn(role="assistant", calls=(CALL, CALL))
RESULTS = (Turn(role="tool", text="paid"), Turn(role="tool", call=1, outcome="error", text="gone"))


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ((RESULTS[0],), "turn 1 is the result of a call that no turn before it makes"),
        ((Turn(role="user", text="u", calls=(CALL,)),), "turn 1 is the user's, and calls tools"),
        ((Turn(role="assistant", text=" "),), "turn 1 has neither a text nor a call"),
        ((CALLS, RESULTS[0]), "turn 1 makes 2 calls, and the results behind it are of the calls [0]"),
        ((CALLS, *RESULTS[::-1]), "of the calls [1, 0]; each call needs one, in their order"),
        ((CALLS, Turn(role="user", text="u"), *RESULTS), "turn 1 makes 2 calls"),
        ((Turn(role="user", text="u"), RESULTS[0]), "turn 1 makes 0 calls"),
    ],
)
def test_turns_that_a_wire_refuses_are_refused_in_one_sentence(turns: tuple[Turn, ...], said: str) -> None:
    with pytest.raises(TypeError, match="the turns of a Prompt cannot be sent: ") as caught:
        Prompt(user="u", turns=turns)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tools", "said"),
    [("[", "Input data was truncated"), ("[{}]", "missing required field"), ("7", "Expected `array`")],
)
def test_tools_that_are_no_list_of_tools_are_refused_in_one_sentence(tools: str, said: str) -> None:
    with pytest.raises(TypeError, match=f"the tools of a Prompt must be a JSON list of objects .*{said}"):
        Prompt(user="u", tools=tools)


def test_a_prompt_is_one_text_for_a_model_that_takes_no_turns() -> None:
    turns = (CALLS, *RESULTS, Turn(role="assistant", text="It is 8."), Turn(role="user", text="No."))
    prompt = Prompt(system="s", user="Goal.", turns=turns, tools="[]", calls_as_text="Tools.")
    flat = prompt.flat
    assert flat.system == "s\n\nTools."
    assert flat.user.startswith('Goal.\nCall: {"arguments":{"order":7},"tool":"look_up"}\n<observation ')
    assert flat.user.count(' outcome="error">\ngone\n') == 1
    assert flat.user.endswith("\n\nYour earlier answer was:\nIt is 8.\nNo.")
    assert Prompt(user="Goal.").flat == Prompt(user="Goal.")


def test_digests_leave_out_what_a_wire_gave_and_have_all_else() -> None:
    def digest(*turns: Turn, **more: Any) -> bytes:
        asked = Question(
            prompts=(Prompt(user="u", turns=turns, **more),), reply="r", form=b"", rule=FirstTo(1), sampling=Sampling(),
            models=("m",), max_draws=1,
        )  # fmt: skip
        return asked.id_at("0/step/0").question_digest

    whole, given = (CALLS, *RESULTS), structs.replace(CALLS, items='{"signature":"x"}', by="m at u")
    assert digest(*whole) == digest(given, *RESULTS)
    others = [
        digest(),
        digest(*whole),
        digest(*whole, tools="[]"),
        digest(CALLS, RESULTS[0], structs.replace(RESULTS[1], text="x")),
    ]
    assert len({*others}) == 4


class Checked(Drift):
    """Finds the first reply wrong."""

    def verify(self, state: Place, reply: Onward) -> str | None:
        return None if reply == self.oracle(state) else "it is another"


def taking_turns(said: Callable[[Call], str], calls: list[Call]) -> Any:
    """A model that takes turns, and keeps its calls."""

    async def model(call: Call) -> Sample:
        calls.append(call)
        return Sample(text=said(call), model="own")

    model.takes_turns = True  # type: ignore[attr-defined]
    return model


async def test_feedback_is_a_turn_of_the_assistant_and_one_of_the_user() -> None:
    calls: list[Call] = []
    model = taking_turns(lambda call: f"number = {22 if call.rejected else 23}", calls)
    result = await run(Checked(length=1), models=[model], k=1, runs_dir=None)
    assert result.outcome == "completed"
    first, again = calls
    assert again.prompt.user == first.prompt.user
    said, feedback = again.prompt.turns
    assert (said.role, said.text, feedback.role) == ("assistant", "number = 23", "user")
    assert feedback.text.startswith("It was checked, and it is wrong:\n<feedback ")
    assert again.question == first.prompt
