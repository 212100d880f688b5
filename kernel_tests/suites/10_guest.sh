# shellcheck shell=bash
# What every other suite takes for granted of the guest.

# io_uring_setup(8 entries, SQE128 | CQE32 | SINGLE_ISSUER | DEFER_TASKRUN)
io_uring_with_large_entries() {
  perl -e '
    my $params = pack("L30", 0, 0, 1 << 10 | 1 << 11 | 1 << 12 | 1 << 13);
    my $ring = syscall(425, 8, $params);
    die "io_uring_setup: $!\n" if $ring < 0;'
}

# Bytes written, synced and renamed in a folder are what is read back.
keeps_files() {
  local folder=$1
  head -c 100000 /bin/bash >"$folder/probe" && sync "$folder/probe" &&
    mv "$folder/probe" "$folder/renamed" && head -c 100000 /bin/bash | cmp - "$folder/renamed" &&
    flock --nonblock "$folder/renamed" true && rm "$folder/renamed"
}

loopback_answers() { ! (exec 3<>/dev/tcp/127.0.0.1/9) 2>&1 | grep -q unreachable; }

host_is_read_only() { ! touch "$REPO/kernel_tests/probe" 2>/dev/null; }

suite() {
  echo "kernel $(uname -srm), up for $(cut -d' ' -f1 /proc/uptime) s, $(nproc) CPU"
  check "kernel is User-Mode Linux" grep -q 'User Mode Linux' /proc/cpuinfo
  check "driver accepts connections to NVMe over TCP targets" \
    grep -q 'transport=%s' /dev/nvme-fabrics
  check "rings have 128-byte submissions and 32-byte completions" io_uring_with_large_entries
  check "loopback is up" loopback_answers
  check "temporary folder keeps files" keeps_files /tmp
  check "folder shared with the host keeps files" keeps_files "$SUITE_LOG"
  check "host's other files cannot be written" host_is_read_only
  report_checks
}
