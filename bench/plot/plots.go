package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/bench/record"
)

// ratios shows what Sluice carries compared with "stock", over commits.
func ratios(all []result) []byte {
	figures := []struct {
		name, label string
		series      int
	}{{"tcp1/a-to-b", "TCP, 1 stream", 2}, {"tcp4/a-to-b", "TCP, 4 streams", 3}, {"gateway1300/packets", "gateways alone, 1300 bytes", 0}, {"gateway64/packets", "gateways alone, 64 bytes", 4}}
	p := begin(440, "Throughput of Sluice, compared with stock wireguard-go, a kernel tunnel and nftables", "Ratios of throughput in the same round, medians and ranges, by commit. 1 is the same speed; more is faster.")
	var commits []string
	for _, r := range all {
		for _, f := range figures {
			if _, ok := r.ratios[f.name]["sluice"]; ok && !slices.Contains(commits, r.commit) {
				commits = append(commits, r.commit)
			}
		}
	}
	const left, right, top, bottom, most = 50, 845, 70, 365, 4
	y := func(v float64) float64 { return bottom - v/most*(bottom-top) }
	for v := range most + 1 {
		class := "edge"
		if v == 1 {
			class = "one"
		}
		p.line(left, y(float64(v)), right, y(float64(v)), class)
		p.text(left-8, y(float64(v))+4, "small", "end", fmt.Sprint(v))
	}
	slot := float64(right-left) / float64(len(commits))
	for i, c := range commits {
		p.text(left+(float64(i)+0.5)*slot, bottom+20, "small", "middle", c)
	}
	drawn := make(map[string]int) // at the same place
	for _, r := range all {
		at := slices.Index(commits, r.commit)
		for k, f := range figures {
			s, ok := r.ratios[f.name]["sluice"]
			if !ok {
				continue
			}
			key := fmt.Sprint(at, k)
			x := left + (float64(at)+(float64(k)+0.7)/5)*slot + 13*float64(drawn[key])
			drawn[key]++
			p.line(x, y(min(s.low, most)), x, y(min(s.high, most)), fmt.Sprintf("s%d thin", f.series))
			p.mark(f.series, x, y(s.median))
		}
	}
	names := make(map[int]string)
	for _, f := range figures {
		names[f.series] = f.label
	}
	p.legend(417, names)
	return p.end()
}

// variants are those that are compared, with their series.
var variants = []struct {
	name   string
	series int
}{{"stock", 0}, {"sluice", 2}}

// latest is the last result that has all figures of both variants.
func latest(all []result, figures ...string) *result {
	for _, r := range slices.Backward(all) {
		if !slices.ContainsFunc(figures, func(f string) bool { return len(r.samples[f]["stock"]) == 0 || len(r.samples[f]["sluice"]) == 0 }) {
			return &r
		}
	}
	return nil
}

// latency shows how round trips are distributed.
func latency(all []result) []byte {
	loads := []struct{ name, label string }{{"latency", "ping, no other traffic"}, {"loaded", "ping next to a TCP stream"}, {"rr", "request and response, TCP"}}
	const left, right, top, panel, row, first, last = 250, 840, 70, 150, 26, 50.0, 50_000.0
	height := top + panel*len(loads) + 30
	p := begin(height, "Round trips through both gateways", "So many of a hundred take so long at most: medians of rounds, and their ranges. Logarithmic.")
	x := func(us float64) float64 { return left + math.Log(us/first)/math.Log(last/first)*(right-left) }
	for i, load := range loads {
		at := float64(top + i*panel)
		bottom := at + row*float64(len(record.Percents)-1)
		y := func(k int) float64 { return bottom - row*float64(k) }
		for _, us := range []float64{50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000} {
			p.line(x(us), at, x(us), bottom, "edge")
			text := fmt.Sprintf("%g µs", us)
			if us >= 1000 {
				text = fmt.Sprintf("%g ms", us/1000)
			}
			p.text(min(x(us), right-5), bottom+18, "small", "middle", text)
		}
		var figures []string
		for k, percent := range record.Percents {
			figures = append(figures, load.name+"/"+record.Percentile(percent))
			p.line(left, y(k), right, y(k), "edge")
			p.text(left-8, y(k)+4, "small", "end", fmt.Sprintf("%g %%", percent))
		}
		p.text(16, at+16, "", "start", load.label)
		r := latest(all, figures...)
		if r == nil {
			continue
		}
		p.text(16, at+32, "small", "start", "commit "+r.commit)
		for _, v := range variants {
			var curve [][2]float64
			for k, figure := range figures {
				s := r.samples[figure][v.name]
				p.line(x(slices.Min(s)), y(k), x(slices.Max(s)), y(k), fmt.Sprintf("s%d thin", v.series))
				curve = append(curve, [2]float64{x(record.Median(s)), y(k)})
			}
			p.path(v.series, curve)
			for _, c := range curve {
				p.mark(v.series, c[0], c[1])
			}
		}
	}
	p.legend(float64(height)-13, map[int]string{0: "stock", 2: "Sluice"})
	return p.end()
}

// sizes shows what gateways carry by the size of packets.
func sizes(all []result) []byte {
	of := []int{64, 512, 1300}
	var commit string
	found := make(map[int]*result)
	for _, r := range slices.Backward(all) { // the last commit that has all sizes
		clear(found)
		same := slices.DeleteFunc(slices.Clone(all), func(o result) bool { return o.commit != r.commit })
		for _, size := range of {
			if l := latest(same, fmt.Sprintf("gateway%d/packets", size)); l != nil {
				found[size] = l
			}
		}
		if len(found) == len(of) {
			commit = r.commit
			break
		}
	}
	p := begin(380, "Throughput of two gateways, by packet size", "UDP, gateways alone on two processors, commit "+commit+"; medians and ranges of rounds.")
	const left, right, top, bottom, most = 70, 820, 82, 310, 1750
	x := func(size int) float64 { return left + 20 + float64(size)/1300*(right-left-40) }
	y := func(v float64) float64 { return bottom - v/most*(bottom-top) }
	for v := 0; v <= most; v += 250 {
		p.line(left, y(float64(v)), right, y(float64(v)), "edge")
		p.text(left-8, y(float64(v))+4, "small", "end", fmt.Sprint(v))
	}
	p.text(16, 66, "small", "start", "thousand packets/s")
	for _, size := range of {
		p.text(x(size), bottom+20, "small", "middle", fmt.Sprintf("%d bytes", size))
	}
	for _, v := range append(slices.Clone(variants), struct {
		name   string
		series int
	}{"limit", 1}) {
		var line [][2]float64
		for _, size := range of {
			if found[size] == nil || len(found[size].samples[fmt.Sprintf("gateway%d/packets", size)][v.name]) == 0 {
				continue
			}
			s := found[size].samples[fmt.Sprintf("gateway%d/packets", size)][v.name]
			line = append(line, [2]float64{x(size), y(record.Median(s))})
			p.line(x(size), y(slices.Min(s)), x(size), y(slices.Max(s)), fmt.Sprintf("s%d thin", v.series))
		}
		p.path(v.series, line)
		for _, at := range line {
			p.mark(v.series, at[0], at[1])
		}
	}
	p.legend(360, map[int]string{0: "stock", 1: "the smallest loop that could do the work", 2: "Sluice"})
	return p.end()
}

// silences shows when nothing arrived after a fault: a line each time that it happened.
func silences(commit string, faults []fault) []byte {
	parts := []struct {
		title, prefix string
		first, last   float64 // seconds
		step          float64
		rows          []fault
	}{{title: "Gateways", prefix: "gateway ", first: -0.5, last: 4, step: 1}, {title: "Nodes", prefix: "node ", first: -6, last: 48, step: 12}}
	const left, right, row = 330.0, 745.0, 20.0
	height := 130
	for i := range parts {
		parts[i].rows = slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !strings.HasPrefix(f.name, parts[i].prefix) })
		height += int(row)*len(parts[i].rows) + 14
	}
	p := begin(height, "How long traffic stops after a fault", "The fault is at 0; a line for each time. Green: packets arrive. Red: none between any two pods; paler: between some. Commit "+commit+".")
	y := 76.0
	for _, part := range parts {
		x := func(s float64) float64 {
			return left + (max(part.first, min(part.last, s))-part.first)/(part.last-part.first)*(right-left)
		}
		bottom := y + row*float64(len(part.rows))
		p.text(16, y-8, "", "start", part.title)
		p.text(right+8, y-8, "small", "start", "median, longest")
		for s := 0.0; s <= part.last; s += part.step {
			p.line(x(s), y, x(s), bottom, "edge")
			p.text(x(s), bottom+15, "small", "middle", fmt.Sprintf("%g s", s))
		}
		for _, f := range part.rows {
			p.text(left-10, y+row/2+4, "small", "end", f.name)
			thick := min(8, (row-5)/float64(len(f.times)))
			for i, once := range f.times {
				at := y + row/2 + thick*(float64(i)-float64(len(f.times))/2)
				p.bar(x(part.first), at, x(once.watched)-x(part.first), thick-0.6, "flow")
				for _, s := range shares(once.pairs) {
					p.shade(x(s.from), at, x(s.to)-x(s.from), thick-0.6, s.share)
				}
			}
			longest := f.longest()
			p.text(right+8, y+row/2+4, "small", "start", fmt.Sprintf("%.3g s, %.3g s", record.Median(longest), slices.Max(longest)))
			y += row
		}
		y = bottom + 50
	}
	return p.end()
}

// silent is a time in which a share of the pairs heard nothing.
type silent struct {
	span
	share float64
}

// shares cuts the silences of pairs where one begins or ends.
func shares(pairs [][]span) (out []silent) {
	var cuts []float64
	for _, pair := range pairs {
		for _, s := range pair {
			cuts = append(cuts, s.from, s.to)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for i := 1; i < len(cuts); i++ {
		n := 0
		for _, pair := range pairs {
			if slices.ContainsFunc(pair, func(s span) bool { return s.from <= cuts[i-1] && cuts[i] <= s.to }) {
				n++
			}
		}
		if n > 0 {
			out = append(out, silent{span{cuts[i-1], cuts[i]}, float64(n) / float64(len(pairs))})
		}
	}
	return out
}
