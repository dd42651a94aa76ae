"""What a stop and a delete leave: the one place that says so, because the provider's own pages disagree."""

KEPT_DAYS = 7  # `keepDataDay` of the provider's API; its pages also name other numbers

STOP_KEEPS = (
    f"A stop ends the billing of the GPU and keeps the container's disk, for {KEPT_DAYS} days by the provider's API. "
    "The disk stays billed."
)
DELETE_KEEPS = "A delete removes everything but network volumes."
