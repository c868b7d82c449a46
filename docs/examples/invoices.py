"""Results in the types that a task declares."""

from datetime import date
from decimal import Decimal
from typing import Any

from microagents import Prompt, Reply, RowTask, run_sync


class Invoice(Reply, frozen=True):
    due: date
    total: Decimal


class Invoices(RowTask[Invoice]):
    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(system="When is it due, and what is its total?", user=row["text"])

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Invoice:  # only for the simulated model
        due, total = prompt.user.split()[:2]
        return Invoice(due=date.fromisoformat(due), total=Decimal(total))


if __name__ == "__main__":
    result = run_sync(Invoices.rows([{"text": "2026-05-03 0.10"}]), models="sim:perfect")
    print(result.value[0])  # {'due': datetime.date(2026, 5, 3), 'total': Decimal('0.10')}
