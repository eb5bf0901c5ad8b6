//! The user and the environment of a program that `sudo lull exec` runs.

use crate::support::{LULL, Said, finish, private_shell};
use lull_testing::{PublicCopy, needs};
use serde_json::Value;

/// Runs a script as the user `nobody` with the right to use sudo, with the environment of a user. `$LULL` is the
/// program. The rule for sudo is in a separate mount namespace.
fn as_nobody(script: &str) -> Said {
    let public = PublicCopy::of(LULL.as_ref());
    let around = "rules=$(mktemp)
        printf '%s\n' 'Defaults env_reset, use_pty' 'Defaults secure_path=/usr/sbin:/usr/bin:/sbin:/bin' \
            'root ALL=(ALL:ALL) ALL' 'nobody ALL=(ALL:ALL) NOPASSWD: ALL' >$rules
        chmod 440 $rules; mount --bind $rules /etc/sudoers; rm $rules; cd /
        exec setpriv --reuid=nobody --regid=nogroup --init-groups env -i LULL=$1/lull \
            HOME=/users/of/nobody USER=nobody PATH=/own/bin:/usr/bin:/bin TERM=dumb \
            RESTIC_PASSWORD='a b' SSH_AUTH_SOCK=/run/agent AWS_PROFILE=x http_proxy=http://p \
            sh -c \"$2\"";
    let folder = public.folder().to_str().unwrap().to_owned();
    finish(&mut private_shell(around, &[&folder, script]))
}

const IDENTITY: &str = "echo $(id -u) $(id -g) $(id -G) $HOME $USER $PATH";

#[test]
fn program_runs_as_user_of_sudo() {
    needs!(lull_testing::bpf(), lull_testing::command("sudo"), lull_testing::command("setpriv"));
    let script = format!(
        "sudo -n EXTRA=1 $LULL exec --json --cc reno -- sh -c '{IDENTITY}
        echo $RESTIC_PASSWORD $SSH_AUTH_SOCK $AWS_PROFILE $http_proxy $EXTRA $SUDO_UID.
        grep ^Cap[EP] /proc/self/status | tr -d \"\\n\"; exit 3'"
    );
    let said = as_nobody(&script);
    assert_eq!(said.code(), Some(3), "{said:?}");
    let expected = "65534 65534 65534 /users/of/nobody nobody /own/bin:/usr/bin:/bin\n\
        a b /run/agent x http://p 1 .\nCapPrm:\t0000000000000000CapEff:\t0000000000000000";
    assert_eq!(said.out.replace('\r', ""), expected, "{said:?}");
    let summary: Value = serde_json::from_str(said.err.trim()).unwrap();
    assert_eq!((&summary["user"], &summary["exit_code"]), (&"nobody".into(), &3.into()));
}

#[test]
fn failed_program_of_sudo_user_gets_a_hint() {
    needs!(lull_testing::bpf(), lull_testing::command("sudo"), lull_testing::command("setpriv"));
    let said = as_nobody("sudo -n $LULL exec --cc reno -- false");
    let hint = "lull: the program ran as nobody, the user of sudo: --user root runs it as root";
    assert_eq!(said.err.trim().lines().nth(1), Some(hint), "{said:?}");
    let said = as_nobody("sudo -n $LULL exec --cc reno -- true");
    assert_eq!(said.err.trim().lines().count(), 1, "{said:?}");
}

#[test]
fn user_option_and_root_shells_keep_root() {
    needs!(lull_testing::bpf(), lull_testing::command("sudo"), lull_testing::command("setpriv"));
    for script in [
        "sudo -n $LULL exec --quiet --user root --cc reno -- sh -c 'id -u; echo $SUDO_UID'",
        "sudo -n sh -c \"$LULL exec --quiet --cc reno -- sh -c 'id -u; echo \\$SUDO_UID'; true\"",
    ] {
        let said = as_nobody(script);
        assert_eq!(said.out.replace('\r', ""), "0\n65534\n", "{script}: {said:?}");
    }
}

#[test]
fn user_option_runs_program_as_that_user() {
    needs!(lull_testing::bpf(), lull_testing::command("setpriv"));
    let script = "A=1 \"$LULL\" exec --quiet --user nobody --cc reno -- \
        sh -c 'echo $(id -u) $(id -G) $USER $LOGNAME $HOME $A'";
    let said = finish(&mut crate::support::shell(script, &[])).ok();
    assert_eq!(said, "65534 65534 nobody nobody /nonexistent 1\n");
    let exec = |script| finish(&mut crate::support::shell(script, &[]));
    exec("\"$LULL\" exec --user no-such-user -- true")
        .fails(125, "there is no user 'no-such-user'");
    let public = PublicCopy::of(LULL.as_ref());
    let script =
        "setpriv --reuid=65534 --regid=65534 --clear-groups \"$1/lull\" exec --user 0 true";
    let said = finish(&mut crate::support::shell(script, &[public.folder().to_str().unwrap()]));
    said.fails(125, "cannot run a program as 'root'");
}
