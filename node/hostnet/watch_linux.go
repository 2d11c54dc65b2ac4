package hostnet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// watchBuffer holds what happens while the receiver of events is busy. More is
// no loss: then everything may have changed.
const watchBuffer = 8 << 20

// Watch calls f with what may have changed, until ctx is done. The first call is
// with everything, as soon as no further change can be missed: so nothing needs
// to be read before. f is called by one goroutine at a time and should not block.
//
// What this Conn changes is no event, as far as the kernel tells (links: from
// Linux 6.2 on); what the kernel does of itself afterwards is.
func (c *Conn) Watch(ctx context.Context, f func(Event)) error {
	var route, netfilter *netlink.Conn
	err := c.inNamespace(func() (err error) {
		if route, err = join(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK,
			unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE); err != nil {
			return err
		}
		for _, group := range []uint32{unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_RULE} {
			_ = route.JoinGroup(group) // of a kernel without IPv6
		}
		// A kernel without nf_tables, or a reader without privilege.
		netfilter, _ = join(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
		return nil
	})
	if err != nil {
		return fmt.Errorf("watch the network: %w", err)
	}

	var mu sync.Mutex // one call of f at a time
	report := func(e Event) {
		if e != (Event{}) {
			mu.Lock()
			defer mu.Unlock()
			f(e)
		}
	}
	report(Event{Ours: true, Paths: true})
	var wg sync.WaitGroup
	var routeErr, netfilterErr error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() {
		defer cancel()
		routeErr = receive(ctx, route, report, c.routeEvent)
	})
	if netfilter != nil {
		wg.Go(func() {
			defer cancel()
			netfilterErr = receive(ctx, netfilter, report, c.translationEvent)
		})
	}
	wg.Wait()
	return errors.Join(routeErr, netfilterErr)
}

func join(family int, groups ...uint32) (*netlink.Conn, error) {
	nl, err := netlink.Dial(family, nil)
	if err != nil {
		return nil, err
	}
	_ = nl.SetReadBuffer(watchBuffer)
	for _, group := range groups {
		if err := nl.JoinGroup(group); err != nil {
			return nil, errors.Join(err, nl.Close())
		}
	}
	return nl, nil
}

// receive reports what messages mean, those of one datagram at once, until ctx
// is done. It closes nl.
func receive(ctx context.Context, nl *netlink.Conn, report func(Event), event func(netlink.Message) Event) error {
	stop := context.AfterFunc(ctx, func() { _ = nl.SetReadDeadline(time.Unix(1, 0)) })
	defer func() {
		stop()
		_ = nl.Close()
	}()
	for {
		ms, err := nl.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			report(Event{Ours: true, Paths: true})
			continue
		case err != nil:
			return fmt.Errorf("watch the network: %w", err)
		}
		var e Event
		for _, m := range ms {
			e.add(event(m))
		}
		report(e)
	}
}

// routeEvent says what a notification of rtnetlink may mean. One that cannot be
// decoded may mean anything.
func (c *Conn) routeEvent(m netlink.Message) Event {
	if m.Header.PID == c.pid {
		return Event{} // our own doing
	}
	var e Event
	var err error
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		e, err = c.linkEvent(m.Data)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		a, decodeErr := decodeAddress(m.Data)
		err = decodeErr
		ours := c.ours.has(a.index)
		e = Event{Ours: ours, Paths: !ours}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if len(m.Data) >= unix.SizeofRtMsg && decodeRouteHeader(m.Data).flags&unix.RTM_F_CLONED != 0 {
			return Event{} // a cache entry
		}
		_, table, decodeErr := decodeRoute(m.Data)
		err = decodeErr
		e = Event{Ours: table == Table, Paths: table != Table}
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		_, ours, decodeErr := decodeRule(m.Data)
		err = decodeErr
		e = Event{Ours: ours, Paths: !ours}
	}
	if err != nil {
		return Event{Ours: true, Paths: true}
	}
	return e
}

func (c *Conn) linkEvent(b []byte) (Event, error) {
	l, _, err := decodeLink(b)
	if err != nil {
		return Event{}, err
	}
	// A link that was ours may have lost its mark; one that has a wanted name may
	// be in the way, or be so no longer.
	ours := l.marked() || c.ours.has(l.Index) || strings.HasPrefix(l.Name, LinkPrefix)
	return Event{Ours: ours, Paths: !ours}, nil
}

// translationEvent says what a notification of nf_tables may mean.
func (c *Conn) translationEvent(m netlink.Message) Event {
	return Event{Ours: m.Header.PID != c.nft.pid() && translationEvent(m)}
}
