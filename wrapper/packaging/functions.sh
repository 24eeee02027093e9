FOLDER=/run/grit-wrapper
UNIT_FILE=/usr/lib/systemd/system/gitlab-runner.service

# A chroot and another root directory have no running systemd.
systemd_runs() {
    [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]
}

property() {
    systemctl show --property="$2" --value "$1"
}

# After an installation or upgrade. The drop-in also applies to a running runner, which continues: it is not a process of these units.
restart_wrappers() {
    systemctl daemon-reload
    # Patterns are compared with the units that are loaded.
    systemctl try-restart 'grit-wrapper.service' 'grit-wrapper@*.service' ||
        echo "grit-wrapper: a restart failed; the runners continue. Check: journalctl -u 'grit-wrapper*'" >&2
}

# The units of runners that can have a drain.
runner_units() {
    {
        echo gitlab-runner.service
        find "$FOLDER" -name '*.service.state' 2>/dev/null | sed 's,.*/,,; s,\.state$,,'
        ls "$FOLDER/held" 2>/dev/null
    } | sort -u
}

# The units whose drain is in progress. Without the drop-in, systemd would end their jobs.
draining_units() {
    for unit in $(runner_units); do
        case "$(property "$unit" ActiveState)" in
            deactivating) echo "$unit" ;;
            inactive | failed) ;;
            *) if [ -e "$FOLDER/held/$unit" ]; then echo "$unit"; fi ;;
        esac
    done
}

# Before a removal: the wrappers are stopped, and the runners continue. This fails during a drain, and while a runner has the unit file of this package.
stop_before_removal() {
    draining=$(draining_units)
    if [ -n "$draining" ]; then
        echo "grit-wrapper: a drain is in progress:" $draining >&2
        echo "grit-wrapper: wait until the runner has exited, or run \"grit-wrapper cancel\", and then remove the package again" >&2
        exit 1
    fi
    if [ "$(property gitlab-runner.service FragmentPath)" -ef "$UNIT_FILE" ] &&
        [ "$(property gitlab-runner.service MainPID)" != 0 ]; then
        echo "grit-wrapper: gitlab-runner.service runs with $UNIT_FILE, which belongs to this package" >&2
        echo "grit-wrapper: run \"gitlab-runner install\" or \"systemctl stop gitlab-runner\", and then remove the package again" >&2
        exit 1
    fi
    systemctl stop 'grit-wrapper.service' 'grit-wrapper@*.service'
}

# After a removal. The runners continue as plain services.
clean_up() {
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload || true
    fi
    rm -rf "$FOLDER"
    if [ -L /run/gitlab-runner-wrapper.sock ]; then
        rm /run/gitlab-runner-wrapper.sock
    fi
}
