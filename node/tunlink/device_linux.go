package tunlink

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// device is a TUN device to which a queue per worker is attached.
type device struct {
	name     string
	index    int // what the name meant when it was opened
	queues   []*queue
	offloads uint32 // TUN_F_ flags that the kernel granted
	// tunnel is what the device is used for now.
	tunnel atomic.Pointer[tunnel]
	// broken is why the device cannot be used any more.
	broken atomic.Pointer[string]
}

// queue is one queue of a device. Its worker reads it; any may write to it.
type queue struct {
	id     int32 // in the worker's epoll set; 0: in none yet
	fd     int
	device *device
}

// offloadSteps is what a device is asked to take over from the kernel, the most
// first. The kernel grants all or nothing.
var offloadSteps = []uint32{
	unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN | unix.TUN_F_USO4 | unix.TUN_F_USO6, // Linux 6.2
	unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN,
	unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6,
	unix.TUN_F_CSUM,
	0,
}

var offloadNames = []struct {
	flag uint32
	name string
}{
	{unix.TUN_F_CSUM, "csum"},
	{unix.TUN_F_TSO4, "tso4"},
	{unix.TUN_F_TSO6, "tso6"},
	{unix.TUN_F_TSO_ECN, "tso_ecn"},
	{unix.TUN_F_USO4, "uso4"},
	{unix.TUN_F_USO6, "uso6"},
}

// udpSegments tells whether the kernel takes UDP super-segments from the device. The
// versions that do are those that give them.
func (d *device) udpSegments() bool { return d.offloads&unix.TUN_F_USO4 != 0 }

// openDevice attaches queues to the device with that name.
func openDevice(name string, queues int, gso bool) (*device, error) {
	// To attach to a device that does not exist would make it.
	index, err := indexOf(name)
	if err != nil {
		return nil, err
	}
	d := &device{name: name, index: index}
	for range queues {
		fd, err := attach(name)
		if err != nil {
			d.close()
			return nil, err
		}
		d.queues = append(d.queues, &queue{fd: fd, device: d})
	}
	fd := d.queues[0].fd
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, vnetLen); err != nil {
		d.close()
		return nil, fmt.Errorf("set the size of the vnet header: %w", err)
	}
	steps := offloadSteps
	if !gso {
		steps = offloadSteps[len(offloadSteps)-1:]
	}
	for _, flags := range steps {
		if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, int(flags)); err == nil {
			d.offloads = flags
			break
		}
	}
	return d, nil
}

// usable tells whether the device still is the one of its name: somebody may have
// deleted it, renamed it or moved it to another namespace, where it works on.
func (d *device) usable() bool {
	if d.broken.Load() != nil {
		return false
	}
	index, err := indexOf(d.name)
	return err == nil && index == d.index
}

// indexOf finds the device of that name in the network namespace of the thread.
func indexOf(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, fmt.Errorf("device name %q: %w", name, err)
	}
	switch err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr); {
	case errors.Is(err, unix.ENODEV):
		return 0, ErrNoDevice
	case err != nil:
		return 0, fmt.Errorf("look for the device: %w", err)
	}
	return int(ifr.Uint32()), nil
}

// attach opens a queue of the device.
func attach(name string) (fd int, err error) {
	const path = "/dev/net/tun"
	fd, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return -1, fmt.Errorf("%w: %s does not exist: load the module tun, and mount the file into the container", ErrNotPermitted, path)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return -1, fmt.Errorf("%w: open %s: %w: allow the container to use the device 10:200", ErrNotPermitted, path, err)
	case err != nil:
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_MULTI_QUEUE)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if err == nil {
		return fd, nil
	}
	_ = unix.Close(fd)
	switch {
	case errors.Is(err, unix.EPERM):
		return -1, fmt.Errorf("%w: attach to the device: %w: grant CAP_NET_ADMIN", ErrNotPermitted, err)
	case errors.Is(err, unix.EINVAL):
		return -1, fmt.Errorf("attach to the device: %w: it is no TUN device with several queues and vnet headers: delete it", err)
	case errors.Is(err, unix.EBUSY):
		return -1, fmt.Errorf("attach to the device: %w: another program uses it", err)
	case errors.Is(err, unix.E2BIG):
		return -1, fmt.Errorf("attach to the device: %w: all its queues are in use", err)
	}
	return -1, fmt.Errorf("attach to the device: %w", err)
}

// close detaches from the device, which stays. The queues are in no epoll set any more.
func (d *device) close() {
	for _, q := range d.queues {
		_ = unix.Close(q.fd)
	}
}

// fail notes that the device cannot be used any more.
func (d *device) fail(err error) {
	text := err.Error()
	d.broken.CompareAndSwap(nil, &text)
}

// offloadList names the offloads in use.
func (d *device) offloadList() []string {
	var names []string
	for _, o := range offloadNames {
		if d.offloads&o.flag != 0 {
			names = append(names, o.name)
		}
	}
	return names
}
