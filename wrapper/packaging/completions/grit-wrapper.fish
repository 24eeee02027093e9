# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_grit_wrapper_global_optspecs
    string join \n h/help V/version
end

function __fish_grit_wrapper_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_grit_wrapper_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_grit_wrapper_using_subcommand
    set -l cmd (__fish_grit_wrapper_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c grit-wrapper -n "__fish_grit_wrapper_needs_command" -s h -l help -d 'Print help'
complete -c grit-wrapper -n "__fish_grit_wrapper_needs_command" -s V -l version -d 'Print version'
complete -c grit-wrapper -n "__fish_grit_wrapper_needs_command" -f -a "run" -d 'Run a command under supervision: `grit-wrapper run -- gitlab-runner run`'
complete -c grit-wrapper -n "__fish_grit_wrapper_needs_command" -f -a "status" -d 'Show the runner\'s state and health'
complete -c grit-wrapper -n "__fish_grit_wrapper_needs_command" -f -a "jobs" -d 'List the runner\'s jobs'
complete -c grit-wrapper -n "__fish_grit_wrapper_needs_command" -f -a "drain" -d 'Drain the runner: it finishes its jobs and exits'
complete -c grit-wrapper -n "__fish_grit_wrapper_needs_command" -f -a "cancel" -d 'Cancel a drain before SIGQUIT is sent to the runner'
complete -c grit-wrapper -n "__fish_grit_wrapper_needs_command" -f -a "start" -d 'Start the runner after it has exited'
complete -c grit-wrapper -n "__fish_grit_wrapper_needs_command" -f -a "wait" -d 'Wait until the runner has exited, or has reached a health level. The exit code is 4 after a drain that was not clean, as with `drain --wait`'
complete -c grit-wrapper -n "__fish_grit_wrapper_needs_command" -f -a "dial-stdio" -d 'Connect standard input and output to the wrapper, for an SSH client. The command ends when the wrapper closes the connection, or when standard output is closed'
complete -c grit-wrapper -n "__fish_grit_wrapper_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l grpc-listen -d 'Address of the gRPC API: unix:///absolute/path, tcp://host:port, or fd:// for sockets passed by systemd (fd://NAME for sockets with that name). Can be repeated' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l socket-mode -d 'Mode of the unix socket, in octal. Clients need write permission to connect' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l socket-owner -d 'Owner of the unix socket: user name or UID. Default: the wrapper\'s user' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l socket-group -d 'Group of the unix socket: group name or GID. Default: the wrapper\'s group' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l http-listen -d 'Address of the HTTP server for metrics and REST: tcp://host:port. Default: no HTTP server' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l insecure-http-beyond-loopback -d 'Allow an --http-listen address that other hosts can reach. Other hosts can read /metrics only; with `=all` they have the same access as local clients, without authentication' -r -f -a "metrics\t'Other hosts can read /metrics'
all\t'Other hosts have the same access as local clients'"
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l label -d 'Label of the metric grit_wrapper_info, for example deployment_version=v2. Can be repeated' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l allow-control -d 'User or @group that can drain, cancel and start. If --allow-control or --allow-read is set, only the listed users, root and the wrapper\'s user have access' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l allow-read -d 'User or @group with read-only access' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l allow-callback -d 'Allowed URL prefix of shutdown callbacks. Can be repeated. Default: all URLs whose host does not have a loopback, link-local or metadata address' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l process-termination-timeout -d 'Time between SIGTERM and SIGKILL in a forceful stop. SIGKILL is sent to the runner and all its processes. Default: 15s longer than `shutdown_timeout` in the runner\'s configuration, at least 45s' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l drain-timeout -d 'Timeout of a drain that a signal to the wrapper started. After this time the runner is stopped forcefully. Default: no timeout' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l start-grace -d 'Minimum time between the runner\'s start and SIGQUIT or SIGHUP: these signals would kill a runner without signal handlers' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l request-gap-timeout -d 'Maximum wait of a graceful drain for a gap between the runner\'s job requests. SIGQUIT cancels open requests, and a job that GitLab has assigned to one of them is lost. 0s: send SIGQUIT at once' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l state-file -d 'State file, from which the next wrapper adopts the running runner. Default: path of the first unix socket, plus `.state`; with TCP addresses only, wrapper.state in `$RUNTIME_DIRECTORY`' -r -F
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l min-uptime -d 'Minimum uptime of a runner for the health level `process`. A runner with the level `polling` does not need it' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l min-runners -d 'Minimum number of `[[runners]]` sections for health level `ready`' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l probe-interval -d 'Interval between probes of a healthy runner; shorter while it starts or drains' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l runner-listen-address -d 'Address of the runner\'s HTTP server. It is passed as LISTEN_ADDRESS, unless the runner\'s arguments or environment set an address' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l restart -d 'Restart policy for a runner that exits unexpectedly' -r -f -a "never\t'Never restart (the behaviour of upstream\'s wrapper)'
on-failure\t'Restart unless the exit code was 0'
always\t'Restart after every unexpected exit'"
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l restart-delay -d 'Delay before the first restart; it doubles with each consecutive failure' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l restart-max-delay -d 'Maximum delay before a restart' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l leftover-processes -d 'Action for processes, such as jobs, that are still running after the runner exited: log or kill them. A forceful stop always kills them' -r -f -a "report\t'Log each process with PID, age and executable, and keep it running'
kill\t'Kill the processes'"
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l ready-when -d 'Health level at which READY=1 is sent to systemd (`Type=notify`)' -r -f -a "process\t'The runner\'s process is running'
ready\t'The runner is ready for jobs'
polling\t'GitLab accepts the runner\'s job requests'"
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l when-stopped -d 'Action of the wrapper when the runner has exited and is not restarted' -r -f -a "stay\t'Keep running and report state `stopped` until a signal arrives, as upstream\'s wrapper does'
exit\t'Exit with the runner\'s exit code, so that a service manager can restart the wrapper'"
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l log-level -d 'Log level: error, warn, info, debug or trace' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l insecure-tcp-beyond-loopback -d 'Allow a --grpc-listen TCP address that other hosts can reach. Every client that can connect can then stop the runner'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -l http-allow-control -d 'Enable drain, cancel and start over HTTP. Every client that can connect can then use them'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand status" -l address -d 'Address of the wrapper: unix:///absolute/path or tcp://host:port' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand status" -l json -d 'Print JSON'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand status" -s h -l help -d 'Print help'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand jobs" -l address -d 'Address of the wrapper: unix:///absolute/path or tcp://host:port' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand jobs" -l json -d 'Print JSON'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand jobs" -s h -l help -d 'Print help'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand drain" -l address -d 'Address of the wrapper: unix:///absolute/path or tcp://host:port' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand drain" -l id -d 'Identifier of the drain; a repeated call with the same id joins this drain' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand drain" -l reason -d 'Reason, shown in the status and in the log' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand drain" -l deadline -d 'Abort remaining jobs after this duration. Default: never' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand drain" -l timeout -d 'Timeout of the wait; the drain continues. Default: no timeout' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand drain" -l json -d 'Print JSON'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand drain" -l force -d 'Stop the runner forcefully: its jobs are aborted'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand drain" -l wait -d 'Wait until the runner has exited. The exit code is then 0 only if the drain was clean: the runner finished its jobs and exited with exit code 0 (with --force: it exited in time with exit code 0), or no runner was running. It is 4 if jobs were aborted at a deadline or by another process, if the runner could not report the end of a job to GitLab, or if it was killed, failed, or exited with an unknown exit code; `outcome` in the output shows which of these happened'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand drain" -s h -l help -d 'Print help'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand cancel" -l address -d 'Address of the wrapper: unix:///absolute/path or tcp://host:port' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand cancel" -l id -d 'Cancel only the drain with this id. Default: any drain' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand cancel" -l json -d 'Print JSON'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand cancel" -s h -l help -d 'Print help'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand start" -l address -d 'Address of the wrapper: unix:///absolute/path or tcp://host:port' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand start" -l json -d 'Print JSON'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand start" -s h -l help -d 'Print help'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand wait" -l address -d 'Address of the wrapper: unix:///absolute/path or tcp://host:port' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand wait" -l for -d 'State or health level to wait for' -r -f -a "stopped\t'The runner has exited'
process\t'The runner\'s process is running'
ready\t'The runner is ready for jobs'
polling\t'GitLab accepts the runner\'s job requests. It accepts those of a paused runner, too'
working\t'The runner polls, and has finished a job successfully since its start'"
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand wait" -l timeout -d 'Timeout of the wait. Default: no timeout' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand wait" -l json -d 'Print JSON'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand wait" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand dial-stdio" -l address -d 'Address of the wrapper: unix:///absolute/path or tcp://host:port' -r
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand dial-stdio" -s h -l help -d 'Print help'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand help; and not __fish_seen_subcommand_from run status jobs drain cancel start wait dial-stdio help" -f -a "run" -d 'Run a command under supervision: `grit-wrapper run -- gitlab-runner run`'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand help; and not __fish_seen_subcommand_from run status jobs drain cancel start wait dial-stdio help" -f -a "status" -d 'Show the runner\'s state and health'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand help; and not __fish_seen_subcommand_from run status jobs drain cancel start wait dial-stdio help" -f -a "jobs" -d 'List the runner\'s jobs'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand help; and not __fish_seen_subcommand_from run status jobs drain cancel start wait dial-stdio help" -f -a "drain" -d 'Drain the runner: it finishes its jobs and exits'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand help; and not __fish_seen_subcommand_from run status jobs drain cancel start wait dial-stdio help" -f -a "cancel" -d 'Cancel a drain before SIGQUIT is sent to the runner'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand help; and not __fish_seen_subcommand_from run status jobs drain cancel start wait dial-stdio help" -f -a "start" -d 'Start the runner after it has exited'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand help; and not __fish_seen_subcommand_from run status jobs drain cancel start wait dial-stdio help" -f -a "wait" -d 'Wait until the runner has exited, or has reached a health level. The exit code is 4 after a drain that was not clean, as with `drain --wait`'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand help; and not __fish_seen_subcommand_from run status jobs drain cancel start wait dial-stdio help" -f -a "dial-stdio" -d 'Connect standard input and output to the wrapper, for an SSH client. The command ends when the wrapper closes the connection, or when standard output is closed'
complete -c grit-wrapper -n "__fish_grit_wrapper_using_subcommand help; and not __fish_seen_subcommand_from run status jobs drain cancel start wait dial-stdio help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
