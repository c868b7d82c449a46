"""Invoices as scans: each row names a picture or a PDF, and gets what stands on it."""

from decimal import Decimal

from microagents import File, Prompt, Reply, RowTask


class Invoice(Reply, frozen=True):
    """The fields of an invoice."""

    number: str
    total: Decimal


class Invoices(RowTask[Invoice]):
    """Read an invoice."""

    def prompt(self, row: dict[str, str]) -> Prompt:
        return Prompt(user="Which number and which total does this invoice show?", files=(File(row["scan"]),))

    def verify(self, row: dict[str, str], reply: Invoice) -> str | None:
        return None if reply.total > 0 else "the total of an invoice is above 0"
