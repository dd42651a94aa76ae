#!/usr/bin/env bash
# Watch every change for good as server-sent events: no event is missed, over lost connections and own restarts.
#
#     PILOTLIGHT_TOKEN=pl_... ./watch.sh cursor.txt
set -euo pipefail

url=${PILOTLIGHT_URL:-http://127.0.0.1:8000/graphql}
cursor_file=${1:-cursor.txt}
pause=1

# $1: the document, $2: the media type. Headers come from standard input, so that the token is not visible in ps.
ask() {
  printf 'authorization: Bearer %s\nlast-event-id: %s' "$PILOTLIGHT_TOKEN" "$(cat "$cursor_file" 2>/dev/null || true)" |
    curl --silent --show-error --no-buffer --fail --keepalive-time 20 --write-out '\nstatus: %{http_code}\n' \
      -H @- -H "accept: $2" -H 'content-type: application/json' --data-binary "{\"query\": \"$1\"}" "$url"
}

keep() { printf %s "$1" >"$cursor_file.new" && mv "$cursor_file.new" "$cursor_file"; } # whole or not at all

watch() {
  if [ ! -s "$cursor_file" ]; then # the first time: from now on
    answer=$(ask '{ serverInfo { eventLog { head } } }' application/json) || { echo "$answer" && return; }
    keep "$(grep -o '"head":"[^"]*"' <<<"$answer" | cut -d '"' -f 4)"
  fi
  ask 'subscription { instanceEvents { type instanceId status } }' text/event-stream || true
}

while true; do
  # Each message is `event:`, `id:` (its cursor), `data:` and an empty line.
  while IFS= read -r line; do
    case $line in
      'id: '*) cursor=${line#id: } ;;
      'status: 40'*) echo "refused: ${line#status: }" >&2 && exit 1 ;;
      'data: {"errors"'*'"retryable":true'*) ;; # RESUME: subscribe again with the last cursor
      'data: {"errors"'*) echo "refused: ${line#data: }" >&2 && exit 1 ;;
      'data: '*)
        echo "${line#data: }"
        # After the work: killed in between, the event comes once more. Before it, it would be lost.
        keep "$cursor"
        pause=1
        ;;
    esac
  done < <(watch)
  echo "cut off, again in $pause s" >&2
  sleep "$pause"
  pause=$((pause < 16 ? pause * 2 : 30))
done
