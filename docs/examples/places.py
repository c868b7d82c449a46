"""Split places into their names and countries: one question about each row of a table."""

from microagents import Prompt, Reply, RowTask


class Place(Reply, frozen=True):  # the new columns; equal replies are votes for the same
    name: str
    country: str


class Places(RowTask[Place]):
    def prompt(self, row: dict[str, str]) -> Prompt:
        return Prompt(system="Split the place into its name and its country.", user=row["place"])

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Place:  # only for the simulated model
        name, _, country = prompt.user.partition(", ")
        return Place(name=name.title(), country=country.upper())
