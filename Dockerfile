# Two stages: the final image is small and does not run as root.
FROM node:22-bookworm-slim AS web
WORKDIR /src/web/graphiql
COPY web/graphiql/package.json web/graphiql/package-lock.json ./
RUN npm ci
WORKDIR /src/web
COPY web/package.json web/package-lock.json web/.npmrc ./
RUN npm ci
COPY schema/schema.graphql ../schema/schema.graphql
COPY web .
RUN npm run build && npm --prefix graphiql run build

FROM python:3.13-slim-bookworm AS build
WORKDIR /src
RUN pip install --no-cache-dir uv==0.13.7 && python -m venv /opt/pilotlight
COPY requirements.lock pyproject.toml README.md LICENSE alembic.ini ./
RUN uv pip install --no-cache --compile-bytecode --python /opt/pilotlight/bin/python --require-hashes -r requirements.lock
COPY server server
COPY schema schema
COPY migrations migrations
COPY client/pilotlight_client client/pilotlight_client
COPY web/scripts/wheel.py web/scripts/wheel.py
COPY --from=web /src/web/dist web/dist
COPY --from=web /src/web/graphiql/dist web/graphiql/dist
RUN uv pip install --no-cache --compile-bytecode --python /opt/pilotlight/bin/python --no-deps --no-build-isolation .

FROM python:3.13-slim-bookworm
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/pilotlight pilotlight
COPY --from=build /opt/pilotlight /opt/pilotlight
ENV PATH=/opt/pilotlight/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PILOTLIGHT_HOME=/var/lib/pilotlight \
    HOST=0.0.0.0 \
    PORT=8000 \
    LOG_FORMAT=json
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['PORT'] + '/healthz', timeout=2)"]
ENTRYPOINT ["pilotlight"]
CMD ["serve"]
