#include "textflag.h"

// func copyPast(dst, src []byte)
//
// The stores are ordered before all that follow only by the fence at the end: other processors read what was copied.
TEXT ·copyPast(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	XORQ AX, AX

loop:
	CMPQ AX, CX
	JGE done
	VMOVDQU 0(SI)(AX*1), Y0
	VMOVDQU 32(SI)(AX*1), Y1
	VMOVDQU 64(SI)(AX*1), Y2
	VMOVDQU 96(SI)(AX*1), Y3
	VMOVNTDQ Y0, 0(DI)(AX*1)
	VMOVNTDQ Y1, 32(DI)(AX*1)
	VMOVNTDQ Y2, 64(DI)(AX*1)
	VMOVNTDQ Y3, 96(DI)(AX*1)
	ADDQ $128, AX
	JMP loop

done:
	SFENCE
	VZEROUPPER
	RET
