"""What it looks like when PostgreSQL can't be reached or went away in the middle."""

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

DATABASE_TROUBLE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, DBAPIError, PoolTimeout)
