#!/usr/bin/env bash
# A small real Ceph with its S3 gateway on loopback ports, without systemd, containers or authentication among its
# daemons: a monitor, OSDs, a manager if wanted, and radosgw with the storage classes STANDARD (replicated) and COLD
# (erasure-coded 2+1). Everything is below DIR.
#
#   ceph.sh start DIR           starts it in a new or empty directory; prints where it is, as shell assignments
#   ceph.sh run DIR             the same, prints READY=1, and stops it at the end of standard input
#   ceph.sh env DIR             prints the assignments again
#   ceph.sh stop DIR            ends every daemon and removes DIR
#   ceph.sh kill-osd DIR N      kill -9 of an OSD (start-osd DIR N: starts it again)
#   ceph.sh kill-gateway DIR    kill -9 of radosgw (start-gateway DIR: starts it again)
#   ceph.sh healthy DIR         waits until every OSD is up and every pool can be written to
#
# For the start, from the environment:
#   CEPH_OSDS=3                 with fewer than three, COLD is replicated too
#   CEPH_STORE=bluestore        or memstore: faster, but an OSD that is killed has lost everything
#   CEPH_OSD_BYTES=17179869184  size of each OSD, sparse
#   CEPH_MANAGER=0              1: with a manager, without which `ceph df` knows nothing
set -euo pipefail
PROGRAM=ceph.sh
. "$(dirname "$0")/serving.sh"
[ -n "${2:-}" ] ||
  fail "usage: ceph.sh start|run|env|stop|kill-osd|start-osd|kill-gateway|start-gateway|healthy DIR [OSD]"
DIR=$(realpath -m "$2")
CONF=$DIR/ceph.conf
SMALL_POOLS=".rgw.root default.rgw.log default.rgw.control default.rgw.meta default.rgw.buckets.index
  default.rgw.buckets.non-ec"
DATA_POOL=default.rgw.buckets.data
COLD_POOL=cold
# No configuration of this machine's own cluster.
unset CEPH_CONF CEPH_ARGS

settings() {
  cat << SETTINGS
OSDS=${CEPH_OSDS:-3}
STORE=${CEPH_STORE:-bluestore}
OSD_BYTES=${CEPH_OSD_BYTES:-17179869184}
MANAGER=${CEPH_MANAGER:-0}
MONITOR_PORT=$(free_port)
GATEWAY_PORT=$(free_port)
SETTINGS
}

copies() {
  [ "$OSDS" -lt 3 ] && echo "$OSDS" || echo 3
}

configuration() {
  cat << CONF
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon host = [v2:127.0.0.1:$MONITOR_PORT]
auth cluster required = none
auth service required = none
auth client required = none
public network = 127.0.0.0/8
cluster network = 127.0.0.0/8
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind ipv6 = false
ms bind msgr1 = false
# Without authentication nothing can be encrypted, and radosgw would insist.
ms mon client mode = crc secure
keyring = /dev/null
admin socket =
pid file = $DIR/run/\$name.pid
crash dir = $DIR/log
log file = $DIR/log/\$name.log
log to stderr = false
err to stderr = true
osd crush chooseleaf type = 0
osd pool default pg autoscale mode = off
osd pool default pg num = 4
osd pool default size = $(copies)
osd pool default min size = $((($(copies) + 1) / 2))
mon allow pool size one = true
mon max pg per osd = 1000
mon warn on pool no redundancy = false
[client]
# How soon a client that meets a dead OSD asks for another map.
objecter timeout = 2
objecter tick interval = 0.5
[mon]
mon data = $DIR/mon
mon data avail crit = 1
mon data avail warn = 2
mon osd down out interval = 3600
mon osd min down reporters = 1
rocksdb cache size = 16777216
# How long a change waits for others; a start is many changes.
paxos propose interval = 0.05
paxos min wait = 0.01
[mgr]
mgr data = $DIR/mgr
mgr initial modules =
mgr stats period = 1
[osd]
osd data = $DIR/osd.\$id
osd objectstore = $STORE
osd heartbeat interval = 1
osd heartbeat grace = 5
osd op num shards = 2
osd op num threads per shard = 1
osd mclock skip benchmark = true
osd scrub load threshold = 0.01
bluestore cache autotune = false
bluestore cache size = 50331648
bluestore block size = $OSD_BYTES
bluestore block db create = false
bluestore block wal create = false
memstore device bytes = $OSD_BYTES
CONF
  [ "$STORE" != memstore ] || echo "osd fast shutdown = false"
  cat << CONF
[client.gateway]
rgw data = $DIR/gateway
# Without tcp_nodelay each answer with a body waits 40 ms for the client's kernel.
rgw frontends = beast endpoint=127.0.0.1:$GATEWAY_PORT tcp_nodelay=1
rgw thread pool size = 64
rgw enable ops log = false
# What is removed is gone soon, not after hours.
rgw gc obj min wait = 10
rgw gc processor period = 10
CONF
}

ceph_says() {
  timeout "$START_SECONDS" ceph -c "$CONF" --connect-timeout 30 "$@"
}

admin() {
  timeout "$START_SECONDS" radosgw-admin -c "$CONF" "$@"
}

osds() {
  seq 0 $((OSDS - 1))
}

start_monitor() {
  ceph-mon -c "$CONF" -i a
}

start_osd() {
  ceph-osd -c "$CONF" -i "$1"
}

start_gateway() {
  radosgw -c "$CONF" -n client.gateway
  until_true "an answer of radosgw" answers "$GATEWAY_PORT"
}

make_monitor() {
  monmaptool --create --clobber --fsid "$(sed -n 's/^fsid = //p' "$CONF")" --addv a "[v2:127.0.0.1:$MONITOR_PORT]" \
    --set-min-mon-release pacific "$DIR/monmap"
  ceph-mon -c "$CONF" --mkfs -i a --monmap "$DIR/monmap"
}

# All in one session: each costs half a second.
map_commands() {
  local number pool
  for number in $(osds); do echo "osd new $(cat "$DIR/osd.$number/uuid") $number"; done
  for pool in $SMALL_POOLS; do echo "osd pool create $pool 4 4"; done
  echo "osd pool create $DATA_POOL 16 16"
  if [ "$OSDS" -ge 3 ]; then
    echo "osd erasure-code-profile set two-and-one k=2 m=1 stripe_unit=4K crush-failure-domain=osd"
    echo "osd pool create $COLD_POOL 16 16 erasure two-and-one"
    # Written to with one OSD missing.
    echo "osd pool set $COLD_POOL min_size 2"
  else
    echo "osd pool create $COLD_POOL 16 16"
  fi
  for pool in $SMALL_POOLS $DATA_POOL $COLD_POOL; do echo "osd pool application enable $pool rgw"; done
}

make_map() {
  map_commands | ceph_says > "$DIR/log/map" 2>&1
  if grep ^Error "$DIR/log/map"; then return 1; fi
}

make_osds() {
  local number makers="" failed=0
  for number in $(osds); do
    { ceph-osd -c "$CONF" -i "$number" --mkfs --osd-uuid "$(cat "$DIR/osd.$number/uuid")" && start_osd "$number"; } &
    makers="$makers $!"
  done
  # All of them, so that none starts after a failure.
  for number in $makers; do wait "$number" || failed=1; done
  return $failed
}

make_gateway() {
  # This makes zone and zone group too, so it comes first.
  admin user create --uid tests --display-name tests --access-key "$KEY" --secret-key "$SECRET"
  admin zonegroup placement add --rgw-zonegroup default --placement-id default-placement --storage-class COLD
  admin zone placement add --rgw-zone default --placement-id default-placement --storage-class COLD \
    --data-pool "$COLD_POOL"
  start_gateway
}

begin() {
  local number
  settings > "$DIR/settings"
  . "$DIR/settings"
  mkdir "$DIR/mon" "$DIR/mgr" "$DIR/gateway"
  for number in $(osds); do
    mkdir "$DIR/osd.$number"
    cat /proc/sys/kernel/random/uuid > "$DIR/osd.$number/uuid"
  done
  configuration > "$CONF"
  make_monitor
  start_monitor
  [ "$MANAGER" = 0 ] || ceph-mgr -c "$CONF" -i x
  make_map
  make_osds
  make_gateway
  make_bucket
}

end() {
  [ -f "$DIR/settings" ] || return 0
  . "$DIR/settings"
  local number
  terminate client.gateway
  terminate $(for number in $(osds); do echo "osd.$number"; done) mgr.x
  terminate mon.a
}

every_osd_is_up() {
  ceph_says osd stat -f json | grep -q "\"num_up_osds\":$OSDS,"
}

every_pool_answers() {
  local pool
  for pool in "$DATA_POOL" "$COLD_POOL" default.rgw.buckets.index; do
    timeout 20 rados -c "$CONF" -p "$pool" put probe "$DIR/settings"
    timeout 20 rados -c "$CONF" -p "$pool" rm probe
  done
}

endpoint() {
  echo "http://127.0.0.1:$GATEWAY_PORT"
}

assignments() {
  . "$DIR/settings"
  print_assignments COLD
  # Younger clients send checksums that this release does not know.
  echo "AWS_REQUEST_CHECKSUM_CALCULATION=when_required"
  echo "AWS_RESPONSE_CHECKSUM_VALIDATION=when_required"
  echo "CEPH_CONF=$CONF"
  echo "CEPH_OSDS=$OSDS"
}

if [ "$1" = start ] || [ "$1" = run ]; then
  need ceph-mon ceph-mon ceph-osd ceph-osd ceph ceph-common radosgw radosgw curl curl openssl openssl
  [ "${CEPH_MANAGER:-0}" = 0 ] || need ceph-mgr ceph-mgr
elif [ "$1" != stop ]; then
  [ -e "$DIR/$MARK" ] || fail "no server in $DIR"
  . "$DIR/settings"
fi
case $1 in
  start)
    start_all
    assignments
    ;;
  run) run_while_read ;;
  env) assignments ;;
  stop) stop_all ;;
  kill-osd) kill_now "osd.$3" ;;
  start-osd) start_osd "$3" >> "$DIR/log/start" 2>&1 ;;
  kill-gateway) kill_now client.gateway ;;
  start-gateway) start_gateway >> "$DIR/log/start" 2>&1 ;;
  healthy)
    until_true "every OSD up" every_osd_is_up
    until_true "an answer of every pool" every_pool_answers
    ;;
  *) fail "unknown command $1" ;;
esac
