"""Agents: tasks in which a model acts through tools, one elected action after the other."""
