# In a minimal Debian, Perl is the only interpreter.
#   perl upload.pl sink PORT             receives what comes, until it is ended
#   perl upload.pl HOST PORT SECONDS     sends for that long
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;

my ($host, $port, $seconds) = @ARGV;
if ($host eq 'sink') {
    my $listener = IO::Socket::INET->new(Listen => 8, LocalPort => $port, ReuseAddr => 1) or die "listen: $!";
    my $all = IO::Select->new($listener);
    while (1) {
        for my $one ($all->can_read) {
            if ($one == $listener) {
                $all->add($listener->accept);
            } elsif (!sysread($one, my $buffer, 65536)) {
                $all->remove($one);
                close($one);
            }
        }
    }
}
my $client;
for (1 .. 100) {
    last if $client = IO::Socket::INET->new(PeerAddr => $host, PeerPort => $port);
    select(undef, undef, undef, 0.1);
}
die "connect: $!" if !$client;
my $end = time + $seconds;
$client->syswrite('x' x 16_384) while time < $end;
