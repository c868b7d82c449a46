"""LangGraph: a node that pays, with a checkpoint on disk before and after it, and a program that goes on from the last one."""

import sqlite3
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from pay import pay


class Order(TypedDict):
    is_paid: bool


def refund(_: Order) -> Order:
    pay()
    return {"is_paid": True}


graph = StateGraph(Order).add_node("refund", refund).add_edge(START, "refund").add_edge("refund", END)
compiled = graph.compile(checkpointer=SqliteSaver(sqlite3.connect("checkpoints.sqlite", check_same_thread=False)))
config = {"configurable": {"thread_id": "order 7"}}
is_begun = bool(compiled.get_state(config).next)
compiled.invoke(None if is_begun else {"is_paid": False}, config, durability="sync")
