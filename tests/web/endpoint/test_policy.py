"""Policies: tables by tool, and the ready ones."""

from __future__ import annotations

import pytest

from microagents.base.errors import InvalidUsage
from microagents.web.endpoint.policy import Policy, read_policy, shipped_policies
from tests.cli.commands import write


def test_the_shipped_policies_are_read_and_free_arguments_that_explain_or_tune() -> None:
    assert shipped_policies() == ["claude-code", "codex"]
    assert "description" in read_policy("claude-code").unvoted["Bash"]
    assert "justification" in read_policy("codex").unvoted["exec_command"]
    for name in shipped_policies():
        for tool, policy in read_policy(name).tools.items():
            assert policy.effect or policy.ignore or policy.text, tool
    commands = {"Bash": "command", "exec_command": "cmd"}
    for tool, argument in commands.items():
        assert all(argument not in read_policy(name).unvoted.get(tool, ()) for name in shipped_policies())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tools.x]\neffect = 'harmless'", "Invalid enum value 'harmless'"),
        ("[tools.x]\nignored = ['a']", "unknown field `ignored`"),
        ("[tool.x]\n", "unknown field `tool`"),
        ("temperature = 7", "`float` <= 2.0"),
        ("[tools", "cannot be read"),
    ],
)
def test_a_wrong_policy_is_refused_in_one_sentence(text: str, said: str) -> None:
    write("policy.toml", text)
    with pytest.raises(InvalidUsage, match=r"the policy 'policy\.toml' cannot be read") as refused:
        read_policy("policy.toml")
    assert said in str(refused.value)


def test_no_policy_leaves_every_margin_to_k() -> None:
    assert read_policy(None) == Policy()
    assert (Policy().rule(3).otherwise, Policy().rule(3).margins, Policy().rule(3).most) == (3, {}, 12)
