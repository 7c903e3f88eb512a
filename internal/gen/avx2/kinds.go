package main

// A column is the registers of one vector: every block of a loop has several, which the processor works on at the
// same time. The spare register is shared by all columns; the processor renames it for each.
type column struct {
	acc, in, tmp string // what has been reduced so far; the next input; free
	spare        string
}

// Constants of an element type are kept in these registers for the whole kernel.
const (
	one      = "Y13"
	rounding = "Y14"
	quiet    = "Y15"
)

// A line is an instruction with its operands, the destination last.
type line []string

// An element is a type of numbers: how its kernels load, combine and store vectors.
type element struct {
	name    string
	bytes   int  // that a column has in memory
	convert bool // needs the instructions that convert floats of 16 bits

	constants []line
	load      func(memory, register string) []line
	store     func(c column, memory string) []line
	combine   []kind
}

// A kind is a kind of reduction: acc = acc combined with in.
type kind struct {
	name  string
	lines func(c column) []line
}

// elements has all types, in the order of their kernels.
func elements() []element {
	single, double := floats("PS"), floats("PD")
	return []element{
		{name: "F32", bytes: 32, load: whole, store: wholeStore, combine: single},
		{name: "F64", bytes: 32, load: whole, store: wholeStore, combine: double},
		{name: "BF16", bytes: 16, load: loadBF16, store: storeBF16, combine: single, constants: []line{
			{"VPCMPEQD", one, one, one},
			{"VPSRLD", "$17", one, rounding}, // 0x7fff
			{"VPSRLD", "$31", one, one},
			{"VPSLLD", "$6", one, quiet}, // 0x40
		}},
		{name: "F16", bytes: 16, convert: true, load: loadF16, store: storeF16, combine: single},
		{name: "S32", bytes: 32, load: whole, store: wholeStore, combine: []kind{
			{"sum", inOne("VPADDD")}, {"product", inOne("VPMULLD")}, {"least", inOne("VPMINSD")}, {"greatest", inOne("VPMAXSD")},
		}},
		{name: "S64", bytes: 32, load: whole, store: wholeStore, combine: []kind{
			{"sum", inOne("VPADDQ")}, {"product", multiplyS64}, {"least", leastS64}, {"greatest", greatestS64},
		}},
	}
}

// floats has the kinds for floats of 32 (PS) or 64 bits (PD).
func floats(suffix string) []kind {
	return []kind{
		{"sum", inOne("VADD" + suffix)}, {"product", inOne("VMUL" + suffix)},
		{"least", func(c column) []line { return leastFloat(c, suffix) }},
		{"greatest", func(c column) []line { return greatestFloat(c, suffix) }},
	}
}

func inOne(instruction string) func(column) []line {
	return func(c column) []line { return []line{{instruction, c.in, c.acc, c.acc}} }
}

// leastFloat is Go's min. VMIN is its second source where one is NaN, or where both are zeros. So it is taken in
// both orders. Where the two results differ, their "or" is right: it is NaN if one of them is, and -0 of 0 and -0.
func leastFloat(c column, suffix string) []line {
	return []line{
		{"VMIN" + suffix, c.in, c.acc, c.tmp},
		{"VMIN" + suffix, c.acc, c.in, c.in},
		{"VOR" + suffix, c.in, c.tmp, c.acc},
	}
}

// greatestFloat is Go's max. Of 0 and -0 the "and" of both orders is right, but it loses a NaN; where one source is a
// NaN, a comparison sets all bits, which is a NaN, too.
func greatestFloat(c column, suffix string) []line {
	return []line{
		{"VMAX" + suffix, c.in, c.acc, c.tmp},
		{"VMAX" + suffix, c.acc, c.in, c.spare},
		{"VAND" + suffix, c.spare, c.tmp, c.tmp},
		{"VCMP" + suffix, "$3", c.in, c.acc, c.acc}, // 3: one of them is a NaN
		{"VOR" + suffix, c.tmp, c.acc, c.acc},
	}
}

// multiplyS64 multiplies by halves, since AVX2 multiplies 32 bits to 64: the product of the lower halves, and the two
// mixed products above it. The product of the upper halves is beyond 64 bits.
func multiplyS64(c column) []line {
	return []line{
		{"VPSRLQ", "$32", c.acc, c.tmp},
		{"VPMULUDQ", c.in, c.tmp, c.tmp},
		{"VPSRLQ", "$32", c.in, c.spare},
		{"VPMULUDQ", c.acc, c.spare, c.spare},
		{"VPADDQ", c.spare, c.tmp, c.tmp},
		{"VPSLLQ", "$32", c.tmp, c.tmp},
		{"VPMULUDQ", c.in, c.acc, c.acc},
		{"VPADDQ", c.tmp, c.acc, c.acc},
	}
}

func leastS64(c column) []line {
	return []line{
		{"VPCMPGTQ", c.in, c.acc, c.tmp}, // acc > in
		{"VBLENDVPD", c.tmp, c.in, c.acc, c.acc},
	}
}

func greatestS64(c column) []line {
	return []line{
		{"VPCMPGTQ", c.acc, c.in, c.tmp}, // in > acc
		{"VBLENDVPD", c.tmp, c.in, c.acc, c.acc},
	}
}

// whole loads a vector as it is. The address need not be aligned.
func whole(memory, register string) []line {
	return []line{{"VMOVDQU", memory, register}}
}

func wholeStore(c column, memory string) []line {
	return []line{{"VMOVDQU", c.acc, memory}}
}

func loadBF16(memory, register string) []line {
	return []line{
		{"VPMOVZXWD", memory, register},
		{"VPSLLD", "$16", register, register},
	}
}

// storeBF16 rounds to the nearest and to even: it adds half of the last place, less one if the last place is even. This
// could turn a NaN into something else; so a NaN is cut, and kept a NaN by a bit.
func storeBF16(c column, memory string) []line {
	return []line{
		{"VPSRLD", "$16", c.acc, c.tmp},
		{"VPAND", one, c.tmp, c.spare},
		{"VPADDD", rounding, c.spare, c.spare},
		{"VPADDD", c.acc, c.spare, c.spare},
		{"VPSRLD", "$16", c.spare, c.spare},
		{"VPOR", quiet, c.tmp, c.tmp},
		{"VCMPPS", "$3", c.acc, c.acc, c.acc},
		{"VBLENDVPS", c.acc, c.tmp, c.spare, c.tmp},
		{"VEXTRACTI128", "$1", c.tmp, half(c.spare)},
		{"VPACKUSDW", half(c.spare), half(c.tmp), half(c.tmp)},
		{"VMOVDQU", half(c.tmp), memory},
	}
}

func loadF16(memory, register string) []line {
	return []line{{"VCVTPH2PS", memory, register}}
}

func storeF16(c column, memory string) []line {
	return []line{{"VCVTPS2PH", "$0", c.acc, memory}} // 0: to the nearest and to even
}

// half is the lower half of a register.
func half(register string) string { return "X" + register[1:] }
