package geneve

import "testing"

func BenchmarkDecode(b *testing.B) {
	for name, header := range map[string]Header{
		"geneve":         {VNI: 7, Protocol: ProtocolEthernet},
		"geneve/options": {VNI: 7, Protocol: ProtocolEthernet, Options: []byte{0, 1, 2, 1, 0, 0, 0, 0, 0, 1, 3, 0}},
		"vxlan":          {Encapsulation: VXLAN, VNI: 7},
	} {
		b.Run(name, func(b *testing.B) {
			wire := append(AppendHeader(nil, header), make([]byte, 1354)...)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Decode(wire); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPutHeader(b *testing.B) {
	wire := make([]byte, HeaderLen)
	b.ReportAllocs()
	for b.Loop() {
		PutHeader(wire, Geneve, 7, ProtocolEthernet)
	}
}
