if [ "$1" = 0 ]; then
    if [ -d /run/systemd/system ]; then
        systemctl --no-block disable lull-serve.socket lull-slice.service lull-exporter.service >/dev/null 2>&1 || true
        # Instances that are enabled: their names are known only there.
        find /etc/systemd/system -type l -name 'lull-*@*.service' -delete
        systemctl stop lull-serve.socket lull-serve.service lull-slice.service lull-exporter.service \
            'lull-web@*' 'lull-origin@*' 'lull-replica@*' || true
    fi
    for pins in /sys/fs/bpf/lull/*/; do
        [ ! -d "$pins" ] || lull kernel unload --name "$(basename "$pins")" >/dev/null 2>&1 || true
    done
fi
