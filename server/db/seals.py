"""Seals: numbers of all projects become texts that reveal nothing and can't be guessed."""

from datetime import datetime
from hashlib import blake2b
from hmac import compare_digest

from server.db.database import Database

READ = "SELECT key, plain_cursors_until FROM seal_key"
JOB_PREFIX = "job"
TAG_SIZE = 8  # bytes: one guess in 2**64 is right
DIGEST_SIZE = 16  # bytes: two different inputs never have the same


class Seal:
    """Deterministic authenticated encryption of a few bytes (the SIV construction, with keyed BLAKE2b).

    Equal data give equal results, so an id stays the same; a result that was not made with the key is not opened.
    """

    def __init__(self, key: bytes, purpose: bytes) -> None:
        # Copied for each use, which is faster than to begin with the key each time.
        self._tag = blake2b(key=blake2b(b"tag", key=key, person=purpose).digest(), digest_size=TAG_SIZE)
        self._mask = blake2b(key=blake2b(b"mask", key=key, person=purpose).digest())

    def close(self, data: bytes) -> bytes:
        """Eight bytes longer than the data, at most 64 bytes."""
        tag = self._tag_of(data)
        return tag + self._masked(tag, data)

    def open(self, closed: bytes) -> bytes | None:
        """The data; None if it was not closed with this seal."""
        tag = closed[:TAG_SIZE]
        data = self._masked(tag, closed[TAG_SIZE:])
        return data if compare_digest(tag, self._tag_of(data)) else None

    def _tag_of(self, data: bytes) -> bytes:
        tag = self._tag.copy()
        tag.update(data)
        return tag.digest()

    def _masked(self, tag: bytes, data: bytes) -> bytes:
        mask = self._mask.copy()
        mask.update(tag)
        size = len(data)
        return (int.from_bytes(data) ^ int.from_bytes(mask.digest()[:size])).to_bytes(size)


class Seals:
    """The seals of one database. `load` must have succeeded once before the others are used."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cursors: Seal | None = None
        self._jobs: Seal | None = None
        self._quote_key: bytes | None = None
        self._digest_key = b""
        self.plain_cursors_until: datetime | None = None

    async def load(self) -> None:
        if self._jobs is not None:
            return
        ((key, plain_cursors_until),) = await self._database.raw.fetch(READ)
        self.plain_cursors_until = plain_cursors_until
        self._cursors = Seal(key, b"cursor")
        self._digest_key = blake2b(b"digest", key=key, person=b"audit").digest()
        self._jobs = Seal(key, b"job")
        self._quote_key = blake2b(b"sign", key=key, person=b"quote").digest()

    def job_id(self, number: int) -> str:
        """A job's id, as in the API and in logs: jobs of all projects are numbered together."""
        return f"{JOB_PREFIX}_{self.jobs.close(number.to_bytes(8)).hex()}"

    def digest(self, data: bytes) -> bytes:
        """A fingerprint that shows which data are equal, and nothing else about them."""
        if not self._digest_key:
            raise LookupError("the seals have not been loaded")
        return blake2b(data, key=self._digest_key, digest_size=DIGEST_SIZE).digest()

    @property
    def cursors(self) -> Seal:
        return _loaded(self._cursors)

    @property
    def jobs(self) -> Seal:
        return _loaded(self._jobs)

    @property
    def quote_key(self) -> bytes:
        """Signs quotes: the same in all processes of the database, and after a restart."""
        if self._quote_key is None:
            raise LookupError("the seals have not been loaded")
        return self._quote_key


def _loaded(seal: Seal | None) -> Seal:
    if seal is None:
        raise LookupError("the seals have not been loaded")
    return seal
