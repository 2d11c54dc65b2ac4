package bundle

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
)

// left is what stands where something was left out.
const left = "(left out)"

// scrubber removes from texts what looks like a secret, and what is known to be
// one. It is the second line of defence, for texts of which nobody knows what is
// in them.
type scrubber struct {
	// public are keys that look like private ones and may be shown.
	public map[string]bool
	// secrets are values to remove wherever they stand, the longest first.
	secrets [][]byte
}

// minSecret is the length from which on a known secret is searched for: shorter
// ones are words.
const minSecret = 8

// newScrubber takes public keys in base64, and values that are secret.
func newScrubber(public []string, secrets [][]byte) *scrubber {
	s := &scrubber{public: make(map[string]bool)}
	for _, k := range public {
		s.public[k] = true
		if raw, err := base64.StdEncoding.DecodeString(k); err == nil {
			s.public[hex.EncodeToString(raw)] = true
		}
	}
	for _, v := range secrets {
		for _, form := range [][]byte{
			bytes.TrimSpace(v), []byte(base64.StdEncoding.EncodeToString(v)), []byte(base64.RawURLEncoding.EncodeToString(v)), []byte(hex.EncodeToString(v)),
		} {
			if len(form) >= minSecret && !s.public[string(form)] {
				s.secrets = append(s.secrets, bytes.Clone(form))
			}
		}
	}
	slices.SortFunc(s.secrets, func(a, b []byte) int { return cmp.Or(cmp.Compare(len(b), len(a)), bytes.Compare(a, b)) })
	s.secrets = slices.CompactFunc(s.secrets, bytes.Equal)
	return s
}

// Texts by which secrets give themselves away.
var (
	// A private key as PEM, also one of which the end was cut off.
	pemKey = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[^-]*-----END [A-Z0-9 ]*PRIVATE KEY-----|[A-Za-z0-9+/=\s\\nr"'|]*)`)
	// The rest of one whose beginning was cut off.
	pemEnd = regexp.MustCompile(`[A-Za-z0-9+/=\s\\]*-----END [A-Z0-9 ]*PRIVATE KEY-----`)
	// JSON Web Tokens: those of service accounts and of OIDC.
	jwt = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?`)
	// The credentials of a request.
	authorization = regexp.MustCompile(`(?i)\b(bearer|basic|negotiate)(\s+|%20)[A-Za-z0-9._~+/=-]{6,}`)
	// Those in an URL.
	userInfo = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^/\s:@"']*):[^/\s@"']+@`)
	// Tokens of well-known makers.
	makers = regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16})\b`)
	// A key of 32 bytes: WireGuard's as wg prints it, and in hexadecimal.
	base64Key = regexp.MustCompile(`[A-Za-z0-9+/]{43}=`)
	hexKey    = regexp.MustCompile(`(?i)\b[0-9a-f]{64}\b`)
	// A name that says that its value is one, and the value.
	named = regexp.MustCompile(`(?i)([\w.-]*(?:passw(?:or)?d|passphrase|passwd|secret|token|credential|private[_-]?key|api[_-]?key|access[_-]?key|client-key-data|preshared[_-]?key|\bpsk)[\w.-]*)(\\?["']?\s*[:=]\s*)(\\"[^"\\]*(?:\\")?|"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s,;&})\]"']+)`)
)

// harmlessEnd ends names whose values are no secrets.
var harmlessEnd = regexp.MustCompile(`(?i)(name|names|ref|refs|namespace|type|kind|seconds|path|dir|file|mode|count|expiry|expiration|expires|uid|version|hash|reason|ready|status|not ?found|invalid|ambiguous|url|endpoint|resource|resources|secrets)$`)

// harmlessValue is a value that says nothing.
var harmlessValue = regexp.MustCompile(`(?i)^["']?(true|false|null|none|nil|yes|no|-?[0-9]{1,6}|\{\}|\[\]|\{|\[|\||>|-|)["']?$`)

// text returns a text without secrets.
func (s *scrubber) text(b []byte) []byte {
	for _, v := range s.secrets {
		b = bytes.ReplaceAll(b, v, []byte(left))
	}
	b = pemKey.ReplaceAll(b, []byte(left))
	b = pemEnd.ReplaceAll(b, []byte(left))
	b = jwt.ReplaceAll(b, []byte(left))
	b = authorization.ReplaceAll(b, []byte("$1 "+left))
	b = userInfo.ReplaceAll(b, []byte("$1:"+left+"@"))
	b = makers.ReplaceAll(b, []byte(left))
	b = base64Key.ReplaceAllFunc(b, s.key)
	b = s.hexKeys(b)
	return named.ReplaceAllFunc(b, nameOnly)
}

// key keeps a key of which it is known that it is public.
func (s *scrubber) key(k []byte) []byte {
	if s.public[string(k)] {
		return k
	}
	return []byte(left)
}

// hexKeys leaves digests and the IDs of containers alone, which are as long:
// sha256:..., containerd://...
func (s *scrubber) hexKeys(b []byte) []byte {
	var out []byte
	last := 0
	for _, at := range hexKey.FindAllIndex(b, -1) {
		before := b[:at[0]]
		if bytes.HasSuffix(before, []byte("sha256:")) || bytes.HasSuffix(before, []byte("://")) || s.public[strings.ToLower(string(b[at[0]:at[1]]))] {
			continue
		}
		out = append(append(out, b[last:at[0]]...), left...)
		last = at[1]
	}
	return append(out, b[last:]...)
}

// nameOnly leaves out the value of a name that tells of a secret.
func nameOnly(match []byte) []byte {
	m := named.FindSubmatch(match)
	if m == nil {
		return []byte(left)
	}
	if harmlessEnd.Match(m[1]) || harmlessValue.Match(m[3]) || bytes.Contains(m[3], []byte(left)) || bytes.HasPrefix(m[3], []byte("(left")) {
		return match
	}
	quote := ""
	for _, q := range []string{`\"`, `"`, `'`} {
		if bytes.HasPrefix(m[3], []byte(q)) {
			quote = q
			break
		}
	}
	return slices.Concat(m[1], m[2], []byte(quote+left+quote))
}
