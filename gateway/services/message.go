package services

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

// Port is the TCP port of the exchange, on the gateway's address in the tunnel.
const Port = 6092

// greeting is what comes before the stream.
const greeting = "sluice-services/1\n"

// kind is that of a frame.
type kind byte

// The kinds of frames.
const (
	kindPut kind = 1 + iota
	kindDelete
	kindSynced
	kindHeartbeat
)

const (
	frameHeader = 5
	// maxName is the length of two DNS labels and the dot between them.
	maxName = 63 + 1 + 63
	// maxPayload is that of a put.
	maxPayload = maxName + 1 + networkingv1beta1.MaxServiceSize
)

// Reason is why something of the peer is refused. It is the label of a metric.
type Reason string

// The reasons. But for ReasonInvalid they end the connection.
const (
	// ReasonVersion: the peer speaks another protocol.
	ReasonVersion Reason = "Version"
	// ReasonMalformed: the stream cannot be read.
	ReasonMalformed Reason = "Malformed"
	// ReasonTooLarge: a frame, and with it a Service, is larger than allowed.
	ReasonTooLarge Reason = "TooLarge"
	// ReasonTooManyServices: more than networkingv1beta1.MaxServices.
	ReasonTooManyServices Reason = "TooManyServices"
	// ReasonTooManyEndpoints: more than networkingv1beta1.MaxServiceEndpointsTotal.
	ReasonTooManyEndpoints Reason = "TooManyEndpoints"
	// ReasonInvalid: one Service does not keep to the schema. It is left out.
	ReasonInvalid Reason = "Invalid"
)

// Reasons are all reasons, in the order in which they are shown.
var Reasons = []Reason{ReasonVersion, ReasonMalformed, ReasonTooLarge, ReasonTooManyServices, ReasonTooManyEndpoints, ReasonInvalid}

// Refusal is the error for what the peer must not do.
type Refusal struct {
	Reason Reason
	Detail string
}

// Error names the reason.
func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Reason, r.Detail) }

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, args...)}
}

// appendFrame appends one frame.
func appendFrame(b []byte, k kind, payload []byte) []byte {
	b = append(b, byte(k))
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// encodePut is the payload of a put.
func encodePut(d *networkingv1beta1.ServiceDescription) ([]byte, error) {
	j, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	if len(j) > networkingv1beta1.MaxServiceSize {
		return nil, refuse(ReasonTooLarge, "its description has %d bytes: %d are allowed", len(j), networkingv1beta1.MaxServiceSize)
	}
	return append([]byte(d.ObjectName()+"\n"), j...), nil
}

// decodePut reads the payload of a put. With an error there is a name, if that is one.
func decodePut(payload []byte) (name string, d *networkingv1beta1.ServiceDescription, err error) {
	head, j, ok := bytes.Cut(payload, []byte("\n"))
	if !ok || !isName(string(head)) {
		return "", nil, refuse(ReasonMalformed, "a put without the name of a Service")
	}
	name = string(head)
	if len(j) > networkingv1beta1.MaxServiceSize {
		return name, nil, refuse(ReasonTooLarge, "Service %s: its description has %d bytes: %d are allowed", name, len(j), networkingv1beta1.MaxServiceSize)
	}
	d = new(networkingv1beta1.ServiceDescription)
	if err := json.Unmarshal(j, d); err != nil {
		return name, nil, refuse(ReasonInvalid, "Service %s: %s", name, text.Quoted(err.Error()))
	}
	if err := d.Check(); err != nil {
		return name, nil, refuse(ReasonInvalid, "Service %s: %v", name, err)
	}
	if d.ObjectName() != name {
		return name, nil, refuse(ReasonInvalid, "Service %s: its description is that of %s", name, d.ObjectName())
	}
	return name, d, nil
}

// isName tells whether s is the name of an ImportedService.
func isName(s string) bool {
	namespace, name, ok := strings.Cut(s, ".")
	return ok && isLabel(namespace) && isLabel(name)
}

func isLabel(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 }

// reasonOf is the reason of a refusal; empty: the error is none.
func reasonOf(err error) Reason {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Reason
	}
	return ""
}

// decoder reads frames.
type decoder struct {
	r      io.Reader
	charge func(bytes int) // called for each frame, before its payload is read; may wait
	buf    []byte
}

// newDecoder reads the greeting. Charge is told of every frame.
func newDecoder(r io.Reader, charge func(bytes int)) (*decoder, error) {
	b := bufio.NewReader(r)
	got := make([]byte, 0, len(greeting))
	for len(got) < len(greeting) {
		c, err := b.ReadByte()
		if err != nil {
			return nil, err
		}
		if got = append(got, c); c != greeting[len(got)-1] {
			return nil, refuse(ReasonVersion, "it begins with %q, not with %q", got, greeting)
		}
	}
	return &decoder{r: flate.NewReader(b), charge: charge}, nil
}

// next reads one frame. The payload is valid until the next call.
func (d *decoder) next() (k kind, payload []byte, err error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(d.r, head[:]); err != nil {
		return 0, nil, plain(err)
	}
	if k = kind(head[0]); k == 0 {
		return 0, nil, refuse(ReasonMalformed, "a frame of kind 0, which is none")
	}
	n := binary.BigEndian.Uint32(head[1:])
	if most := k.limit(); n > uint32(most) {
		return k, nil, refuse(ReasonTooLarge, "a frame of %d bytes: %d are allowed", n, most)
	}
	d.charge(frameHeader + int(n))
	if cap(d.buf) < int(n) {
		d.buf = make([]byte, n)
	}
	payload = d.buf[:n]
	if _, err := io.ReadFull(d.r, payload); err != nil {
		return k, nil, plain(err)
	}
	return k, payload, nil
}

// limit is how long a payload may be.
func (k kind) limit() int {
	switch k {
	case kindDelete:
		return maxName
	case kindSynced, kindHeartbeat:
		return 0
	}
	return maxPayload
}

// plain tells a stream that is broken from one that ends.
func plain(err error) error {
	var corrupt flate.CorruptInputError
	var internal flate.InternalError
	if errors.As(err, &corrupt) || errors.As(err, &internal) {
		return refuse(ReasonMalformed, "what comes is not compressed as it must be: %v", err)
	}
	return err
}
