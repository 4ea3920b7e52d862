# gpujob's start argument of a pod: the dead-man switch, armed first of all, then the image's own start.
# POSIX sh. `sh start.sh`: as the container's command. `sh start.sh end`: end the pod now, by any way.
# No secret is written here: the pod's own key comes from its environment, and goes into no argv.
set -u
umask 077
RUN=$(dirname "$0")
PATH=${GPUJOB_POD_PATH:-$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}

say() { echo "gpujob: $*"; }

fact() { # NAME DEFAULT: from our environment, else from the container's first process (an SSH login has none)
  eval "value=\${$1:-}"
  if [ -z "$value" ] && [ -r /proc/1/environ ]; then
    value=$(tr '\0' '\n' </proc/1/environ | sed -n "s/^$1=//p" | head -n 1)
  fi
  echo "${value:-$2}"
}

ID=$(fact RUNPOD_POD_ID "")
KEY=$(fact RUNPOD_API_KEY "")
BASE=$(fact RUNPOD_API_BASE_URL https://api.runpod.io)
BASE=${BASE%/}
LABEL=$(fact GPUJOB_POD_LABEL "")
WORKDIR=$(fact GPUJOB_POD_WORKDIR /workspace/data)
END_AT=$(fact GPUJOB_POD_END_AT 0)
END_IN_S=$(fact GPUJOB_POD_END_IN_S 0)
CONTACT_IN_S=$(fact GPUJOB_POD_CONTACT_IN_S 1800)
LEASE_S=$(fact GPUJOB_POD_LEASE_S 0)
START=$(fact GPUJOB_POD_START auto)
STEP_S=$(fact GPUJOB_POD_STEP_S 5)
KEYS=$(fact GPUJOB_POD_SSH_KEYS /etc/ssh)
FOLDER=$WORKDIR/$LABEL

steady() { # seconds that no clock setting touches; they run on through a restart of the container
  if read -r up _ 2>/dev/null </proc/uptime; then echo "${up%%.*}"; else date +%s; fi
}

# ---------------------------------------------------------------- asking the API

tools() {
  command -v curl >/dev/null 2>&1 && echo curl
  command -v wget >/dev/null 2>&1 && wget --help 2>&1 | grep -q -e --method && echo wget
  command -v python3 >/dev/null 2>&1 && echo python3
}

PYTHON='
import os, sys, urllib.request as u
method, url, body = sys.argv[1:4]
r = u.Request(url, body.encode() or None, method=method)
r.add_header("Authorization", "Bearer " + os.environ["GPUJOB_POD_KEY"])
r.add_header("Content-Type", "application/json")
r.add_header("User-Agent", "gpujob-pod")
print(u.urlopen(r, timeout=20).read(100000).decode("utf-8", "replace"))
'

ask_with() { # TOOL METHOD URL BODY: the answer to $RUN/answer; 0 for a 2xx
  case $1 in
    curl)
      printf 'header = "Authorization: Bearer %s"\n' "$KEY" |
        curl -sSf -m 20 -K - -A gpujob-pod -H 'Content-Type: application/json' -X "$2" \
          ${4:+--data "$4"} -o "$RUN/answer" "$3" ;;
    wget)
      printf 'header = Authorization: Bearer %s\n' "$KEY" >"$RUN/wgetrc"
      WGETRC=$RUN/wgetrc wget -q -T 20 -t 1 -U gpujob-pod --header='Content-Type: application/json' \
        --method="$2" ${4:+--body-data="$4"} -O "$RUN/answer" "$3"
      code=$?
      rm -f "$RUN/wgetrc"
      return $code ;;
    python3) GPUJOB_POD_KEY=$KEY python3 -I -c "$PYTHON" "$2" "$3" "$4" >"$RUN/answer" ;;
  esac
}

ask() { # METHOD URL BODY: with each tool there is, until one is answered well
  for tool in $(tools); do
    rm -f "$RUN/answer"
    if ask_with "$tool" "$1" "$2" "$3" 2>"$RUN/error"; then
      grep -q '"errors"' "$RUN/answer" 2>/dev/null || return 0
    fi
  done
  return 1
}

delete() { ask DELETE "$BASE/v2/pods/$ID" ""; }
mutate() { ask POST "$BASE/graphql" "{\"query\":\"mutation{$1(input:{podId:\\\"$ID\\\"})$2}\"}"; }
kill_pod() { mutate podTerminate ""; }
stop_pod() { mutate podStop "{id}"; }

stop_training() { # nothing may use the GPU of a pod that should be gone
  [ -n "$LABEL" ] || return 0
  if [ -e "$FOLDER/gpujob_agent.py" ]; then
    timeout 60 python3 -I -S "$FOLDER/gpujob_agent.py" stop "$FOLDER" --now >/dev/null 2>&1
  fi
  for process in /proc/[0-9]*; do
    if tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qx "GPUJOB_FOLDER=$FOLDER"; then
      kill -9 "${process#/proc/}" 2>/dev/null
    fi
  done
}

end() { # for ever: whoever reads this line in a log is still billed
  pause=2
  first=yes
  while :; do
    if delete; then
      say "asked for the end of the pod by DELETE"
      [ $first = yes ] || { kill_pod || stop_pod; }
    elif kill_pod; then
      say "asked for the end of the pod by GraphQL"
    elif stop_pod; then
      say "could only stop the pod: it is billed for its disk"
      stop_training
    else
      say "nobody lets the pod end itself: $(head -c 200 "$RUN/error" 2>/dev/null)"
      stop_training
    fi
    first=no
    sleep $pause
    pause=$((pause * 2))
    [ $pause -le 60 ] || pause=60
  done
}

# ---------------------------------------------------------------- the dead-man switch

arm() { # what is left, kept where a restarted container finds it; the earlier one counts
  mkdir -p "$WORKDIR" 2>/dev/null
  STATE=$WORKDIR/.$LABEL.armed
  boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo none)
  now=$(steady)
  end_up=$((now + END_IN_S))
  contact_up=$((now + CONTACT_IN_S))
  contacted=no
  if read -r kept_boot kept_end kept_contact kept_contacted 2>/dev/null <"$STATE"; then
    contacted=${kept_contacted:-no}
    if [ "$kept_boot" = "$boot" ]; then
      [ "$kept_end" -ge $end_up ] || end_up=$kept_end
      [ "$kept_contact" -ge $contact_up ] || contact_up=$kept_contact
    fi
  fi
  keep
}

keep() {
  echo "$boot $end_up $contact_up $contacted" >"$STATE.new" && mv -f "$STATE.new" "$STATE"
} 2>/dev/null

due() { # sets `why`; 0 when the pod is to end
  now=$(steady)
  if [ "$now" -ge "$end_up" ] || [ "$(date +%s)" -ge "$END_AT" ]; then
    why="its deadline or its budget is over"
    return 0
  fi
  if [ $contacted = no ] && [ -d "$FOLDER" ]; then
    contacted=yes
    keep
  fi
  if [ $contacted = no ] && [ "$now" -ge "$contact_up" ]; then
    why="nobody made contact"
    return 0
  fi
  if [ "$LEASE_S" -gt 0 ] && [ $contacted = yes ]; then
    lease=$(cat "$FOLDER/lease" 2>/dev/null)
    if [ "$lease" != "${lease_seen:-}" ] || [ -z "${lease_up:-}" ]; then
      lease_seen=$lease
      lease_up=$((now + LEASE_S))
    fi
    if [ "$now" -ge "$lease_up" ]; then
      why="its lease was not renewed"
      return 0
    fi
  fi
  return 1
}

watch() {
  trap '' HUP INT TERM
  until due; do sleep "$STEP_S"; done
  say "ends the pod: $why"
  end
}

# ---------------------------------------------------------------- SSH, and the image's own start

new_keys() { # a key that came with the image is everybody's; too late where the server runs already
  case $START in
    entrypoint) return 0 ;;
    auto) ! sshd_runs || return 0 ;;
  esac
  [ ! -e "$RUN/keys" ] || return 0
  command -v ssh-keygen >/dev/null 2>&1 || return 0
  rm -f "$KEYS"/ssh_host_*
  mkdir -p "$KEYS"
  ssh-keygen -q -t ed25519 -N '' -f "$KEYS/ssh_host_ed25519_key" && : >"$RUN/keys"
}

show_keys() { # the container's log is read with the account's key: whoever reads it there may trust it
  shown=
  rounds=0
  while :; do
    for kind in ed25519 ecdsa rsa; do
      if read -r type body _ 2>/dev/null <"$KEYS/ssh_host_${kind}_key.pub"; then
        [ "$shown" = "$body" ] && [ $((rounds % 60)) -ne 0 ] || say "host key $LABEL $type $body"
        shown=$body
        break
      fi
    done
    rounds=$((rounds + 1))
    if [ -n "$shown" ]; then sleep 5; else sleep 1; fi
  done
}

sshd_runs() {
  for process in /proc/[0-9]*; do
    read -r name 2>/dev/null <"$process/comm" && [ "$name" = sshd ] && return 0
  done
  return 1
}

own_sshd() {
  command -v sshd >/dev/null 2>&1 ||
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openssh-server; } >/dev/null 2>&1
  mkdir -p /run/sshd "$HOME/.ssh"
  echo "${PUBLIC_KEY:-}" >>"$HOME/.ssh/authorized_keys"
  exec "$(command -v sshd || echo /usr/sbin/sshd)" -D -e
}

own_start() {
  case $START in
    entrypoint) exec sleep 2147483647 ;;
    auto)
      if sshd_runs; then exec sleep 2147483647; fi
      if [ -x /start.sh ]; then exec /start.sh; fi
      own_sshd ;;
    *) exec "$START" ;;
  esac
}

forward() { # a notice of interruption: the agent saves what it can
  trap '' TERM INT
  agent=$(sed -n 's/.*"pid": *\([0-9][0-9]*\).*/\1/p' "$FOLDER/claim" 2>/dev/null | head -n 1)
  [ -z "$agent" ] || kill -TERM "$agent" 2>/dev/null
  left=60
  while [ -n "$agent" ] && [ $left -gt 0 ] && [ ! -e "$FOLDER/exit.json" ]; do
    sleep 1
    left=$((left - 1))
  done
  kill -TERM ${started:-} "$watching" 2>/dev/null
  exit 143
}

main() {
  arm
  watch &
  watching=$!
  trap forward TERM INT
  if [ -z "$(tools)" ]; then
    say "image refused: it has no curl, no wget and no python3, so a pod of it could not end itself"
    while :; do sleep 3600 & wait $!; done
  fi
  say "armed, $((end_up - $(steady))) s to go"
  new_keys # before any is shown: the first one that is told is the one that is trusted
  show_keys &
  own_start &
  started=$!
  while :; do
    sleep "$STEP_S" &
    wait $!
    kill -0 "$watching" 2>/dev/null || { watch & watching=$!; }
  done
}

if [ "${1:-}" = end ]; then end; else main; fi
