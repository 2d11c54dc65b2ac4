package tunnel

import "golang.zx2c4.com/wireguard/device"

// bufferStride is from one buffer to the next: 23 cache lines more than 64 KiB.
// Buffers that are a multiple of 64 KiB apart have the start of each packet, all that is
// mostly used of them, in the same few sets of the caches.
const bufferStride = 1<<16 + 23*64

// newBuffers returns buffers for a batch, each for a message of any size, with capacity
// for padding and tag behind. Memory that no packet reaches is never touched, and so
// costs nothing.
func newBuffers() [][]byte {
	memory := make([]byte, BatchSize*bufferStride)
	bufs := make([][]byte, BatchSize)
	for i := range bufs {
		bufs[i] = memory[i*bufferStride:][:device.MaxMessageSize:bufferStride]
	}
	return bufs
}
