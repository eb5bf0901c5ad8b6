if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || true
fi
