"""Every table, imported here so that the metadata is whole wherever it is asked for."""

from server.db.base import Base
from server.db.tables.instance import Attempt, IdempotencyKey, Instance, Operation
from server.db.tables.token import Project, Token

__all__ = ["Attempt", "Base", "IdempotencyKey", "Instance", "Operation", "Project", "Token"]
