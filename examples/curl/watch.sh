#!/usr/bin/env bash
# Watch every change for good as server-sent events: no event is missed, over lost connections and own restarts.
#
#     PILOTLIGHT_TOKEN=pl_... ./watch.sh cursor.txt
set -euo pipefail

url=${PILOTLIGHT_URL:-http://127.0.0.1:8000/graphql}
cursor_file=${1:-cursor.txt}
pause=1

watch() {
  printf 'authorization: Bearer %s\nlast-event-id: %s' "$PILOTLIGHT_TOKEN" "$(cat "$cursor_file" 2>/dev/null || true)" |
    curl --silent --show-error --no-buffer --fail --keepalive-time 20 --write-out 'status: %{http_code}\n' \
      -H @- -H 'accept: text/event-stream' -H 'content-type: application/json' \
      --data-binary '{"query": "subscription { instanceEvents { type instanceId status } }"}' "$url"
}

while true; do
  # Each message is `event:`, `id:` (its cursor), `data:` and an empty line.
  while IFS= read -r line; do
    case $line in
      'id: '*) cursor=${line#id: } ;;
      'status: 40'*) echo "refused: ${line#status: }" >&2 && exit 1 ;;
      'data: {"errors"'*'"retryable":true'*) ;; # RESUME: come back with your cursor
      'data: {"errors"'*) echo "refused: ${line#data: }" >&2 && exit 1 ;;
      'data: '*)
        echo "${line#data: }"
        # After the work: killed in between, the event comes once more. Before it, it would be lost.
        printf %s "$cursor" >"$cursor_file.new" && mv "$cursor_file.new" "$cursor_file"
        pause=1
        ;;
    esac
  done < <(watch || true)
  echo "cut off, again in $pause s" >&2
  sleep "$pause"
  pause=$((pause < 16 ? pause * 2 : 30))
done
