package access

import (
	"context"
	"fmt"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// Permission is the right to do something with a kind of objects.
type Permission struct {
	Verb, Group, Resource, Subresource string
	// Namespace is where; empty: everywhere, or the kind has no namespaces.
	Namespace string
}

func (p Permission) String() string {
	s := p.Verb + " " + p.Resource
	if p.Group != "" {
		s += "." + p.Group
	}
	if p.Subresource != "" {
		s += "/" + p.Subresource
	}
	if p.Namespace != "" {
		s += " in namespace " + p.Namespace
	}
	return s
}

// Require asks the cluster whether it grants all of the permissions. The error
// lists those that it does not.
func (c *Cluster) Require(ctx context.Context, permissions ...Permission) error {
	granted := make([]bool, len(permissions))
	errs := make([]error, len(permissions))
	var wg sync.WaitGroup
	for i, p := range permissions { // all at once: there are a dozen, and the cluster may be far away
		wg.Go(func() { granted[i], errs[i] = c.may(ctx, p) })
	}
	wg.Wait()
	var missing []string
	for i, p := range permissions {
		if errs[i] != nil {
			return c.Explain("ask for permissions", errs[i])
		}
		if !granted[i] {
			missing = append(missing, fmt.Sprintf("%q", p))
		}
	}
	if len(missing) > 0 {
		return c.Errorf("the user of %s lacks rights: %s; nothing was changed; ask an administrator of this cluster, or use another context",
			c.Origin, strings.Join(missing, ", "))
	}
	return nil
}

// may asks for one permission.
func (c *Cluster) may(ctx context.Context, p Permission) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: p.Verb, Group: p.Group, Resource: p.Resource, Subresource: p.Subresource, Namespace: p.Namespace,
		},
	}}
	err := c.Client.Create(ctx, &review)
	return review.Status.Allowed, err
}
