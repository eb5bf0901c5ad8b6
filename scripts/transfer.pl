# Sends over a connection to itself until standard input ends. In a minimal Debian, Perl is the only interpreter.
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;

my $listener = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "listen: $!";
my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $listener->sockport) or die "connect: $!";
my $server = $listener->accept or die "accept: $!";
my $input = IO::Select->new(\*STDIN);
for (1 .. 6000) {
    $client->syswrite('x' x 20_000);
    my $left = 20_000;
    while ($left > 0) {
        my $count = $server->sysread(my $buffer, $left) or die "read: $!";
        $left -= $count;
    }
    last if $input->can_read(0.02) && !sysread(STDIN, my $end, 1);
}
