package capture

import (
	"fmt"
	"strings"
)

// Point is where on its way a packet is looked at; see the package comment.
type Point uint8

// The points, in the order in which a packet to the peer meets them.
const (
	Node Point = iota
	Translated
	Tunnel
	Wire
	Dropped

	NumPoints
)

var pointNames = [NumPoints]string{
	Node:       "node",
	Translated: "translated",
	Tunnel:     "tunnel",
	Wire:       "wire",
	Dropped:    "dropped",
}

// String returns the name that users give to the point.
func (p Point) String() string {
	if p < NumPoints {
		return pointNames[p]
	}
	return fmt.Sprintf("point %d", uint8(p))
}

// Points is a set of points.
type Points uint8

// PointSet returns the set of these points.
func PointSet(ps ...Point) (s Points) {
	for _, p := range ps {
		s |= 1 << p
	}
	return s
}

// Has tells whether p is in the set.
func (s Points) Has(p Point) bool { return s&(1<<p) != 0 }

// All returns the points in their order.
func (s Points) All() (ps []Point) {
	for p := range NumPoints {
		if s.Has(p) {
			ps = append(ps, p)
		}
	}
	return ps
}

// String returns the names with commas, as ParsePoints reads them.
func (s Points) String() string {
	var names []string
	for _, p := range s.All() {
		names = append(names, p.String())
	}
	return strings.Join(names, ",")
}

// ParsePoints reads names of points with commas between them, at least one, or
// "all".
func ParsePoints(text string) (s Points, err error) {
	for name := range strings.SplitSeq(text, ",") {
		switch p, ok := parsePoint(strings.TrimSpace(name)); {
		case ok:
			s |= PointSet(p)
		case strings.TrimSpace(name) == "all":
			s |= 1<<NumPoints - 1
		default:
			return 0, fmt.Errorf("there is no point %q: the points are %s, or all", name, strings.Join(pointNames[:], ", "))
		}
	}
	return s, nil
}

func parsePoint(name string) (Point, bool) {
	for p := range NumPoints {
		if pointNames[p] == name {
			return p, true
		}
	}
	return 0, false
}
