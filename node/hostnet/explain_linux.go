package hostnet

import (
	"errors"
	"fmt"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// explain says what to do about what the kernel answered to a step; nil where
// the step's purpose is fulfilled all the same.
func explain(s networkStep, err error) error {
	switch {
	case err == nil || fulfilled(s, err):
		return nil
	case errors.Is(err, unix.EPERM):
		return errPermission
	}
	said := kernelSays(err)
	switch s := s.(type) {
	case addLink:
		return explainAddLink(s.want, err)
	case setUp:
		if errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("UDP port %d is in use by another process or by links of another kind (ss -lunp 'sport = :%d' shows the process): stop it or choose another port: %w", s.want.Port, s.want.Port, said)
		}
		return fmt.Errorf("set it up: %w", said)
	case setLink:
		return fmt.Errorf("change MTU to %d and remote to %v: %w", s.want.MTU, s.want.Gateway, said)
	case addAddress:
		if s.address.Addr().Is6() && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EAFNOSUPPORT)) {
			return fmt.Errorf("add address %v: IPv6 is disabled here: enable it (sysctl net.ipv6.conf.all.disable_ipv6=0, net.ipv6.conf.default.disable_ipv6=0) or use IPv4 only: %w", s.address, said)
		}
		return fmt.Errorf("add address %v: %w", s.address, said)
	case putRoute:
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add route %v: somebody else has one to this prefix in table %d: remove it (ip route del %v table %d)", s.route, Table, s.route.Dst, Table)
		}
		if s.route.Dst.Addr().Is6() && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EAFNOSUPPORT)) {
			return fmt.Errorf("add route %v: IPv6 is disabled here: enable it or use IPv4 only: %w", s.route, said)
		}
		return fmt.Errorf("set route %v: %w", s.route, said)
	case addRule:
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("the kernel has no policy routing (CONFIG_IP_MULTIPLE_TABLES): %w", said)
		}
	}
	return said
}

// fulfilled tells whether an error says that what a step wants is so already.
func fulfilled(s networkStep, err error) bool {
	gone := errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EADDRNOTAVAIL)
	switch s.phase() {
	case phaseRemoveLink, phaseRemoveLinkFirst, phaseRemoveAddress, phaseRemoveRoute, phaseRemoveRule:
		return gone
	case phaseAddAddress:
		return errors.Is(err, unix.EEXIST)
	case phaseAddRule, phaseAddLink, phaseSetLink, phaseSetUp, phasePutRoute:
	}
	return false
}

func explainAddLink(l Link, err error) error {
	switch {
	case errors.Is(err, unix.EOPNOTSUPP) && l.Kind != KindTUN:
		return fmt.Errorf("%s: %w", noKind(l.Kind), kernelSays(err))
	case errors.Is(err, unix.EEXIST):
		return err // Who it is that exists, the caller finds out.
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("another %s link has VNI %d, remote %v and port %d (ip -d link show type %s): remove it: %w", l.Kind, l.VNI, l.Gateway, l.Port, l.Kind, kernelSays(err))
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return err // of /dev/net/tun, explained
	}
	return fmt.Errorf("make it: %w", kernelSays(err))
}

// noKind says that the kernel lacks a kind of link and what to do.
func noKind(k Kind) string {
	return fmt.Sprintf("the kernel has no %s device: load it (modprobe %s), or use another kind of link", k, k)
}

// kernelSays brings a netlink error to what it says: the text that some kernels
// add, and the error number, which stays in the chain.
func kernelSays(err error) error {
	var oe *netlink.OpError
	if !errors.As(err, &oe) {
		return err
	}
	if oe.Message != "" {
		return fmt.Errorf("%w (%s)", oe.Err, oe.Message)
	}
	return oe.Err
}
