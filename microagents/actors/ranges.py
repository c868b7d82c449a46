"""Numbers that many options of strategies are, named by their bounds."""

from typing import Annotated

from pydantic import Field

OneOrMore = Annotated[int, Field(ge=1)]
OneToHundred = Annotated[int, Field(ge=1, le=100)]
OneToThousand = Annotated[int, Field(ge=1, le=1_000)]
OneToTenThousand = Annotated[int, Field(ge=1, le=10_000)]
OneToMillion = Annotated[int, Field(ge=1, le=1_000_000)]
Temperature = Annotated[float, Field(ge=0, le=2)]
