package access

import (
	"context"
	"fmt"
	"strings"

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
	var missing []string
	for _, p := range permissions {
		review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: p.Verb, Group: p.Group, Resource: p.Resource, Subresource: p.Subresource, Namespace: p.Namespace,
			},
		}}
		if err := c.Client.Create(ctx, &review); err != nil {
			return c.Explain("ask for permissions", err)
		}
		if !review.Status.Allowed {
			missing = append(missing, fmt.Sprintf("%q", p))
		}
	}
	if len(missing) > 0 {
		return c.Errorf("the user of %s lacks rights: %s; nothing was changed; ask an administrator of this cluster, or use another context",
			c.Origin, strings.Join(missing, ", "))
	}
	return nil
}
