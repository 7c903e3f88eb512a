#include "textflag.h"

// MOVE multiplies the two halves of each 16 bytes of acc by the factors, and adds what lies that much further on:
// a remainder does not change when a part of a polynomial is moved by a distance and multiplied by x^distance.
#define MOVE(factors, acc, tmp, next) \
	VPCLMULQDQ $0x00, factors, acc, tmp \
	VPCLMULQDQ $0x11, factors, acc, acc \
	VPTERNLOGQ $0x96, next, tmp, acc

// func fold(block *[blockBytes]byte, crc uint32, p *byte, n int, factors *[4]uint64)
TEXT ·fold(SB), NOSPLIT, $0-40
	MOVQ block+0(FP), DI
	MOVL crc+8(FP), AX
	MOVQ p+16(FP), SI
	MOVQ n+24(FP), CX
	MOVQ factors+32(FP), DX

	VBROADCASTI32X4 0(DX), Z8  // to move by a step
	VBROADCASTI32X4 16(DX), Z9 // to move by a block
	VMOVD AX, X10
	VMOVDQU64 0(SI), Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	VPXORQ Z10, Z0, Z0
	SUBQ $256, CX
	JZ   last

	// The processor fetches memory ahead of a loop by itself, but not across the end of a page. To ask for what is a
	// page away sums memory that is in no near cache 1.4 times as fast. It may lie behind the end: that is no fault.
step:
	ADDQ $256, SI
	PREFETCHT0 4096(SI)
	PREFETCHT0 4160(SI)
	PREFETCHT0 4224(SI)
	PREFETCHT0 4288(SI)
	MOVE(Z8, Z0, Z4, 0(SI))
	MOVE(Z8, Z1, Z5, 64(SI))
	MOVE(Z8, Z2, Z6, 128(SI))
	MOVE(Z8, Z3, Z7, 192(SI))
	SUBQ $256, CX
	JNZ  step

last:
	MOVE(Z9, Z0, Z4, Z1)
	MOVE(Z9, Z0, Z4, Z2)
	MOVE(Z9, Z0, Z4, Z3)
	VMOVDQU64 Z0, 0(DI)
	VZEROUPPER
	RET
