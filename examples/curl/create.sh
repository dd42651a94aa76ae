#!/usr/bin/env bash
# Create an instance and wait until it is READY, with curl only.
#
#     PILOTLIGHT_TOKEN=pl_... ./create.sh trainer
set -euo pipefail

url=${PILOTLIGHT_URL:-http://127.0.0.1:8000/graphql}
name=${1:-trainer}

# Retried on no answer, 408, 429 and 5xx, after what Retry-After says: queries may be asked twice, and so may a mutation
# with an idempotency key. The header comes from standard input, so that the token is in no list of processes. No string
# of JSON may hold the end of a line, so each becomes a space.
ask() {
  printf 'authorization: Bearer %s' "$PILOTLIGHT_TOKEN" |
    curl --silent --show-error --max-time 60 --retry 5 --retry-all-errors \
      -H @- -H 'content-type: application/json' --data-binary "${1//$'\n'/ }" "$url"
}

# The first value of a key in a response; use jq if it is installed.
value() { grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4; }

created=$(ask '{
  "query": "mutation Create($input: CreateInstanceInput!) {
              createInstance(input: $input) { operation { id } errors { code message path } } }",
  "variables": { "input": { "name": "'"$name"'", "productName": "RTX 4090 24GB", "image": "nginx",
                            "ports": [{ "port": 80 }], "idempotencyKey": "create-'"$name"'" } }
}')
case $created in
  *'"operation":{'*) operation=$(value id <<<"$created") ;;
  *) echo "refused: $created" >&2 && exit 1 ;;
esac
echo "accepted: $operation"

status=QUEUED
while [ "$status" = QUEUED ] || [ "$status" = RUNNING ]; do
  # Answers as soon as it is over, or after 30 seconds as it is then.
  answer=$(ask '{
    "query": "query Await($id: ID!) { awaitOperation(id: $id, timeout: 30) {
                status error { code message } instance { endpoints { address } } } }",
    "variables": { "id": "'"$operation"'" }
  }')
  status=$(value status <<<"$answer") || { echo "refused: $answer" >&2 && exit 1; }
done
[ "$status" = SUCCEEDED ] || { echo "$answer" >&2 && exit 1; }
echo "$name answers at $(value address <<<"$answer")"
