"""What a stop at the end of a lifetime keeps: the one place that says so, because the provider's own pages disagree."""

KEPT_DAYS = 7  # `keepDataDay` of the provider's API; its pages also name other numbers

STOP_KEEPS = (
    f"A stop keeps the container's disk for {KEPT_DAYS} days and ends the billing of the GPU; the disk stays billed. "
    "A delete removes everything but network volumes."
)
