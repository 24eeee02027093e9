PROGRAM=/usr/bin/grit-wrapper
STATE_FILE=/run/grit-wrapper/wrapper.sock.state

# A chroot and another root directory have no running systemd.
systemd_runs() {
    [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]
}

unit_of() {
    sed -n 's,.*/\([^/]*\.service\)$,\1,p' "/proc/$1/cgroup" 2>/dev/null | head -n 1
}

property() {
    systemctl show --property="$2" --value "$1"
}

# PID and unit of each service whose main process runs grit-wrapper, in the new or the replaced version. Another process can only seem to: a unit of
# a user can have the same name, and a process with its own root directory can have this path.
services() {
    for pid in $(find /proc/[0-9]*/exe -maxdepth 0 -lname "$PROGRAM*" 2>/dev/null | cut -d / -f 3); do
        unit=$(unit_of "$pid")
        if [ -n "$unit" ] && [ "$(property "$unit" MainPID)" = "$pid" ]; then
            echo "$pid $unit"
        fi
    done
}

runs_program() {
    [ "/proc/$1/exe" -ef "$PROGRAM" ]
}

# On SIGUSR1 a wrapper executes the new binary. It stays the same process, and the parent of its runner.
upgrade() {
    pid=$1 unit=$2
    if runs_program "$pid"; then
        return 0
    fi
    if [ "$(property "$unit" ActiveState)" = deactivating ]; then
        echo "grit-wrapper: $unit is stopping; its wrapper was not upgraded"
        return 0
    fi
    kill -s USR1 "$pid" || return 0
    tries=50
    until runs_program "$pid" || [ "$tries" = 0 ]; do
        tries=$((tries - 1))
        sleep 0.2
    done
    # In this time a new binary exits that cannot read the state file, for example after a downgrade.
    sleep 1
    if runs_program "$pid"; then
        echo "grit-wrapper: $unit now runs the new binary; its runner was not stopped"
    else
        echo "grit-wrapper: $unit does not run the new binary; its runner keeps running. Check: journalctl -u $unit" >&2
    fi
}

# After an installation or upgrade.
upgrade_running() {
    systemctl daemon-reload
    services | while read -r pid unit; do
        upgrade "$pid" "$unit" </dev/null
    done
}

# Units that run grit-wrapper, or would at their next start, except grit-wrapper.service.
users() {
    {
        services | cut -d ' ' -f 2
        grep -ls "$PROGRAM" /etc/systemd/system/*.service /etc/systemd/system/*.service.d/*.conf |
            sed 's,^/etc/systemd/system/\([^/]*\.service\).*,\1,'
    } | grep -v '^grit-wrapper\.service$' | sort -u | tr '\n' ' '
}

# PIDs of processes that grit-wrapper.service has left behind: a runner whose wrapper was killed, and its jobs.
leftovers() {
    find /sys/fs/cgroup -path '*/grit-wrapper.service/*' -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | tr '\n' ' '
}

# Whether one of these processes is a runner that the next wrapper would adopt: its PID is in the state file.
has_runner() {
    for pid; do
        if grep -qs "\"pid\":$pid[,}]" "$STATE_FILE"; then
            return 0
        fi
    done
    return 1
}

# Before a removal: grit-wrapper.service is stopped, which drains its runner. This fails while other services use the binary, because they
# could not start again, and while a runner has no wrapper, because only the next wrapper can drain it.
stop_before_removal() {
    users=$(users)
    if [ -n "$users" ]; then
        echo "grit-wrapper: still used by: $users" >&2
        echo "grit-wrapper: first remove the grit-wrapper drop-in from these services: see \"From the wrapper to the plain service\" in /usr/share/doc/grit-wrapper/running.md.gz" >&2
        exit 1
    fi
    case "$(property grit-wrapper.service ActiveState)" in
        inactive | failed) ;;
        *)
            echo "grit-wrapper: stopping grit-wrapper.service; this waits until its runner has finished its jobs, without a time limit"
            echo "grit-wrapper: to abort the jobs, run in another shell: $PROGRAM drain --force --address unix:///run/grit-wrapper/wrapper.sock"
            systemctl stop grit-wrapper.service
            ;;
    esac
    leftovers=$(leftovers)
    if [ -z "$leftovers" ]; then
        return 0
    fi
    # Other processes were started by jobs, which may want them to stay.
    # shellcheck disable=SC2086
    if has_runner $leftovers; then
        echo "grit-wrapper: processes of grit-wrapper.service still run without a wrapper: $leftovers" >&2
        echo "grit-wrapper: run \"systemctl start grit-wrapper.service\", which adopts a running runner, and then remove the package again" >&2
        exit 1
    fi
    echo "grit-wrapper: processes of earlier jobs of grit-wrapper.service keep running: $leftovers" >&2
}

# After a removal. If there is a state file, its runner may still be running.
clean_up() {
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload || true
    fi
    if [ ! -s "$STATE_FILE" ]; then
        rm -rf /run/grit-wrapper
    fi
}
