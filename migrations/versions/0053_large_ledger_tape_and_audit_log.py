"""Finds what is rare among millions of rows: one object's audit log, entries to sum, open ones, an offer's last change.

Two indexes replace others that begin with the same columns, so they serve the queries of processes that run on.
"""

from migrations.large import create_index, drop_index

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("audit_event_of_target", "audit_event (target, created_at) WHERE target IS NOT NULL")
    create_index("cost_entry_to_sum", "cost_entry (ended_at) WHERE NOT is_summed AND ended_at IS NOT NULL")
    create_index("cost_entry_not_summed_by_end", "cost_entry (project_id, ended_at) WHERE NOT is_summed")
    create_index("offer_change_of_product", "offer_change (product_name, region, mode, gpu_count, product_id, at, id)")
    drop_index("cost_entry_not_summed")
    drop_index("offer_change_of_offer")


def downgrade() -> None:
    create_index("cost_entry_not_summed", "cost_entry (project_id, began_at) WHERE NOT is_summed")
    create_index("offer_change_of_offer", "offer_change (product_name, region, mode, gpu_count, at)")
    drop_index("offer_change_of_product")
    drop_index("cost_entry_not_summed_by_end")
    drop_index("cost_entry_to_sum")
    drop_index("audit_event_of_target")
