getent group lull >/dev/null || groupadd --system lull
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || true
    # lull-serve keeps running with the old version: programs in the background report to it.
    [ "$1" = 1 ] || systemctl try-restart lull-exporter.service 'lull-web@*' 'lull-origin@*' 'lull-replica@*' || true
fi
