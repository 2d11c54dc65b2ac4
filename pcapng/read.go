package pcapng

// Reader tells of packets in the blocks that a Copier passes on. What is not well-formed
// is left out.
type Reader struct {
	// Each is called for every packet. The packet's Data is valid until it returns.
	Each func(Interface, *Packet)

	interfaces []Interface
}

// maxInterfaces bounds what is kept of a file.
const maxInterfaces = 1 << 14

// Write takes whole blocks.
func (r *Reader) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		size, err := blockSize(b, false)
		if err != nil || size == 0 || size > len(b) {
			return 0, ErrNoCapture
		}
		r.block(b[:size])
		b = b[size:]
	}
	return n, nil
}

func (r *Reader) block(b []byte) {
	const interfaceHead, packetHead, tail = 16, 28, 4
	switch kind := le.Uint32(b); {
	case kind == typeInterface && len(b) >= interfaceHead+tail && len(r.interfaces) < maxInterfaces:
		i := Interface{Link: LinkType(le.Uint16(b[8:])), Snaplen: le.Uint32(b[12:])}
		for code, value := range options(b[interfaceHead : len(b)-tail]) {
			if code == optName {
				i.Name = string(value)
			}
		}
		r.interfaces = append(r.interfaces, i)
	case kind == typePacket && len(b) >= packetHead+tail:
		p := Packet{Interface: le.Uint32(b[8:]), Time: int64(uint64(le.Uint32(b[12:]))<<32 | uint64(le.Uint32(b[16:]))), Length: le.Uint32(b[24:])}
		data := le.Uint32(b[20:])
		rest := b[packetHead : len(b)-tail]
		padded := (uint64(data) + 3) &^ 3
		if padded > uint64(len(rest)) || uint64(p.Interface) >= uint64(len(r.interfaces)) {
			return
		}
		p.Data = rest[:data]
		for code, value := range options(rest[padded:]) {
			switch {
			case code == optFlags && len(value) == 4:
				p.Direction = Direction(le.Uint32(value) & 3)
			case code == optComment:
				p.Comment = string(value)
			}
		}
		r.Each(r.interfaces[p.Interface], &p)
	}
}
