"""What has an id of ours, and so can be found by it alone."""

import strawberry


@strawberry.interface(description="Anything that has an id of its own and can be found by it: see `node` and `nodes`.")
class Node:
    id: strawberry.ID = strawberry.field(
        description="Opaque, and the same for ever. Its first letters say what it is of, for people who read logs: "
        "inst_01a1e2b06b6576a8bad33b12c81e7f94."
    )
