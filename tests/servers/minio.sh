#!/usr/bin/env bash
# A real MinIO server on a loopback port, with one directory for its data. Everything is below DIR.
#
#   minio.sh build             builds the server, unless it is there: some minutes of Go
#   minio.sh program           prints where the program is: $GRANULO_MINIO, or what `build` made
#   minio.sh start DIR         starts it in a new or empty directory; prints where it is, as shell assignments
#   minio.sh run DIR           the same, prints READY=1, and stops it at the end of standard input
#   minio.sh env DIR           prints the assignments again
#   minio.sh stop DIR          ends it and removes DIR
#   minio.sh kill-gateway DIR  kill -9 (start-gateway DIR: starts it again)
set -euo pipefail
PROGRAM=minio.sh
. "$(dirname "$0")/serving.sh"
VERSION=v0.0.0-20260212201848-7aac2a2c5b7c
TOOLS=$(realpath -m "$(dirname "$0")/../../target/tools")
MINIO=${GRANULO_MINIO:-$TOOLS/minio-$VERSION}

# The server's own key and secret are those of the tests; nothing of what this machine has configured.
serve() {
  env -i PATH="$PATH" HOME="$DIR" MINIO_ROOT_USER="$KEY" MINIO_ROOT_PASSWORD="$SECRET" \
    MINIO_BROWSER=off MINIO_UPDATE=off setsid "$MINIO" server --quiet --address "127.0.0.1:$PORT" --config-dir "$DIR/config" "$DIR/data" \
    < /dev/null >> "$DIR/log/server" 2>&1 &
  echo $! > "$DIR/run/server.pid"
  until_true "an answer of MinIO" is_ready
}

is_ready() {
  runs server && curl --silent --fail --noproxy '*' "$(endpoint)/minio/health/ready"
}

begin() {
  echo "PORT=$(free_port)" > "$DIR/settings"
  . "$DIR/settings"
  mkdir "$DIR/data"
  serve
  make_bucket
}

end() {
  terminate server
}

endpoint() {
  echo "http://127.0.0.1:$PORT"
}

assignments() {
  . "$DIR/settings"
  # The only other class that it has.
  print_assignments REDUCED_REDUNDANCY
}

build() {
  [ ! -x "$MINIO" ] || return 0
  need go golang-go
  local place
  place=$(mktemp -d)
  mkdir -p "$TOOLS"
  GOBIN=$place CGO_ENABLED=0 go install -trimpath -ldflags "-s -w" "github.com/minio/minio@$VERSION"
  mv "$place/minio" "$MINIO"
  rmdir "$place"
}

command=${1:-}
case $command in
  build)
    build
    exit
    ;;
  program)
    echo "$MINIO"
    exit
    ;;
esac
[ -n "${2:-}" ] || fail "usage: minio.sh build|program, minio.sh start|run|env|stop|kill-gateway|start-gateway DIR"
DIR=$(realpath -m "$2")
if [ "$command" = start ] || [ "$command" = run ]; then
  need curl curl openssl openssl
  [ -x "$MINIO" ] || fail "$MINIO is missing; make it with: tests/servers/minio.sh build"
elif [ "$command" != stop ]; then
  [ -e "$DIR/$MARK" ] || fail "no server in $DIR"
  . "$DIR/settings"
fi
case $command in
  start)
    start_all
    assignments
    ;;
  run) run_while_read ;;
  env) assignments ;;
  stop) stop_all ;;
  kill-gateway) kill_now server ;;
  start-gateway) serve ;;
  *) fail "unknown command $command" ;;
esac
