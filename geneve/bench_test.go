package geneve

import "testing"

func BenchmarkDecode(b *testing.B) {
	for name, header := range map[string]string{
		"geneve":         "00 00 65 58 00 00 07 00",
		"geneve/options": "03 00 65 58 00 00 07 00  00 01 02 01 00 00 00 00  00 01 03 00",
		"vxlan":          "08 00 00 00 00 00 07 00",
	} {
		b.Run(name, func(b *testing.B) {
			wire := append(unhex(b, header), make([]byte, 1354)...)
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
