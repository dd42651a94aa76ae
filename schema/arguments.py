"""Arguments that many fields share, described once."""

from typing import Annotated

import strawberry

First = Annotated[int, strawberry.argument(description="How many at most, 1 to 100.")]
After = Annotated[
    str | None,
    strawberry.argument(description="A cursor of the page before, such as its endCursor; without it, the first page."),
]
Id = Annotated[strawberry.ID, strawberry.argument(description="Its id.")]
Which = strawberry.argument(description="Which of them; all that is given must be so.")
Input = strawberry.argument(description="What is asked for.")
