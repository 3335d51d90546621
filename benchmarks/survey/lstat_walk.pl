#!/usr/bin/perl
# Walks a tree as fsstats does: one thread, recursion, lstat on a path built from the root for every entry.
# Records nothing, so it is the least that a survey written this way can take.
use strict;
use warnings;

my ($entries, $bytes) = (0, 0);

sub walk {
    my ($directory) = @_;
    opendir(my $handle, $directory) or return warn "lstat_walk: $directory: $!\n";
    my @names = readdir $handle;
    closedir $handle;
    for my $name (@names) {
        next if $name eq '.' || $name eq '..';
        my $path = "$directory/$name";
        my @status = lstat $path or next;
        $entries++;
        $bytes += $status[7];
        walk($path) if -d _;
    }
}

no warnings 'recursion';
walk($ARGV[0] // die "usage: lstat_walk.pl DIR\n");
print "$entries entries, $bytes bytes\n";
