package neighbor

import "testing"

// BenchmarkFrame is what every packet pays for Ethernet.
func BenchmarkFrame(b *testing.B) {
	frame := make([]byte, EthernetHeaderLen+1340)
	b.ReportAllocs()
	for b.Loop() {
		PutEthernet(frame, gatewayMAC, nodeMAC, EtherTypeIPv4)
		if _, ok := DecodeFrame(frame); !ok {
			b.Fatal("refused")
		}
	}
}

func BenchmarkDecodeSolicitation(b *testing.B) {
	p := parse(b, unhex(b, solicitationWire))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := DecodeSolicitation(p); !ok {
			b.Fatal("refused")
		}
	}
}
