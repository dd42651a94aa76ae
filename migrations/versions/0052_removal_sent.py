"""When the removal of a machine was sent: until its response is known, that is the end of what it costs."""

import sqlalchemy as sa
from alembic import op

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("machine", sa.Column("removal_sent_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("machine", "removal_sent_at")
