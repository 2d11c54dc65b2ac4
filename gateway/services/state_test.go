package services

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/mutate"
)

// exported is the Service shop/NAME with so many endpoints.
func exported(name string, endpoints int) *networkingv1beta1.ExportedService {
	port := []networkingv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, AppProtocol: new("kubernetes.io/h2c"), Port: 80}}
	e := &networkingv1beta1.ExportedService{Spec: networkingv1beta1.ServiceDescription{
		Namespace: "shop", Name: name, Type: networkingv1beta1.ServiceClusterSetIP, Ports: port, SessionAffinity: corev1.ServiceAffinityNone,
		ExportedAt: metav1.NewTime(time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)),
	}}
	e.Name = e.Spec.ObjectName()
	s := networkingv1beta1.ServiceSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: port}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, networkingv1beta1.ServiceEndpoint{Addresses: []string{fmt.Sprintf("10.243.%d.%d", i>>8, i&255)}, Ready: true, Serving: true})
	}
	e.Spec.Slices = []networkingv1beta1.ServiceSlice{s}
	return e
}

// hear has h read a stream of frames to its end.
func hear(h *remote, stream []byte) error {
	d := &decoder{r: bytes.NewReader(stream), charge: func(int) {}}
	for {
		k, payload, err := d.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := h.take(k, payload); err != nil && reasonOf(err) != ReasonInvalid {
			return err
		}
	}
}

// same tells whether what was heard is what was offered.
func same(t *testing.T, h *remote, objects []*networkingv1beta1.ExportedService) {
	t.Helper()
	want := map[string]description{}
	for _, o := range objects {
		want[o.Spec.ObjectName()] = &o.Spec
	}
	if diff := cmp.Diff(want, h.settled); diff != "" {
		t.Fatalf("(-offered +heard):\n%s", diff)
	}
}

// TestStates takes two gateways through changes and lost connections: the one that hears has in the end what the other
// offers, and no more is told than what has changed.
func TestStates(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	objects := map[string]*networkingv1beta1.ExportedService{}
	var o offer
	var of told
	h := new(remote)
	h.begin()
	for range 300 {
		for range r.IntN(5) {
			name := fmt.Sprintf("web-%d", r.IntN(30))
			if r.IntN(3) == 0 {
				delete(objects, name)
			} else {
				objects[name] = exported(name, r.IntN(4))
			}
		}
		list := slices.Collect(maps.Values(objects))
		o = newOffer(list, o)
		if len(o.left) > 0 {
			t.Fatal(o.left)
		}
		if r.IntN(10) == 0 { // the connection is lost
			of = told{}
			before := maps.Clone(h.settled)
			h.begin()
			if diff := cmp.Diff(before, h.settled); diff != "" {
				t.Fatalf("a lost connection changed what was heard:\n%s", diff)
			}
		}
		if err := hear(h, of.frames(nil, o)); err != nil {
			t.Fatal(err)
		}
		same(t, h, list)
		if again := of.frames(nil, newOffer(list, o)); len(again) > 0 {
			t.Fatalf("told twice: %q", again)
		}
	}
}

// TestSettles: what the peer has not told to the end takes nothing away.
func TestSettles(t *testing.T) {
	h := new(remote)
	h.begin()
	all := newOffer([]*networkingv1beta1.ExportedService{exported("a", 1), exported("b", 1)}, offer{})
	if err := hear(h, new(told).frames(nil, all)); err != nil {
		t.Fatal(err)
	}
	h.begin()
	if err := hear(h, appendFrame(nil, kindPut, all.puts["shop.a"])); err != nil || len(h.settled) != 2 {
		t.Fatalf("%v, %v", h.settled, err)
	}
	if err := hear(h, appendFrame(nil, kindSynced, nil)); err != nil || len(h.settled) != 1 || h.settled["shop.a"] == nil {
		t.Fatalf("%v, %v", h.settled, err)
	}
}

func TestOffersWithinBounds(t *testing.T) {
	var many []*networkingv1beta1.ExportedService
	for i := range networkingv1beta1.MaxServices + 3 {
		e := exported(fmt.Sprintf("web-%04d", i), 0)
		e.Spec.ExportedAt = metav1.NewTime(e.Spec.ExportedAt.Add(-time.Duration(i) * time.Second))
		many = append(many, e)
	}
	if o := newOffer(many, offer{}); len(o.puts) != networkingv1beta1.MaxServices || len(o.left) != 3 || o.puts["shop.web-0000"] != nil {
		t.Errorf("%d are told, %q", len(o.puts), o.left)
	}
	many = nil
	for i := range 21 {
		many = append(many, exported(fmt.Sprintf("web-%04d", i), 1000))
	}
	if o := newOffer(many, offer{}); len(o.puts) != 20 || len(o.left) != 1 || !strings.Contains(o.left[0], "shop.web-0020: all exported Services of a peering together have 20000 endpoints") {
		t.Errorf("%d are told, %q", len(o.puts), o.left)
	}
	bad := exported("bad", 1001)
	huge := exported("huge", 1000)
	for i := range huge.Spec.Slices[0].Endpoints {
		huge.Spec.Slices[0].Endpoints[i].Addresses = slices.Repeat([]string{strings.Repeat("f", 45)}, 8)
	}
	huge.Spec.Ports = nil
	for i := range 100 {
		huge.Spec.Ports = append(huge.Spec.Ports, networkingv1beta1.ServicePort{Name: fmt.Sprint("p", i), Protocol: corev1.ProtocolTCP, Port: int32(i + 1), AppProtocol: new("example.org/" + strings.Repeat("x", 63))})
	}
	huge.Spec.Slices = append(huge.Spec.Slices, slices.Repeat([]networkingv1beta1.ServiceSlice{{AddressType: discoveryv1.AddressTypeIPv6, Ports: huge.Spec.Ports}}, 99)...)
	o := newOffer([]*networkingv1beta1.ExportedService{bad, huge, exported("good", 1), exported("good", 2)}, offer{})
	if len(o.puts) != 1 || len(o.left) != 3 {
		t.Errorf("%d are told, %q", len(o.puts), o.left)
	}
	for _, want := range []string{"1001 endpoints: 1000 are allowed", "bytes: 524288 are allowed", "another ExportedService is of the same Service"} {
		if !strings.Contains(strings.Join(o.left, "\n"), want) {
			t.Errorf("%q lack %s", o.left, want)
		}
	}
}

// put is the frame of a Service that something was done to.
func put(t testing.TB, change func(*networkingv1beta1.ServiceDescription)) []byte {
	t.Helper()
	e := exported("web", 2)
	change(&e.Spec)
	b, err := encodePut(&e.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return appendFrame(nil, kindPut, append([]byte("shop.web\n"), b[bytes.IndexByte(b, '\n')+1:]...))
}

func TestRefused(t *testing.T) {
	type description = networkingv1beta1.ServiceDescription
	several := func(n, endpoints int) (b []byte) {
		for i := range n {
			p, _ := encodePut(&exported(fmt.Sprintf("web-%d", i), endpoints).Spec)
			b = appendFrame(b, kindPut, p)
		}
		return b
	}
	// Each of them is within the bounds of one.
	large := func(n int) (b []byte) {
		for i := range n {
			e := exported(fmt.Sprintf("web-%d", i), 0)
			ports := make([]networkingv1beta1.ServicePort, networkingv1beta1.MaxServicePorts)
			for j := range ports {
				ports[j] = networkingv1beta1.ServicePort{Name: fmt.Sprintf("p%d", j), Protocol: "TCP", Port: int32(j + 1)}
			}
			e.Spec.Slices = slices.Repeat([]networkingv1beta1.ServiceSlice{{AddressType: "IPv4", Ports: ports}}, networkingv1beta1.MaxServiceSlices)
			p, err := encodePut(&e.Spec)
			if err != nil {
				t.Fatal(err)
			}
			b = appendFrame(b, kindPut, p)
		}
		return b
	}
	for name, c := range map[string]struct {
		stream []byte
		want   Reason
		text   string
	}{
		"a frame that is too large":  {[]byte{byte(kindPut), 0xff, 0xff, 0xff, 0xff}, ReasonTooLarge, "a frame of 4294967295 bytes"},
		"a heartbeat with a payload": {appendFrame(nil, kindHeartbeat, []byte("x")), ReasonTooLarge, "a frame of 1 bytes: 0 are allowed"},
		"kind 0":                     {make([]byte, 100), ReasonMalformed, "kind 0"},
		"a put without a name":       {appendFrame(nil, kindPut, []byte("{}")), ReasonMalformed, "a put without the name of a Service"},
		"a name that is none":        {appendFrame(nil, kindPut, []byte("../etc\n{}")), ReasonMalformed, "a put without the name of a Service"},
		"a delete of that":           {appendFrame(nil, kindDelete, []byte("a.b.c")), ReasonMalformed, "a delete without the name of a Service"},
		"too many Services":          {several(2001, 0), ReasonTooManyServices, "more than 2000"},
		"too much":                   {large(45), ReasonTooLarge, "all Services together have more than 16777216 bytes"},
		"too many endpoints":         {several(21, 1000), ReasonTooManyEndpoints, "more than 20000"},
		"no JSON":                    {appendFrame(nil, kindPut, []byte("shop.web\n{")), ReasonInvalid, "Service shop.web: unexpected end"},
		"another name":               {put(t, func(d *description) { d.Name = "other" }), ReasonInvalid, "its description is that of shop.other"},
		"a namespace":                {put(t, func(d *description) { d.Namespace = "a.b" }), ReasonInvalid, "is not the name of a namespace"},
		"a type":                     {put(t, func(d *description) { d.Type = "ExternalName" }), ReasonInvalid, "is not ClusterSetIP or Headless"},
		"an affinity":                {put(t, func(d *description) { d.SessionAffinity = "x" }), ReasonInvalid, "is not None or ClientIP"},
		"a time of affinity":         {put(t, func(d *description) { d.SessionAffinityTimeoutSeconds = new(int32(0)) }), ReasonInvalid, "is not between 1 and 86400"},
		"slices":                     {put(t, func(d *description) { d.Slices = make([]networkingv1beta1.ServiceSlice, 101) }), ReasonInvalid, "spec.slices has 101 entries"},
		"a family":                   {put(t, func(d *description) { d.Slices[0].AddressType = "FQDN" }), ReasonInvalid, "slices[0].addressType"},
		"no address":                 {put(t, func(d *description) { d.Slices[0].Endpoints[1].Addresses = nil }), ReasonInvalid, "slices[0].endpoints[1].addresses has 0 entries"},
		"a long address":             {put(t, func(d *description) { d.Slices[0].Endpoints[1].Addresses[0] = strings.Repeat("1", 46) }), ReasonInvalid, "too long for an address"},
		"a host name":                {put(t, func(d *description) { d.Slices[0].Endpoints[0].Hostname = new("a.b") }), ReasonInvalid, "is not a host name"},
		"a port":                     {put(t, func(d *description) { d.Ports[0].Port = 0 }), ReasonInvalid, "ports[0].port: 0"},
		"the name of a port":         {put(t, func(d *description) { d.Ports[0].Name = "A" }), ReasonInvalid, "is not the name of a port"},
		"a protocol":                 {put(t, func(d *description) { d.Slices[0].Ports[0].Protocol = "ICMP" }), ReasonInvalid, "there is no protocol"},
		"what is spoken":             {put(t, func(d *description) { d.Ports[0].AppProtocol = new(strings.Repeat("x", 318)) }), ReasonInvalid, "is not the name of a protocol"},
		"ports":                      {put(t, func(d *description) { d.Ports = make([]networkingv1beta1.ServicePort, 101) }), ReasonInvalid, "spec.ports has 101 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			h := new(remote)
			h.begin()
			d := &decoder{r: bytes.NewReader(c.stream), charge: func(int) {}}
			for {
				k, payload, err := d.next()
				if err == nil {
					_, err = h.take(k, payload)
				}
				if err == nil {
					continue
				}
				if reasonOf(err) != c.want || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%v, want %s: %s", err, c.want, c.text)
				}
				return
			}
		})
	}
}

// TestInvalidIsForgotten: a Service that was valid and is not any more does not stay as it was.
func TestInvalidIsForgotten(t *testing.T) {
	h := new(remote)
	h.begin()
	stream := appendFrame(put(t, func(*networkingv1beta1.ServiceDescription) {}), kindSynced, nil)
	if err := hear(h, stream); err != nil || len(h.settled) != 1 {
		t.Fatal(h.settled, err)
	}
	if err := hear(h, put(t, func(d *networkingv1beta1.ServiceDescription) { d.Type = "x" })); err != nil || len(h.settled) != 0 || h.endpoints != 0 {
		t.Errorf("%v, %d endpoints, %v", h.settled, h.endpoints, err)
	}
}

func TestWrites(t *testing.T) {
	live := func(name string, endpoints int) *networkingv1beta1.ImportedService {
		e := exported(name, endpoints)
		return &networkingv1beta1.ImportedService{ObjectMeta: metav1.ObjectMeta{Name: e.Name}, Spec: e.Spec}
	}
	heard := map[string]description{}
	for name, n := range map[string]int{"same": 1, "other": 2, "new": 1} {
		heard["shop."+name] = &exported(name, n).Spec
	}
	heard["shop.same"].Slices[0].Endpoints[0].Addresses = slices.Clip(heard["shop.same"].Slices[0].Endpoints[0].Addresses)
	d, there := new(Differ), []*networkingv1beta1.ImportedService{live("same", 1), live("other", 1), live("gone", 1)}
	want := []string{"shop.new true false", "shop.other true true", "shop.gone false true"}
	check := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, w := range d.Writes(heard, there) {
			got = append(got, fmt.Sprintf("%s %t %t", w.Name, w.Spec != nil, w.Live != nil))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	check("at first", want...)
	check("nothing has changed", want...)
	there[0] = live("same", 3)
	check("somebody has changed an object", "shop.new true false", "shop.other true true", "shop.same true true", "shop.gone false true")
	there[0], heard["shop.other"] = live("same", 1), &exported("other", 1).Spec
	check("the peer takes a change back", "shop.new true false", "shop.gone false true")
	heard["shop.other"] = &exported("other", 2).Spec
	check("and makes it again", want...)
}

func TestGreeting(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want Reason
	}{
		"another version":  {"sluice-services/2\n", ReasonVersion},
		"another protocol": {"HTTP/1.1 400 Bad Request\r\n", ReasonVersion},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newDecoder(strings.NewReader(c.in), nil); reasonOf(err) != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	d, err := newDecoder(strings.NewReader(greeting+"\xff\xff\xff\xff"), func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.next(); reasonOf(err) != ReasonMalformed {
		t.Errorf("what is not compressed: %v", err)
	}
}

func TestBucket(t *testing.T) {
	b := bucket{burst: 10, rate: 2}
	now := time.Unix(1, 0)
	if d := b.take(10, now); d != 0 {
		t.Errorf("within the burst: %v", d)
	}
	if d := b.take(4, now); d != 2*time.Second {
		t.Errorf("beyond it: %v", d)
	}
	if d := b.take(1, now.Add(3*time.Second)); d != 0 {
		t.Errorf("later: %v", d)
	}
}

// FuzzDecode has a peer send anything. What is believed keeps to the bounds, and can be told on.
func FuzzDecode(t *testing.F) {
	f := mutate.New(t)
	o := newOffer([]*networkingv1beta1.ExportedService{exported("a", 2), exported("b", 0)}, offer{})
	whole := new(told).frames(nil, o)
	f.Add(whole)
	f.Add(appendFrame(whole, kindDelete, []byte("shop.a")))
	f.Add(appendFrame(nil, 200, []byte("later")))
	f.Add([]byte{byte(kindPut), 0xff, 0xff, 0xff, 0xff})
	f.Add(put(t, func(d *networkingv1beta1.ServiceDescription) { d.Ports[0].Port = 0 }))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, stream []byte) {
		h := new(remote)
		h.begin()
		_ = hear(h, append(slices.Clone(stream), appendFrame(nil, kindSynced, nil)...))
		n, size := 0, 0
		for name, d := range h.now {
			size += h.sizes[name]
			if d.ObjectName() != name || d.Check() != nil {
				t.Errorf("%s: %+v", name, d)
			}
			n += d.Endpoints()
			p, err := encodePut(d)
			if reasonOf(err) == ReasonTooLarge {
				continue // escaped, it may be longer than it came
			}
			again, same, err := decodePut(p)
			if err != nil || again != name {
				t.Fatalf("told on: %v", err)
			}
			if len(new(Differ).Writes(map[string]description{name: same}, []*networkingv1beta1.ImportedService{{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *d}})) > 0 {
				t.Errorf("told on, it is another one:\n%s", cmp.Diff(d, same))
			}
		}
		if n != h.endpoints || n > networkingv1beta1.MaxServiceEndpointsTotal || len(h.now) > networkingv1beta1.MaxServices {
			t.Errorf("%d Services, %d endpoints, counted %d", len(h.now), n, h.endpoints)
		}
		if size != h.bytes || size > networkingv1beta1.MaxServiceSizeTotal || len(h.sizes) != len(h.now) {
			t.Errorf("%d bytes of %d Services, counted %d", size, len(h.sizes), h.bytes)
		}
	})
}

// FuzzStream has a peer send anything before and below the compression.
func FuzzStream(t *testing.F) {
	f := mutate.New(t)
	var b bytes.Buffer
	b.WriteString(greeting)
	w, _ := flate.NewWriter(&b, flate.BestSpeed)
	_, _ = w.Write(new(told).frames(nil, newOffer([]*networkingv1beta1.ExportedService{exported("a", 2)}, offer{})))
	_ = w.Flush()
	f.Add(b.Bytes())
	f.Add([]byte(greeting))
	f.Add([]byte("HTTP/1.1 200 OK\r\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		charged, read := 0, 0
		d, err := newDecoder(bytes.NewReader(stream), func(n int) { charged += n })
		for err == nil && read < 1<<20 {
			var payload []byte
			if _, payload, err = d.next(); err == nil {
				read += frameHeader + len(payload)
			}
		}
		if read > charged {
			t.Errorf("read %d bytes, charged %d", read, charged)
		}
	})
}
