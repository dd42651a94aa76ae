"""Lets an instance have an open entry of the ledger for each of its machines: one that replaces another is paid, too.

The code of the previous release writes no ledger, so it does not use the index that goes.
"""

from migrations.large import create_index, drop_index

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index(
        "cost_entry_one_open_per_machine", "cost_entry (instance_id, machine) WHERE ended_at IS NULL", unique=True
    )
    drop_index("cost_entry_one_open_per_instance")


def downgrade() -> None:
    create_index("cost_entry_one_open_per_instance", "cost_entry (instance_id) WHERE ended_at IS NULL", unique=True)
    drop_index("cost_entry_one_open_per_machine")
