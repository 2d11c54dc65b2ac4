package v1beta1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
)

// CIDRs is one prefix or a list of prefixes. Early manifests write one string where later ones write a list; both are
// valid, and a value is written again in the shape it was read in, so that a tool which compares manifests with
// objects (server-side apply, GitOps) sees no difference.
//
// A structural schema cannot say "string or list of strings": type takes one value, may not stand below anyOf, and
// x-kubernetes-int-or-string is for integers. So the fields of this type have no type in the CRD and
// x-kubernetes-preserve-unknown-fields instead, together with format cidr, by which an API server checks the string
// form and refuses numbers, booleans and objects. The elements of the list form, whatever they are, are judged here, by
// [CIDRs.Prefixes]. No CEL rule can reach such a field.
type CIDRs struct {
	// List holds the prefixes in the order written.
	List []CIDR
	// Scalar says that the value stands as one string. Without effect unless List holds exactly one prefix.
	Scalar bool
}

var errCIDRsShape = errors.New("must be a CIDR or a list of CIDRs")

// IsZero reports whether nothing was written at all; an empty list is something. encoding/json calls it for omitzero.
func (c CIDRs) IsZero() bool { return c.List == nil && !c.Scalar }

// asList has the prefixes stand as a list, and tells whether one stood as a string.
func (c *CIDRs) asList() bool {
	was := c.Scalar && len(c.List) == 1
	c.Scalar = false
	return was
}

// AsLists has all CIDRs stand as lists, which is all that Liqo's own CRD and tools know, and tells whether one stood as a
// string.
func (c *ClusterConfig) AsLists() bool {
	pod, external := c.CIDR.Pod.asList(), c.CIDR.External.asList()
	return pod || external
}

// AsLists is [ClusterConfig.AsLists] of both clusters.
func (s *ConfigurationSpec) AsLists() bool {
	remote := s.Remote.AsLists()
	return s.Local != nil && s.Local.AsLists() || remote
}

// Prefixes parses all prefixes, in order. The error names the element.
func (c CIDRs) Prefixes() ([]netip.Prefix, error) {
	ps := make([]netip.Prefix, len(c.List))
	for i, cidr := range c.List {
		p, err := cidr.Prefix()
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		ps[i] = p
	}
	return ps, nil
}

// MarshalJSON implements [json.Marshaler].
func (c CIDRs) MarshalJSON() ([]byte, error) {
	if c.Scalar && len(c.List) == 1 {
		return json.Marshal(c.List[0])
	}
	if c.List == nil {
		return []byte("null"), nil
	}
	return json.Marshal(c.List)
}

// UnmarshalJSON implements [json.Unmarshaler]. It checks the shape and keeps the text; [CIDRs.Prefixes] judges the
// text, so that an object with one bad prefix can still be read, shown and repaired.
func (c *CIDRs) UnmarshalJSON(b []byte) error {
	// Assigned as a whole on every path: a decoder may hand in a value that was used before.
	*c = CIDRs{}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return errCIDRsShape
	}
	switch b[0] {
	case 'n': // null: the same as absent
		return nil
	case '"':
		var s CIDR
		if err := json.Unmarshal(b, &s); err != nil {
			return fmt.Errorf("%w: %w", errCIDRsShape, err)
		}
		*c = CIDRs{List: []CIDR{s}, Scalar: true}
		return nil
	case '[':
		var elements []json.RawMessage
		if err := json.Unmarshal(b, &elements); err != nil {
			return fmt.Errorf("%w: %w", errCIDRsShape, err)
		}
		list := make([]CIDR, len(elements))
		for i, e := range elements {
			// What is no string is kept as it is written. An API server may hold it, and one object that
			// cannot be read hides all others of its kind from those who watch them.
			list[i] = CIDR(e)
			if e[0] == '"' {
				if err := json.Unmarshal(e, &list[i]); err != nil {
					return fmt.Errorf("%w: %w", errCIDRsShape, err)
				}
			}
		}
		*c = CIDRs{List: list}
		return nil
	}
	return errCIDRsShape
}
