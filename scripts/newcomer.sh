#!/bin/sh
# Runs as root in an emulated network and a minimal system: the user `newcomer` uploads in the background, and root beside it in
# the foreground, until `lull top` shows that user that the background yields. packages-test.sh calls it.
set -eu
as_newcomer() {
    setpriv --reuid=1000 --regid=1000 --init-groups --inh-caps=-all --bounding-set=-all sh -c "$1"
}
for host in right1 right2; do
    nsenter --net=/run/netns/$host perl /tmp/upload.pl sink 5001 &
done
as_newcomer "cd /newcomer && exec lull exec -- perl /tmp/upload.pl $LULL_RIGHT_1 5001 120 >yields.out 2>&1" &
perl /tmp/upload.pl "$LULL_RIGHT_2" 5001 120 &
for _ in $(seq 200); do
    as_newcomer 'lull top --once --json --interval 0.5' >/tmp/view
    # The row of this program, and not any row. Its number differs: the emulator has a process namespace of its own.
    if grep -q "\"process\":\"perl\",[^{}]*\"peer\":\"$LULL_RIGHT_1:5001\",[^{}]*\"activity\":\"yielding\"" /tmp/view; then
        as_newcomer 'COLUMNS=100 lull top --once'
        rm /tmp/view
        exit
    fi
    sleep 0.1
done
echo "lull top does not show that the program yields: $(cat /tmp/view)"
exit 1
