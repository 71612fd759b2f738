#!/usr/bin/env bash
# What Holdfast does, in twenty seconds, on an embedded store in a temporary folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

holdfast=.venv/bin/holdfast
folder=$(mktemp -d)
holder=
finish() {
    touch "$folder/done"
    [ -z "$holder" ] || wait "$holder" || true
    rm -rf "$folder"
}
trap finish EXIT
export HOLDFAST_URL="sqlite://$folder/locks.db" # the folder starts with a slash: sqlite:///...

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }
tell='echo "holding $HOLDFAST_LOCK with token $HOLDFAST_TOKEN"'

say "1. Run a command under a lock; it is told its fencing token."
"$holdfast" run demo -- sh -c "$tell"

say "2. A first contender takes the lock and keeps it; the token has grown."
"$holdfast" run demo -- sh -c "$tell"'; touch "$0/held"; until [ -e "$0/done" ]; do sleep 0.05; done' \
    "$folder" &
holder=$!
until [ -e "$folder/held" ]; do
    kill -0 "$holder" 2>/dev/null || {
        echo "demo: the first contender ended without the lock" >&2
        exit 1
    }
    sleep 0.05
done

say "3. A second contender, which will not wait, is refused."
status=0
"$holdfast" run demo --no-wait -- echo "this must not run" || status=$?
echo "exit status $status (75 means busy)"
[ "$status" -eq 75 ] || exit 1

say "4. The first lets go while a third waits for it."
"$holdfast" run demo --wait 10s -- sh -c "$tell" &
third=$!
touch "$folder/done"
wait "$third"
wait "$holder"
holder=

say "5. And what the token is for: a holder that was frozen wakes up, and writes."
"$holdfast" demo
