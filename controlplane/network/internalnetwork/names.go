package internalnetwork

import (
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/controlplane/objectname"
)

// linkPrefix is how the name of every link of the internal network begins.
const linkPrefix = "liqo."

// hashLength is what Linux leaves of 15 characters for the rest of the name.
const hashLength = 10

// linkName names the link that leads to an object. It depends on nothing else,
// so that it needs not be remembered: 50 bits of a hash do not meet by chance in
// one cluster.
func linkName(object string) string { return linkPrefix + hash(object) }

// likeLinkName are the names that Liqo makes of ten random characters, and ours.
var likeLinkName = regexp.MustCompile(`^` + regexp.QuoteMeta(linkPrefix) + `[a-z0-9]{10}$`)

// keptLinkName is the name that a link has, if it is one of Liqo's or ours, or else that of the object: another name would
// cut off a node until its agent and the gateway have both made the link anew.
func keptLinkName(has, object string) string {
	if likeLinkName.MatchString(has) {
		return has
	}
	return linkName(object)
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:hashLength]
}

// shorten returns name, its end replaced by its hash if it has more than limit
// characters. The hash is not that of objectname.Shorten: names in existing clusters
// must not change.
func shorten(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	return objectname.WithSuffix(name, hash(name), limit)
}

// objectName is shorten for names of objects.
func objectName(name string) string {
	return shorten(name, validation.DNS1123SubdomainMaxLength)
}

// labelValue is shorten for values of labels.
func labelValue(name string) string {
	return shorten(name, validation.LabelValueMaxLength)
}

// routesName names the RouteConfiguration of a node.
func routesName(node string) string {
	const suffix = "-gw-node"
	return shorten(node, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}
