#!/bin/bash
# The first and only process of the guest: runs the scripts that the host names, one after the other.
# The kernel hands the argument job=DIR over as a variable; DIR is a directory of the host.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t hostfs job /mnt -o "$job"
ip link set lo up

# The console of commands: a line names a script, the answer is its exit code.
stty -F /dev/tty1 raw -echo
exec 3<>/dev/tty1
echo ready >&3
while read -r script <&3; do
	bash "/mnt/$script" >"/mnt/$script.out" 2>&1 </dev/null 3>&-
	echo "exit $?" >&3
done
