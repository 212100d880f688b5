# shellcheck shell=bash
# The kernel's view of the target: a node appears, lets commands through, goes, and comes back.

device=/tmp/device

node_is_character_device() { [[ -c $MNKV_KERNEL_NODE ]]; }

node_is_gone() {
  local tries
  for ((tries = 0; tries < 500; tries++)); do
    [[ -e $1 ]] || return 0
    sleep 0.01
  done
  return 1
}

# An Exist command for the key "k" through NVME_IOCTL_IO_CMD; prints its status without DNR.
exist_status() {
  perl -e '
    open(my $node, "+<", $ARGV[0]) or die "$ARGV[0]: $!\n";
    # struct nvme_passthru_cmd; cdw2 holds the key, cdw11 its length
    my $command = pack("CCS L L L Q Q L L L6 L L", 0x14, 0, 0, 1, ord("k"), 0, 0, 0, 0, 0,
      0, 1, 0, 0, 0, 0, 0, 0);
    my $status = ioctl($node, 0xC0484E43, $command);
    die "ioctl: $!\n" unless defined $status;
    printf "%03xh\n", $status & 0x7ff;' "$MNKV_KERNEL_NODE"
}
exist_says_missing() {
  local status
  status=$(exist_status) && [[ $status == 087h ]]
}

limits_are_told() {
  local file value
  for file in /sys/class/nvme/nvme0/nvme*n*/queue/max_hw_sectors_kb; do
    value=$(<"$file")
    echo "$file: $value"
    ((value > 0)) || return 1
  done
}

suite() {
  mkdir "$device"
  check "target listens" start_target "$device"
  check "driver attaches the namespace" attach
  check "namespace has a generic character device" node_is_character_device
  check "maximum transfer size is known" limits_are_told
  check "command reaches the namespace and its status comes back" exist_says_missing
  local node=${MNKV_KERNEL_NODE:-}
  check "driver detaches" detach
  check "node is gone after that" node_is_gone "$node"
  check "driver attaches again" attach
  check "command reaches the namespace again" exist_says_missing
  check "driver detaches again" detach
  check "target ends when asked to" stop_target
  check "target starts anew on the same directory" start_target "$device"
  check "driver attaches to the new target" attach
  check "command reaches the new target" exist_says_missing
  check "driver detaches from the new target" detach
  check "new target ends when asked to" stop_target
  report_checks
}
