package hostnet

import (
	"errors"
	"fmt"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tunDevice is where TUN devices come from.
const tunDevice = "/dev/net/tun"

// tunFlags are what whoever attaches must say, too.
const tunFlags = unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_MULTI_QUEUE

// tunQueueLength is that of other devices: the default of 500 packets is short
// for bursts of several queues.
const tunQueueLength = 1000

// openTUN makes a TUN device that goes when the file is closed.
func openTUN(name string) (fd int, err error) {
	fd, err = unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return -1, fmt.Errorf("there is no %s: load the module (modprobe tun) and give the agent the device (a hostPath volume of type CharDevice): %w", tunDevice, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return -1, fmt.Errorf("%s may not be opened: allow the agent's container the character device 10:200 and read and write access: %w", tunDevice, err)
	case err != nil:
		return -1, fmt.Errorf("open %s: %w", tunDevice, err)
	}
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		ifr.SetUint16(tunFlags)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if err != nil {
		_ = unix.Close(fd)
		if errors.Is(err, unix.EPERM) {
			return -1, errPermission
		}
		return -1, fmt.Errorf("make a TUN device: %w", os.NewSyscallError("ioctl TUNSETIFF", err))
	}
	return fd, nil
}

// addTUN makes a TUN device and marks it, and only then lets it outlive us.
func (a *applier) addTUN(l Link) error {
	c := a.conn
	// TUNSETIFF would join a device that is there already.
	if _, _, err := c.readLink(l.Name, 0); err == nil {
		return unix.EEXIST
	}
	return c.inNamespace(func() error {
		fd, err := openTUN(l.Name)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		have, _, err := c.readLink(l.Name, 0)
		if err != nil {
			return fmt.Errorf("find the new device: %w", err)
		}
		errs := c.batch([]netlink.Message{tunMessage(have.Index, l), noLinkLocalMessage(have.Index)})
		if errs[0] != nil {
			return errs[0]
		}
		if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
			return os.NewSyscallError("ioctl TUNSETPERSIST", err)
		}
		a.made[l.Name] = have.Index
		c.ours.add(have.Index)
		return nil
	})
}

func tunMessage(index int, l Link) netlink.Message {
	return change(unix.RTM_NEWLINK, 0, attributes(linkHeader(index, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_MTU, uint32(l.MTU))
		ae.Uint32(unix.IFLA_TXQLEN, tunQueueLength)
		ae.String(unix.IFLA_IFALIAS, l.alias())
	}))
}
