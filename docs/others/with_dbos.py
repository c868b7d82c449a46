"""DBOS: a workflow with a step that pays. At its start a program takes up the workflows that were cut off."""

from dbos import DBOS, SetWorkflowID
from pay import pay

DBOS(config={"name": "refunds", "system_database_url": "sqlite:///dbos.sqlite", "run_admin_server": False})


@DBOS.step()
def refund() -> None:
    pay()


@DBOS.workflow()
def close() -> None:
    refund()


DBOS.launch()
with SetWorkflowID("order 7"):
    close()
