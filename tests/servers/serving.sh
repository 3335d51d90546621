# What ceph.sh and minio.sh share, to be sourced: loopback ports, waiting with a limit, processes by their pid files,
# the commands `run` and `stop`. The one who sources sets PROGRAM (its name) and DIR, and defines `begin` (starts
# everything), `end` (ends every process), `endpoint` (prints its address) and `assignments` (prints all that a client
# needs).

BUCKET=tests
REGION=us-east-1
KEY=granulo-tests
SECRET=granulo-tests-secret

# Marks a directory as ours: only one that has it is ever removed.
MARK=server-of-granulo-tests
START_SECONDS=120

fail() {
  echo "$PROGRAM: $*" >&2
  exit 1
}

# Fails with the packages (of Debian) of all commands that are missing: pairs of command and package.
need() {
  local packages=""
  while [ $# -gt 0 ]; do
    command -v "$1" > /dev/null || packages="$packages $2"
    shift 2
  done
  [ -z "$packages" ] || fail "missing; install with: apt-get install --no-install-recommends$packages"
}

answers() {
  (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null
}

# A port on which nobody listens, below those that the kernel gives to connections. Random, so that two starts at the
# same time choose different ones.
free_port() {
  local port
  while :; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    answers "$port" || break
  done
  echo "$port"
}

# Waits until a command succeeds: what for, then the command.
until_true() {
  local what=$1 deadline=$((SECONDS + START_SECONDS))
  shift
  until "$@" > /dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || { echo "$PROGRAM: $what: not within $START_SECONDS s" >&2; return 1; }
    sleep 0.05
  done
}

# The process of a pid file, if it still runs and its command line names DIR.
process() {
  local pid
  pid=$(cat "$DIR/run/$1.pid" 2> /dev/null) && [ -n "$pid" ] || return 1
  tr '\0' '\n' < "/proc/$pid/cmdline" 2> /dev/null | grep -qF -- "$DIR" || return 1
  echo "$pid"
}

runs() {
  process "$1" > /dev/null
}

has_ended() {
  ! runs "$1"
}

# Ends a process with SIGKILL, and returns when it is gone.
kill_now() {
  local pid
  pid=$(process "$1") || fail "$1 does not run"
  kill -KILL "$pid"
  until_true "the end of $1" has_ended "$1"
}

# Asks processes to end, and ends those that have not after ten seconds.
terminate() {
  local name pid deadline=$((SECONDS + 10))
  for name in "$@"; do
    if pid=$(process "$name"); then kill -TERM "$pid" 2> /dev/null || true; fi
  done
  for name in "$@"; do
    while runs "$name" && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.05; done
    if runs "$name"; then kill_now "$name"; fi
  done
}

# By a request with the oldest kind of signature, which needs no client of S3.
make_bucket() {
  local date signature
  date=$(date --utc --rfc-email)
  signature=$(printf 'PUT\n\n\n%s\n/%s' "$date" "$BUCKET" | openssl dgst -sha1 -hmac "$SECRET" -binary | base64)
  curl --silent --show-error --fail --max-time 60 --noproxy '*' --request PUT --header "Date: $date" \
    --header "Authorization: AWS $KEY:$signature" "$(endpoint)/$BUCKET"
}

# Names that the AWS tools understand, and the bucket with its storage class for what is read rarely.
print_assignments() {
  cat << ASSIGNMENTS
AWS_ENDPOINT_URL=$(endpoint)
AWS_ACCESS_KEY_ID=$KEY
AWS_SECRET_ACCESS_KEY=$SECRET
AWS_REGION=$REGION
AWS_DEFAULT_REGION=$REGION
BUCKET=$BUCKET
FAST_CLASS=STANDARD
SLOW_CLASS=$1
ASSIGNMENTS
}

# Not to be called where a failure is tested for (if, &&): bash ignores failures in all that is called from there.
start_all() {
  mkdir -p "$DIR"
  [ -z "$(ls -A "$DIR")" ] || fail "$DIR is not empty"
  mkdir "$DIR/run" "$DIR/log"
  touch "$DIR/$MARK"
  begin > "$DIR/log/start" 2>&1 < /dev/null &
  wait $! || {
    tail -n 10 "$DIR/log/start" >&2
    stop_all
    fail "the server did not start"
  }
}

stop_all() {
  [ -e "$DIR/$MARK" ] || return 0
  end
  rm -rf "$DIR"
}

# A server for as long as the caller lives: it ends when standard input does. Signals to all processes of a terminal or a
# job reach the caller and this one; it goes on until the caller has ended.
run_while_read() {
  trap : INT HUP TERM
  start_all
  assignments
  echo "READY=1"
  # Nobody may read what is said from now on.
  exec > /dev/null
  trap '' INT HUP TERM
  cat || true
  stop_all
}
