package access

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// Permission is the right to do something with a kind of objects.
type Permission struct {
	Verb, Group, Resource, Subresource string
	// Name is that of the one object; empty: all of the kind.
	Name string
	// Namespace is where; empty: everywhere, or the kind has no namespaces.
	Namespace string
}

// Permissions are those to do several things with one kind of objects.
func Permissions(group, resource, namespace string, verbs ...string) []Permission {
	all := make([]Permission, len(verbs))
	for i, v := range verbs {
		all[i] = Permission{Verb: v, Group: group, Resource: resource, Namespace: namespace}
	}
	return all
}

func (p Permission) String() string {
	s := p.Verb + " " + p.resource()
	if p.Namespace != "" {
		s += " in namespace " + p.Namespace
	}
	return s
}

func (p Permission) resource() string {
	s := p.Resource
	if p.Group != "" {
		s += "." + p.Group
	}
	if p.Subresource != "" {
		s += "/" + p.Subresource
	}
	if p.Name != "" {
		s += " " + p.Name
	}
	return s
}

// Require asks the cluster whether it grants all of the permissions. The error
// names those that it does not: each one, or, where that is too much to read,
// together those that are alike.
func (c *Cluster) Require(ctx context.Context, permissions ...Permission) error {
	// All at once: there are a dozen, and the cluster may be far away.
	granted, errs := Parallel(permissions, len(permissions), func(p Permission) (bool, error) { return c.may(ctx, p) })
	if err := cmp.Or(errs...); err != nil {
		return c.Explain("ask for permissions", err)
	}
	var missing []Permission
	for i, p := range permissions {
		if !granted[i] {
			missing = append(missing, p)
		}
	}
	const readable = 20
	switch {
	case len(missing) == 0:
		return nil
	case len(missing) > readable:
		return c.Errorf("the user of %s lacks rights; nothing was changed; use another context, or ask an administrator of this cluster for these:\n%s",
			c.Origin, grouped(missing))
	}
	texts := make([]string, len(missing))
	for i, p := range missing {
		texts[i] = strconv.Quote(p.String())
	}
	return c.Errorf("the user of %s lacks rights: %s; nothing was changed; ask an administrator of this cluster, or use another context",
		c.Origin, strings.Join(texts, ", "))
}

// grouped names permissions in one line for all resources with which the same may be
// done at the same place.
func grouped(ps []Permission) string {
	type place struct{ verbs, namespace string }
	var resources, places = map[place][]string{}, []place{}
	for len(ps) > 0 {
		one, verbs := ps[0], ""
		same := func(p Permission) bool { p.Verb = one.Verb; return p == one }
		for _, p := range ps {
			if same(p) {
				verbs += " " + p.Verb
			}
		}
		ps = slices.DeleteFunc(slices.Clone(ps), same)
		at := place{strings.Join(strings.Fields(verbs), ", "), one.Namespace}
		if resources[at] == nil {
			places = append(places, at)
		}
		resources[at] = append(resources[at], one.resource())
	}
	lines := make([]string, len(places))
	for i, at := range places {
		where := "everywhere"
		if at.namespace != "" {
			where = "in namespace " + at.namespace
		}
		lines[i] = fmt.Sprintf("  %s %s: %s", at.verbs, where, strings.Join(resources[at], ", "))
	}
	return strings.Join(lines, "\n")
}

// may asks for one permission.
func (c *Cluster) may(ctx context.Context, p Permission) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: p.Verb, Group: p.Group, Resource: p.Resource, Subresource: p.Subresource, Name: p.Name, Namespace: p.Namespace,
		},
	}}
	err := c.Client.Create(ctx, &review)
	return review.Status.Allowed, err
}
