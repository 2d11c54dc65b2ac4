package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Iperf describes one measurement with iperf3 from a host to a host that runs
// StartIperf.
type Iperf struct {
	To       netip.Addr
	Duration time.Duration // zero: one second, without an Amount
	// Amount ends the measurement by what was sent instead, in iperf3's notation: bytes
	// of all streams together for TCP, datagrams for UDP.
	Amount  string
	Streams int // zero: one
	// Reverse lets the server send, Both lets both send at once; the result then is
	// the sum.
	Reverse, Both bool
	// UDPLength selects UDP datagrams with this many bytes of payload.
	UDPLength int
	// Bitrate limits each stream, in iperf3's notation ("50M"). For UDP the empty
	// string means unlimited.
	Bitrate string
}

// IperfResult is what a measurement found.
type IperfResult struct {
	// BitsPerSecond is what the receiver got.
	BitsPerSecond float64
	// PacketsPerSecond, Packets and Lost are for UDP.
	PacketsPerSecond float64
	Packets, Lost    int
	// Retransmits are TCP's.
	Retransmits int
}

// StartIperf starts an iperf3 server.
func (h *Host) StartIperf() *Process {
	h.lab.t.Helper()
	p := h.Start(Program{Name: "iperf3 -s", Args: []string{"iperf3", "-s", "--forceflush"}})
	Eventually(h.lab.t, Patience, "the iperf3 server", func() error {
		if !strings.Contains(p.Log(), "listening") {
			return fmt.Errorf("it said: %s", p.Log())
		}
		return nil
	})
	return p
}

// refusedPause and refusedTries bridge the moment in which an iperf3 server does
// not listen, or is not done with the measurement before: it opens its socket anew
// after each.
const (
	refusedPause = 300 * time.Millisecond
	refusedTries = 10
)

// refused is what a client says that a server does not take yet.
var refused = regexp.MustCompile(`Connection refused|the server is busy|unable to (connect to server|receive control message)`)

// Iperf runs a measurement. It tries again while nobody listens.
func (h *Host) Iperf(m Iperf) (IperfResult, error) { return m.Run(h.TryContext) }

// Run runs a measurement wherever try runs programs. It tries again while nobody
// listens.
func (m Iperf) Run(try func(context.Context, ...string) (string, error)) (r IperfResult, err error) {
	for range refusedTries {
		if r, err = m.once(try); err == nil || !refused.MatchString(err.Error()) {
			break
		}
		time.Sleep(refusedPause)
	}
	return r, err
}

func (m Iperf) once(try func(context.Context, ...string) (string, error)) (IperfResult, error) {
	args := []string{"iperf3", "-c", m.To.String(), "-J", "--connect-timeout", "3000"}
	switch {
	case m.Amount != "" && m.UDPLength > 0:
		args = append(args, "-k", m.Amount)
	case m.Amount != "":
		args = append(args, "-n", m.Amount)
	case m.Duration == 0:
		m.Duration = time.Second
		fallthrough
	default:
		args = append(args, "-t", fmt.Sprint(m.Duration.Seconds()))
	}
	if m.Streams > 1 {
		args = append(args, "-P", strconv.Itoa(m.Streams))
	}
	if m.Reverse {
		args = append(args, "-R")
	}
	if m.Both {
		args = append(args, "--bidir")
	}
	if m.UDPLength > 0 {
		rate := m.Bitrate
		if rate == "" {
			rate = "0"
		}
		args = append(args, "-u", "-l", strconv.Itoa(m.UDPLength), "-b", rate)
	} else if m.Bitrate != "" {
		args = append(args, "-b", m.Bitrate)
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.Duration+Patience)
	defer cancel()
	out, err := try(ctx, args...)

	var report struct {
		Error string
		End   struct {
			Sum         iperfSum `json:"sum"`
			SumReceived iperfSum `json:"sum_received"`
			SumSent     iperfSum `json:"sum_sent"`
			SumBack     iperfSum `json:"sum_received_bidir_reverse"`
		}
	}
	// A warning about datagrams above the MSS comes before the report.
	text := out[max(0, strings.IndexByte(out, '{')):]
	if jsonErr := json.Unmarshal([]byte(text), &report); jsonErr != nil {
		return IperfResult{}, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), errors.Join(jsonErr, err), out)
	}
	if report.Error != "" {
		err = errors.Join(err, errors.New(report.Error))
	}
	if err != nil {
		return IperfResult{}, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	if m.UDPLength > 0 {
		sum := report.End.Sum
		seconds := max(sum.Seconds, 1e-9)
		got := sum.Packets - sum.Lost
		return IperfResult{
			BitsPerSecond:    float64(got*m.UDPLength*8) / seconds,
			PacketsPerSecond: float64(got) / seconds,
			Packets:          sum.Packets,
			Lost:             sum.Lost,
		}, nil
	}
	return IperfResult{BitsPerSecond: report.End.SumReceived.Bits + report.End.SumBack.Bits, Retransmits: report.End.SumSent.Retransmits}, nil
}

type iperfSum struct {
	Seconds     float64
	Bits        float64 `json:"bits_per_second"`
	Packets     int
	Lost        int `json:"lost_packets"`
	Retransmits int
}

// UDPOverruns returns how many datagrams the host's own UDP sockets had no room for, since it
// was made (RcvbufErrors of /proc/net/snmp and snmp6).
func (h *Host) UDPOverruns() (sum uint64) {
	h.lab.t.Helper()
	out := h.Run("cat", "/proc/net/snmp", "/proc/net/snmp6")
	var names []string
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case f[0] == "Udp6RcvbufErrors" && len(f) == 2:
			n, _ := strconv.ParseUint(f[1], 10, 64)
			sum += n
		case f[0] == "Udp:" && names == nil:
			names = f // a line of names, and then one of numbers
		case f[0] == "Udp:":
			if i := slices.Index(names, "RcvbufErrors"); i > 0 && i < len(f) {
				n, _ := strconv.ParseUint(f[i], 10, 64)
				sum += n
			}
		}
	}
	return sum
}

// PingResult is what ping found.
type PingResult struct {
	Sent, Received int
	// Lost are pings without an answer, although a later one has one. Of the last ones it is
	// not known: if any was answered, ping waits for others only for an interval, or for
	// twice the longest round trip, whatever -W says. With -q nothing is known.
	Lost int
	// RTTs are the round trips in the order of their answers.
	RTTs []time.Duration
	// Output is everything ping said.
	Output string
}

var (
	pingRTT     = regexp.MustCompile(`icmp_seq=([0-9]+) .*time=([0-9.]+) ms`)
	pingSummary = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`)
)

// Ping runs ping with arguments in one string. That answers are missing is no
// error of Ping.
func (h *Host) Ping(to netip.Addr, args string) PingResult {
	h.lab.t.Helper()
	out, err := h.Try(append(append([]string{"ping", "-n"}, strings.Fields(args)...), to.String())...)
	r := PingResult{Output: out}
	last := 0
	for _, match := range pingRTT.FindAllStringSubmatch(out, -1) {
		ms, _ := strconv.ParseFloat(match[2], 64)
		r.RTTs = append(r.RTTs, time.Duration(ms*float64(time.Millisecond)))
		seq, _ := strconv.Atoi(match[1])
		last = max(last, seq)
	}
	summary := pingSummary.FindStringSubmatch(out)
	if summary == nil {
		h.lab.t.Fatalf("%s: ping %s %s: %v\n%s", h.Name, args, to, err, out)
	}
	r.Sent, _ = strconv.Atoi(summary[1])
	r.Received, _ = strconv.Atoi(summary[2])
	r.Lost = max(last-r.Received, 0)
	return r
}
