#!/bin/bash
# The role and its database, where they are not there yet. Safe to run again.
set -euo pipefail

psql -v ON_ERROR_STOP=1 -v password="$PILOTLIGHT_PASSWORD" <<'SQL'
SELECT format('CREATE ROLE pilotlight LOGIN PASSWORD %L', :'password')
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'pilotlight') \gexec
SELECT 'CREATE DATABASE pilotlight OWNER pilotlight'
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'pilotlight') \gexec
SQL
# No statement of ours runs long enough to be worth compiling; a pooler does not let clients say so themselves.
psql -v ON_ERROR_STOP=1 -c "ALTER ROLE pilotlight SET jit = off"
