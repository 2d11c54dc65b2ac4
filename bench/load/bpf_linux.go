package load

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// instruction is one of the BPF machine, RFC 9669 section 3.
type instruction struct {
	op       uint8
	dst, src uint8
	off      int16
	imm      int32
}

// The few operations that the sink's program needs; sections 4 and 5.
const (
	loadWord  = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W
	loadHalf  = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_H
	loadByte  = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_B
	loadLong  = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_DW
	storeLong = unix.BPF_STX | unix.BPF_MEM | unix.BPF_DW
	addAtomic = unix.BPF_STX | unix.BPF_ATOMIC | unix.BPF_DW
	loadImm   = unix.BPF_LD | unix.BPF_IMM | unix.BPF_DW
	move      = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_X
	set       = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K
	addImm    = unix.BPF_ALU64 | unix.BPF_ADD | unix.BPF_K
	add       = unix.BPF_ALU64 | unix.BPF_ADD | unix.BPF_X
	div       = unix.BPF_ALU64 | unix.BPF_DIV | unix.BPF_X
	notEqual  = unix.BPF_JMP | unix.BPF_JNE | unix.BPF_K
	equal     = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	call      = unix.BPF_JMP | unix.BPF_CALL
	exit      = unix.BPF_JMP | unix.BPF_EXIT
)

// helperLoadBytes is bpf_skb_load_bytes: it also finds what is not in the linear
// part of a packet.
const helperLoadBytes = 26

// encode renders a program for the kernel.
func encode(program []instruction) []byte {
	b := make([]byte, 0, 8*len(program))
	for _, i := range program {
		b = append(b, i.op, i.src<<4|i.dst)
		b = binary.NativeEndian.AppendUint16(b, uint16(i.off))
		b = binary.NativeEndian.AppendUint32(b, uint32(i.imm))
	}
	return b
}

// bpf is the system call. attr must stay reachable, with all that it points to.
func bpf(command int, attr unsafe.Pointer, size uintptr) (int, error) {
	r, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attr), size)
	if errno != 0 {
		return -1, errno
	}
	return int(r), nil
}

// newArray makes an array of one value that programs and this process share.
func newArray(size uint32) (int, error) {
	attr := struct{ kind, key, value, entries, flags uint32 }{unix.BPF_MAP_TYPE_ARRAY, 4, size, 1, unix.BPF_F_MMAPABLE}
	fd, err := bpf(unix.BPF_MAP_CREATE, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil {
		return -1, fmt.Errorf("make a BPF array: %w", err)
	}
	return fd, nil
}

// loadProgram has the kernel check a program for packets.
func loadProgram(program []instruction) (int, error) {
	code, license, log := encode(program), []byte("GPL\x00"), make([]byte, 64<<10)
	attr := struct {
		kind, count   uint32
		code, license uint64
		level, logLen uint32
		log           uint64
	}{
		unix.BPF_PROG_TYPE_SCHED_CLS, uint32(len(program)),
		uint64(uintptr(unsafe.Pointer(&code[0]))), uint64(uintptr(unsafe.Pointer(&license[0]))),
		1, uint32(len(log)), uint64(uintptr(unsafe.Pointer(&log[0]))),
	}
	fd, err := bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	runtime.KeepAlive(code)
	runtime.KeepAlive(license)
	if err != nil {
		return -1, fmt.Errorf("load the sink's BPF program: %w: %s", err, unix.ByteSliceToString(log))
	}
	return fd, nil
}

// attach runs a program for what comes in at a device. Closing what it returns
// ends that.
func attach(program, device int) (int, error) {
	attr := struct{ program, device, kind, flags uint32 }{uint32(program), uint32(device), unix.BPF_TCX_INGRESS, 0}
	// The kernel reads the whole union of links, which is zero here.
	var padded [64]byte
	copy(padded[:], unsafe.Slice((*byte)(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)))
	fd, err := bpf(unix.BPF_LINK_CREATE, unsafe.Pointer(&padded), uintptr(len(padded)))
	if err != nil {
		return -1, fmt.Errorf("attach the sink's BPF program (TCX, Linux 6.6): %w", err)
	}
	return fd, nil
}
