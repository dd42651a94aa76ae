"""What the way to the database may raise when it breaks; all of it is answered by connecting again."""

import asyncpg
from sqlalchemy.exc import SQLAlchemyError

# InternalClientError is how asyncpg says that the server's farewell arrived in the middle of something. It belongs to
# neither of its two families: seen when backends are terminated under load.
TROUBLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    SQLAlchemyError,
)
